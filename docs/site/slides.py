"""Writes each notebook as slides: `make slides`, or `python docs/site/slides.py build/slides`.

nbconvert makes them of the cells' slide types (`tests/notebooks/dressing.py` chooses them) and of saved outputs. The
reveal.js that shows them is the one inside the package sphinx-revealjs (MIT licence); nothing is asked of the network.
"""

from __future__ import annotations

import shutil
import sys
from html import escape
from pathlib import Path

import nbformat
import sphinx_revealjs
from build import ROOT, ROW, prepare
from nbconvert import SlidesExporter

HERE = Path(__file__).parent
REVEAL = Path(sphinx_revealjs.__file__).parent / "_static" / "revealjs"


def _deck(path: str) -> str | None:
    """The file of a notebook's slides."""
    return Path(path).with_suffix(".slides.html").name if path.endswith(".ipynb") else None


def build(out: Path) -> None:
    """Writes a deck per notebook of README's table, and a list of them."""
    shutil.rmtree(out, ignore_errors=True)
    for part in ("dist", "plugin/notes"):
        shutil.copytree(REVEAL / part, out / "reveal" / part, ignore=shutil.ignore_patterns("*.map", "*.esm.js"))
    shutil.copy(REVEAL / "LICENSE", out / "reveal")
    shutil.copy(HERE / "static" / "slides.css", out)
    options = {"exclude_input_prompt": True, "exclude_output_prompt": True, "reveal_url_prefix": "reveal"}
    exporter = SlidesExporter(
        template_name="course", extra_template_basedirs=[str(HERE / "templates")], reveal_theme="white", **options
    )
    rows = []
    for title, path in ROW.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        notebook = nbformat.read(ROOT / path, as_version=4)
        prepare(notebook, "notebooks", _deck)
        page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": title}})
        name = _deck(path)
        (out / name).write_text(page, encoding="utf-8")
        rows.append(f'<li><a href="{name}">{escape(title)}</a></li>')
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>speclab: slides</title>'
    (out / "index.html").write_text(f"{head}<h1>Slides</h1><ul>{''.join(rows)}</ul>", encoding="utf-8")


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "build/slides").resolve())
