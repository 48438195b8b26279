"""Draw another tree over the drafted one: the effect of a setting, or a tree built by hand.

Nodes that would go are struck out, new nodes are marked. Under a slider, `dots` shows the values of
this iteration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from html import escape
from math import exp
from typing import TYPE_CHECKING, Any

from speclab.drafters.base import Measure, measured
from speclab.trace.records import Step
from speclab.tree import DraftTree
from speclab.views.networks import OWN, attach, step_graph
from speclab.views.phases import verified_root
from speclab.views.theme import Spec
from speclab.views.tokens import percent, plot_lines, plural, quoted
from speclab.views.tree_picture import codes, tree_figure, tree_table

if TYPE_CHECKING:
    from speclab.analysis.whatif import WhatIf

DOTS = 18
RADIUS = 2.3
STACK = 3
"""Pixels of a strip of dots, pixels of a dot, and most dots above each other."""
_WORDS: dict[Measure, str] = {
    "confidence": "{above} of {count} expanded nodes reach it",
    "path probability": "{above} of {count} paths reach it",
    "token probability": "{above} of {count} tokens reach it",
    "depth": "{above} of {count} nodes reach it",
    "nodes": "{most:.0f} in this tree",
}


def preview(
    step: Step,
    tree: DraftTree,
    recorded: Sequence[int | None],
    sentence: str,
    accepted: Sequence[int] | None = None,
    bonus: int | None = None,
    unknown: Sequence[int] = (),
) -> dict[str, Any]:
    """Combine the step's tree and another one into one table for the page and `tree_figure`.

    Args:
        step: the iteration shown.
        tree: the other tree.
        recorded: for each node of `tree` the same node of the step's tree, None if it is new.
        sentence: the description of the preview.
        accepted: nodes of `tree` that would be accepted, None if that is not known.
        bonus: the target's own token after them, if it is known.
        unknown: nodes of `tree` whose further children are not recorded.
    """
    names: list[Any] = [
        f"new {node}" if same is None else same for node, same in enumerate(recorded)
    ]
    path = {names[node] for node in accepted or ()}
    made = step_graph(step)
    if OWN in made:
        made.remove_node(OWN)
    kinds: dict[Any, str | None] = {}
    for node, data in made.nodes.items():
        data["accepted"] = node in path
        kinds[node] = data["verdict"]
        if node not in names:
            kinds[node] = "gone"
        elif node in path:
            kinds[node] = "accepted"
        elif accepted is None and data["verdict"] != "root":
            kinds[node] = "drafted"
    tips = {}
    for node, name in enumerate(names):
        if name in made:
            continue
        prob = exp(tree.log_prob[node])
        path_prob = exp(tree.path_log_prob[node])
        kinds[name] = "accepted" if name in path else "new"
        token = int(tree.token[node])
        parent = names[int(tree.parent[node])]
        attach(made, name, token, step.texts, parent, "new", path_prob=path_prob)
        made.nodes[name]["accepted"] = name in path
        tips[name] = plot_lines(
            f"{quoted(token, step.texts)} · id {token}: would be drafted too",
            f"draft {percent(prob)} · path {percent(path_prob)}",
        )
    if bonus is not None and accepted is not None:
        last = names[accepted[-1]] if accepted else 0 if verified_root(step) else -1
        open_end = last != -1 and not tree.children[accepted[-1] if accepted else 0]
        kinds[OWN] = "bonus" if open_end else "corrected"
        attach(made, OWN, bonus, step.texts, last, kinds[OWN] or "")
    table = tree_table(made, tips, first=[name for name in names if not isinstance(name, int)])
    second = {names[node]: "→ ?" for node in unknown}
    return {"tree": table, "kinds": codes(table, kinds), "sentence": sentence, "second": second}


def whatif_preview(step: Step, found: WhatIf) -> dict[str, Any]:
    """The `preview` of a what-if."""
    sentence = whatif_sentence(step, found)
    return preview(
        step, found.tree, found.recorded, sentence, found.accepted, found.bonus, found.unknown
    )


def draw_whatif(step: Step, found: WhatIf) -> Spec:
    """The figure of `what_if_preview`."""
    made = whatif_preview(step, found)
    return tree_figure(made["tree"], made["kinds"], made["sentence"], second=made["second"])


def whatif_sentence(step: Step, found: WhatIf) -> str:
    """`Preview: 18 nodes instead of 19, 2 accepted.` and what the record does not contain."""
    nodes = len(found.tree)
    was = len(step.tree)
    words = plural(nodes, "node") + (f" instead of {was}" if nodes != was else "")
    taken = len(found.accepted)
    took = len(step.accepted)
    least = "" if found.settled or found.unknown else "at least "
    words += f", {least}{taken} accepted" + (f" instead of {took}" if taken != took else "")
    if not found.unknown:
        same = found.recorded == tuple(range(was))
        return f"Preview: the same tree, {words}." if same else f"Preview: {words}."
    first = quoted(int(found.tree.token[found.unknown[0]]), step.texts)
    more = f" and {plural(len(found.unknown) - 1, 'other node')}" if len(found.unknown) > 1 else ""
    return (
        f"Preview: {words}. {first}{more} would have children that this iteration did not record."
    )


def dots(step: Step, measure: Measure, threshold: float, place: Callable[[float], float]) -> str:
    """The values of an iteration as HTML dots, filled from `threshold` on, and as a sentence.

    `place`: the position of a value, from 0 at the left to 1 at the right.
    """
    values = measured(step, measure)
    words = "nothing to compare in this iteration"
    if values:
        above = sum(value >= threshold for value in values)
        words = _WORDS[measure].format(above=above, count=len(values), most=max(values))
    stacked = Counter[int]()
    parts = []
    for value in sorted(values):
        across = _percent(place(value))
        height = DOTS - 4.5 - 4.6 * min(stacked[round(across)], STACK - 1)
        stacked[round(across)] += 1
        fill = "currentColor" if value >= threshold else "none"
        parts.append(
            f'<circle cx="{across:.1f}%" cy="{height:.1f}" r="{RADIUS}" fill="{fill}" stroke="currentColor"/>'
        )
    mark = f"{_percent(place(threshold)):.1f}%"
    line = f'<line x1="0%" x2="100%" y1="{DOTS - 1}" y2="{DOTS - 1}" stroke="#8884"/>'
    blue = 'stroke="var(--jp-brand-color1, #1976d2)" stroke-width="1.5"'
    here = f'<line x1="{mark}" x2="{mark}" y1="0" y2="{DOTS}" {blue}/>'
    label = f'role="img" aria-label="{escape(words)}" style="display:block;overflow:visible"'
    drawn = f'<svg width="100%" height="{DOTS}" {label}>{line}{"".join(parts)}{here}</svg>'
    return f'<div class="sl-strip">{drawn}</div><span class="sl-count">{escape(words)}</span>'


def _percent(share: float) -> float:
    return 100 * min(max(share, 0.0), 1.0)
