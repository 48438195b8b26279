"""Which of the draft's most probable tokens the target chose, by depth: the shape of the best fixed tree.

A tree that gives every node of depth d - 1 its r most probable children covers the first r rows of
column d.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pandas as pd
import plotly.express as px

from speclab.errors import NotRecordedError
from speclab.features.nodes import traces_of
from speclab.trace.records import Step
from speclab.views.drawing import ThemeName, template

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from speclab.engine.session import Session
    from speclab.trace.records import Trace

RANKS = 8
"""Ranks with a row of their own; the last row is what the draft did not name, or only further down."""


def ranks(
    runs: Trace | Session | Sequence[Trace | Session], *, theme: ThemeName = "light"
) -> Figure:
    """How often the target's token was the draft's most probable one, its second, … by depth.

    So a column says how many children pay at this depth: a tree with r children per node covers its
    first r rows. "missing" is what the draft did not name among its most probable. Below a depth:
    how often the drafted trees had the token, of how many positions on the target's path.

    Raises:
        NotRecordedError: nothing is recorded of what a draft held probable.
        SettingsError: an argument is not a run.
    """
    positions: list[tuple[int, str, bool]] = []
    for trace in traces_of(runs):
        for step in trace.steps:
            positions += _positions(step)
    frame = pd.DataFrame(positions, columns=["depth", "rank", "drafted"])
    if frame.empty:
        raise NotRecordedError(
            "It is not recorded what a draft held probable: decode with one that has probabilities."
        )
    shares = pd.crosstab(frame["rank"], frame.depth, normalize="columns")
    rows = list(map(str, range(1, RANKS + 1))) + ["missing"]
    figure = px.imshow(
        shares.reindex(rows, fill_value=0),
        text_auto=".0%",
        aspect="auto",
        zmin=0,
        zmax=1,
        template=template(theme),
    )
    covered = frame.groupby("depth").drafted.agg(["mean", "size"]).itertuples()
    ticks = {depth: f"{depth}<br>{share:.0%} of {size}" for depth, share, size in covered}
    figure.update_xaxes(tickvals=list(ticks), ticktext=list(ticks.values()))
    title = "depth, and how often the drafted tree had the target's token"
    figure.update_yaxes(type="category", showgrid=False)
    return figure.update_layout(xaxis_title=title, coloraxis_showscale=False, margin_t=16)


def _positions(step: Step) -> Iterable[tuple[int, str, bool]]:
    """Depth, rank of the text's token and whether the tree had it, after each node of the path."""
    tree = step.tree
    # after a drafted root, the path's first token is the root itself
    first = 1 if 0 in step.drafted else 0
    for node, token in zip(step.path, step.committed[first:], strict=False):
        likely = [candidate for candidate, _ in step.nodes[node].draft_top[:RANKS]]
        if likely:
            rank = "missing"
            if token in likely:
                rank = str(likely.index(token) + 1)
            drafted = tree.token[list(tree.children[node])]
            yield int(tree.depth[node]) + 1 + first, rank, token in drafted
