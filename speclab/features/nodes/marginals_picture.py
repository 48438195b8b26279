"""What drafters stated of their tokens, and whether these were right on and off the accepted path.

A draft model and an EAGLE head state a token's probability given its parent, which means the same
on and off the path. A block head states marginals: below every sibling it predicts what follows
the most probable one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import plotly.express as px

from speclab.errors import NotRecordedError, SettingsError, named
from speclab.features.nodes import calibration, nodes
from speclab.views.drawing import ThemeName, template
from speclab.views.run_data import LOOKS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from speclab.engine.session import Session
    from speclab.trace.records import Trace

EDGES = (0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Stated probabilities are sorted into bins with these edges."""
FEWEST = 8
"""Nodes that a point stands for, at least."""
ABOVE = "all, by the stated probability"
BELOW = "first children, by depth"
SIDES = {True: "accepted", False: "rejected"}
"""The look of a node by whether its parent was accepted."""


def marginals(
    runs: Mapping[str, Sequence[Trace | Session]], *, theme: ThemeName = "light"
) -> Figure:
    """Whether the probabilities that drafters stated came true, on and off the accepted path.

    Above, over the stated probability, the share of drafted tokens that equal the target's choice
    after their parent; below, over depth, that of the most probable child of each node. A draft
    model and an EAGLE head know the parent, so both lines agree; a block head does not.

    Args:
        runs: by the name of a drafter, what it decoded.

    Raises:
        NotRecordedError: a drafter drafted nothing, or the target's choices were not recorded.
        SettingsError: `runs` is no mapping, or empty.
    """
    given: object = runs
    if not isinstance(given, Mapping) or not given:
        raise SettingsError(
            f'Expected runs by name, as in {{"DynaTree": [session]}}, got {named(runs)}.'
        )
    parts: list[pd.DataFrame] = []
    for name, traces in runs.items():
        parts += _points(name, traces)
    points = pd.concat(parts)
    points["parent"] = points.parent_accepted.map(SIDES)
    points = points[points["count"] >= FEWEST]
    known = LOOKS["nodes"]
    figure = px.line(
        # what was stated has a line of its own: the diagonal above
        points.melt(["drafter", "panel", "parent", "x", "count"], ["right", "stated"], "share"),
        x="x",
        y="value",
        color="parent",
        symbol="parent",
        line_dash="share",
        facet_col="drafter",
        facet_row="panel",
        hover_data=["count"],
        color_discrete_map={kind: known[kind]["color"] for kind in SIDES.values()},
        symbol_map={kind: known[kind]["symbol"] for kind in SIDES.values()},
        template=template(theme),
        width=960,
        height=540,
    )
    figure.for_each_annotation(lambda note: note.update(text=note.text.partition("=")[2]))
    figure.update_xaxes(matches=None, showticklabels=True, title="")
    figure.update_xaxes(type="log", tickvals=(0.01, 0.1, 1), tickformat=".0%", row=2)
    figure.update_xaxes(dtick=1, row=1)
    figure.update_yaxes(tickformat=".0%", title="")
    return figure.update_layout(legend_y=1.06, legend_title_text="parent:", margin_t=72)


def _points(name: str, traces: Sequence[Trace | Session]) -> Iterable[pd.DataFrame]:
    """The share that was right by the stated probability, and that of first children by depth."""
    frame = nodes(traces)
    bins = calibration(frame.assign(bin=np.digitize(frame.draft_prob, EDGES)), "bin")
    if bins.empty:
        raise NotRecordedError(
            f"{name}: nothing was drafted, or the target's choices are not recorded."
        )
    firsts = calibration(frame[frame["rank"] == 1], "depth")
    yield bins.assign(drafter=name, panel=ABOVE, x=bins.stated)
    yield firsts.assign(drafter=name, panel=BELOW, x=firsts.depth)
