"""What an iteration did and why each node was accepted, rejected or not reached, in plain sentences and tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from speclab.trace.records import Event, Step, Trace, Value
from speclab.views import markup
from speclab.views.markup import all_quoted, escape, quoted, tag
from speclab.views.playback import WHOLE, Decision, PlaybackPosition, decisions, own_kind, verified_root


def percent(probability: float) -> str:
    """0.934 → `93%`; small ones keep a digit: `0.4%`, `<0.1%`."""
    share = 100 * probability
    return f"{share:.0f}%" if share >= 10 or share == 0 else f"{share:.1f}%" if share >= 0.1 else "<0.1%"


def why(step: Step, node: int) -> str:
    """One sentence: who proposed the node, what the target thought of it, what came of it, and what grew from it."""
    record, said = step.nodes[node], _origin(step, node)
    found = [event for event in step.events if event.node == node]
    said += [sentence(event) for event in found if event.kind != "prune"]
    if pruned := [event for event in found if event.kind == "prune"]:
        said.append(sentence(replace(pruned[0], values={"dropped": sum(map(dropped, pruned))})))
    said.append(f"after it the target chose {quoted(record.target_choice, step.texts)}")
    return f"Node {node} {quoted(record.token, step.texts)} {'; '.join(said)}."


def _origin(step: Step, node: int) -> list[str]:
    record, tree, parent = step.nodes[node], step.tree, int(step.tree.parent[node])
    if record.verdict == "root":
        return ["is the root, the newest committed token"]
    after = f"after {quoted(int(tree.token[parent]), step.texts)}" if parent >= 0 else "as the root"
    proposed = f"was proposed by {tree.source[node]} at depth {tree.depth[node]} {after}"
    path = f" (its path {percent(record.path_prob)})" if tree.depth[node] > 1 else ""
    outcome = f"{record.verdict}, {record.reason}" if record.reason else record.verdict
    if record.verdict == "not reached" and record.target_prob is not None:
        outcome += f" (the target would have given it {percent(record.target_prob)})"
    return [f"{proposed} with {percent(record.draft_prob)}{path}", outcome]


def children(event: Event) -> int | None:
    """How many children an "expand" event speaks of, those pruned later among them; None where it does not say."""
    count = event.values.get("added", event.values.get("branches"))
    return None if count is None else int(count)


def dropped(event: Event) -> int:
    """How many children a "prune" event speaks of; 0 of any other event."""
    return int(event.values.get("dropped") or 1) if event.kind == "prune" else 0


def sentence(event: Event) -> str:
    """A drafting decision in words: `expanded into 2, confidence 0.62 between 0.40 and 0.90`."""
    if event.kind == "expand":
        count = children(event)
        return f"expanded{'' if count is None else f' into {count}'}, {event.reason}"
    if event.kind == "prune":
        lost = dropped(event)
        return f"{f'{lost} children were pruned, the first with' if lost > 1 else 'a child was pruned,'} {event.reason}"
    verb = {"stop": "not expanded"}.get(event.kind, event.kind)
    return f"{verb}, {event.reason}" if event.reason else verb


def node_table(step: Step, node: int) -> str:
    """Everything recorded about a node, as an HTML table."""
    record, tree = step.nodes[node], step.tree
    parent = int(tree.parent[node])
    rows: list[tuple[str, object]] = [
        ("token", f"{quoted(record.token, step.texts)} (id {record.token})"),
        ("depth, position", f"{tree.depth[node]}, {step.prefix_length + int(tree.depth[node])}"),
        ("parent", "none" if parent < 0 else f"node {parent} {quoted(int(tree.token[parent]), step.texts)}"),
        ("source", tree.source[node]),
        ("draft probability", f"{record.draft_prob:.4f}"),
        ("path probability", f"{record.path_prob:.4f}"),
        ("target probability", "not in this pass" if record.target_prob is None else f"{record.target_prob:.4f}"),
        ("verdict", f"{record.verdict}: {record.reason}" if record.reason else record.verdict),
        ("target's choice after it", quoted(record.target_choice, step.texts)),
        ("target's most probable after it", _top(step, record.target_top)),
        ("draft's most probable after it", _top(step, record.draft_top) or "not expanded"),
        ("entropy after it", f"{record.entropy:.3f} nats"),
        ("KV slot, mask row", f"{record.kv_slot}, {record.index}"),
    ]  # fmt: skip
    return markup.table(f"Node {node} of iteration {step.index + 1}", ("what", "value"), rows)


def _top(step: Step, top: tuple[tuple[int, float], ...]) -> str:
    return "  ".join([f"{quoted(token, step.texts)} {percent(probability)}" for token, probability in top])


def events_table(step: Step) -> str:
    """The drafting decisions in the order they were taken, as an HTML table."""

    def figure(name: str, value: Value) -> str:
        if name == "token" and isinstance(value, int):
            value = quoted(value, step.texts)
        return f"{name.replace('_', ' ')} {f'{value:.3g}' if isinstance(value, float) else value}"

    rows = (
        (i + 1, event.kind, "" if event.node is None else event.node, event.reason,
         ", ".join([figure(*each) for each in event.values.items()]))
        for i, event in enumerate(step.events)
    )  # fmt: skip
    return markup.table("Drafting decisions", ("#", "kind", "node", "reason", "figures"), rows)


def hovers(step: Step, nodes: Sequence[int], known: bool = True) -> list[tuple[str, ...]]:
    """The lines of each node's tooltip; before verification the target's lines are left out."""
    records, tree = [step.nodes[node] for node in nodes], step.tree
    names = all_quoted([record.token for record in records], step.texts)
    choices = all_quoted([record.target_choice for record in records], step.texts)
    tips = []
    for node, record, name, choice in zip(nodes, records, names, choices, strict=True):
        depth = int(tree.depth[node])
        lines = [
            f"{name} · id {record.token} · node {node} · depth {depth}",
            f"draft {record.draft_prob:.3f} · path {record.path_prob:.3f} · from {tree.source[node]}",
            f"KV slot {record.kv_slot} · mask row {record.index} · position {step.prefix_length + depth}",
        ]
        if known:
            if record.target_prob is not None:
                lines.append(f"target {record.target_prob:.3f}")
            lines.append(f"target's choice after it: {choice}")
            lines.append(f"{record.verdict}: {record.reason}" if record.reason else record.verdict)
        tips.append(tuple(lines))
    return tips


_NAMED = re.compile(r"\b(node|iteration)s? \d+(?:(?:, | and | or | to )\d+)*(?![\d:])", re.IGNORECASE)


def linked(sentence: str) -> str:
    """A sentence as HTML in which "node 6", "nodes 3 and 5" and "iteration 4" are links; not its subject, "Node 6:"."""

    def link(found: re.Match[str]) -> str:
        target = rf'<a href="#" data-{found[1].lower()}="\1">\g<0></a>'
        return re.sub(r"(?:^\w+ )?(\d+)", target, found[0])

    return _NAMED.sub(link, escape(sentence))


def plural(count: int, noun: str) -> str:
    """`1 level`, `3 levels`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def prompt_words(trace: Trace) -> str:
    """`31 prompt tokens (22 of them the chat template's)`."""
    template = sum(stop - start for role, start, stop in trace.prompt_parts() if not role)
    return plural(len(trace.prompt_ids), "prompt token") + (
        f" ({template} of them the chat template's)" if template else ""
    )


def summary(step: Step) -> str:
    """One sentence, such as: Iteration 3: 12 drafted in 4 levels, 5 accepted, bonus '␣the'."""
    drafted, levels = step.counts.drafted, int(step.tree.depth.max()) + (not verified_root(step))
    grown = f"{drafted} drafted in {plural(levels, 'level')}, {len(step.accepted)} accepted"
    own = "the text ended inside the path"
    if step.bonus is not None:
        own = f"{own_kind(step)} {quoted(step.bonus, step.texts)}"
    note = f" {step.note}" if step.note else ""
    return f"Iteration {step.index + 1}: {grown if drafted else 'nothing drafted'}, {own}.{note}"


def position_summary(step: Step, position: PlaybackPosition = WHOLE) -> str:
    """One sentence on what the position shows."""
    change, nodes = step.adaptation, len(step.tree)
    match position.phase:
        case "draft":
            return _draft(step, position)
        case "flatten":
            order = "in breadth-first order, each sees the prefix of"
            return f"Flatten: {plural(nodes, 'node')} {order} {step.prefix_length} and its ancestors."
        case "verify":
            return f"Verify: one target pass over {plural(nodes, 'row')} gives the target's choice after every node."
        case "accept":
            return _accept(step, position)
        case "commit":
            added = plural(len(step.committed), "token")
            return f"Commit: {added} added; the caches keep the path and drop the rest."
    moved = [f"{name} {change.before.get(name)} → {value}" for name, value in change.after.items()
             if change.before.get(name) != value]  # fmt: skip
    return f"Adapt: {change.reason or 'nothing to change'}{': ' if moved else ''}{', '.join(moved)}."


def _draft(step: Step, position: PlaybackPosition) -> str:
    depth = step.tree.depth
    level = int(depth.max()) if position.level is None else position.level
    if not level:
        return "Draft: the root alone."
    return f"Draft, level {level} of {depth.max()}: {plural(int((depth == level).sum()), 'node')} added."


def _accept(step: Step, position: PlaybackPosition) -> str:
    steps = decisions(step)
    if not steps:
        return "Accept: nothing to decide."
    taken = len(steps) if position.level is None else min(position.level, len(steps))
    return f"Accept, decision {taken} of {len(steps)}: {_outcome(step, steps[max(taken - 1, 0)])}"


def ending(step: Step) -> str:
    """Why its accept path ended: After node 5 the target chose '␣the'; no child carries it, ..."""
    steps = decisions(step)
    said = _outcome(step, steps[-1]) if steps else "nothing was to decide."
    return said[0].upper() + said[1:]


def _outcome(step: Step, decision: Decision) -> str:
    where = f"after node {decision.at}" if decision.at >= 0 else "before the root"
    choice = quoted(decision.choice, step.texts)
    if decision.winner is not None:
        outcome = f"node {decision.winner} carries it, go down"
    elif decision.candidates:
        outcome = "no child carries it, so it is the correction and the accept path ends"
    else:
        outcome = "there is no child, so it is the bonus token"
    return f"{where} the target chose {choice}; {outcome}."


def table(trace: Trace, cursor: int | None = None) -> str:
    """One row per iteration, as an HTML table."""
    rows = (
        (step.index + 1, step.prefix_length, step.counts.drafted, len(step.accepted), len(step.committed),
         "" if step.bonus is None else quoted(step.bonus, step.texts), 1000 * step.counts.seconds)
        for step in trace.steps[:cursor]
    )  # fmt: skip
    head = ("iteration", "prefix", "drafted", "accepted", "committed", "bonus", "ms")
    return markup.table("Iterations", head, rows)


CHANGES = "changes the output distribution"
RED = "var(--jp-error-color1,#d32f2f)"


def warning(sentence: str) -> str:
    """A sentence in red; it must say what is wrong without the colour."""
    return tag("b", escape(sentence), class_="sl-lossy", style=f"color:{RED}")


def fault_words(trace: Trace) -> str:
    """`with a fault injected: sibling visible`; empty for a run of healthy models."""
    fault = trace.models.get("fault")
    return f"with a fault injected: {fault}" if fault else ""


def step_words(step: Step | None) -> str:
    """`typical acceptance changes the output distribution`; empty for an iteration under an exact rule."""
    if step is None or not step.counts.lossy:
        return ""
    redrawn = (step.mask != step.tree.ancestor_mask()).any()
    hand = "a mask redrawn by hand" if redrawn else "a token put in by hand"
    return f"{(step.rule or 'the acceptance rule') if typical(step) else hand} {CHANGES}"


def typical(step: Step) -> bool:
    """Whether its acceptance rule changes the output distribution; older records do not name the rule."""
    return bool(step.counts.lossy) and step.rule in {"", "typical acceptance"}


def run_words(trace: Trace, cursor: int | None = None) -> str:
    """Which fault was injected, and how many of the iterations changed it; empty where none did."""
    steps, fault = trace.steps[:cursor], fault_words(trace)
    lossy = [step for step in steps if step.counts.lossy]
    if not lossy:
        return fault
    changed = f"{step_words(lossy[-1])}: {len(lossy)} of {len(steps)} iterations are decoded so."
    return f"{fault}; {changed}" if fault else changed
