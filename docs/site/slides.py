"""Builds a deck from each lesson: `make slides`, or `python docs/site/slides.py build/slides`.

A slide has one idea: a title with at most 40 words, a question, or a picture; an answer comes one
step after its question. Code, exercises, the quiz and what is folded are left out, and the text that
is not shown stands in the speaker's notes (S). reveal.js comes from the package sphinx-revealjs and
lies beside the decks, so they need no network.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from copy import deepcopy
from html import escape
from pathlib import Path
from typing import Any

import nbformat
import sphinx_revealjs
from nbconvert import SlidesExporter
from nbformat.v4 import new_code_cell, new_markdown_cell

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
REVEAL = Path(sphinx_revealjs.__file__).parent / "_static" / "revealjs"
MERMAID = re.compile(r'<script type="module">\s*import mermaid.*?</script>', re.DOTALL)
FOLDED = re.compile(r"<details>.*?</details>\s*", re.DOTALL)
PARTS = re.compile(r"^(?=##+ )", re.MULTILINE)
"""Where a text is divided: before its headings."""
LEFT_OUT = re.compile(r"### Exercise|## (Quiz|Next)\b")
MOST = 40
"""Words of a slide."""
UNDESCRIBED = 'alt="No description has been provided for this image"'
PRINTED = 80
"""Words of what a cell has printed."""
BLOCK = re.compile(r"```.*?```|(?:(?!\n\n|```).)+", re.DOTALL)
"""A paragraph, a list, a table, or what stands between fences."""
PICTURE = re.compile(r"```|!\[")
SENTENCE = re.compile(r".+?(?:[.?!]\)?\s+|\n|$)", re.DOTALL)
FULL = 760
"""The height of a slide in pixels."""
START = f"""<script src="reveal/dist/reveal.js"></script>
<script src="reveal/plugin/notes/notes.js"></script>
<script>Reveal.initialize({{
hash: true, center: false, width: 1100, height: {FULL}, plugins: [RevealNotes] }})</script>
"""
"""In place of the exporter's own start, which needs require.js and jQuery."""
STYLE = f"""<style>
.reveal .slides {{ text-align: left }} .reveal {{ font-size: 32px }}
.reveal pre, .reveal .jp-OutputArea-output {{ font-size: 16px !important; line-height: 1.35 }}
.reveal pre {{ white-space: pre-wrap !important; box-shadow: none }}
.reveal h1, .reveal h2, .reveal h3 {{ text-transform: none; font-size: 40px }}
.reveal img {{ max-height: 520px; width: auto }}
.reveal .slides section section {{ max-height: {FULL}px; overflow: hidden auto }}
</style>"""
LIST = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>speclab: slides</title>
<style>body { max-width: 40em; margin: 3em auto; padding: 0 1em; font: 18px/1.6 sans-serif }
li { margin: .4em 0 }</style>
<h1>speclab: slides</h1>
<p>Space shows the next step, S the speaker's notes, Esc all slides, F the whole screen.</p>"""

Cell = Any


def deck(path: Path) -> str:
    """A lesson as one page of slides."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = list(_slides(notebook.cells))
    for number, cell in enumerate(notebook.cells):
        cell.id = f"c{number:03}"
    exporter = SlidesExporter(
        reveal_url_prefix="reveal",
        reveal_theme="white",
        mathjax_url="",
        require_js_url="",
        jquery_url="",
        exclude_input=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": path.stem}})
    for output in (each for cell in notebook.cells for each in cell.get("outputs", ())):
        alt = output.get("metadata", {}).get("image/png", {}).get("alt")
        if alt:  # the exporter's template writes no description
            page = page.replace(UNDESCRIBED, f'alt="{escape(alt)}"', 1)
    page = MERMAID.sub("", page[: page.rindex("<script>\nrequire(")])
    return page.replace("</head>", f"{STYLE}</head>") + START + "</html>"


def _slides(cells: list[Cell]) -> Iterator[Cell]:
    """What a deck shows of a notebook, each cell with the kind of its slide."""
    asked = False  # the slide asks
    pictured = True  # the slide has its picture
    title = ""  # of a picture on a slide of its own: the question, or the section
    for cell in cells:
        tags = {*cell.metadata.get("tags", ())}
        if cell.cell_type == "markdown":
            for part in filter(str.strip, PARTS.split(FOLDED.sub("", cell.source))):
                if not LEFT_OUT.match(part):
                    for text, kind in _texts(part):
                        if kind != "notes":
                            title = text.partition("\n")[0]
                            asked, pictured = "**Predict.**" in text, bool(PICTURE.search(text))
                        yield _of_kind(new_markdown_cell(text), kind, cell.get("attachments"))
        elif not tags & {"exercise", "test"}:
            for output in _results(cell):
                question = "Prediction(" in cell.source
                alone = question or pictured
                kind = "subslide" if alone else "fragment" if asked else "-"
                asked, pictured = question or (asked and "lab" in tags), not question
                if kind == "subslide" and not question:
                    yield _of_kind(new_markdown_cell(title), kind)
                    kind = "-"
                yield _of_kind(new_code_cell(outputs=[output]), kind)


def _texts(part: str) -> Iterator[tuple[str, str]]:
    """A title with its first sentences and its picture; each question; and for the speaker the rest."""
    shown = []
    questions = []
    rest = []
    room = MOST
    for block in filter(str.strip, BLOCK.findall(part)):
        block = block.strip()
        if block.startswith("**Predict.**"):
            questions.append(_first(block, MOST))
            rest += [block] * (questions[-1] != block)
        elif PICTURE.search(block):
            shown += [block]
        else:
            start = _first(block, room)
            room = room - len(start.split()) if start == block else 0
            shown += [start] * bool(start)
            rest += [block] * (start != block)
    if shown:
        yield "\n\n".join(shown), "slide" if shown[0].startswith(("# ", "## ")) else "subslide"
    for question in questions:
        yield question, "subslide"
    if rest:
        yield "\n\n".join(rest), "notes"


def _first(block: str, words: int) -> str:
    """As many sentences, or lines of a list, from the beginning of a text as have so many words."""
    taken = ""
    for sentence in SENTENCE.findall(block):
        if len((taken + sentence).split()) > words:
            break
        taken += sentence
    return taken.strip()


def _results(cell: Cell) -> list[Any]:
    """What a cell shows, its code apart: of a lab its tree, with the sentence."""
    if "lab" not in cell.metadata.get("tags", ()):
        shown = [deepcopy(each) for each in cell.outputs if each.get("name") != "stderr"]
        for output in shown:
            lines = output.get("text", "").splitlines(keepends=True)
            text = ""
            for line in lines:
                if len((text + line).split()) > PRINTED:
                    output["text"] = f"{text}…"
                    break
                text += line
        return shown
    tree = [each for each in cell.outputs if "image/png" in each.get("data", {})][:1]
    sentence = cell.outputs[-1].get("data", {}).get("text/plain", "")
    return [*tree, nbformat.v4.new_output("stream", text=sentence)][: 1 + bool(tree)]


def _of_kind(cell: Cell, kind: str, attachments: Any = None) -> Cell:
    cell.metadata["slideshow"] = {"slide_type": kind}
    if attachments:
        cell["attachments"] = attachments
    return cell


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
