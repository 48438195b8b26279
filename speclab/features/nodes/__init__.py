"""Every drafted node of recorded runs as a pandas DataFrame, one row each; needs no torch.

import plotly.express as px

frame = speclab.nodes(session)
rates = frame[frame.tried].groupby(["strategy", "depth"]).accepted.mean().reset_index()
px.line(rates, x="depth", y="accepted", color="strategy")
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from speclab.trace.columns import COLUMNS
from speclab.trace.records import Trace, trace_of

if TYPE_CHECKING:
    from speclab.engine.session import Session

DTYPES = {
    "run": "int64",
    **{column.name: column.dtype for column in COLUMNS},
    "strategy": "str",
}


def nodes(traces: Trace | Session | Iterable[Trace | Session]) -> pd.DataFrame:
    """One row per drafted node of one or more runs; `run` is the place of the run among `traces`,
    `strategy` its strategy, and the table `speclab.trace.columns.COLUMNS` has the other columns.

    Rejection sampling does not try children after the accepted one, and nodes below the end of the
    text are not tried. A node at depth 5 is tried only if the four tokens before it were right, so
    in text that is easy to guess.

    The target runs on rejected branches too, so `right` is known for their nodes as well (not for
    candidates that were drawn by the draft's probabilities): `views.marginals` compares it with
    what the drafter stated.

    Raises:
        SettingsError: an argument is not a run.
    """
    rows: list[dict[str, Any]] = []
    for number, trace in enumerate(traces_of(traces)):
        strategy = str(trace.settings.get("strategy", ""))
        for step in trace.steps:
            for node in step.drafted:
                row = {column.name: column.of(step, node) for column in COLUMNS}
                rows.append({"run": number, **row, "strategy": strategy})
    return pd.DataFrame(rows, columns=list(DTYPES)).astype(DTYPES)


for _column in COLUMNS:
    nodes.__doc__ = f"{nodes.__doc__}\n    `{_column.name}`: {_column.meaning}"


def traces_of(runs: Any) -> list[Trace]:
    """The traces of runs, or of one; raises `SettingsError` for anything else."""
    if not isinstance(runs, Iterable) or isinstance(runs, str):
        return [trace_of(runs)]
    return [trace_of(run) for run in runs]


def calibration(frame: pd.DataFrame, by: str) -> pd.DataFrame:
    """Whether stated probabilities come true, of the rows of `nodes` by `parent_accepted` and the
    column `by`.

    Columns after these two: `count`, `stated` (mean of `draft_prob`), `right` (share).
    """
    grouped = frame.dropna(subset=["right", "draft_prob"]).groupby(
        ["parent_accepted", by], observed=True
    )
    return grouped.agg(
        count=("right", "size"), stated=("draft_prob", "mean"), right=("right", "mean")
    ).reset_index()
