"""Pictures of a Step or a Trace: pure functions that return plotly figures.

    from speclab import views

    views.tree(step)            views.mask(step, 6, theme="dark")            views.timeline(trace)

`graph` returns the draft tree as a networkx graph, and `text` the text as HTML. No module has the
name of one of these functions, because importing it would hide the function.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclab.errors import NotRecordedError, SettingsError, named
from speclab.files import write_whole
from speclab.trace.records import Step, Trace, step_of, trace_of
from speclab.views.cache_picture import draw_cache
from speclab.views.compare_picture import draw_compare, draw_curve
from speclab.views.mask_picture import draw_mask
from speclab.views.networks import step_graph, with_tops
from speclab.views.node_picture import draw_node, draw_residual
from speclab.views.phases import Phase, Position
from speclab.views.preview import draw_whatif
from speclab.views.run_data import page, style
from speclab.views.run_picture import draw_metrics, draw_timeline
from speclab.views.text_html import text_html
from speclab.views.theme import ThemeName
from speclab.views.theme import figure as _figure
from speclab.views.tree_picture import draw_tree
from speclab.views.words import event_words

if TYPE_CHECKING:
    from networkx import DiGraph
    from plotly.graph_objects import Figure

    from speclab.analysis.compare import Comparison
    from speclab.analysis.curves import Curve
    from speclab.analysis.whatif import WhatIf
    from speclab.engine.session import Session

__all__ = [
    "cache", "compare", "curve", "event_words", "export_html", "graph", "marginals", "mask",
    "metrics", "node", "residual", "text", "timeline", "tree", "whatif",
]  # fmt: skip


class Html(str):
    """HTML for a notebook, with a plain-text form."""

    __slots__ = ()

    def __repr__(self) -> str:
        return unescape(
            " ".join(re.sub(r"<style.*?</style>|<[^>]*>", " ", self, flags=re.DOTALL).split())
        )

    def _repr_html_(self) -> str:
        return str(self)


def tree(
    step: Step,
    selected: int | None = None,
    *,
    phase: Phase = "all",
    width: int = 900,
    height: int = 380,
    theme: ThemeName = "light",
) -> Figure:
    """The draft tree of an iteration: depth to the right, verdicts as colours and symbols, tokens
    beside the nodes.

    Args:
        selected: a node that gets a ring.
        phase: how far the iteration has come.
        width: pixels.
        height: pixels; nodes that do not fit are folded into stubs such as `+37`.
    """
    _check(step, selected)
    return _figure(
        draw_tree(step, selected, position=Position(phase), width=width, height=height), theme
    )


def mask(step: Step, selected: int | None = None, *, theme: ThemeName = "light") -> Figure:
    """The attention mask of the verification pass: one row per node, the prefix folded into a band.

    Args:
        selected: a node whose row and column get a frame.
    """
    _check(step, selected)
    return _figure(draw_mask(step, selected), theme)


def cache(
    step: Step, selected: int | None = None, *, prompt_length: int = 0, theme: ThemeName = "light"
) -> Figure:
    """The KV caches of an iteration, slot by slot, during the pass and after the commit, with
    arrows for moved rows.

    Args:
        selected: a node whose slot gets a frame.
        prompt_length: how many of the first slots belong to the prompt.

    Raises:
        NotRecordedError: the iteration has no record of its caches.
    """
    _check(step, selected)
    if not step.caches:
        raise NotRecordedError("This iteration has no record of its caches.")
    return _figure(draw_cache(step, selected, prompt_length=prompt_length), theme)


def node(step: Step, selected: int = 0, *, theme: ThemeName = "light") -> Figure:
    """The most probable next tokens after a node, for the target and for the draft, side by side.

    Raises:
        NotRecordedError: there is no such node.
    """
    _check(step, selected)
    return _figure(draw_node(step, selected), theme)


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
    return _figure(draw_residual(step), theme)


def whatif(step: Step, found: WhatIf, *, theme: ThemeName = "light") -> Figure:
    """The tree that another setting would have drafted (`speclab.what_if`), over the tree of the iteration."""
    return _figure(draw_whatif(step_of(step), found), theme)


def timeline(
    trace: Trace | Session, cursor: int | None = None, *, theme: ThemeName = "light"
) -> Figure:
    """One bar per iteration: accepted tokens, the target's token, and the depth of the draft.

    Args:
        cursor: iterations shown, all by default; later ones are fainter.
    """
    return _figure(draw_timeline(trace_of(trace), cursor), theme)


def metrics(
    trace: Trace | Session, cursor: int | None = None, *, theme: ThemeName = "light"
) -> Figure:
    """Tokens per iteration, and milliseconds by phase, over the iterations up to `cursor`.

    Raises:
        NotRecordedError: the run has no iteration yet.
    """
    trace = trace_of(trace)
    if not trace.steps[:cursor]:
        raise NotRecordedError("This run has no iteration yet: decode one first.")
    return _figure(draw_metrics(trace, cursor), theme)


def compare(comparison: Comparison, *, theme: ThemeName = "light") -> Figure:
    """Tokens per iteration of the runs of `speclab.compare(…)`, one bar each.

    Raises:
        NotRecordedError: there is no run.
    """
    if not comparison.runs:
        raise NotRecordedError(
            "There is nothing to compare: the comparison stopped before a strategy had run."
        )
    return _figure(draw_compare(comparison), theme)


def curve(found: Curve, *, theme: ThemeName = "light") -> Figure:
    """Tokens per iteration over the range of a setting, from replays (`speclab.analysis.curves`)."""
    return _figure(draw_curve(found), theme)


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
    if not (isinstance(given, Mapping) and given):
        raise SettingsError(
            f'Expected runs by name, as in {{"DynaTree": [session]}}, got {named(runs)}.'
        )
    # needs pandas, which is slow to import
    from speclab.views.marginals_picture import draw_marginals

    return _figure(draw_marginals(runs), theme)


def graph(step: Step) -> DiGraph[int | str]:
    """The draft tree as a networkx graph with an edge from each parent to its children.

    Nodes have the numbers of the tree; "own" is the target's own token. Node attributes: token,
    text, label, parent, depth, position, source, log_prob, draft_prob, path_prob, target_prob,
    target_choice, target_choice_text, choice_prob, entropy, draft_top, target_top, verdict, accepted,
    kv_slot, mask_row, as far as they were recorded.
    Graph attributes: index, prefix_length, rule and the settings of the iteration.
    """
    return with_tops(step_graph(step_of(step)), step)


def text(trace: Trace | Session, cursor: int | None = None) -> Html:
    """The prompt and the text of `cursor` iterations as HTML, with the origin of each token."""
    return Html(f"<style>{style()}</style>{text_html(trace_of(trace), cursor)}")


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


def _check(step: Step, selected: int | None) -> None:
    step_of(step)
    if selected is not None and not 0 <= selected < len(step.tree):
        raise NotRecordedError(
            f"There is no node {selected}: the tree has {len(step.tree)} nodes, from 0."
        )


def __dir__() -> list[str]:
    return __all__
