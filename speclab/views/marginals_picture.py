"""What drafters stated of their tokens, and whether these were right on and off the accepted path.

A draft model and an EAGLE head state a token's probability given its parent, which means the same
on and off the path. A block head states marginals: below every sibling it predicts what follows
the most probable one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from speclab.analysis.nodes import calibration, nodes
from speclab.errors import NotRecordedError
from speclab.views.drawing import ThemeName, call, figure
from speclab.views.run_data import looks

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from speclab.engine.session import Session
    from speclab.trace.records import Trace

EDGES = (0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Stated probabilities are sorted into bins with these edges."""
FEWEST = 8
"""Nodes that a point stands for, at least."""
SIDES = {
    True: ("its parent accepted", "accepted", "solid"),
    False: ("its parent not accepted", "rejected", "dash"),
}


def draw_marginals(
    runs: Mapping[str, Sequence[Trace | Session]], theme: ThemeName = "light"
) -> Figure:
    """Two panels for each drafter."""
    from plotly.subplots import make_subplots

    titles = [call("plotText", name) for name in runs]
    titles += ["first children by depth (open: stated)"] * len(runs)
    made = make_subplots(
        2, len(runs), subplot_titles=titles, horizontal_spacing=0.07, vertical_spacing=0.22
    )
    made.update_annotations(font_size=12)
    sentences = [_rates(made, column, *each) for column, each in enumerate(runs.items(), start=1)]
    meta = {"name": "marginals", "sentence": " ".join(sentences)}
    made.update_layout(**looks()["marginals"]["layout"], meta=meta)
    made.update_yaxes(title_text="right", col=1)
    return figure(theme, "Object", made.to_plotly_json())  # it is drawn: Object returns it


def _rates(made: Figure, column: int, name: str, traces: Sequence[Trace | Session]) -> str:
    """The share that was right over the stated probability; below it that of first children over depth."""
    frame = nodes(traces)
    bins = calibration(frame.assign(bin=np.digitize(frame.draft_prob, EDGES)), "bin")
    firsts = frame[frame["rank"] == 1]
    if bins.empty:
        raise NotRecordedError(
            f"{name}: nothing was drafted, or the target's choices are not recorded."
        )
    fixed = looks()["marginals"]
    ends = [*EDGES, 1]
    first = {"showlegend": column == 1, "row": 1, "col": column}
    made.add_scatter(x=ends, y=ends, **fixed["as stated"], **first)
    shares = []
    for side, (label, _, _) in SIDES.items():
        _side(made, (1, column), side, "stated", bins)
        _side(made, (2, column), side, "depth", calibration(firsts, "depth"))
        later = firsts[(firsts.parent_accepted == side) & (firsts.depth > 1)]
        if len(later):
            stated = later.draft_prob.mean()
            shares.append(f"{later.right.mean():.0%} with {label} (stated: {stated:.0%})")
    made.update_xaxes(fixed["probability"], row=1, col=column)
    made.update_xaxes(fixed["depth"], row=2, col=column)
    made.update_yaxes(fixed["share"], col=column)
    rates = " and in ".join(shares) or "no case"
    return f"{name}: from depth 2 on, the first child was right in {rates}."


def _side(made: Figure, place: tuple[int, int], side: bool, x: str, points: pd.DataFrame) -> None:
    """The line of one side in a panel; in the lower one also what was stated, as open symbols."""
    label, kind, dash = SIDES[side]
    row, column = place
    points = points[(points.parent_accepted == side) & (points["count"] >= FEWEST)]
    fixed = looks()
    look = fixed["nodes"][kind]
    symbol = look["symbol"]
    color = look["color"]
    tips = [
        f"{label}, nodes: {count}<br>stated {stated:.1%}, right {right:.1%}"
        for count, stated, right in zip(points["count"], points.stated, points.right, strict=True)
    ]
    shared = {"x": points[x].tolist(), "hovertext": tips, "row": row, "col": column}
    made.add_scatter(
        **shared,
        **fixed["marginals"]["right"],
        y=points.right.tolist(),
        name=label,
        showlegend=column == row == 1,
        line={"color": color, "dash": dash},
        marker={"symbol": symbol, "size": 8},
    )
    if row == 2:
        hollow = {"symbol": f"{symbol}-open", "size": 8, "color": color}
        stated = points.stated.tolist()
        made.add_scatter(**shared, **fixed["marginals"]["stated"], y=stated, marker=hollow)
