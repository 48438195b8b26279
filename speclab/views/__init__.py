"""Pictures of a Step or a Trace: pure functions that return plotly figures.

    from speclab import views

    views.tree(step)            views.mask(step, 6, theme="dark")            views.timeline(trace)

They are the lab's pictures: functions of the page draw them (`speclab.views.drawing`). `graph`
returns the draft tree as a networkx graph, and `text` the text as HTML. No module has the name of
one of these functions, because importing it would hide the function.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclab.errors import NotRecordedError
from speclab.features import PICTURES
from speclab.files import write_whole
from speclab.trace.records import Event, Step, Trace, trace_of
from speclab.views.drawing import Phase, ThemeName, call, node_of, position, template
from speclab.views.drawing import figure as _figure
from speclab.views.exported_page import page
from speclab.views.networks import graph, node_id, tree_nodes
from speclab.views.run_data import run_steps
from speclab.views.static_html import text

if TYPE_CHECKING:
    from networkx import DiGraph
    from plotly.graph_objects import Figure

    from speclab.engine.session import Session

__all__ = [
    "cache", "event_words", "export_html", "graph", "mask", "template", "text", "timeline", "tree",
    *PICTURES,
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
        options["selected"] = node_of(step, selected)
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
    options = {"selected": node_of(step, selected)}
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
    selected = node_of(step, selected)
    if not step.caches:
        raise NotRecordedError("This iteration has no record of its caches.")
    at = position(phase, level)
    return _figure(theme, "cacheFigure", step, prompt_length, selected, at)


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


def export_html(
    trace: Trace | Session,
    path: str | os.PathLike[str],
    *,
    cursor: int | None = None,
    diff: Mapping[str, Any] | None = None,
    panels: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Write a run as one page that steps through iterations and phases without a kernel; returns
    the path.

    Args:
        cursor: iterations shown when the page opens; by default the first.
        diff: of this run and another one, `clinic.diff(trace, other).as_dict()`; the tab Check shows
            both timelines.
        panels: what a lab shows besides, by the name of its message (`lab/_messages.py`).

    Raises:
        TraceError: the folder is missing, read-only or full.
    """
    shown = dict(panels or {})
    if diff is not None:
        shown["diffed"] = {"diff": diff}
    return write_whole(path, page(trace_of(trace), Path(path).stem, cursor, shown).encode())


def event_words(event: Event, texts: Mapping[int, str] | None = None) -> str:
    """A drafting decision: `2 children: confidence 0.62 between 0.40 and 0.90`."""
    words: str = call("eventWords", event, texts or {})
    return words


def __getattr__(name: str) -> Any:
    """The picture of a feature, imported on first use."""
    if name not in PICTURES:
        raise AttributeError(f"module 'speclab.views' has no attribute {name!r}")
    return getattr(import_module(f"speclab.features.{PICTURES[name]}.pictures"), name)


def __dir__() -> list[str]:
    return __all__
