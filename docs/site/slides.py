"""Builds a deck from each lesson: `make slides`, or `python docs/site/slides.py build/slides`.

A deck leaves out exercises, the quiz, and what is folded. A heading begins a slide, and so does
what no longer fits on one; an answer comes one step after its question. reveal.js comes from the
package sphinx-revealjs and lies beside the decks, so they need no network.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import nbformat
import sphinx_revealjs
from nbconvert import SlidesExporter
from traitlets.config import Config

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
REVEAL = Path(sphinx_revealjs.__file__).parent / "_static" / "revealjs"
MERMAID = re.compile(r'<script type="module">\s*import mermaid.*?</script>', re.DOTALL)
FOLDED = re.compile(r"<details>.*?</details>\s*", re.DOTALL)
PARTS = re.compile(r"^(?=##+ )", re.MULTILINE)
"""Where a text is divided: before its headings."""
LEFT_OUT = re.compile(r"### Exercise|## (Quiz|Next)\b")
BREAK, TAG = re.compile(r"<(?:p|br|tr|li)\b"), re.compile(r"<[^>]*>")
FULL = 760
"""The height of a slide in pixels."""
START = f"""<script src="reveal/dist/reveal.js"></script>
<script src="reveal/plugin/notes/notes.js"></script>
<script>Reveal.initialize({{
hash: true, center: false, width: 1100, height: {FULL}, plugins: [RevealNotes] }})</script>
"""
"""In place of the exporter's own start, which needs require.js and jQuery."""
STYLE = f"""<style>
.reveal .slides {{ text-align: left }} .reveal {{ font-size: 26px }}
.reveal pre, .reveal .jp-OutputArea-output {{ font-size: 16px !important; line-height: 1.35 }}
.reveal pre {{ white-space: pre-wrap !important; box-shadow: none }}
.reveal h1, .reveal h2, .reveal h3 {{ text-transform: none; font-size: 40px }}
.reveal img {{ max-height: 460px }}
.reveal .slides section section {{ max-height: {FULL}px; overflow: hidden auto }}
</style>"""
LIST = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>speclab: slides</title>
<style>body { max-width: 40em; margin: 3em auto; padding: 0 1em; font: 18px/1.6 sans-serif }
li { margin: .4em 0 }</style>
<h1>speclab: slides</h1>
<p>Space shows the next step, Esc all slides, F the whole screen.</p>"""

Cell = Any


def deck(path: Path) -> str:
    """A lesson as one page of slides."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = list(_slides(notebook.cells))
    for number, cell in enumerate(notebook.cells):
        cell.id = f"c{number:03}"
    exporter = SlidesExporter(
        config=Config(
            {"TagRemovePreprocessor": {"enabled": True, "remove_input_tags": {"result"}}}
        ),
        reveal_url_prefix="reveal",
        reveal_theme="white",
        mathjax_url="",
        require_js_url="",
        jquery_url="",
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": path.stem}})
    page = MERMAID.sub("", page[: page.rindex("<script>\nrequire(")])
    return page.replace("</head>", f"{STYLE}</head>") + START + "</html>"


def _slides(cells: list[Cell]) -> Iterator[Cell]:
    """What a deck shows of a notebook, each cell with the kind of its slide."""
    filled = 0.0
    for group in _groups(cells):
        height = sum(map(_height, group))
        kind = _kind(group[0])
        if kind in ("slide", "subslide") or (kind == "-" and filled + height > FULL):
            _set_kind(group[0], "subslide" if kind == "-" else kind)
            filled = 0
        filled += height
        yield from group


def _groups(cells: list[Cell]) -> Iterator[list[Cell]]:
    """What stays together: a text below its heading, or code and its result."""
    asked = False
    for cell in cells:
        tags = {*cell.metadata.get("tags", ())}
        if cell.cell_type == "markdown":
            for part in _texts(cell):
                asked = "**Predict.**" in part.source
                yield [part]
        elif not tags & {"exercise", "test"}:
            hides = cell.metadata.get("jupyter", {})
            answers = (asked or hides.get("outputs_hidden")) and "lab" not in tags
            if shown := _code(cell, bool(answers), hides.get("source_hidden", False)):
                yield shown
            asked = asked and not cell.outputs


def _texts(cell: Cell) -> Iterator[Cell]:
    """The parts of a text that are shown; a section begins a slide."""
    kind = _kind(cell).replace("skip", "-")
    for text in filter(str.strip, PARTS.split(FOLDED.sub("", cell.source))):
        if not LEFT_OUT.match(text):
            part = nbformat.v4.new_markdown_cell(text)
            _set_kind(part, "subslide" if text.startswith("##") and kind != "slide" else kind)
            yield part
        kind = "subslide"


def _code(cell: Cell, answers: bool, hidden: bool) -> list[Cell]:
    """A code cell and its result, which comes one step later where it answers a question."""
    result = nbformat.v4.new_code_cell(outputs=cell.outputs)
    result.metadata["tags"] = ["result"]
    _set_kind(result, "fragment" if answers else "-")
    if hidden:
        return [result] if cell.outputs else []
    cell.outputs = []
    return [cell, result] if result.outputs else [cell]


def _height(cell: Cell) -> float:
    """About how many pixels a cell takes on a slide."""
    if cell.cell_type == "markdown":
        lines = sum(1 + len(line) // 85 for line in cell.source.splitlines())
        return 34 * lines + 30 * cell.source.startswith("#")
    height = 22 * cell.source.count("\n") + 50
    for output in cell.outputs:
        data = output.get("data", {})
        page = BREAK.sub("\n", data.get("text/html", ""))
        text = TAG.sub("", page) or output.get("text", "") or data.get("text/plain", "")
        picture = "image/png" in data or "<img" in page
        height += 480 if picture else 22 * sum(1 + len(line) // 100 for line in text.splitlines())
    return height


def _kind(cell: Cell) -> str:
    return str(cell.metadata.get("slideshow", {}).get("slide_type", "-"))


def _set_kind(cell: Cell, kind: str) -> None:
    cell.metadata["slideshow"] = {"slide_type": kind}


def build(out: Path) -> None:
    """Write all decks, a list of them, and reveal.js."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(REVEAL, out / "reveal")
    items = []
    for path in sorted(NOTEBOOKS.glob("[!0]*.ipynb")) + sorted(NOTEBOOKS.glob("0[!0]*.ipynb")):
        (out / f"{path.stem}.html").write_text(deck(path), encoding="utf-8")
        items.append(f'<li><a href="{path.stem}.html">{escape(_title(path))}</a></li>')
    (out / "index.html").write_text(f"{LIST}<ul>{''.join(sorted(items))}</ul>", encoding="utf-8")


def _title(path: Path) -> str:
    title = nbformat.read(path, as_version=4).cells[0].source.partition("\n")[0].removeprefix("# ")
    number = re.match(r"0(\d)", path.stem)
    return f"{number[1]}. {title}" if number else title


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "build/slides").resolve())
