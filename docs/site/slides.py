"""Builds a deck from each lesson: `make slides`, or `python docs/site/slides.py build/slides`.

A deck leaves out exercises and the quiz (cells of the slide type "skip"), and what is folded. reveal.js comes
from the package sphinx-revealjs and lies beside the decks, so they need no network.
"""

from __future__ import annotations

import re
import shutil
import sys
from html import escape
from pathlib import Path

import nbformat
import sphinx_revealjs
from nbconvert import SlidesExporter

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
REVEAL = Path(sphinx_revealjs.__file__).parent / "_static" / "revealjs"
MERMAID = re.compile(r'<script type="module">\s*import mermaid.*?</script>', re.DOTALL)
FOLDED = re.compile(r"<details>.*?</details>\s*", re.DOTALL)
START = """<script src="reveal/dist/reveal.js"></script>
<script src="reveal/plugin/notes/notes.js"></script>
<script>Reveal.initialize({ hash: true, center: false, width: 1100, height: 760, plugins: [RevealNotes] })</script>
"""
"""In place of the exporter's own start, which needs require.js and jQuery."""
STYLE = """<style>
.reveal .slides { text-align: left } .reveal { font-size: 26px }
.reveal pre, .reveal .jp-OutputArea-output { font-size: 16px !important; line-height: 1.35 }
.reveal pre { white-space: pre-wrap !important; box-shadow: none }
.reveal h1, .reveal h2, .reveal h3 { text-transform: none; font-size: 40px }
.reveal img { max-height: 460px }
.reveal .slides section section { max-height: 760px; overflow: hidden auto }
</style>"""


def deck(path: Path) -> str:
    """A lesson as one page of slides, without folded helpers; an answer comes one step later."""
    notebook = nbformat.read(path, as_version=4)
    top = notebook.cells[0]
    top.source, _, section = top.source.partition("\n## ")
    if section:  # a slide of its own
        first = nbformat.v4.new_markdown_cell(f"## {section}")
        first.metadata["slideshow"] = {"slide_type": "subslide"}
        notebook.cells.insert(1, first)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = FOLDED.sub("", cell.source)
        folded = cell.metadata.get("jupyter", {})
        if folded.get("source_hidden"):
            cell.metadata["slideshow"] = {"slide_type": "skip"}
        if folded.get("outputs_hidden"):
            cell.metadata["slideshow"] = {"slide_type": "fragment"}
    exporter = SlidesExporter(
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


def build(out: Path) -> None:
    """Write all decks, a list of them, and reveal.js."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(REVEAL, out / "reveal")
    items = []
    for path in sorted(NOTEBOOKS.glob("[!0]*.ipynb")) + sorted(NOTEBOOKS.glob("0[!0]*.ipynb")):
        (out / f"{path.stem}.html").write_text(deck(path), encoding="utf-8")
        items.append(f'<li><a href="{path.stem}.html">{escape(path.stem)}</a></li>')
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>speclab: slides</title>'
    (out / "index.html").write_text(f"{head}<ul>{''.join(sorted(items))}</ul>", encoding="utf-8")


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "build/slides").resolve())
