"""A tree that was not drafted, drawn over the one that was: what would be gone is struck out, what is new is ringed.

Nodes keep their places while a threshold moves; under its slider a strip of dots shows where the values lie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import TYPE_CHECKING, cast

from speclab.drafters.measures import Measure, measured
from speclab.trace.records import NodeRecord, Step, Verdict
from speclab.tree import DraftTree
from speclab.views import tree_layout as layout
from speclab.views.explain import plural
from speclab.views.markup import escape, quoted, tag
from speclab.views.palette import css
from speclab.views.playback import verified_root
from speclab.views.tree_layout import Link, Mark, Scene, scene
from speclab.views.tree_small import scene_svg

if TYPE_CHECKING:
    from speclab.analysis.whatif import WhatIf

NOT_CHOSEN = -1
_NAMES = {"drafted": "would be new", "struck": "would not be drafted"}
_MOST_NAMED = 3
"""Nodes that a sentence names, before it counts the others."""


@dataclass(frozen=True, slots=True)
class _Both:
    """Both trees in one. `now`: for each node of it its node in the step; `other`: in the tree that was not drafted."""

    tree: DraftTree
    now: tuple[int | None, ...]
    other: tuple[int | None, ...]


def ghost_svg(step: Step, found: WhatIf, selected: int | None = None) -> str:
    """The tree `found` over the step's own, as one SVG string. `selected`: a node of the step."""
    both = _union(step, found)
    place = {node: i for i, node in enumerate(both.now) if node is not None}
    marked = None if selected is None else place.get(selected)
    struck = frozenset(i for i, node in enumerate(both.other) if node is None)
    drawn = _restyled(scene(_as_step(step, found, both), selected=marked), step, found, both, struck)
    return scene_svg(drawn, step, whatif_sentence(step, found), css(), marked, struck=struck, names=_NAMES)


def whatif_sentence(step: Step, found: WhatIf) -> str:
    """What would have been, in one or two sentences."""
    same = found.recorded == tuple(range(len(step.tree))) and not found.unknown
    if same:
        return f"This iteration's tree would have been the same: {_counts(step, found)}."
    known = ", as far as the record knows" if found.unknown else ""
    words = f"What this iteration's tree would have been{known}: {_counts(step, found)}."
    return words + (f" {_unknown(step, found)}." if found.unknown else "")


def _counts(step: Step, found: WhatIf) -> str:
    """`14 nodes instead of 24, 3 accepted instead of 4`."""
    nodes, was = len(found.tree), len(step.tree)
    parts = [plural(nodes, "node") + (f" instead of {was}" if nodes != was else "")]
    if found.accepted is None:
        parts.append("and which of them are accepted the record cannot say, for they are tried with fresh chances")
    else:
        taken, took = len(found.accepted), len(step.accepted)
        some = "" if found.settled or found.unknown else "at least "
        parts.append(f"{some}{taken} accepted" + (f" instead of {took}" if taken != took else ""))
    return ", ".join(parts)


def _unknown(step: Step, found: WhatIf) -> str:
    """`Node 7 'the' would have more children, and the record does not hold what the draft says behind it`."""
    names = [_name(step, found, node) for node in found.unknown[:_MOST_NAMED]]
    more = len(found.unknown) - len(names)
    names += [f"{more} more"] if more else []
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    behind = "it" if len(found.unknown) == 1 else "them"
    words = f"{listed} would have more children, and the record does not hold what the draft says behind {behind}"
    return words[0].upper() + words[1:]


def _name(step: Step, found: WhatIf, node: int) -> str:
    at, token = found.recorded[node], int(found.tree.token[node])
    return f"{'a new node' if at is None else f'node {at}'} {quoted(token, step.texts)}"


def _union(step: Step, found: WhatIf) -> _Both:
    """The step's tree and, as last children, the new nodes of the other; breadth-first."""
    tree, other = step.tree, found.tree
    new = [node for node, at in enumerate(found.recorded) if at is None]
    place = {node: at for node, at in enumerate(found.recorded) if at is not None}
    place |= {node: len(tree) + i for i, node in enumerate(new)}
    whole, order = DraftTree.grown(
        [*tree.token.tolist(), *(int(other.token[node]) for node in new)],
        [*tree.parent.tolist(), *(place[int(other.parent[node])] for node in new)],
        [*tree.log_prob.tolist(), *(float(other.log_prob[node]) for node in new)],
        [*tree.source, *(other.source[node] for node in new)],
    )
    back = {at: node for node, at in place.items()}
    now = tuple([at if at < len(tree) else None for at in order])
    return _Both(whole, now, tuple([back.get(at) for at in order]))


def _as_step(step: Step, found: WhatIf, both: _Both) -> Step:
    """A step to draw: the nodes of both trees, and the path that the target takes through the other."""
    place = {node: i for i, node in enumerate(both.other) if node is not None}
    accepted = tuple([place[node] for node in found.accepted or ()])
    nodes = tuple(
        [
            replace(step.nodes[at], index=i, verdict=_verdict(step.nodes[at], found))
            if at is not None
            else _new(both.tree, i, "accepted" if i in accepted else "not reached")
            for i, at in enumerate(both.now)
        ]
    )
    return replace(step, tree=both.tree, nodes=nodes, accepted=accepted, bonus=found.bonus)


def _verdict(node: NodeRecord, found: WhatIf) -> Verdict:
    return node.verdict if found.accepted is not None or node.verdict == "root" else "not reached"


def _new(tree: DraftTree, node: int, verdict: str) -> NodeRecord:
    return NodeRecord(
        index=node,
        token=int(tree.token[node]),
        draft_prob=exp(tree.log_prob[node]),
        path_prob=exp(tree.path_log_prob[node]),
        target_prob=None,
        target_choice=NOT_CHOSEN,
        verdict=cast("Verdict", verdict),
        reason="",
        kv_slot=0,
        entropy=0.0,
    )


def _restyled(drawn: Scene, step: Step, found: WhatIf, both: _Both, struck: frozenset[int]) -> Scene:
    unknown = {i for i, node in enumerate(both.other) if node in found.unknown}
    own = _own_kind(step, found)
    marks = tuple([_mark(mark, step, both, struck, unknown, own) for mark in drawn.marks])
    return replace(drawn, marks=marks, links=_links(drawn, marks, struck))


def _own_kind(step: Step, found: WhatIf) -> str:
    last = found.accepted[-1] if found.accepted else 0
    rejected = not found.accepted and not verified_root(step)
    return "corrected" if rejected or found.tree.children[last] else "bonus"


def _mark(mark: Mark, step: Step, both: _Both, struck: frozenset[int], unknown: set[int], own: str) -> Mark:
    if mark.node is None:
        return mark
    if mark.node == layout.OWN:
        return replace(mark, kind=own, hover=(mark.hover[0], f"{own}: the target's own token"))
    note = "→ ?" if mark.node in unknown else mark.note
    if mark.node in struck:
        return replace(mark, kind="not reached", hover=("would not be drafted", *mark.hover))
    if both.now[mark.node] is not None:
        return replace(mark, note=note)
    node = both.tree
    lines = (
        f"{quoted(int(node.token[mark.node]), step.texts)} · id {node.token[mark.node]} · would be drafted as well",
        f"draft {exp(node.log_prob[mark.node]):.3f} · path {exp(node.path_log_prob[mark.node]):.3f}",
        "what the target would choose after it is not recorded",
    )
    kind = mark.kind if mark.kind == "accepted" else "drafted"
    return replace(mark, kind=kind, note=note, hover=lines, fresh=True)


def _links(drawn: Scene, marks: tuple[Mark, ...], struck: frozenset[int]) -> tuple[Link, ...]:
    """Links follow the marks that have a parent, in their order."""
    ends = [mark for mark in marks if mark.parent >= 0]
    return tuple(
        [
            replace(link, kind="struck") if mark.node in struck else link
            for link, mark in zip(drawn.links, ends, strict=True)
        ]
    )


HEIGHT, RADIUS, ROWS = 18, 2.3, 3
_WORDS: dict[Measure, str] = {
    "confidence": "{above} of {count} expanded nodes reach it",
    "path probability": "{above} of {count} paths reach it",
    "token probability": "{above} of {count} tokens reach it",
    "depth": "{above} of {count} nodes reach it",
    "nodes": "{most:.0f} in this tree",
}


def strip(step: Step, measure: Measure, threshold: float, place: Callable[[float], float]) -> str:
    """The dots as HTML, as wide as what it stands in: full ones at or above `threshold`, open ones below; and in words.

    Args:
        place: how far from the left end a value lies, 0 to 1: as on the slider above.
    """
    values = measured(step, measure)
    words = strip_caption(values, measure, threshold)
    return tag("div", _dots(values, threshold, place, words), class_="sl-strip") + tag(
        "span", escape(words), class_="sl-count"
    )


def strip_caption(values: Sequence[float], measure: Measure, threshold: float) -> str:
    """`9 of 14 paths reach it`."""
    if not values:
        return "nothing to compare in this iteration"
    above = sum([value >= threshold for value in values])
    return _WORDS[measure].format(above=above, count=len(values), most=max(values))


def _dots(values: Sequence[float], threshold: float, place: Callable[[float], float], words: str) -> str:
    colors, stacked = css(), Counter[int]()
    line = f"stroke:{colors.line};stroke-width:1"
    parts = [tag("line", x1="0%", x2="100%", y1=HEIGHT - 1, y2=HEIGHT - 1, style=line)]
    for value in sorted(values):
        across = _percent(place(value))
        column = round(across)
        height = HEIGHT - 4.5 - 4.6 * min(stacked[column], ROWS - 1)
        stacked[column] += 1
        fill = colors.ink if value >= threshold else colors.paper
        style = f"fill:{fill};stroke:{colors.ink if value >= threshold else colors.muted};stroke-width:1"
        parts.append(tag("circle", cx=f"{across:.1f}%", cy=height, r=RADIUS, style=style))
    at, mark = f"{_percent(place(threshold)):.1f}%", "stroke:var(--jp-brand-color1,#1976d2);stroke-width:1.5"
    parts.append(tag("line", x1=at, x2=at, y1=0, y2=HEIGHT, style=mark))
    look = "display:block;overflow:visible"
    return tag("svg", *parts, width="100%", height=HEIGHT, role="img", aria_label=words, style=look)


def _percent(place: float) -> float:
    return 100 * min(max(place, 0.0), 1.0)
