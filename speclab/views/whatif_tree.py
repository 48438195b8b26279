"""A tree that was not drafted, drawn over the one that was: what would be gone is struck out, what is new is ringed.

Nodes keep their places while a threshold moves; under its slider a strip of dots shows where the values lie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import exp
from typing import TYPE_CHECKING, Any

from speclab.drafters.measures import Measure, measured
from speclab.trace.records import Step
from speclab.views.draft_tree import GONE, Ink, staged
from speclab.views.explain import hovers, plural
from speclab.views.figures import INK, LINE, MUTED, PAPER, Spec, lines, note
from speclab.views.markup import escape, quoted, tag
from speclab.views.networks import OWN, Graph, attach, graph
from speclab.views.playback import verified_root

if TYPE_CHECKING:
    from speclab.analysis.whatif import WhatIf

_SAME, _WOULD = "This iteration's tree would have been the same", "What this iteration's tree would have been"
_MOST_NAMED = 3
"""Nodes that a sentence names, before it counts the others."""


def whatif_spec(
    step: Step, found: WhatIf, selected: int | None = None, *, width: float = 640, height: float = 420,
    scale: float = 1.0,
) -> Spec:  # fmt: skip
    """The tree `found` over the step's own, as a figure. `selected`: a node of the step."""
    own, both = graph(step, tops=False), graph(step, tops=False)
    names = [f"new {node}" if at is None else at for node, at in enumerate(found.recorded)]
    tips = _merge(both, step, found, names)
    new = {name for name in names if not isinstance(name, int)}
    unknown = {names[node]: "→ ?" for node in found.unknown}
    ink = Ink(lambda _: tips, unknown, new, selected, name=f"what-if-{step.index + 1}")
    said = f"Draft tree. {whatif_sentence(step, found)}"
    drawn = staged(both, both, said, ink, width, height, scale, base=own)
    signs = ["struck out: gone"] * (len(names) - len(new) < len(step.tree)) + ["ringed: new"] * bool(new)
    if signs:  # above the root nothing is drawn
        font = {"size": 11 * scale, "color": MUTED}
        drawn["layout"]["annotations"] = [note("<br>".join(signs), 0, 1, yanchor="top", align="left", font=font)]
    return drawn


def _merge(both: Graph, step: Step, found: WhatIf, names: Sequence[Any]) -> dict[Any, str]:
    """Changes the step's graph into that of both trees; new nodes are last children. Returns the tooltips."""
    tree, kept, path = found.tree, set(names), {names[node] for node in found.accepted or ()}
    if OWN in both:
        both.remove_node(OWN)
    tips = {}
    for node, tip in enumerate(hovers(step, range(len(step.tree)))):
        at, gone = both.nodes[node], node not in kept
        at["accepted"] = node in path
        if gone:
            at["verdict"] = GONE
        tips[node] = lines(*(["would not be drafted"] if gone else []), *tip)
    for node, name in enumerate(names):
        if isinstance(name, int):
            continue
        token, prob, path_prob = int(tree.token[node]), exp(tree.log_prob[node]), exp(tree.path_log_prob[node])
        parent, verdict = names[int(tree.parent[node])], "accepted" if name in path else "drafted"
        attach(both, name, token, step.texts, parent, path_prob=path_prob, verdict=verdict, accepted=name in path)
        tips[name] = lines(
            f"{quoted(token, step.texts)} · id {token} · would be drafted as well",
            f"draft {prob:.3f} · path {path_prob:.3f}",
            "what the target would choose after it is not recorded",
        )
    if found.bonus is not None:
        last = names[found.accepted[-1]] if found.accepted else 0 if verified_root(step) else -1
        corrected = last == -1 or found.tree.children[found.accepted[-1] if found.accepted else 0]
        attach(both, OWN, found.bonus, step.texts, last, verdict="corrected" if corrected else "bonus")
    return tips


def whatif_sentence(step: Step, found: WhatIf) -> str:
    """What would have been, in one or two sentences: how large the tree, how many accepted, what is not recorded."""
    nodes, was = len(found.tree), len(step.tree)
    said = plural(nodes, "node") + (f" instead of {was}" if nodes != was else "")
    taken, took = len(found.accepted), len(step.accepted)
    some = "" if found.settled or found.unknown else "at least "
    said += f", {some}{taken} accepted" + (f" instead of {took}" if taken != took else "")
    if not found.unknown:
        same = found.recorded == tuple(range(was))
        return f"{_SAME if same else _WOULD}: {said}."
    names = []
    for node in found.unknown[:_MOST_NAMED]:
        at = found.recorded[node]
        token = quoted(int(found.tree.token[node]), step.texts)
        names.append(f"{'a new node' if at is None else f'node {at}'} {token}")
    more = len(found.unknown) - len(names)
    *first, last = [*names, *([f"{more} more"] if more else [])]
    listed = f"{', '.join(first)} and {last}" if first else last
    behind = "it" if len(found.unknown) == 1 else "them"
    words = f"{listed} would have more children, and the record does not hold what the draft says behind {behind}"
    return f"{_WOULD}, as far as the record knows: {said}. {words[0].upper()}{words[1:]}."


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
        place: of a value, from 0 at the left end to 1 at the right; beyond them it stands at the end.
    """
    values, rows = measured(step, measure), Counter[int]()
    words = strip_caption(values, measure, threshold)
    at = f"{_percent(place(threshold)):.1f}%"
    parts = [tag("line", x1="0%", x2="100%", y1=HEIGHT - 1, y2=HEIGHT - 1, style=f"stroke:{LINE};stroke-width:1")]
    for value in sorted(values):
        across = _percent(place(value))
        height = HEIGHT - 4.5 - 4.6 * min(rows[round(across)], ROWS - 1)
        rows[round(across)] += 1
        fill, edge = (INK, INK) if value >= threshold else (PAPER, MUTED)
        style = f"fill:{fill};stroke:{edge};stroke-width:1"
        parts.append(tag("circle", cx=f"{across:.1f}%", cy=round(height, 1), r=RADIUS, style=style))
    mark = "stroke:var(--jp-brand-color1,#1976d2);stroke-width:1.5"
    parts.append(tag("line", x1=at, x2=at, y1=0, y2=HEIGHT, style=mark))
    look = "display:block;overflow:visible"
    dots = tag("svg", *parts, width="100%", height=HEIGHT, role="img", aria_label=words, style=look)
    return tag("div", dots, class_="sl-strip") + tag("span", escape(words), class_="sl-count")


def strip_caption(values: Sequence[float], measure: Measure, threshold: float) -> str:
    """`9 of 14 paths reach it`."""
    if not values:
        return "nothing to compare in this iteration"
    above = sum([value >= threshold for value in values])
    return _WORDS[measure].format(above=above, count=len(values), most=max(values))


def _percent(share: float) -> float:
    return 100 * min(max(share, 0.0), 1.0)
