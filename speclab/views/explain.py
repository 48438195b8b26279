"""What an iteration did and why each node was accepted, rejected or not reached, in plain sentences and tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from speclab.trace.records import Event, NodeRecord, Step, Trace, Value
from speclab.views import markup
from speclab.views.markup import all_quoted, escape, quoted, tag
from speclab.views.playback import WHOLE, Phase, PlaybackPosition, decisions, own_kind, verified_root


def percent(probability: float) -> str:
    """0.934 → `93%`; small ones keep a digit: `0.4%`, `<0.1%`."""
    share = 100 * probability
    return f"{share:.0f}%" if share >= 10 or share == 0 else f"{share:.1f}%" if share >= 0.1 else "<0.1%"


def numbers(values: Mapping[str, Value], texts: Mapping[int, str]) -> str:
    """The figures of an event: `confidence 0.41, branches 3`; a token by its text."""
    return ", ".join([f"{name.replace('_', ' ')} {_written(name, value, texts)}" for name, value in values.items()])


def _written(name: str, value: Value, texts: Mapping[int, str]) -> str:
    if name == "token" and isinstance(value, int):
        return quoted(value, texts)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def why(step: Step, node: int) -> str:
    """One sentence: who proposed the node, what the target thought of it, what came of it, and what grew from it."""
    record = step.nodes[node]
    name = f"Node {node} {quoted(record.token, step.texts)}"
    if record.verdict == "root":
        origin = "is the root, the newest committed token"
    else:
        origin = f"{_proposed(step, record)}; {_judged(record)}"
    after = f"after it the target chose {quoted(record.target_choice, step.texts)}"
    return f"{name} {origin}; {'; '.join([*_growth(step, node), after])}."


def _proposed(step: Step, record: NodeRecord) -> str:
    tree, parent = step.tree, int(step.tree.parent[record.index])
    depth = int(tree.depth[record.index])
    after = f"after {quoted(int(tree.token[parent]), step.texts)}" if parent >= 0 else "as the root"
    path = f" (its path {percent(record.path_prob)})" if depth > 1 else ""
    return (
        f"was proposed by {tree.source[record.index]} at depth {depth} {after} with {percent(record.draft_prob)}{path}"
    )


def _judged(record: NodeRecord) -> str:
    outcome = f"{record.verdict}, {record.reason}" if record.reason else record.verdict
    if record.verdict != "not reached" or record.target_prob is None:
        return outcome
    return f"{outcome} (the target would have given it {percent(record.target_prob)})"


def _growth(step: Step, node: int) -> list[str]:
    found = [event for event in step.events if event.node == node]
    pruned = [event for event in found if event.kind == "prune"]
    grown = [sentence(event) for event in found if event.kind != "prune"]
    return [*grown, _pruned(sum(map(dropped, pruned)), pruned[0].reason)] if pruned else grown


def children(event: Event) -> int | None:
    """How many children an "expand" event speaks of, those pruned later among them; None where it does not say."""
    count = event.values.get("added", event.values.get("branches"))
    return None if count is None else int(count)


def dropped(event: Event) -> int:
    """How many children a "prune" event speaks of; 0 of any other event."""
    return int(event.values.get("dropped") or 1) if event.kind == "prune" else 0


def _pruned(count: int, reason: str) -> str:
    return f"{count} children were pruned, the first with {reason}" if count > 1 else f"a child was pruned, {reason}"


def sentence(event: Event) -> str:
    """A drafting decision in words: `expanded into 2, confidence 0.62 between 0.40 and 0.90`."""
    if event.kind == "expand":
        count = children(event)
        return f"expanded{'' if count is None else f' into {count}'}, {event.reason}"
    if event.kind == "prune":
        return _pruned(dropped(event), event.reason)
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


def node_html(step: Step, selected: int | None) -> str:
    """Everything recorded about the selected node."""
    if selected is None:
        message = (
            "Click a node of the tree, a row of the mask, or a link in a sentence, to read what is recorded of it."
        )
        return tag("div", message, class_="sl-empty")
    return node_table(step, selected)


def _top(step: Step, top: tuple[tuple[int, float], ...]) -> str:
    return "  ".join([f"{quoted(token, step.texts)} {percent(probability)}" for token, probability in top])


def events_table(step: Step, upto: int | None = None) -> str:
    """The drafting decisions in the order they were taken, as an HTML table."""
    rows = (
        (i + 1, event.kind, "" if event.node is None else event.node, event.reason, numbers(event.values, step.texts))
        for i, event in enumerate(step.events[:upto])
    )
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


def roots_origin(step: Step) -> str:
    """Where node 0 comes from, in words."""
    return "verified root" if verified_root(step) else "drafted root"


_NAMED = re.compile(r"\b(nodes?|iterations?) (\d+(?:(?:, | and | or | to )\d+)*)(?![\d:])", re.IGNORECASE)


def linked(sentence: str) -> str:
    """A sentence as HTML in which "node 6", "nodes 3 and 5" and "iteration 4" are links; not its subject, "Node 6:"."""

    def link(found: re.Match[str]) -> str:
        kind, first = found[1].lower().removesuffix("s"), True

        def one(number: re.Match[str]) -> str:
            nonlocal first
            words, first = (f"{found[1]} {number[0]}" if first else number[0]), False
            return f'<a href="#" data-{kind}="{number[0]}">{words}</a>'

        return re.sub(r"\d+", one, found[2])

    return _NAMED.sub(link, escape(sentence))


def plural(count: int, noun: str) -> str:
    """`1 level`, `3 levels`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def summary(step: Step) -> str:
    """One sentence, such as: Iteration 3: 12 drafted in 4 levels, 5 accepted, bonus '␣the'."""
    counts, depth = step.counts, int(step.tree.depth.max())
    levels = depth if verified_root(step) else depth + 1
    drafted = f"{counts.drafted} drafted in {plural(levels, 'level')}" if counts.drafted else "nothing drafted"
    parts = [drafted, f"{len(step.accepted)} accepted", _own(step)] if counts.drafted else [drafted, _own(step)]
    note = f" {step.note}" if step.note else ""
    return f"Iteration {step.index + 1}: {', '.join(parts)}.{note}"


def _own(step: Step) -> str:
    if step.bonus is None:
        return "the text ended inside the path"
    return f"{own_kind(step)} {quoted(step.bonus, step.texts)}"


def position_summary(step: Step, position: PlaybackPosition = WHOLE) -> str:
    """One sentence on what the position shows."""
    return _TOLD[position.phase](step, position)


def _flatten(step: Step, _: PlaybackPosition) -> str:
    nodes = plural(len(step.tree), "node")
    return f"Flatten: {nodes} in breadth-first order, each sees the prefix of {step.prefix_length} and its ancestors."


def _verify(step: Step, _: PlaybackPosition) -> str:
    return f"Verify: one target pass over {plural(len(step.tree), 'row')} gives the target's choice after every node."


def _commit(step: Step, _: PlaybackPosition) -> str:
    return f"Commit: {plural(len(step.committed), 'token')} added; the caches keep the path and drop the rest."


def _adapt(step: Step, _: PlaybackPosition) -> str:
    change = step.adaptation
    moved = [f"{name} {change.before.get(name)} → {value}" for name, value in change.after.items()
             if change.before.get(name) != value]  # fmt: skip
    found = change.reason or "nothing to change"
    return f"Adapt: {found}{': ' if moved else ''}{', '.join(moved)}."


def _draft(step: Step, position: PlaybackPosition) -> str:
    if position.event is not None:
        if not position.event:
            return "Draft: the root alone."
        event = step.events[min(position.event, len(step.events)) - 1]
        where = "" if event.node is None else f" node {event.node}"
        return f"Draft, decision {position.event} of {len(step.events)}:{where} {sentence(event)}."
    depth = step.tree.depth
    level = int(depth.max()) if position.level is None else position.level
    added = int((depth == level).sum())
    return (
        f"Draft, level {level} of {depth.max()}: {plural(added, 'node')} added." if level else "Draft: the root alone."
    )


def _accept(step: Step, position: PlaybackPosition) -> str:
    steps = decisions(step)
    if not steps:
        return "Accept: nothing to decide."
    taken = len(steps) if position.level is None else min(position.level, len(steps))
    decision = steps[max(taken - 1, 0)]
    where = f"after node {decision.at}" if decision.at >= 0 else "before the root"
    choice = quoted(decision.choice, step.texts)
    if decision.winner is not None:
        outcome = f"node {decision.winner} carries it, go down"
    elif decision.candidates:
        outcome = "no child carries it, so it is the correction and the accept path ends"
    else:
        outcome = "there is no child, so it is the bonus token"
    return f"Accept, decision {taken} of {len(steps)}: {where} the target chose {choice}; {outcome}."


_TOLD: dict[Phase, Callable[[Step, PlaybackPosition], str]] = {
    "draft": _draft,
    "flatten": _flatten,
    "verify": _verify,
    "accept": _accept,
    "commit": _commit,
    "adapt": _adapt,
}


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


def step_words(step: Step | None) -> str:
    """`typical acceptance changes the output distribution`; empty for an iteration under an exact rule."""
    if step is None or not step.counts.lossy:
        return ""
    return f"{step.rule or 'the acceptance rule'} {CHANGES}"


def run_words(trace: Trace, cursor: int | None = None) -> str:
    """How many of the iterations changed it; empty where none did."""
    steps = trace.steps[:cursor]
    lossy = [step for step in steps if step.counts.lossy]
    if not lossy:
        return ""
    return f"{step_words(lossy[-1])}: {len(lossy)} of {len(steps)} iterations are under this rule."
