"""Pictures of a Step or a Trace, as plotly figures that show themselves in a notebook: pure functions of the records.

    from speclab import views

    views.tree(step)            views.mask(step, 6, theme="dark")            views.timeline(trace)

Each is a plotly Figure: its layout can be changed, `write_image` saves it. `graph` gives the draft tree as a networkx
graph, `text` the text as HTML. Nothing is loaded until it is asked for, and no module in here has the name of one of
these functions, so they are right in whatever order modules are imported.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import wraps
from html import unescape
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from speclab.views.palette import ThemeName

_FIGURES = {
    "tree": ("draft_tree.tree_spec", ""),
    "mask": ("attention_mask.mask_spec", ""),
    "cache": ("cache_slots.cache_spec", "This iteration has no record of its caches."),
    "node": ("node_chart.node_spec", ""),
    "residual": ("node_chart.residual_parts", "This iteration drew from no residual: decode at a temperature above 0."),
    "drafts": ("proposals.drafts_drawing", "This iteration has one draft tree: use tree(step)."),
    "beside": ("side_by_side.trees_spec", ""),
    "whatif": ("whatif_tree.whatif_spec", ""),
    "attention": ("attention_chart.attention_drawing", ""),
    "timeline": ("metrics_chart.timeline_spec", ""),
    "metrics": ("metrics_chart.metrics_drawing", "This run has no iteration yet: decode one first."),
    "strategy": ("drafter_state.course_drawing", "This strategy says nothing of its own, as GOOSE and others do."),
    "routing": ("proposals.routing_drawing", "No iteration of this run had two draft trees."),
    "compare": ("runs.compared_drawing", "Nothing was compared: no strategy had run when the comparison stopped."),
    "curve": ("setting_curve.curve_drawing", "A table of strategies has no figure: curve a setting's range."),
    "forks": ("runs.forks_spec", ""),
    "race": ("race_chart.race", "This run has no iteration yet: decode one first."),
}
"""By public name: what draws it, and what is said where it has nothing to draw."""
_OTHERS = {
    "graph": "networks.graph",
    "text": "token_text.text_html",
    "export_html": "export.export_html",
    "save_view": "export.save_view",
    "snapshot": "export.snapshot",
}
__all__ = sorted([*_FIGURES, *_OTHERS])


class Html(str):
    """HTML that a notebook shows."""

    __slots__ = ()

    def __repr__(self) -> str:  # its words, where only text is shown
        return unescape(" ".join(re.sub(r"<style.*?</style>|<[^>]*>", " ", self, flags=re.DOTALL).split()))

    def _repr_html_(self) -> str:
        return str(self)


def __getattr__(name: str) -> Any:
    if name in _FIGURES:
        return _figure(name, *_FIGURES[name])
    if name not in _OTHERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = _at(_OTHERS[name])
    return _html(found) if name in {"text", "snapshot"} else found


def __dir__() -> list[str]:
    return __all__


def _at(home: str) -> Callable[..., Any]:
    module, _, name = home.partition(".")
    return getattr(import_module(f"{__name__}.{module}"), name)  # type: ignore[no-any-return]


def _html(draw: Callable[..., str]) -> Callable[..., Html]:
    @wraps(draw)
    def shown(*given: Any, **named: Any) -> Html:
        return Html(draw(*given, **named))

    return shown


def _figure(name: str, home: str, lacks: str) -> Callable[..., Any]:
    """What draws, made to give a plotly figure in the colours of a theme."""
    draw = _at(home)

    @wraps(draw)
    def shown(*given: Any, theme: ThemeName = "light", **named: Any) -> Any:
        from speclab.errors import NotRecordedError

        try:
            drawn = draw(*given, **named)
        except IndexError:
            raise NotRecordedError(f"There is nothing to draw for {given[1:] or named}: no such node here.") from None
        for part in [drawn] if isinstance(drawn, dict) else drawn:
            if isinstance(part, dict):
                return _at("figures.figure")(part, theme)
        raise NotRecordedError(lacks)

    own = inspect.signature(draw)
    look = inspect.Parameter("theme", inspect.Parameter.KEYWORD_ONLY, default="light", annotation="ThemeName")
    shown.__signature__ = own.replace(parameters=[*own.parameters.values(), look], return_annotation="Figure")  # type: ignore[attr-defined]
    shown.__name__ = shown.__qualname__ = name
    return shown
