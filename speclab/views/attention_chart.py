"""What a node attends to: the weights of one head, or a mean over heads or layers, above the mask row that allows them.

The weights come from `speclab.Session.attentions`. Of a long prefix its first token, on which many heads rest, and its
newest stand alone; of a large tree the nodes that the mask lets it see. What is left is one bar each. A weight on what
the mask hides would be an error, and is marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from speclab.trace.records import Step
from speclab.views import markup
from speclab.views.attention_mask import COLORS, HIDDEN, MISSING, PREFIX, WORDS, WRONG_COLOR, categories
from speclab.views.figures import MUTED, Spec, coded, escape, spec
from speclab.views.palette import PLOT_MONO

Weights = NDArray[np.float32]
TAIL, ALL = 12, 16
"""Tokens of the prefix that stand alone before the tree; nodes up to which every one does."""
LEAK = 1e-6
"""A weight above this is no rounding."""


_FONT = {"size": 11, "family": PLOT_MONO, "color": MUTED}


class _Column(NamedTuple):
    """A bar: the node that a click selects, what stands under it and in its tooltip, its weight, its mask entry."""

    node: int | None
    label: str
    name: str
    weight: float
    code: int


def attention_drawing(
    step: Step,
    node: int,
    weights: Weights,
    layer: int | None = None,
    head: int | None = None,
    *,
    prefix: Sequence[str] = (),
) -> tuple[Spec, str]:
    """The attention of a node: bars, below them its row of the mask, where a click selects a node; then an HTML table.

    Args:
        step: an iteration.
        node: of its tree.
        weights: `[layers, heads, prefix_length + n]`, as `Session.attentions(node)` gives them.
        layer, head: counted from 0; None: the mean over all of them.
        prefix: texts of the prefix's tokens, if they are known.
    """
    columns = _columns(step, node, picked(weights, layer, head), prefix)
    nodes, labels, names, heights, codes = zip(*columns, strict=True)
    wrong = [code == HIDDEN and weight > LEAK for weight, code in zip(heights, codes, strict=True)]
    bars = {
        "type": "bar", "y": [round(weight, 5) for weight in heights], "hovertext": [*map(escape, names)],
        "marker": {"color": [WRONG_COLOR if bad else COLORS[code] for bad, code in zip(wrong, codes, strict=True)]},
        "text": [f"× {weight:.2g}" if bad else f"{weight:.2f}" if weight >= 0.05 else ""
                 for bad, weight in zip(wrong, heights, strict=True)],
        "textposition": "outside", "textangle": 0, "textfont": _FONT, "cliponaxis": False, "constraintext": "none",
        "customdata": [*nodes], "hovertemplate": "%{hovertext}: %{y:.4f}<extra></extra>", "meta": {"click": "node"},
    }  # fmt: skip
    row = coded(np.array([codes], np.uint8), COLORS, WORDS, y=[0], yaxis="y2", xgap=1,
                hovertemplate="%{text}<extra></extra>")  # fmt: skip
    drawn = spec(
        [bars, row], label=attention_summary(step, node, weights, layer, head), height=260, bargap=0.15,
        xaxis={"tickvals": [*range(len(columns))], "ticktext": [*map(escape, labels)], "tickangle": -60,
               "tickfont": _FONT, "anchor": "y2", "showgrid": False, "showline": False,
               "range": [-0.6, len(columns) - 0.4]},
        yaxis={"domain": [0.14, 1], "range": [0, 1.15 * max(heights)], "tickfont": _FONT, "nticks": 5,
               "title": {"text": "weight", "font": _FONT}},
        yaxis2={"domain": [0, 0.08], "showgrid": False, "zeroline": False, "showticklabels": False, "ticks": "",
                "title": {"text": "mask", "font": _FONT}},
        meta={"name": f"attention-{node}", "selected": node}, margin={"l": 52, "r": 12, "t": 18, "b": 84},
    )  # fmt: skip
    rows = [(column.name, column.weight, "hidden" if column.code == HIDDEN else "visible") for column in columns]
    return drawn, markup.table(f"What node {node} attends to", ("entry", "weight", "mask"), rows)


def picked(weights: Weights, layer: int | None = None, head: int | None = None) -> NDArray[np.float64]:
    """`[prefix_length + n]` of one head of one layer, the mean over all of them where None is asked for."""
    layers = weights if layer is None else weights[layer : layer + 1]
    heads = layers if head is None else layers[:, head : head + 1]
    mean: NDArray[np.float64] = heads.mean(axis=(0, 1), dtype=np.float64)
    return mean


def _codes(step: Step, node: int) -> list[int]:
    """The node's row of the mask, one code for each weight."""
    row = categories(step)[node, : step.prefix_length + len(step.tree)]
    codes: list[int] = np.where(row == MISSING, HIDDEN, row).tolist()
    return codes


def _columns(step: Step, node: int, values: NDArray[np.float64], prefix: Sequence[str]) -> list[_Column]:
    """The prefix: its first token, what lies between, the newest; the nodes, and what a large tree hides from this."""
    length, codes = step.prefix_length, _codes(step, node)

    def token(at: int) -> _Column:
        said = markup.display(prefix[at]) if at < len(prefix) else ""
        label = markup.clip(said, 10) or f"token {at}"
        return _Column(None, label, f"token {at} {said}".strip(), float(values[at]), codes[at])

    def together(places: Sequence[int], label: str, name: str) -> _Column:
        leaks = any(codes[at] == HIDDEN and values[at] > LEAK for at in places)
        code = PREFIX if not leaks and any(codes[at] != HIDDEN for at in places) else HIDDEN
        return _Column(None, label, name, float(values[[*places]].sum()), code)

    newest, n = length - TAIL, len(step.tree)
    columns = [token(at) for at in range(length) if newest <= 2 or not 0 < at < newest]
    if newest > 2:
        columns.insert(1, together(range(1, newest), f"{newest - 1} between", f"{newest - 1} tokens between"))
    hidden = [at for at in range(length, length + n) if n > ALL and codes[at] == HIDDEN]
    for at, id_ in enumerate(step.tree.token.tolist()):
        if not hidden or codes[length + at] != HIDDEN:
            name = markup.label(id_, step.texts, 10)
            entry = float(values[length + at]), codes[length + at]
            columns.append(_Column(at, f"{at} {name}", f"node {at} {name}", *entry))
    rest = [together(hidden, f"{len(hidden)} hidden", f"{len(hidden)} hidden nodes")] if hidden else []
    return [*columns, *rest]


def attention_summary(
    step: Step, node: int, weights: Weights, layer: int | None = None, head: int | None = None
) -> str:
    """One sentence: whose attention, how much of it goes to the prefix and to which nodes, and whether any leaks."""
    length, values = step.prefix_length, picked(weights, layer, head)
    whose = f"Node {node} {markup.quoted(int(step.tree.token[node]), step.texts)}"
    of = [f"mean of all {name}s" if at is None else f"{name} {at}" for name, at in (("layer", layer), ("head", head))]
    shares = {f"{values[:length].sum():.0%} to the prefix": 1.0}
    for at in np.argsort(-values[length:], kind="stable")[:3].tolist():
        shares[f"{values[length + at]:.0%} to {'itself' if at == node else f'node {at}'}"] = values[length + at]
    said = ", ".join([share for share, weight in shares.items() if weight >= 0.005])
    leak = float(values[np.array(_codes(step, node)) == HIDDEN].sum())
    check = "nothing to what the mask hides" if leak <= LEAK else f"✗ {leak:.2g} to what the mask hides"
    return f"{whose}, {', '.join(of)}: {said}; {check}."
