"""Runs notebooks and saves them as the repository keeps them: `python scripts/save_notebooks.py
[NAME …]`.

A figure is kept as a PNG, drawn by Chromium, and a lab as PNGs and the sentence of its iteration;
no widget state is kept. Each picture has a description for those who do not see it: the sentence of
the lab, or what the metadata of its cell says under `alt`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
import plotly
from nbclient import NotebookClient
from playwright.sync_api import Page, sync_playwright

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
FIGURE = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PICTURE = re.compile(r'<img src="data:image/png;base64,([^"]+)" alt="(\w+)"[^>]*>')
LEAST = 13
"""Pixels of the smallest letters of a figure."""
DRAW = """({ data, layout }) => Plotly.toImage({ data, layout },
  { format: "png", width: layout.width || 760, height: layout.height || 400 })"""


def save(path: Path, page: Page) -> None:
    """Runs a notebook and writes it back."""
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parent)}}
    NotebookClient(
        notebook, timeout=600, record_timing=False, resources=where, coalesce_streams=True
    ).execute()
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = written(cell.outputs, page)
            describe(cell)
    nbformat.write(notebook, path)


def written(outputs: list[Any], page: Page) -> list[Any]:
    """The outputs of a cell as they are kept. A lab has its pictures in its HTML: its tree as plotly's
    data is for pages that draw it themselves.
    """
    lab = any(WIDGET in output.get("data", {}) for output in outputs)
    found: list[Any] = []
    for output in outputs:
        data = output.get("data", {})
        if "PlotlyConfig" in data.get("text/html", "") or (lab and FIGURE in data):
            continue
        if WIDGET in data and not data.get("text/plain"):
            continue
        found += parts(output, page)
    return found


def parts(output: Any, page: Page) -> list[Any]:
    """An output as it is kept; the pictures of a lab become outputs of their own, since pages that
    show repositories leave out those within HTML.
    """
    if "data" not in output:
        return [output]
    output["data"] = kept(output["data"], page)
    pictures = [
        nbformat.v4.new_output("display_data", {"image/png": data, "text/plain": name})
        for data, name in PICTURE.findall(output["data"].get("text/html", ""))
    ]
    if pictures:
        output["data"]["text/html"] = PICTURE.sub("", output["data"]["text/html"])
    return [*pictures, output]


def describe(cell: Any) -> None:
    """Writes the description of each picture of a cell to where nbconvert and MyST-NB read it."""
    sentence = cell.metadata.get("alt", "")
    for output in cell.outputs:
        if "text/html" in output.get("data", {}):
            sentence = sentence or output["data"]["text/plain"]
    for output in cell.outputs:
        if "image/png" in output.get("data", {}):
            shown = output["data"]["text/plain"]
            part = {"tree": "The draft tree. ", "mask": "The attention mask. "}.get(shown, "")
            output["metadata"]["image/png"] = {"alt": part + sentence}
            cell.metadata["mystnb"] = {"image": {"alt": sentence}}


def kept(data: dict[str, Any], page: Page) -> dict[str, Any]:
    """What is kept of an output: the picture of a figure, the words of anything else."""
    if FIGURE in data:
        enlarge(data[FIGURE]["layout"].get("template", {}))
        address = page.evaluate(DRAW, {name: data[FIGURE][name] for name in ("data", "layout")})
        return {"image/png": address.partition(",")[2], "text/plain": "a plotly figure"}
    return {kind: value for kind, value in data.items() if kind != WIDGET}


def enlarge(part: Any) -> None:
    """Letters of at least LEAST pixels, wherever a template names a size."""
    if isinstance(part, list):
        for value in part:
            enlarge(value)
    if isinstance(part, dict):
        for name, value in part.items():
            if name.endswith("font") and value.get("size", LEAST) < LEAST:
                value["size"] = LEAST
            enlarge(value)


if __name__ == "__main__":
    os.environ["PLOTLY_RENDERER"] = "plotly_mimetype"
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        drawing = browser.new_page(device_scale_factor=1.25)
        drawing.set_content("<!doctype html><meta charset=utf-8><body></body>")
        drawing.add_script_tag(path=Path(plotly.__file__).parent / "package_data" / "plotly.min.js")
        for name in sys.argv[1:] or sorted(map(str, NOTEBOOKS.glob("*.ipynb"))):
            save(Path(name), drawing)
            print(f"{name}: {Path(name).stat().st_size:,} bytes")
        browser.close()
