"""The values that an adaptive strategy used and changed, and the trees that it chose between."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from speclab.files import byte_count
from speclab.trace.records import Proposal, Step, Value
from speclab.views.networks import OWN, attach, tree_graph
from speclab.views.phases import own_kind
from speclab.views.sentences import ranked
from speclab.views.theme import Spec, note, spec
from speclab.views.tokens import plot_text, plural, quoted, table
from speclab.views.tree_picture import codes, column_widths, step_kinds, tree_table, tree_traces
from speclab.views.words import adaptation_words, event_words

_MATCH = re.compile(r"match_\d+")
GAP = 24
PITCH = 20
TITLE = 44
"""Pixels: between two trees, per row, and above the trees for titles and depths."""


def decided_table(step: Step) -> str:
    """The adaptive values before and after an iteration as an HTML table; empty if the strategy adapts nothing."""
    routes = [event for event in step.events if event.kind == "route"]
    before = {**step.adaptation.before}
    for event in routes:
        before |= {
            name: value
            for name, value in event.values.items()
            if name not in before and name not in {"route", "by"}
        }
    after = step.adaptation.after
    names = [name for name in dict.fromkeys([*before, *after]) if not _MATCH.fullmatch(name)]
    rows = [
        (
            name.replace("_", " "),
            _value(name, before.get(name)),
            _value(name, after[name]) if name in after else "",
        )
        for name in names
    ]
    if not rows:
        return ""
    reasons = [event_words(event, step.texts) for event in routes]
    reasons.append(adaptation_words(step.adaptation))
    words = f"What decided iteration {step.index + 1}: {'; '.join([reason for reason in reasons if reason])}."
    return f"<p>{escape(words)}</p>" + table("", ("value", "before", "after"), rows)


def block_table(step: Step) -> str:
    """The most probable tokens of each depth, and how many nodes they became; empty if no block was drafted."""
    block = [event for event in step.events if event.kind == "marginal"]
    depths = step.tree.depth.tolist()
    rows = [
        (depth, ", ".join(ranked(event, step)), depths.count(depth))
        for depth, event in enumerate(block, start=1)
    ]
    words = "The block: one distribution for each depth, whatever the path"
    return table(words, ("depth", "most probable", "nodes"), rows) if rows else ""


def _value(name: str, value: Value) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return byte_count(value) if name.endswith("_bytes") else f"{value:,}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def drafts_sentence(step: Step) -> str:
    """Name the proposed trees and the verified one."""
    if not step.proposals:
        return ""
    each = [
        f"{one.name} with {plural(len(one.tree) - 1, 'node')}, {_confidence(one)}"
        for one in step.proposals
    ]
    chosen = [one.name for one in step.proposals if one.chosen]
    end = f"{chosen[0]} was verified" if len(chosen) == 1 else "they were verified as one tree"
    root = quoted(int(step.tree.token[0]), step.texts)
    return f"{len(each)} trees from {root}: {'; '.join(each)}. {end[0].upper()}{end[1:]}."


def _confidence(one: Proposal) -> str:
    weighted = "" if abs(one.score - one.confidence) < 1e-9 else f" (weighted {one.score:.4f})"
    return f"mean confidence {one.confidence:.4f}{weighted}"


def draw_drafts(step: Step) -> Spec:
    """The proposed trees side by side, on the same columns.

    In a tree that was not verified, nodes that the committed text follows count as accepted, other
    children of such nodes as rejected; nodes below those are unknown.
    """
    tables = []
    kinds = []
    titles = []
    for one in step.proposals:
        verified = one.chosen and len(one.tree) == len(step.tree)
        known = (
            _followed(step, one)
            if not verified
            else {node.index: node.verdict for node in step.nodes}
        )
        verdicts = [known.get(node, "drafted") for node in range(len(one.tree))]
        path = [node for node, verdict in enumerate(verdicts) if verdict == "accepted"]
        made = tree_graph(one.tree, step.texts, verdicts, path)
        marks: dict[Any, str | None] = dict(enumerate(verdicts))
        if verified and step.bonus is not None:
            last = step.accepted[-1] if step.accepted else 0
            marks[OWN] = own_kind(step)
            attach(made, OWN, step.bonus, step.texts, last, own_kind(step))
        tables.append(tree_table(made, rows=16))
        kinds.append(codes(tables[-1], marks))
        titles.append(
            f"{one.name}: {'verified' if one.chosen else 'not verified'}, {_confidence(one)}"
        )
    return trees_beside(tables, kinds, titles, drafts_sentence(step))


def _followed(step: Step, one: Proposal) -> dict[int, str]:
    """Verdicts of the nodes for which the committed text determines the target's choice."""
    known = {0: "root"}
    tree = one.tree
    for node in range(1, len(tree)):
        parent = int(tree.parent[node])
        depth = int(tree.depth[node])
        if known.get(parent) in {"root", "accepted"} and depth <= len(step.committed):
            known[node] = (
                "accepted" if tree.token[node] == step.committed[depth - 1] else "rejected"
            )
        elif known.get(parent) in {"rejected", "not reached"}:
            known[node] = "not reached"
    return known


def draw_pair(
    before: Step, after: Step, names: tuple[str, str] = ("before", "decoded again")
) -> Spec:
    """An iteration and the same iteration decoded again, side by side on the same columns."""
    from speclab.views.networks import step_graph

    tables = [tree_table(step_graph(step), rows=64) for step in (before, after)]
    kinds = [
        codes(made, step_kinds(step)) for made, step in zip(tables, (before, after), strict=True)
    ]
    titles = [
        f"{name}: {step.counts.drafted} drafted, {len(step.accepted)} accepted"
        for name, step in zip(names, (before, after), strict=True)
    ]
    return trees_beside(tables, kinds, titles, "; ".join(titles) + ".")


def trees_beside(
    tables: list[dict[str, Any]],
    kinds: list[str],
    titles: list[str],
    sentence: str,
    width: int = 1040,
) -> Spec:
    """Trees side by side, aligned at the top, each below its title."""
    count = len(tables)
    room = (width - GAP * (count - 1)) // count
    height = PITCH * max(made["rows"] for made in tables)
    widths = column_widths(tables)
    data: list[Spec] = []
    axes: Spec = {}
    notes = []
    for number, (made, letters, title) in enumerate(zip(tables, kinds, titles, strict=True)):
        key = str(number + 1) if number else ""
        traces, own = tree_traces(made, letters, room, PITCH * made["rows"], {}, set(), widths)
        data += [{**trace, "xaxis": f"x{key}", "yaxis": f"y{key}"} for trace in traces]
        start = number * (room + GAP) / width
        left = {
            "domain": [start, start + room / width],
            "anchor": f"y{key}",
            "fixedrange": True,
            "visible": False,
        }
        rows = {
            "range": [height / PITCH - 0.5, -0.5],
            "anchor": f"x{key}",
            "visible": False,
            "fixedrange": True,
        }
        axes |= {f"xaxis{key}": {**own["xaxis"], **left}, f"yaxis{key}": rows}
        notes.append(note(f"<b>{plot_text(title)}</b>", start, 1, yshift=6))
    margin = {"l": 0, "r": 0, "t": TITLE, "b": 4}
    layout = {
        "height": height + TITLE + 4,
        "margin": margin,
        "annotations": notes,
        "dragmode": False,
    }
    return spec(data, sentence, "trees", **axes, **layout)
