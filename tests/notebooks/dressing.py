"""What every notebook of the course has alike: the cell that installs speclab on Colab, the link there, slide types.

All addresses come from one line, `[project.urls] Repository` in pyproject.toml. `save.py` writes these into each
notebook that it saves, and `save.py --heads` into all, without running them, and into README's table of the course.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
ADDRESS: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
INSTALL = f"""\
import sys  # on Colab this cell installs speclab; anywhere else it does nothing

if "google.colab" in sys.modules:
    %pip install -q "speclab @ git+{ADDRESS}\""""
SKIPPED = {"install", "exercise", "test", "digest"}
"""Cells with one of these tags are for a reader at a keyboard, not for a class that looks at a slide."""
ROOM = 29
"""Lines of code that a slide holds."""
_ASIDE = re.compile(
    r"<details>.*?</details>|^### Exercise.*?(?=^##? |\Z)|^## (?:Quiz|Exercises).*?(?=^##? |\Z)",
    re.DOTALL | re.MULTILINE,
)
"""What is folded, an exercise, the quiz."""
_LINK = re.compile(r"\s*\[Open in Colab\]\([^)]*\)")


def colab(name: str) -> str:
    """Where Colab opens this notebook."""
    return f"{ADDRESS.replace('//github.com', '//colab.research.google.com/github')}/blob/main/notebooks/{name}"


def dress(notebook: Any, name: str) -> None:
    """Writes the install cell and the link to Colab into a notebook, and whole addresses of what lies outside its
    folder, for `speclab lab` copies that alone; code that JupyterLab hides, Colab hides too; in place.

    Saved answers are folded, or a reader would see them under the question. JupyterLab unfolds what is run.
    """
    heads = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    for cell in heads:
        cell.source = cell.source.replace("](../", f"]({ADDRESS}/blob/main/")
    if not heads:
        return
    head = next((cell for cell in heads if "**Read.**" in cell.source), heads[0])
    head.source = f"{_LINK.sub('', head.source)}\n\n[Open in Colab]({colab(name)})"
    for cell in filter(_hidden, notebook.cells):
        cell.metadata.cellView = "form"  # what Colab calls it
    for cell in notebook.cells:
        if cell.cell_type == "code" and ".reveal(" in cell.source:
            cell.metadata["jupyter"] = {**cell.metadata.get("jupyter", {}), "outputs_hidden": True}
    found = [cell for cell in notebook.cells if "install" in cell.metadata.get("tags", ())]
    if not found:
        found = [nbformat.v4.new_code_cell(id="install", metadata={"tags": ["install"]})]
        notebook.cells.insert(1, found[0])
        _count_on(notebook)
    found[0].source = INSTALL


def lay_slides(notebook: Any, *, anew: bool = False) -> None:
    """Gives each cell of a notebook that has run a slide type, unless it has one; to all of them if `anew`."""
    for cell in notebook.cells if anew else ():
        cell.metadata.pop("slideshow", None)
    for cell, kind in zip(notebook.cells, slide_types(notebook.cells), strict=True):
        cell.metadata.setdefault("slideshow", {"slide_type": kind})


def _count_on(notebook: Any) -> None:
    """Numbers the cells of a notebook that has run, one more than before."""
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if any(cell.execution_count for cell in codes):
        for count, cell in enumerate(codes, 1):
            cell.execution_count = count
            for output in cell.outputs:
                if "execution_count" in output:
                    output["execution_count"] = count


def slide_types(cells: list[Any]) -> list[str]:
    """For each cell the slide type that it has, else by rule; what would run over a slide goes below it on a new one.

    A heading begins a slide. What follows a prediction comes at the next key. Exercises, hints, solutions and the quiz
    are left out.
    """
    kinds, filled, predicted = [], 0.0, False
    for cell, following in zip(cells, [*cells[1:], None], strict=True):
        lines, words = height(cell), _ASIDE.sub("", cell.source).strip() if cell.cell_type == "markdown" else ""
        heading = re.search(r"^(#{1,3}) ", re.sub("```.*?```", "", words, flags=re.DOTALL), re.MULTILINE)
        needed = lines  # a question stands with its answer, if both fit
        if cell.cell_type == "markdown" and following is not None and following.cell_type == "code":
            needed = min(lines + height(following), ROOM)
        if SKIPPED & set(cell.metadata.get("tags", ())) or _hidden(cell) or not (words or cell.cell_type == "code"):
            kind = "skip"
        elif heading or not kinds:
            kind = "subslide" if heading and len(heading[1]) > 2 else "slide"
        elif filled + needed > ROOM or "**Predict.**" in cell.source:
            kind = "subslide"
        else:
            kind = "fragment" if predicted and cell.cell_type == "code" else "-"
        kind = cell.metadata.get("slideshow", {}).get("slide_type", kind)
        kinds.append(kind)
        if kind != "skip":
            filled = lines + (0 if kind.endswith("slide") else filled)
            predicted = "**Predict.**" in cell.source or "Prediction(" in cell.source
    return kinds


def _hidden(cell: Any) -> bool:
    return bool(cell.metadata.get("jupyter", {}).get("source_hidden"))


def height(cell: Any) -> float:
    """About how many lines of code are as high as a cell with its outputs; pictures stand side by side."""
    if cell.cell_type == "markdown":
        return sum(1.3 * (1 + len(line) // 100) if line else 0.4 for line in cell.source.splitlines())
    lines = len(cell.source.splitlines()) + 1.0
    bundles = [output.get("data", {"text/plain": output.get("text", "")}) for output in cell.get("outputs", ())]
    pictures = [data for data in bundles if "image/png" in data or "<img" in data.get("text/html", "")]
    for data in bundles:
        if data not in pictures:
            text = re.sub("<[^>]*>", "", data.get("text/html", "")) or data.get("text/plain", "")
            lines += sum(1 + len(line) // 120 for line in text.splitlines())
    return lines + 16 * ((len(pictures) + 2) // 3)


def with_badges(readme: str) -> str:
    """README's text with a badge behind each notebook of its table: our own picture, linked to Colab."""
    bare = re.sub(r" \[!\[Open in Colab\]\([^)]*\)\]\([^)]*\)", "", readme)
    badge = r"\1 [![Open in Colab](docs/images/colab.svg)]({})"
    return re.sub(
        r"(?m)^(\| \[[^\]]*\]\(notebooks/([^)]*\.ipynb)\))",
        lambda found: found.expand(badge.format(colab(found[2]))),
        bare,
    )


def write_heads(paths: list[Path], *, anew: bool) -> None:
    """Dresses notebooks that are saved, without running them, and README's table."""
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        dress(notebook, path.name)
        lay_slides(notebook, anew=anew)
        nbformat.write(notebook, path)
    README.write_text(with_badges(README.read_text(encoding="utf-8")), encoding="utf-8")
