"""One sentence per picture, phase and node, and the tooltips of nodes."""

from __future__ import annotations

from speclab.trace.records import RANKS, TIE, UNKNOWN, Event, Finding, Step, Trace
from speclab.views.phases import (
    WHOLE,
    Decision,
    Position,
    decisions,
    growth,
    own_kind,
    verified_root,
)
from speclab.views.tokens import percent, plural, quoted

SIGNS = ("⚠", "≈")
"""Of a fault, and of a tie."""


def summary(step: Step) -> str:
    """`Iteration 3: 10 drafted, none accepted; the target wrote ' city'.`"""
    drafted = f"{step.counts.drafted} drafted, {len(step.accepted) or 'none'} accepted"
    if not step.counts.drafted:
        drafted = "nothing drafted"
    if step.bonus is None:
        end = "the text ends here"
    elif own_kind(step) == "bonus" and step.counts.drafted:
        end = f"bonus {quoted(step.bonus, step.texts)}"
    else:
        end = f"the target wrote {quoted(step.bonus, step.texts)}"
    notes = list(dict.fromkeys([mark(finding) for finding in step.findings]))
    notes += [step.note.rstrip(".")] if step.note else []
    if step.counts.lossy:
        notes.append(
            "This iteration was changed by hand, so the output distribution is not the target's"
        )
    return ". ".join([f"Iteration {step.index + 1}: {drafted}; {end}", *notes]) + "."


def mark(finding: Finding) -> str:
    """`⚠ position`: how pictures mark a finding."""
    return f"{SIGNS[finding.kind == TIE]} {finding.kind}"


def findings_at(step: Step, node: int) -> list[Finding]:
    """The findings of a check at a node."""
    return [finding for finding in step.findings if finding.node == node]


def plain_sentence(step: Step, node: int) -> str:
    """Compare the path of a node, run plainly, with the record; empty without a check."""
    if not step.plain:
        return ""
    plain = dict(step.plain[node])
    recorded = dict(step.nodes[node].target_top)
    best = max(plain, key=lambda token: plain[token])
    known = f", recorded {percent(recorded[best])}" if best in recorded else ""
    return (
        f"Run plainly, its path gives {quoted(best, step.texts)} ({percent(plain[best])}{known})."
    )


def position_sentence(step: Step, position: Position = WHOLE) -> str:
    """Describe a phase of the iteration; for the whole iteration this is its `summary`."""
    start = f"Iteration {step.index + 1}, {position.phase}: "
    nodes = len(step.tree)
    match position.phase:
        case "draft":
            return start + _draft(step, position)
        case "flatten":
            return f"{start}{plural(nodes, 'node')} in breadth-first order; each sees the prefix and its ancestors."
        case "verify":
            return f"{start}one pass over {plural(nodes, 'row')} gives the target's choice after every node (→)."
        case "accept":
            taken = decisions(step)
            if not taken:
                return f"{start}there is nothing to decide."
            count = len(taken) if position.level is None else min(position.level, len(taken))
            return f"{start}decision {count} of {len(taken)}: {outcome(step, taken[max(count - 1, 0)])}"
        case "commit":
            added = plural(len(step.committed), "token")
            return f"{start}{added} added to the text; the caches keep the path and drop the rest."
    return summary(step)


def _draft(step: Step, position: Position) -> str:
    drafted = growth(step)
    last = max(drafted)
    level = last if position.level is None else position.level
    if not last and verified_root(step):
        return "nothing was drafted."
    popped = {event.values["order"]: event for event in step.events if event.kind == "pop"}
    if popped and position.level is None:
        return f"{plural(last, 'node')} added, the most probable path first, from one pass."
    if level in popped:
        return f"node {popped[level].node}, {popped[level].reason}."
    block = [ranked(event, step)[0] for event in step.events if event.kind == "marginal"]
    if block:
        return f"one pass gave a block of {plural(len(block), 'distribution')}, most probable: {', '.join(block)}."
    if not level:
        return "the root, from which the tree grows."
    return f"level {level} of {last}, {plural(drafted.count(level), 'node')} added."


def ranked(event: Event, step: Step) -> list[str]:
    """The tokens that an event names, best first: `' the' 41 %`."""
    named = [
        (event.values[name], event.values[f"{name}_prob"]) for name in RANKS if name in event.values
    ]
    return [
        f"{quoted(int(token or 0), step.texts)} {percent(float(prob or 0))}"
        for token, prob in named
    ]


def outcome(step: Step, decision: Decision) -> str:
    """The outcome of one acceptance decision."""
    where = f"after node {decision.node}" if decision.node >= 0 else "before the root"
    start = f"{where} the target chose {quoted(decision.choice, step.texts)}"
    if decision.winner is not None:
        return f"{start}, which is node {decision.winner}: accepted."
    if decision.candidates:
        return (
            f"{start}, which is not in the tree: the path ends and the target's token is written."
        )
    return f"{start}; the path was accepted to its end, so this is the bonus token."


def ending(step: Step) -> str:
    """Why the accepted path ends."""
    taken = decisions(step)
    sentence = outcome(step, taken[-1]) if taken else "the text ends here."
    return sentence[0].upper() + sentence[1:]


def node_sentence(step: Step, node: int) -> tuple[str, str, str]:
    """Three sentences on a node: its draft, its verdict, and why it has these children."""
    record = step.nodes[node]
    name = f"Node {node} {quoted(record.token, step.texts)}"
    wrong = "".join(
        [f" {mark(finding)}: {finding.sentence}" for finding in findings_at(step, node)]
    )
    grown = ". ".join(
        [
            event_words(event)
            for event in step.events
            if event.node == node and event.kind != "prune"
        ]
    )
    if grown:
        grown = f" {grown[0].upper()}{grown[1:]}."
    if record.verdict == "root":
        drafted = f"{name}, the root: the newest token of the text."
        return drafted, f" After it the target chose {_choice(step, node)}.{wrong}", grown
    drafted = f"{name}, drafted"
    if "log_prob" not in step.missing:
        drafted += f" with {percent(record.draft_prob)}"
    return drafted, f": {_verdict(step, node)}.{wrong}", grown


def _verdict(step: Step, node: int) -> str:
    record = step.nodes[node]
    parent = int(step.tree.parent[node])
    target = "" if record.target_prob is None else f" ({percent(record.target_prob)})"
    if record.verdict == "accepted":
        return f"accepted, the target chose it too{target}"
    if record.verdict == "not reached":
        would = (
            f"; the target gave it {percent(record.target_prob)}"
            if record.target_prob is not None
            else ""
        )
        return f"not reached, the path ended before it{would}"
    if parent < 0 or "chose" not in record.reason:
        return f"{record.verdict}, {record.reason}" if record.reason else record.verdict
    return f"rejected, the target chose {_choice(step, parent)}"


def _choice(step: Step, node: int) -> str:
    """The target's choice after a node with its probability, such as `' iconic' (14 %)`."""
    choice = step.nodes[node].target_choice
    if choice == UNKNOWN:
        return "a token that is not recorded"
    probability = dict(step.nodes[node].target_top).get(choice)
    known = "" if probability is None else f" ({percent(probability)})"
    return quoted(choice, step.texts) + known


def event_words(event: Event) -> str:
    """A drafting decision in words: `2 children, since confidence 0.62 between 0.40 and 0.90`."""
    reason = event.reason.replace("_", " ")
    if event.kind == "expand":
        count = event.values.get("added", event.values.get("branches"))
        children = "one child" if count == 1 else f"{count} children"
        if count is None:
            children = "expanded"
        return f"{children}: {reason}"
    if event.kind == "stop":
        return f"not expanded: {reason}"
    if event.kind == "prune":
        return f"a child was pruned: {reason}"
    if event.kind == "pop":
        return reason
    return f"{event.kind}: {reason}" if reason else event.kind


def tip(step: Step, node: int) -> tuple[list[str], list[str]]:
    """The tooltip lines of a node: known from drafting, and known from verification."""
    record = step.nodes[node]
    depth = int(step.tree.depth[node])
    drafted = [
        f"node {node} {quoted(record.token, step.texts)} · id {record.token} · depth {depth}",
        f"draft {percent(record.draft_prob)} · path {percent(record.path_prob)} · from "
        f"{step.tree.source[node]}"
        if "log_prob" not in step.missing
        else "draft not recorded",
        f"KV slot {record.kv_slot} · mask row {record.index} · position {step.prefix_length + depth}",
    ]
    verified = [f"target's choice after it: {_choice(step, node)}"]
    if record.target_prob is not None:
        verified.insert(0, f"target {percent(record.target_prob)}")
    verified.append("root" if record.verdict == "root" else _verdict(step, node))
    return drafted, verified


def prompt_words(trace: Trace) -> str:
    """`31 prompt tokens (22 of them the chat template's)`."""
    template = sum(stop - start for role, start, stop in trace.prompt_parts() if not role)
    chat = f" ({template} of them the chat template's)" if template else ""
    return plural(len(trace.prompt_ids), "prompt token") + chat


def title(trace: Trace) -> str:
    """Describe a run in one line: `mini · DynaTree · "Once upon a time" · greedy`."""
    temperature = trace.settings.get("temperature") or 0
    sampling = (
        f"temperature {temperature:g}"
        if isinstance(temperature, int | float) and temperature
        else "greedy"
    )
    names = [str(trace.models.get(key) or "") for key in ("target", "draft")]
    names.append(str(trace.settings.get("strategy") or ""))
    said = [trace.prompt_ids[one.start : one.stop] for one in trace.messages[-1:] if one.stop]
    text = "".join(
        [trace.texts.get(token, "") for token in (said[0] if said else trace.prompt_ids)]
    )
    words = " ".join(text.split())
    names.append(f"“{words[:40].rstrip()}…”" if len(words) > 40 else f"“{words}”")
    return " · ".join([name for name in (*names, sampling) if name])
