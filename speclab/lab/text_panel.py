"""The text, in chunks, so that a long run rewrites only its end."""

from __future__ import annotations

from typing import Any

from ipywidgets import HTML, Box, Dropdown, VBox

from speclab.lab.state import Frame
from speclab.lab.sync import assign, on_change
from speclab.views import text
from speclab.views.markup import tag


class TextPanel(VBox):
    """The prompt and the text up to the cursor, coloured by what the person asks for."""

    def __init__(self) -> None:
        self._drawn: tuple[Any, ...] = ()
        self._frame: Frame | None = None
        self.by = Dropdown(
            options=["verdict", "source", "iteration", "probability"],
            description="colour by",
            tooltip="what colours mean",
        )
        self.legend = HTML()
        self.body = Box()
        self.body.add_class("speclab-text-body")
        super().__init__([self.by, self.legend, self.body])
        self.add_class("speclab-text")
        on_change(self.by, lambda _: self._frame and self.update(self._frame))

    def update(self, frame: Frame) -> None:
        """Draws the frame; chunks that stay as they are send nothing."""
        self._frame = frame
        key = (frame.trace, frame.cursor, self.by.value)
        if self._drawn and key[0] is self._drawn[0] and key[1:] == self._drawn[1:]:
            return
        self._drawn = key
        style = f"<style>{text.STYLE}</style>"
        assign(self.legend, value=style + tag("div", text.legend(frame.trace, self.by.value), class_="speclab-text"))
        chunks = text.text_chunks(frame.trace, frame.cursor, self.by.value)
        held = list(self.body.children)
        widgets = held[: len(chunks)] + [HTML() for _ in chunks[len(held) :]]
        for widget, chunk in zip(widgets, chunks, strict=True):
            assign(widget, value=chunk)
        if widgets != held:
            self.body.children = widgets
            for widget in held[len(widgets) :]:
                widget.close()
