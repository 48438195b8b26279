"""What a saved notebook shows of a lab: the last stage as pictures, its text, and a table of its nodes.

The cell has two outputs: the widget, and below it static HTML, which is hidden while the widget is
alive and is brought up to date after each pause.
"""

from __future__ import annotations

import atexit
import base64
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from speclab import views
from speclab.lab._state import LabState
from speclab.views.run_data import WORDS
from speclab.views.static_html import describe, snapshot

if TYPE_CHECKING:
    from speclab.lab.lab import Lab

_CHILD = ".jp-OutputArea-child"
_STYLE = (
    f"<style>{_CHILD}:has(.speclab-lab) + {_CHILD} .speclab-saved {{ display: none }} "
    f"{_CHILD}:not(:has(.speclab-lab)):has(+ {_CHILD} .speclab-saved) {{ display: none }}</style>"
)
"""Hides the HTML below a live widget, and what JupyterLab writes in place of a dead one."""


class Saved:
    """The static output of a lab."""

    def __init__(self, state: LabState) -> None:
        self._state = state
        self._alone = False  # a program executes the notebook: no page will send pictures
        self._display_id = ""
        self._written: dict[str, str] = {}
        self._pictures: list[str] = []
        self._pictured: tuple[Any, ...] = ()

    @property
    def _asks(self) -> bool:
        """Whether the lab waits for a guess, so that nothing may tell what is accepted."""
        step = self._state.step
        return self._state.guess and step is not None and len(step.tree) > 1

    def sentence(self) -> str:
        """The current iteration in one sentence, or the question that the lab asks."""
        if self._asks:
            return f"Iteration {self._state.cursor}. {WORDS['guess']['ask']}"
        return describe(self._state.trace, self._state.cursor)

    def html(self) -> str:
        """The current iteration as static HTML, with the page's pictures if they show it."""
        pictures = self._pictures if self._pictured == self._position() else []
        question = f"<p>{escape(self.sentence())}</p>"
        body = question if self._asks else snapshot(self._state.trace, self._state.cursor)
        return f'<div class="speclab-saved">{"".join(pictures)}{body}</div>'

    def display(self, lab: Lab, data: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        """Show the widget's bundle, and the static output below it."""
        self._alone = _no_person()
        if self._alone:
            lab.wait()
            self._draw()
        self._display_id = uuid4().hex
        self._written = self._bundle()
        _publish({**data, "text/plain": "", "text/html": ""}, metadata)
        _publish(self._written, transient={"display_id": self._display_id})

    def update(self) -> None:
        """Bring the static output up to date, if another iteration or another picture is shown."""
        if not self._display_id or (self._alone and self._state.busy):
            return
        if self._alone and self._pictured != self._position():
            self._draw()
        bundle = self._bundle()
        if bundle != self._written:
            self._written = bundle
            _publish(bundle, transient={"display_id": self._display_id}, update=True)

    def picture(self, cursor: int, images: Sequence[Any]) -> None:
        """Take over the page's pictures of the iteration shown."""
        if cursor == self._state.cursor:
            self._pictures = [tag for image in images if (tag := _image(image))]
            self._pictured = self._position()
            self.update()

    def _draw(self) -> None:
        """Draw tree and mask with kaleido, if it works here."""
        step = self._state.step
        self._pictured = self._position()
        self._pictures = []
        if step is not None:
            tree = views.tree(step, phase="flatten" if self._asks else "all")
            figures = {"tree": tree, "mask": views.mask(step)}
            with suppress(Exception):  # without kaleido, or a browser for it, the table is enough
                for name, figure in figures.items():
                    png = _kaleido().calc_fig_sync(figure.to_dict(), opts={"format": "png"})
                    data = base64.b64encode(png).decode()
                    self._pictures.append(_image({"name": name, "mime": "image/png", "data": data}))

    def _position(self) -> tuple[Any, ...]:
        return (self._state.number, self._state.cursor, len(self._state.steps))

    def _bundle(self) -> dict[str, str]:
        return {"text/plain": self.sentence(), "text/html": _STYLE + self.html()}


def _no_person() -> bool:
    """Whether a program such as nbconvert executes the notebook."""
    from IPython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is None or "VOILA_KERNEL_ID" in os.environ:
        return False
    return "cellId" not in kernel.get_parent("shell").get("metadata", {})


@cache
def _kaleido() -> Any:
    """The library with its browser, which draws all pictures of this process."""
    import kaleido

    kaleido.start_sync_server(silence_warnings=True)
    atexit.register(kaleido.stop_sync_server, silence_warnings=True)
    return kaleido


def _publish(data: Mapping[str, Any], metadata: Any = None, **options: Any) -> None:
    from IPython.display import publish_display_data

    publish_display_data(data, metadata, **options)  # type: ignore[no-untyped-call]


def _image(image: Mapping[str, Any]) -> str:
    """A picture as an element that runs no script; empty if it is not a picture."""
    data = str(image["data"])
    mime = image["mime"]
    if mime != "image/png":
        return ""
    width = image.get("width")
    size = f' width="{width:.0f}"' if isinstance(width, int | float) else ""
    name = escape(str(image["name"]))
    return (
        f'<img src="data:{mime};base64,{escape(data)}" alt="{name}"{size} style="max-width:100%">'
    )
