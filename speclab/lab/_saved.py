"""What a saved notebook shows of a lab: the last stage as pictures, its text, and a table of its nodes.

The cell has two outputs: the widget, and below it static HTML, which is hidden while the widget is
alive and is brought up to date after each pause. Until the lab draws, the static HTML says what is
awaited, above the pictures that the notebook was saved with. If a program executes the notebook, a
third one has the tree as plotly's own data, which needs no browser.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from speclab import views
from speclab.errors import SpeclabError
from speclab.lab._browser import pngs
from speclab.lab._state import LabState
from speclab.views.run_data import WORDS
from speclab.views.static_html import describe, snapshot

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from speclab.trace.records import Step

PLOTLY = "application/vnd.plotly.v1+json"

_CHILD = ".jp-OutputArea-child"
_STYLE = f"""<style>
{_CHILD}:has(.speclab-lab) + {_CHILD} .speclab-saved:not(.speclab-opening),
{_CHILD}:has(.speclab-lab) + {_CHILD} .speclab-stages,
{_CHILD}:has(.sl-begun) + {_CHILD} .speclab-opening,
{_CHILD}:not(:has(.speclab-lab)):has(+ {_CHILD} .speclab-saved) {{ display: none }}
</style>"""
"""Hides the HTML below a live widget, or one that has begun, and what JupyterLab writes in place of a
dead one."""
NO_PICTURES = (
    "<p>No browser started here, so tree and mask are not saved as pictures: kaleido "
    "(<code>pip install kaleido</code>) draws them with a Chrome (<code>plotly_get_chrome</code>).</p>"
)
_OPENING = """<style>@keyframes speclab-bar {{ to {{ background-position: -200% 0 }} }}
.speclab-former {{ display: flex; align-items: flex-start; opacity: 0.4 }}
.speclab-former img {{ min-width: 0 }}</style>
<div class="speclab-saved speclab-opening"><div class="speclab-stages"><p>{stages}</p>
<div style="height: 4px; width: 240px; background: linear-gradient(90deg, #1976d2 40%, #1976d233 40%)
0 0 / 200% 100%; animation: speclab-bar 2s steps(20) infinite"></div></div>
<div class="speclab-former">{pictures}</div></div>"""
"""Until the page is there: one line, a bar that moves, and the pictures of the saved notebook."""
_PICTURE = re.compile(r'<img src="data:image/png;base64,([\w+/=]+)" alt="([\w ]+)" width="(\d+)"')
"""A picture of the page in the HTML of a saved notebook."""
PATIENCE = 60
"""Seconds that a cell which a program executes waits for the lab; what comes later is shown, too."""


class Saved:
    """The static output of a lab."""

    def __init__(self, state: LabState) -> None:
        self._state = state
        self._alone = False  # a program executes the notebook: no page will send pictures
        self._display_id = ""
        self._written: list[dict[str, Any]] = []
        self._pictures: list[str] = []
        self._pictured: tuple[Any, ...] = ()  # the position that the pictures show
        self._former = ""  # the pictures that the notebook was saved with

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
        pictures = ""
        if self._pictured == self._position():
            pictures = "".join(self._pictures)
        if self._state.step is None and self._state.busy and not self._alone:
            stages = WORDS["opening"]["page"].format(
                models=self._state.wanted.models or "the models"
            )
            return _OPENING.format(stages=escape(stages), pictures=self._former)
        body = f"<p>{escape(self.sentence())}</p>"
        if not self._asks:
            body = snapshot(self._state.trace, self._state.cursor)
        if not pictures and self._alone and self._state.step is not None:
            body += NO_PICTURES
        return f'<div class="speclab-saved">{pictures}{body}</div>'

    def display(
        self, wait: Callable[[float], bool], data: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> None:
        """Show the widget's bundle, and the static output below it; `wait`: until the lab is at rest."""
        self._alone = _no_person()
        if self._alone:
            wait(PATIENCE)
            self._draw()
        self._former = _saved_pictures()
        self._display_id = uuid4().hex
        self._written = self._bundles()
        _publish({**data, "text/plain": "", "text/html": ""}, metadata)
        for number, bundle in enumerate(self._written):
            _publish(bundle, transient={"display_id": f"{self._display_id}-{number}"})

    def update(self) -> None:
        """Bring the static output up to date, if another iteration or another picture is shown."""
        if not self._display_id or (self._alone and self._state.busy):
            return
        if self._alone and self._pictured != self._position():
            self._draw()
        bundles = self._bundles()
        for number, bundle in enumerate(bundles):
            if bundle != self._written[number]:
                name = f"{self._display_id}-{number}"
                _publish(bundle, transient={"display_id": name}, update=True)
        self._written = bundles

    def picture(self, cursor: int, images: Sequence[Any]) -> None:
        """Take over the page's pictures of the iteration shown."""
        if cursor == self._state.cursor:
            self._pictures = [tag for image in images if (tag := _image(image))]
            self._pictured = self._position()
            self.update()

    def _draw(self) -> None:
        """Draw tree and mask as PNG where a browser draws them."""
        self._pictured = self._position()
        self._pictures = []
        step = self._state.step
        if step is None:
            return
        try:
            figures = {"tree": self._tree(step), "mask": views.mask(step)}
        except SpeclabError:  # without the engine of pictures there is the table alone
            return
        drawn = pngs([figure.to_json() for figure in figures.values()])
        for name, data in zip(figures, drawn, strict=False):
            self._pictures.append(_image({"name": name, "mime": "image/png", "data": data}))

    def _tree(self, step: Step) -> Figure:
        """The tree, without what is accepted while the lab waits for a guess."""
        return views.tree(step, phase="flatten" if self._asks else "all")

    def _position(self) -> tuple[Any, ...]:
        return (self._state.number, self._state.cursor, len(self._state.steps))

    def _bundles(self) -> list[dict[str, Any]]:
        """What stands below the widget."""
        html = {"text/plain": self.sentence(), "text/html": _STYLE + self.html()}
        if not self._alone:
            return [html]
        # the empty texts: a page without plotly's renderer then shows nothing, and does not warn
        tree: dict[str, Any] = {"text/plain": "", "text/html": ""}
        if self._state.step is not None:
            with suppress(SpeclabError):
                figure = json.loads(self._tree(self._state.step).to_json())
                # plotly's button "Share chart" uploads the picture
                tree[PLOTLY] = {**figure, "config": {"showSendToCloud": False}}
        return [html, tree]


def _no_person() -> bool:
    """Whether a program such as nbconvert executes the notebook.

    A front end in which a person works names the cell, as JupyterLab does, or lets the cell ask for
    input, as a console does.
    """
    request = _request()
    if request is None or "VOILA_KERNEL_ID" in os.environ:
        return False
    named = "cellId" in request.get("metadata", {})
    return not named and not request.get("content", {}).get("allow_stdin")


def _request() -> Mapping[str, Any] | None:
    """The message that asked the kernel to run this cell; None without a kernel."""
    from IPython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    return None if kernel is None else kernel.get_parent("shell")


def _saved_pictures() -> str:
    """The pictures of this cell's lab in the notebook's file; empty where they are not known.

    Jupyter's server names the file of a kernel's notebook in its environment. JupyterLab names the
    cell that runs, and has removed what the cell showed.
    """
    request = _request() or {}
    cell_id = request.get("metadata", {}).get("cellId")
    try:
        notebook = json.loads(Path(os.environ["JPY_SESSION_NAME"]).read_text(encoding="utf-8"))
        cells = [cell for cell in notebook["cells"] if cell["id"] == cell_id]
        outputs = [output.get("data", {}) for cell in cells for output in cell["outputs"]]
    except (KeyError, TypeError, OSError, ValueError):  # no file, or not one of this format
        return ""
    tags = []
    for data in outputs:
        if "image/png" in data:
            picture = "".join(data["image/png"]).replace("\n", "")
            tags.append(_image({"mime": "image/png", "data": picture, "name": "saved"}))
        for picture, name, width in _PICTURE.findall("".join(data.get("text/html", ""))):
            image = {"mime": "image/png", "data": picture, "name": name, "width": int(width)}
            tags.append(_image(image))
    return "".join(tags)


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
