"""The text, in chunks, so that a long run rewrites only its end."""

from __future__ import annotations

from typing import Any

from ipywidgets import HTML, Box, Dropdown, VBox

from speclab.lab.picture import heading
from speclab.lab.state import Frame
from speclab.lab.sync import assign, on_change
from speclab.views import text
from speclab.views.text_style import STYLE


class TextPanel(VBox):
    """The prompt and the text up to the cursor, coloured by what the person asks for."""

    def __init__(self) -> None:
        self._drawn: tuple[Any, ...] = ()
        self._frame: Frame | None = None
        self._writer = text.Writer()
        self.by = Dropdown(
            options=["verdict", "source", "iteration", "probability"],
            description="colour by",
            tooltip="what colours mean",
        )
        self.legend = HTML()
        self.body = Box()
        self.body.add_class("speclab-text-body")
        page = Box([self.body])
        page.add_class("speclab-text-page")  # scrolled to its end by CSS
        super().__init__([heading("Text", self.by), self.legend, page])
        self.add_class("speclab-text")
        on_change(self.by, lambda _: self.update(self._frame))

    def update(self, frame: Frame | None) -> None:
        """Draws the frame; chunks that stay as they are send nothing."""
        self._frame = frame
        if frame is None:
            return
        key = (frame.trace, frame.committed, self.by.value)
        if self._drawn and key[0] is self._drawn[0] and key[1:] == self._drawn[1:]:
            return
        self._drawn = key
        style = f"<style>{STYLE}</style>"
        assign(self.legend, value=style + text.legend(frame.trace, self.by.value))
        chunks = self._writer.chunks(frame.trace, frame.committed, self.by.value)
        held = list(self.body.children)
        widgets = held[: len(chunks)] + [HTML() for _ in chunks[len(held) :]]
        for widget, chunk in zip(widgets, chunks, strict=True):
            assign(widget, value=chunk)
        if widgets != held:
            assign(self.body, children=tuple(widgets))
            for widget in held[len(widgets) :]:
                widget.close()
