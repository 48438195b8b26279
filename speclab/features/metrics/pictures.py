"""The picture of the metrics of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.errors import NotRecordedError
from speclab.trace.records import trace_of
from speclab.views.drawing import ThemeName, call, figure
from speclab.views.run_data import run_steps

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from speclab.engine.session import Session
    from speclab.trace.records import Trace


def metrics(
    trace: Trace | Session, cursor: int | None = None, *, theme: ThemeName = "light"
) -> Figure:
    """Tokens per iteration, and milliseconds by phase, over the iterations up to `cursor`.

    Raises:
        NotRecordedError: the run has no iteration yet.
    """
    steps = run_steps(trace_of(trace), cursor)
    if not steps:
        raise NotRecordedError("This run has no iteration yet: decode one first.")
    first = call("firstShown", len(steps), len(steps))
    return figure(theme, "metricsFigure", steps, first)
