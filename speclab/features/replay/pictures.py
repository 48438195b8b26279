"""Pictures of replays: over a setting, and over the texts of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from speclab.trace.metrics import INTERVAL, drawn_again
from speclab.views.drawing import ThemeName, figure, template

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from speclab.features.replay.curves import Curve


def curve(found: Curve, *, theme: ThemeName = "light") -> Figure:
    """Tokens per iteration over the range of a setting, from replays (`speclab.curves`)."""
    drawn = figure(theme, "curveFigure", found.data())
    title = found.name.replace("_", " ")
    return drawn.update_layout(height=240, margin_b=44, xaxis_title_text=title)


def replays(frame: pd.DataFrame) -> Figure:
    """Tokens per iteration on each answer of a log (`speclab.features.replay.logs.replay_texts`), a point per prompt,
    and of all prompts with a 95 % interval over them (bootstrap).
    """
    import plotly.express as px

    replayed = frame[frame.refused == ""]
    look = {"hover_data": ["prompt", "inexact"], "template": template()}
    drawn = px.strip(replayed, "tokens_per_iteration", "strategy", **look)
    for name, own in replayed.groupby("strategy"):
        mean = own.tokens.sum() / own.iterations.sum()
        rows = drawn_again(len(own))
        tokens = own.tokens.to_numpy()[rows].sum(axis=1)
        low, high = np.quantile(tokens / own.iterations.to_numpy()[rows].sum(axis=1), INTERVAL)
        label = f"{name}: {mean:.2f} ({low:.2f} to {high:.2f})"
        ends = {"array": [high - mean], "arrayminus": [mean - low]}
        drawn.add_scatter(x=[mean], y=[name], error_x=ends, name=label)
    return drawn
