"""Pictures of a Step or a Trace, as plotly figures that show themselves in a notebook: pure functions of the records.

    from speclab import views

    views.tree(step)            views.mask(step, selected=6)        views.timeline(trace)

Each is a plotly Figure: its layout can be changed, `write_image` saves it. `graph` gives the draft tree as a networkx
graph, `text` the text as HTML. Nothing is loaded until it is drawn, and no module in here has the name of one of these
functions, so they are right in whatever order modules are imported.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from networkx import DiGraph
    from plotly.graph_objects import Figure

    from speclab.analysis.compare import Comparison
    from speclab.analysis.whatif import WhatIf
    from speclab.trace.records import Step, Trace
    from speclab.views.palette import ThemeName
    from speclab.views.playback import PlaybackPosition
    from speclab.views.runs import Fork
    from speclab.views.token_text import By

__all__ = ["Html", "beside", "budget", "cache", "compare", "drafts", "export_html", "forks", "graph", "mask", "metrics",
           "node", "residual", "routing", "save_view", "strategy", "text", "timeline", "tree", "whatif"]  # fmt: skip


class Html(str):
    """HTML that a notebook shows."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


def _of(module: str, name: str) -> Any:
    return getattr(import_module(f"{__name__}.{module}"), name)


def _figure(module: str, name: str, *given: Any, theme: ThemeName, lacks: str = "", **named: Any) -> Figure:
    """What a function of a module draws; `lacks`: the sentence where it draws nothing."""
    drawn = _of(module, name)(*given, **{key: value for key, value in named.items() if value is not None})
    specs = [part for part in ([drawn] if isinstance(drawn, dict) else drawn) if isinstance(part, dict)]
    _need(specs, lacks)
    return _of("figures", "figure")(specs[0], theme)


def _need(held: Any, lacks: str) -> None:
    if not held:
        from speclab.errors import NotRecordedError

        raise NotRecordedError(lacks)


def tree(step: Step, *, selected: int | None = None, position: PlaybackPosition | None = None, width: float = 900,
         height: float = 420, theme: ThemeName = "light") -> Figure:  # fmt: skip
    """The draft tree, depth from left to right; what does not fit the height is folded."""
    return _figure("draft_tree", "tree_spec", step, selected, position=position, width=width, height=height,
                   theme=theme)  # fmt: skip


def mask(step: Step, *, selected: int | None = None, position: PlaybackPosition | None = None,
         mode: Literal["folded", "full", "compare"] = "folded", theme: ThemeName = "light") -> Figure:  # fmt: skip
    """The attention mask: its prefix folded, in full, or what the target was given against what it should see."""
    return _figure("attention_mask", "mask_spec", step, selected, position=position, mode=mode, theme=theme)


def cache(step: Step, *, selected: int | None = None, position: PlaybackPosition | None = None, prompt_length: int = 0,
          theme: ThemeName = "light") -> Figure:  # fmt: skip
    """The slots of each KV cache before and after the commit."""
    return _figure("cache_slots", "cache_spec", step, selected, position=position, prompt_length=prompt_length,
                   theme=theme, lacks="This iteration has no record of its caches.")  # fmt: skip


def node(step: Step, node: int = 0, *, theme: ThemeName = "light") -> Figure:
    """What target and draft held most probable after a node."""
    _need(0 <= node < len(step.nodes), f"There is no node {node}: this tree has 0 to {len(step.nodes) - 1}.")
    return _figure("node_chart", "node_spec", step, node, theme=theme)


def residual(step: Step, *, draw: int | None = None, theme: ThemeName = "light") -> Figure:
    """Where sampling stopped: the target's distribution, the draft's, and what was left to draw from."""
    _need(step.residual, "This iteration drew from no residual: that is recorded at a temperature above 0.")
    return _figure("node_chart", "residual_spec", step, draw, theme=theme)


def drafts(step: Step, *, theme: ThemeName = "light") -> Figure:
    """The proposed trees on the same columns."""
    _need(step.proposals, "This iteration has one draft tree: use tree(step).")
    return _figure("proposals", "trees_spec", step, theme=theme)


def budget(step: Step, *, theme: ThemeName = "light") -> Figure:
    """How many nodes were worth verifying, by the measured cost of a pass."""
    _need(step.budget, "No costs decided the size of this tree: give the strategy a budget, as CostAware does.")
    return _figure("budget_chart", "cost_spec", step, step.budget, theme=theme)


def beside(one: Step, other: Step, *, names: Sequence[str] = ("One", "Other"), theme: ThemeName = "light") -> Figure:
    """The trees of two iterations on the same columns."""
    return _figure("side_by_side", "trees_spec", (one, other), names, theme=theme)


def whatif(step: Step, found: WhatIf, *, theme: ThemeName = "light") -> Figure:
    """The tree that another setting would have drafted, over the step's own."""
    return _figure("whatif_tree", "whatif_spec", step, found, theme=theme)


def timeline(trace: Trace, cursor: int | None = None, *, theme: ThemeName = "light") -> Figure:
    """A bar for each iteration: tokens accepted, the target's own, and the rest of the tree."""
    return _figure("iterations", "timeline_spec", trace, _steps(trace, cursor), theme=theme)


def metrics(trace: Trace, cursor: int | None = None, *, theme: ThemeName = "light") -> Figure:
    """Tokens, acceptance by depth, seconds by phase and adapted settings over the iterations."""
    _steps(trace, cursor)
    return _figure("metrics_chart", "metrics_spec", trace, cursor, theme=theme)


def strategy(trace: Trace, cursor: int | None = None, *, theme: ThemeName = "light") -> Figure:
    """Accepted tokens by source, and every value of the drafter that moved, over the iterations."""
    lacks = "This strategy says nothing of its own: GOOSE and Dual-Draft do."
    return _figure("drafter_state", "course_drawing", trace, cursor, theme=theme, lacks=lacks)


def routing(trace: Trace, cursor: int | None = None, *, theme: ThemeName = "light") -> Figure:
    """By how much one of two trees scored higher than the other, over the iterations."""
    lacks = "No iteration of this run had two draft trees."
    return _figure("proposals", "routing_drawing", trace, cursor, theme=theme, lacks=lacks)


def compare(found: Comparison, *, theme: ThemeName = "light") -> Figure:
    """Tokens per iteration, tokens per second and milliseconds by phase, a row for each strategy."""
    _need(found.runs, "Nothing was compared: no strategy had run when the comparison stopped.")
    return _figure("runs", "compare_spec", found, theme=theme)


def forks(found: Sequence[Fork], *, theme: ThemeName = "light") -> Figure:
    """The runs of a lab and where they went apart."""
    _need(found, "There is no run yet.")
    return _figure("runs", "forks_spec", found, theme=theme)


def graph(step: Step, position: PlaybackPosition | None = None) -> DiGraph[Any]:
    """The draft tree as a networkx graph, with every fact of a node as an attribute."""
    return _of("networks", "graph")(step, *([position] if position is not None else []))  # type: ignore[no-any-return]


def text(trace: Trace, cursor: int | None = None, by: By = "verdict", *, unfolded: bool = False) -> Html:
    """The prompt and the text, token by token, coloured by verdict, source, iteration or probability."""
    return Html(_of("token_text", "text_html")(trace, cursor, by, unfolded=unfolded))


def export_html(trace: Trace, path: str | os.PathLike[str], cursor: int | None = None, **named: Any) -> Path:
    """Writes a run as one page whose iterations and phases can be stepped; see `export.export_html`."""
    return _of("export", "export_html")(trace, path, cursor, **named)  # type: ignore[no-any-return]


def save_view(trace: Trace, cursor: int, view: str, path: str | os.PathLike[str], **named: Any) -> Path:
    """Writes a view of an iteration as .html, .png, .svg or .graphml; see `export.save_view`."""
    return _of("export", "save_view")(trace, cursor, view, path, **named)  # type: ignore[no-any-return]


def _steps(trace: Trace, cursor: int | None) -> int:
    _need(trace.steps, "This run has no iteration yet: decode one first.")
    return len(trace.steps) if cursor is None else cursor
