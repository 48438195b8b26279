"""Makes a plotly figure follow the notebook's theme: plotly reads no CSS variable, but its SVG obeys CSS."""

from __future__ import annotations

from typing import Any

from speclab.views.figure import TRACES
from speclab.views.palette import LOOKS, css

_INK = css("light")


def figure_style(figure: Any) -> str:
    """CSS for the figure of `tree_figure`; its traces are told apart by their uid."""
    rules = [f".speclab-tree .{part} text{{fill:{_INK.muted}!important}}" for part in ("xtick", "legend", "annotation")]
    for trace, name in zip(figure.data, TRACES, strict=True):
        rules += [f".speclab-tree .trace{trace.uid} {rule}" for rule in _rules(name)]
    return "".join(rules)


def _rules(name: str) -> list[str]:
    if name in LOOKS:
        look = LOOKS[name]
        filled = [f".point{{stroke:{_INK.ink}!important}}"]
        if name == "root":
            filled.append(f".point{{fill:{_INK.root}!important}}")
        return filled if look.filled else [f".point{{fill:{_INK.paper}!important}}"]
    return {
        "plain": [f".js-line{{stroke:{_INK.line}!important}}"],
        "choice": [f".js-line{{stroke:{_INK.ink}!important}}"],
        "fresh": [f".point{{stroke:{_INK.muted}!important}}"],
        "selected": [f".point{{stroke:{_INK.ink}!important}}"],
        "stub": [f".point{{stroke:{_INK.muted}!important}}"],
        "label": [f"text{{fill:{_INK.ink}!important}}"],
        "note": [f"text{{fill:{_INK.muted}!important}}"],
    }.get(name, [])
