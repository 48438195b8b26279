"""Runs notebooks and saves them as the repository keeps them: `make saved`, or `python tests/notebooks/save.py NAME …`.

A page without scripts shows no plotly figure and no widget. So each figure gets a PNG beside it in its output, and a
lab one of its stage, in the HTML that stands in its place. A picture whose figure did not change stays as it was saved,
byte for byte, and no widget state is kept. With --as-run the outputs stay, and pictures alone are added; with
--redraw every picture is drawn anew. Chromium draws: the one on the PATH, else Playwright's own.
Each gets the install cell, the link to Colab and slide types of `dressing.py`; with --heads that alone, and nothing
runs. Slide types that are there stay; --slides chooses them anew.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import plotly
from dressing import dress, lay_slides, write_heads
from nbclient import NotebookClient
from playwright.sync_api import Page, sync_playwright

import speclab.views
from speclab.views.theme import THEMES

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
FIGURE, WIDGET = "application/vnd.plotly.v1+json", "application/vnd.jupyter.widget-view+json"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
STAGE = ("timeline", "tree", "mask")
"""Slots of a lab's screen that its picture shows; the last two side by side."""
CONTROLS = "Run this cell for its controls."
"""What stands where a widget has no words of its own."""
SCALE = 1.5
"""Pixels of a picture for one of the page."""
_STYLE = ":root{%s}body{margin:0;background:var(--sl-paper);width:1100px;display:grid;grid-template-columns:2fr 1fr}"
_DRAW = """async slots => {
  document.body.replaceChildren(...slots.map(() => document.createElement("div")));
  const plots = makePlots(Plotly, document.body, () => {});
  slots.forEach((parts, i) => {
    if (i < slots.length - 2) document.body.children[i].style.gridColumn = "1 / 3";
    plots.show(document.body.children[i], parts);
  });
  await document.fonts.ready;
  return document.body.offsetHeight;
}"""
_PIXELS = """async address => {
  const image = await createImageBitmap(await (await fetch(address)).blob());
  const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
  context.fillStyle = "white"; // a picture has a ground of its own
  context.fillRect(0, 0, image.width, image.height);
  context.drawImage(image, 0, 0);
  const bytes = context.getImageData(0, 0, image.width, image.height).data;
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return [image.width, image.height, btoa(text)];
}"""
_FIGURE = """({ data, layout }, scale = layout.width ? Math.min(%s, 900 / layout.width) : 1) => Plotly.toImage(
  { data, layout }, { format: "png", scale, width: layout.width || 900, height: layout.height || 420 })"""


class Painter:
    """A page of a browser that draws figures as small PNGs."""

    def __init__(self, page: Page) -> None:
        self._page = page
        colors = "".join([f"{role[4:-1]}:{color};" for role, color in THEMES["light"].items()])
        page.set_content(f"<!doctype html><meta charset=utf-8><style>{_STYLE % colors}</style><body></body>")
        page.add_script_tag(path=Path(plotly.__file__).parent / "package_data" / "plotly.min.js")
        script = Path(speclab.views.__file__).with_name("plots.js").read_text(encoding="utf-8")
        page.add_script_tag(content=f"{script}\nwindow.makePlots = makePlots;")

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[Painter]:
        """With a browser of its own."""
        found = next(filter(None, map(shutil.which, BROWSERS)), None)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=found, args=["--no-sandbox", "--force-color-profile=srgb"]
            )
            yield cls(browser.new_page(viewport={"width": 1100, "height": 600}, device_scale_factor=SCALE))
            browser.close()

    def figure(self, figure: dict[str, Any]) -> str:
        """A figure, in base64."""
        return self._small(self._page.evaluate(_FIGURE % SCALE, {name: figure[name] for name in ("data", "layout")}))

    def stage(self, slots: list[list[Any]]) -> str:
        """What slots of a lab's screen show, in base64."""
        height = self._page.evaluate(_DRAW, slots)
        shot = self._page.screenshot(clip={"x": 0, "y": 0, "width": 1100, "height": height}, full_page=True)
        return self._small("data:image/png;base64," + b64encode(shot).decode())

    def _small(self, address: str) -> str:
        """A PNG of 256 colours: the most frequent as they are, and for any other, at edges of letters, the nearest."""
        width, height, pixels = self._page.evaluate(_PIXELS, address)
        image = np.frombuffer(b64decode(pixels), np.uint8).reshape(-1, 4)[:, :3].astype(np.uint32)
        codes, place, count = np.unique(image @ [65536, 256, 1], return_inverse=True, return_counts=True)
        colors = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=1).astype(np.float32)
        kept = colors[np.argsort(-count, kind="stable")[:256]]
        nearest = np.square(colors[:, None] - kept).sum(axis=2).argmin(axis=1)
        palette = [(int(red), int(green), int(blue), 255) for red, green, blue in kept]
        return indexed_png(nearest[place].reshape(height, width).astype(np.uint8), palette).partition(",")[2]


def stage_of(state: dict[str, dict[str, Any]], model: str) -> list[list[Any]]:
    """What the slots of `STAGE` hold in the screen of a lab, looked for among a widget's children."""
    held = state.get(model, {})
    if "slots" in held:
        return [json.loads(held[slot]) for slot in STAGE if held.get(slot)]
    for child in held.get("children", ()):
        if found := stage_of(state, child.removeprefix("IPY_MODEL_")):
            return found
    return []


class Client(NotebookClient):
    """Runs a notebook; a lab's output gets a picture of the stage as it stood when its cell was over."""

    painter: Painter

    async def async_execute_cell(self, cell: Any, cell_index: int, **options: Any) -> Any:  # type: ignore[override]
        done = await super().async_execute_cell(cell, cell_index, **options)
        for output in cell.get("outputs", ()):
            if view := output.get("data", {}).pop(WIDGET, None):
                output["slots"] = stage_of(self.widget_state, view["model_id"])
        return done


def finish(notebook: Any, painter: Painter, kept: dict[str, str]) -> None:
    """Puts the pictures in and takes out what only a kernel could use; `kept`: pictures of figures saved before."""
    notebook.metadata.pop("widgets", None)
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        data, slots = output.get("data", {}), output.pop("slots", None)
        if slots is not None and "text/html" not in data:
            data["text/plain"] = CONTROLS  # not what Python calls the widget
        if FIGURE in data:
            data.pop("text/html", None)  # the same figure, with plotly.js
            data["image/png"] = kept.get(_key(data[FIGURE])) or painter.figure(data[FIGURE])
        elif slots:
            words = escape(data.get("text/plain", ""))
            picture = f'<img alt="{words}" src="data:image/png;base64,{painter.stage(slots)}" style="max-width:100%">'
            data["text/html"] = picture + data.get("text/html", "")


def pictures(notebook: Any) -> dict[str, str]:
    """The pictures in a notebook, by their figures."""
    bundles = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ())]
    return {_key(data[FIGURE]): data["image/png"] for data in bundles if FIGURE in data and "image/png" in data}


def _key(figure: Any) -> str:
    return json.dumps(figure, sort_keys=True)


def save(path: Path, painter: Painter, *, run: bool = True) -> None:
    """Writes a notebook back, run anew or with the outputs that it has."""
    os.environ["PLOTLY_RENDERER"] = "plotly_mimetype"  # for the kernel: figures as data, without plotly.js
    notebook = nbformat.read(path, as_version=4)
    kept = {} if "--redraw" in sys.argv else pictures(notebook)
    dress(notebook, path.name)
    if run:
        where = {"metadata": {"path": str(path.parent)}}
        Client(
            notebook, timeout=600, kernel_name="python3", store_widget_state=True, record_timing=False, resources=where,
            coalesce_streams=True,
        ).execute()  # fmt: skip
    finish(notebook, painter, kept)
    lay_slides(notebook, anew="--slides" in sys.argv)
    nbformat.write(notebook, path)


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if not name.startswith("--")]
    if "--heads" in sys.argv:
        every = [Path(name) for name in names] or sorted(NOTEBOOKS.glob("*.ipynb"))
        write_heads(every, anew="--slides" in sys.argv)
        sys.exit()
    with Painter.opened() as drawer:
        for name in names or sorted(map(str, NOTEBOOKS.glob("*.ipynb"))):
            save(Path(name), drawer, run="--as-run" not in sys.argv)
            print(name, f"{Path(name).stat().st_size:,} bytes")
