"""The one widget that shows pictures and texts: a synced string for each slot, so that a change is one message."""

from __future__ import annotations

import gzip
import json
import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

from anywidget import AnyWidget
from ipywidgets import Box, VBox
from traitlets import List, Unicode

import speclab.views
from speclab.lab.widgets import set_if_changed
from speclab.views.figures import Drawing
from speclab.views.markup import escape, tag
from speclab.views.playback import PlaybackPosition
from speclab.views.registry import Frame, Room

KEPT = 2**22
"""Characters of drawings that a slot keeps: some hundred pictures of a tree of 60 nodes."""
_PLAIN = (int, str, float, bool, frozenset, tuple, PlaybackPosition, Room)
_NEVER: tuple[Any, ...] = (object(),)
_NO_PLOTLY = "plotly is not installed here: pip install plotly, then restart the kernel."
_log = logging.getLogger(__name__)


class Screen(AnyWidget):
    """Draws what its slots say into the boxes of the lab that have their class, and tells what is pointed at.

    Args:
        heard: called with what a person did there: {"node": 6}, {"iteration": 3}, {"key": "ArrowLeft"},
            {"room": {"tree": 640, "mask": 420, "height": 420}} in pixels, and {"drawn": True} once pictures are there.
    """

    _esm = "\n".join(
        [
            (Path(speclab.views.__file__).with_name("plots.js")).read_text(encoding="utf-8"),
            Path(__file__).with_name("screen.js").read_text(encoding="utf-8"),
        ]
    )
    slots = List(Unicode()).tag(sync=True)

    def __init__(self, heard: Callable[[dict[str, Any]], Any]) -> None:
        self._complete = False
        super().__init__()
        self._heard = heard
        self.on_msg(self._hear)
        self.layout.display = "none"
        Thread(target=_plotly, name="speclab-plotly", daemon=True).start()  # packed by the time a page asks for it

    def reserve(self, name: str) -> None:
        """Makes a slot; before the widget is opened."""
        self.add_traits(**{name: Unicode("").tag(sync=True)})
        self.slots = [*self.slots, name]

    def open(self) -> None:
        """Tells the browser of the widget, once: with all its slots, or not yet."""
        if self._complete:
            super().open()

    def complete(self) -> None:
        """Opens the widget: its slots are all there."""
        self._complete = True
        self.open()

    def show(self, slot: str, drawing: str) -> None:
        """Puts a drawing, as `packed` has it, into a slot."""
        values: dict[str, Any] = {slot: drawing}
        set_if_changed(self, **values)

    def _hear(self, _: Any, content: Any, __: Any) -> None:
        if not isinstance(content, dict):
            return
        if content.get("want") == "plotly":
            library = _plotly()
            self.send({"plotly": bool(library), "why": "" if library else _NO_PLOTLY}, [library] if library else None)
        else:
            self._heard(content)


@cache
def _plotly() -> bytes:
    """plotly.js as the installed package has it, gzipped; empty where there is none."""
    found = find_spec("plotly")
    script = Path(found.origin).parent / "package_data" / "plotly.min.js" if found and found.origin else None
    return gzip.compress(script.read_bytes(), 6, mtime=0) if script and script.is_file() else b""


def packed(drawing: Drawing) -> str:
    """A drawing as a slot holds it: a list of figures and HTML, as JSON; empty where there is nothing."""
    parts = [drawing] if isinstance(drawing, str | dict) else list(drawing)
    parts = [part for part in parts if part]
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":")) if parts else ""


class Slot(Box):
    """One view's place, drawn only when it is seen and only when it would differ.

    `key`: what of the frame the view depends on; equal keys are not drawn again. `cached`: whether drawings are kept,
    for a view that depends on its key alone.
    """

    def __init__(
        self,
        screen: Screen,
        name: str,
        draw: Callable[[Frame], Drawing],
        key: Callable[[Frame], tuple[Any, ...]],
        *,
        cached: bool = False,
    ) -> None:
        super().__init__()
        self.add_class(f"speclab-{name}")
        self.add_class("speclab-slot")
        self._screen, self.name = screen, name.replace("-", "_")
        screen.reserve(self.name)
        self._draw, self._key, self._cached = draw, key, cached
        self._kept: OrderedDict[tuple[Any, ...], tuple[tuple[Any, ...], str]] = OrderedDict()
        self._size = 0
        self._drawn = _NEVER
        self._frame: Frame | None = None
        self._seen = True

    @property
    def drawing(self) -> str:
        """What is drawn, as JSON; empty where that is nothing."""
        return str(getattr(self._screen, self.name))

    def update(self, frame: Frame) -> None:
        """Draws the frame, if the view is seen and would differ."""
        self._frame = frame
        if not self._seen:
            return
        try:
            key = self._key(frame)
            if _same(key, self._drawn):
                return
            drawn = self._get(key, frame)
        except Exception as error:  # one broken view must not take the others along
            _log.exception("a view failed")
            key, drawn = _NEVER, packed(placeholder(f"This view failed: {error}"))
        self._screen.show(self.name, drawn)
        self._drawn = key

    def set_visible(self, visible: bool) -> None:
        """Says whether the view is on the screen; coming back, it catches up."""
        self._seen = visible
        if visible and self._frame is not None:
            self.update(self._frame)

    def _get(self, key: tuple[Any, ...], frame: Frame) -> str:
        # Records are told apart by identity: they are immutable, and kept with the drawing, so that none has their id.
        place = tuple([part if isinstance(part, _PLAIN) else id(part) for part in key]) if self._cached else ()
        if place and place in self._kept:
            self._kept.move_to_end(place)
            return self._kept[place][1]
        drawn = packed(self._draw(frame))
        if place:
            self._kept[place] = key, drawn
            self._size += len(drawn)
            while self._size > KEPT and len(self._kept) > 1:
                self._size -= len(self._kept.popitem(last=False)[1][1])
        return drawn


class TabPanel(VBox):
    """What stands around one `picture` in a tab: made, by `make`, when the tab is first looked at."""

    picture: Slot

    def make(self) -> None:
        """Makes the controls, unless there are some already."""

    def set_visible(self, visible: bool) -> None:
        """Says whether the panel is on the screen."""
        if visible and not self.children:
            self.make()
        self.picture.set_visible(visible)

    def update(self, frame: Frame) -> None:
        """Draws the frame, if the panel is seen and would differ."""
        self.picture.update(frame)


def _same(key: tuple[Any, ...], drawn: tuple[Any, ...]) -> bool:
    """Records are compared by identity: comparing a whole run would cost more than drawing it."""
    if len(key) != len(drawn):
        return False
    for one, other in zip(key, drawn, strict=True):
        if one is not other and not (isinstance(one, _PLAIN) and one == other):
            return False
    return True


def placeholder(message: str) -> str:
    """What stands where there is nothing to draw yet."""
    return tag("div", escape(message), class_="sl-empty")


def caption_html(sentence: str) -> str:
    """What a picture shows, in words, below it."""
    return tag("p", escape(sentence), class_="sl-said") if sentence else ""
