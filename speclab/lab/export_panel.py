"""What "Export" opens: a setting as a serving engine's line to copy, or why there is none, and the nearest one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ipywidgets import HTML, Dropdown, VBox

from speclab.drafters import from_str
from speclab.errors import SettingsError
from speclab.lab.widgets import on_change, set_if_changed, set_visible
from speclab.serving.settings import Exported, documented, export_settings, nearest
from speclab.views.markup import escape, tag

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session

TOOLTIP = "these settings as vLLM, SGLang or llama.cpp take them"


class ExportPanel(VBox):
    """Closed, and without controls, until `show` has a setting; the line stands in a text field to select and copy.

    Args:
        session: the one whose models are named, None while there is none.
    """

    def __init__(self, session: Callable[[], Session | None]) -> None:
        self._session = session
        self._strategy: Strategy | None = None
        super().__init__([], _dom_classes=["speclab-export-panel"])
        set_visible(self, visible=False)

    def show(self, strategy: Strategy | None) -> None:
        """Writes this setting; None closes the panel."""
        self._strategy = strategy
        if strategy is not None and not hasattr(self, "engine"):
            engines = [(about["title"], name) for name, about in documented().items()]
            self.engine = Dropdown(options=engines, description="engine", tooltip="whose settings to write")
            self.shown = HTML()
            self.children = [self.engine, self.shown]
            on_change(self.engine, lambda _: self.show(self._strategy))
        set_visible(self, visible=strategy is not None)
        if strategy is not None:
            set_if_changed(self.shown, value=self._words(strategy))

    def _words(self, strategy: Strategy) -> str:
        try:
            return _copied(self._exported(strategy))
        except SettingsError as error:
            why = tag("p", escape(str(error)), class_="sl-why", role="status")
            near = nearest(strategy, self.engine.value)
            return why + _copied(self._exported(from_str(near))) if near and from_str(near) != strategy else why

    def _exported(self, strategy: Strategy) -> Exported:
        session = self._session()
        if session is None:
            return export_settings(strategy, self.engine.value)
        trace = session.trace if session.steps and strategy == session.strategy else None
        return export_settings(strategy, self.engine.value, pair=session.pair, trace=trace)


def _copied(found: Exported) -> str:
    rows = 1 + len(found.line) // 80
    line = tag("textarea", escape(found.line), readonly="", rows=rows, spellcheck="false", aria_label="line to copy")
    return line + tag("ul", *[tag("li", escape(note)) for note in found.notes], role="status")
