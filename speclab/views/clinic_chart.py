"""The signature of a fault: acceptance by depth of several runs, one curve each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from speclab.trace.records import Step, depth_counts
from speclab.views.figures import Spec, escape, spec
from speclab.views.palette import SOURCE_COLORS

_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "x", "diamond", "square", "triangle-up", "cross")


def acceptance_spec(runs: Mapping[str, Sequence[Step]]) -> Spec:
    """For each depth, of the iterations that drafted so deep, the share that accepted so deep; `runs` by name."""
    data: list[Spec] = []
    said = []
    for place, (name, steps) in enumerate(runs.items()):
        counts = depth_counts(steps)
        shares = [round(accepted / drafted, 4) for drafted, accepted in counts]
        look = SOURCE_COLORS[place % len(SOURCE_COLORS)]
        tips = [f"{name}, depth {depth}: {accepted} of {drafted} iterations"
                for depth, (drafted, accepted) in enumerate(counts, 1)]  # fmt: skip
        data.append({
            "type": "scatter", "mode": "lines+markers", "name": escape(name), "x": list(range(1, len(shares) + 1)),
            "y": shares, "line": {"color": look, "width": 2, "dash": _DASHES[place % len(_DASHES)]},
            "marker": {"symbol": _SYMBOLS[place % len(_SYMBOLS)], "size": 9, "color": look},
            "hoverinfo": "text", "hovertext": list(map(escape, tips)), "showlegend": True,
        })  # fmt: skip
        said.append(f"{name} " + ", ".join([f"{share:.0%}" for share in shares]))
    return spec(
        data, label=f"Acceptance by depth, from 1 on: {'; '.join(said)}.", height=300, showlegend=True,
        legend={"x": 1.02, "y": 1}, margin={"l": 56, "r": 12, "t": 12, "b": 42}, dragmode=False,
        xaxis={"title": {"text": "depth"}, "dtick": 1},
        yaxis={"title": {"text": "accepted / drafted at this depth"}, "range": [-0.03, 1.05], "tickformat": ".0%"},
    )  # fmt: skip
