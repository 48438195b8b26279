"""Why a node stands where it stands, in one sentence, from its record and the drafting events."""

from __future__ import annotations

from collections.abc import Mapping

from speclab.trace.records import Event, NodeRecord, Step, Value
from speclab.views import markup
from speclab.views.tokens import quoted
from speclab.views.walk import verified_root


def percent(probability: float) -> str:
    """0.934 → `93%`; small ones keep a digit: `0.4%`, `<0.1%`."""
    share = 100 * probability
    return f"{share:.0f}%" if share >= 10 or share == 0 else f"{share:.1f}%" if share >= 0.1 else "<0.1%"


def numbers(values: Mapping[str, Value], texts: Mapping[int, str]) -> str:
    """The figures of an event: `confidence 0.41, branches 3`; a token by its text."""
    return ", ".join(f"{name.replace('_', ' ')} {_written(name, value, texts)}" for name, value in values.items())


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
    told = [event for event in step.events if event.node == node]
    pruned = [event for event in told if event.kind == "prune"]
    grown = [sentence(event) for event in told if event.kind != "prune"]
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
        ("target's likeliest after it", _top(step, record.target_top)),
        ("draft's likeliest after it", _top(step, record.draft_top) or "not expanded"),
        ("entropy after it", f"{record.entropy:.3f} nats"),
        ("KV slot, mask row", f"{record.kv_slot}, {record.index}"),
    ]  # fmt: skip
    return markup.table(f"Node {node} of iteration {step.index + 1}", ("what", "value"), rows)


def _top(step: Step, top: tuple[tuple[int, float], ...]) -> str:
    return "  ".join(f"{quoted(token, step.texts)} {percent(probability)}" for token, probability in top)


def events_table(step: Step, upto: int | None = None) -> str:
    """The drafting decisions in the order they were taken, as an HTML table."""
    rows = (
        (i + 1, event.kind, "" if event.node is None else event.node, event.reason, numbers(event.values, step.texts))
        for i, event in enumerate(step.events[:upto])
    )
    return markup.table("Drafting decisions", ("#", "kind", "node", "reason", "figures"), rows)


def hover(step: Step, node: int, known: bool = True) -> list[str]:
    """The lines of a node's tooltip; before verification the target's lines are left out."""
    record, tree = step.nodes[node], step.tree
    lines = [
        f"{quoted(record.token, step.texts)} · id {record.token} · node {node} · depth {tree.depth[node]}",
        f"draft {record.draft_prob:.3f} · path {record.path_prob:.3f} · from {tree.source[node]}",
        f"KV slot {record.kv_slot} · mask row {record.index} · position {step.prefix_length + int(tree.depth[node])}",
    ]
    if not known:
        return lines
    if record.target_prob is not None:
        lines.append(f"target {record.target_prob:.3f}")
    lines.append(f"target's choice after it: {quoted(record.target_choice, step.texts)}")
    return [*lines, f"{record.verdict}: {record.reason}" if record.reason else record.verdict]


def roots_origin(step: Step) -> str:
    """Where node 0 comes from, in words."""
    return "verified root" if verified_root(step) else "drafted root"
