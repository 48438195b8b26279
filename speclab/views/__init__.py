"""Pictures of a Step or a Trace: pure functions that return plotly figures.

    from speclab import views

    views.tree(step)            views.mask(step, 6, theme="dark")            views.timeline(trace)

They are the lab's pictures: functions of the page draw them (`speclab.views.drawing`). `graph`
returns the draft tree as a networkx graph, and `text` the text as HTML. No module has the name of
one of these functions, because importing it would hide the function.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclab.errors import NotRecordedError
from speclab.files import write_whole
from speclab.trace.records import Event, Step, Trace, step_of, trace_of
from speclab.views.drawing import Phase, ThemeName, call, position, template
from speclab.views.drawing import figure as _figure
from speclab.views.exported_page import page
from speclab.views.networks import graph, node_id, tree_nodes
from speclab.views.run_data import curve_data, run_steps, what_if_data
from speclab.views.static_html import text

if TYPE_CHECKING:
    import pandas as pd
    from networkx import DiGraph
    from plotly.graph_objects import Figure

    from speclab.analysis.compare import Comparison
    from speclab.analysis.curves import Curve
    from speclab.analysis.whatif import WhatIf
    from speclab.engine.session import Session

__all__ = [
    "cache", "compare", "curve", "event_words", "export_html", "graph", "marginals", "mask",
    "metrics", "node", "ranks", "replays", "residual", "template", "text", "timeline", "tree", "whatif",
]  # fmt: skip


def tree(
    step: Step | DiGraph[Any],
    selected: Any = None,
    *,
    phase: Phase = "all",
    level: int | None = None,
    width: int = 900,
    height: int = 380,
    theme: ThemeName = "light",
) -> Figure:
    """The draft tree of an iteration: depth to the right, verdicts as colours and symbols, tokens
    beside the nodes.

    A networkx DiGraph becomes the same picture, so that the tree of another tool is one line: its
    nodes have `text` or `token`, and may have `log_prob` (nats, given the parent), `verdict` and
    `accepted`. It has no phases.

    Args:
        selected: a node that gets a ring.
        phase: how far the iteration has come.
        level: in draft, the levels drafted so far (0: the root); in accept, the decisions so far.
        width: pixels.
        height: pixels; nodes that do not fit are folded into stubs such as `+37`.

    Raises:
        NotRecordedError: there is no such node.
        SettingsError: there is no such phase or level, or the graph is no tree of tokens.
    """
    at = position(phase, level)
    options: dict[str, Any] = {"width": width, "height": height}
    if isinstance(step, Step):
        options["selected"] = _node_of(step, selected)
        return _figure(theme, "treeFigure", step, at, options)
    nodes = tree_nodes(step)
    if selected is not None:
        if selected not in step:
            raise NotRecordedError(f"There is no node {selected!r} in the graph.")
        options["selected"] = node_id(selected)
    return _figure(theme, "anyTreeFigure", nodes, options)


def mask(
    step: Step,
    selected: int | None = None,
    *,
    phase: Phase = "all",
    level: int | None = None,
    theme: ThemeName = "light",
) -> Figure:
    """The attention mask of the verification pass: one row per node, the prefix folded into a band.

    Args:
        selected: a node whose row and column get a frame.
        phase: how far the iteration has come; before verify, the expected mask of the nodes so far.
        level: as in `tree`.
    """
    options = {"selected": _node_of(step, selected)}
    return _figure(theme, "maskFigure", step, position(phase, level), options)


def cache(
    step: Step,
    selected: int | None = None,
    *,
    prompt_length: int = 0,
    phase: Phase = "all",
    level: int | None = None,
    theme: ThemeName = "light",
) -> Figure:
    """The KV caches of an iteration, slot by slot, during the pass and after the commit, with
    arrows for moved rows.

    Args:
        selected: a node whose slot gets a frame.
        prompt_length: how many of the first slots belong to the prompt.
        phase: how far the iteration has come.
        level: as in `tree`.

    Raises:
        NotRecordedError: the iteration has no record of its caches.
    """
    selected = _node_of(step, selected)
    if not step.caches:
        raise NotRecordedError("This iteration has no record of its caches.")
    at = position(phase, level)
    return _figure(theme, "cacheFigure", step, prompt_length, selected, at)


def node(step: Step, selected: int = 0, *, theme: ThemeName = "light") -> Figure:
    """The most probable next tokens after a node, for the target and for the draft, side by side.

    Raises:
        NotRecordedError: there is no such node.
    """
    return _figure(theme, "nodeFigure", step, _node_of(step, selected))


def residual(step: Step, *, theme: ThemeName = "light") -> Figure:
    """Where sampling stopped: the target's and the draft's distribution, and the residual that the
    target drew from.

    Raises:
        NotRecordedError: the iteration drew nothing, as at temperature 0.
    """
    if step_of(step).residual is None:
        raise NotRecordedError(
            "This iteration drew from no residual: decode at a temperature above 0."
        )
    return _figure(theme, "residualFigure", step)


def whatif(step: Step, found: WhatIf, *, theme: ThemeName = "light") -> Figure:
    """The tree that another setting would have drafted (`speclab.what_if`), over the tree of the iteration."""
    return _figure(theme, "whatIfFigure", step_of(step), what_if_data(found))


def timeline(
    trace: Trace | Session, cursor: int | None = None, *, theme: ThemeName = "light"
) -> Figure:
    """One bar per iteration: accepted tokens, the target's token, and the depth of the draft.

    Args:
        cursor: iterations shown, all by default; later ones are fainter.
    """
    steps = run_steps(trace_of(trace))
    cursor = len(steps) if cursor is None else cursor
    first = call("firstShown", len(steps), cursor)
    return _figure(theme, "timelineFigure", steps, first, None, cursor)


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
    return _figure(theme, "metricsFigure", steps, first)


def compare(comparison: Comparison, *, theme: ThemeName = "light") -> Figure:
    """Tokens per iteration of the runs of `speclab.compare(…)`, one bar each."""
    rates = [run.trace and run.trace.metrics.tokens_per_iteration for run in comparison.runs]
    return _figure(theme, "compareFigure", [run.name for run in comparison.runs], rates)


def curve(found: Curve, *, theme: ThemeName = "light") -> Figure:
    """Tokens per iteration over the range of a setting, from replays (`speclab.analysis.curves`)."""
    figure = _figure(theme, "curveFigure", curve_data(found))
    title = found.name.replace("_", " ")
    return figure.update_layout(height=240, margin_b=44, xaxis_title_text=title)


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
    # needs pandas, which is slow to import
    from speclab.views.marginals_picture import draw_marginals

    return draw_marginals(runs, theme)


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
    from speclab.views.ranks_picture import draw_ranks

    return draw_ranks(runs, theme)


def replays(frame: pd.DataFrame) -> Figure:
    """Tokens per iteration on each answer of a log (`analysis.logs.replay_texts`), a point per prompt,
    and of all prompts with a 95 % interval over them (bootstrap).
    """
    import plotly.express as px

    kept = frame[frame.refused == ""]
    look = {"hover_data": ["prompt", "inexact"], "template": template()}
    drawn = px.strip(kept, "tokens_per_iteration", "strategy", **look)
    for name, own in kept.groupby("strategy"):
        draws = [own, *(own.sample(frac=1, replace=True, random_state=seed) for seed in range(400))]
        mean, *rates = [each.tokens.sum() / each.iterations.sum() for each in draws]
        low, high = sorted(rates)[10], sorted(rates)[-10]
        label = f"{name}: {mean:.2f} ({low:.2f} to {high:.2f})"
        ends = {"array": [high - mean], "arrayminus": [mean - low]}
        drawn.add_scatter(x=[mean], y=[name], error_x=ends, name=label)
    return drawn


def export_html(
    trace: Trace | Session,
    path: str | os.PathLike[str],
    *,
    cursor: int | None = None,
    diff: Mapping[str, Any] | None = None,
) -> Path:
    """Write a run as one page that steps through iterations and phases without a kernel; returns
    the path.

    Args:
        cursor: iterations shown when the page opens; by default the first.
        diff: of this run and another one, `clinic.diff(trace, other).as_dict()`; the tab Check shows
            both timelines.

    Raises:
        TraceError: the folder is missing, read-only or full.
    """
    return write_whole(path, page(trace_of(trace), Path(path).stem, cursor, diff).encode())


def event_words(event: Event, texts: Mapping[int, str] | None = None) -> str:
    """A drafting decision: `2 children: confidence 0.62 between 0.40 and 0.90`."""
    words: str = call("eventWords", event, texts or {})
    return words


def _node_of(step: Step, node: int | None) -> int | None:
    """The node, if the step has it."""
    n = len(step_of(step).tree)
    if node is not None and not 0 <= node < n:
        raise NotRecordedError(f"There is no node {node}: the tree has {n} nodes, from 0.")
    return node


def __dir__() -> list[str]:
    return __all__
