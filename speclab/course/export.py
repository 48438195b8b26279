"""Editions of the course: the notebooks as committed are the only source.

An exercise is a heading with its points, a cell tagged `exercise`, a cell tagged `test`, and below
it a folded solution. A test cell is a call such as `tests.A(greedy, pair)` of the module beside the
notebook. With `seed=None` it runs the cases alone; its random worlds are the hidden tests.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from speclab.course.formats import EDITIONS, NBGRADER, OTTER, Cell, Parts, raw
from speclab.errors import SpeclabError
from speclab.host import notebooks

HEADING = re.compile(
    r"^### Exercise ([A-Z]) · ([★☆]{3}) · (\d+) minutes · (\d+) points?$", re.MULTILINE
)
SOLUTION = re.compile(
    r"<details>\s*<summary>Solution</summary>.*?```python\n(.*?)```\s*(.*?)\s*</details>\s*",
    re.DOTALL,
)


def export(
    folder: str | Path, edition: str = "student", seed: int = 0, source: Path | None = None
) -> list[Path]:
    """Write an edition of all notebooks into a new folder, with points.csv.

    Args:
        edition: "student" (no solutions), "solutions" (filled in), "otter" (notebooks for
            `otter assign`) or "nbgrader" (a course folder for `nbgrader generate_assignment`).
        seed: other seeds give other random worlds.
        source: a folder of notebooks; by default the course's own.

    Raises:
        SpeclabError: the edition does not exist, or there are files in the folder.
    """
    if edition not in EDITIONS:
        raise SpeclabError(f"There is no edition {edition!r}: choose one of {', '.join(EDITIONS)}.")
    folder, source = Path(folder), source or notebooks()
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise SpeclabError(f"{folder} is not empty: choose a new folder.")
    books = folder / "source" if edition == "nbgrader" else folder
    books.mkdir(parents=True, exist_ok=True)
    extra = [path for path in sorted(source.iterdir()) if path.suffix in (".py", ".md")]
    points: list[tuple[Any, ...]] = [("notebook", "exercise", "stars", "minutes", "points")]
    written = []
    for path in sorted(source.glob("*.ipynb")):
        book = json.loads(path.read_text(encoding="utf-8"))
        points += [(path.stem, *row) for row in _points(book["cells"])]
        book["cells"] = list(_cells(book["cells"], edition, seed))
        if edition == "otter":
            names = json.dumps([each.name for each in extra])
            book["cells"].insert(0, raw(OTTER.format(name=path.stem, files=names)))
        for number, cell in enumerate(book["cells"]):
            cell["id"] = f"c{number:03}"
        # each lesson is an assignment of nbgrader's
        place = books / path.stem if edition == "nbgrader" else books
        place.mkdir(exist_ok=True)
        for each in extra:
            shutil.copyfile(each, place / each.name)
        written.append(place / path.name)
        written[-1].write_text(json.dumps(book, indent=1, ensure_ascii=False), encoding="utf-8")
    with (folder / "points.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(points)
    if edition == "nbgrader":
        (folder / "nbgrader_config.py").write_text(NBGRADER, encoding="utf-8")
    return written


def solution(name: str) -> str:
    """The folded solution that defines a function of this name, as code."""
    prose = "".join(
        _prose(json.loads(path.read_text(encoding="utf-8"))["cells"])
        for path in sorted(notebooks().glob("*.ipynb"))
    )
    codes = [found[1] for found in SOLUTION.finditer(prose)]
    return next(code for code in codes if f"def {name}(" in code)


def _cells(cells: list[Cell], edition: str, seed: int) -> Iterator[Cell]:
    """The cells of an edition; nothing has run."""
    heading: re.Match[str] | None = None
    for number, cell in enumerate(cells):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            heading = [*HEADING.finditer(text)][-1] if HEADING.search(text) else heading
            if rest := SOLUTION.sub(_answer, text).strip():
                yield {**cell, "source": rest}
        elif "exercise" in cell["metadata"].get("tags", ()) and heading:
            parts = _parts(heading, cells[number : number + 3], seed)
            answer, test = EDITIONS[edition](parts)
            yield from answer + test
        elif "test" not in cell["metadata"].get("tags", ()):
            yield {**cell, "execution_count": None, "outputs": []}


def _answer(solution: re.Match[str]) -> str:
    """What a solution says below its code, folded: the answer to a prediction, say."""
    words = solution[2]
    if not words or "```" in words:
        return ""
    return f"<details><summary>Answer</summary>\n\n{words}\n\n</details>\n\n"


def _parts(heading: re.Match[str], cells: list[Cell], seed: int) -> Parts:
    """An exercise from its heading, and the cells of the answer, the test and the solution."""
    stub, test, below = ("".join(cell["source"]) for cell in cells)
    solution = SOLUTION.search(below)
    letter, _, _, points = heading.groups()
    call = test.strip().removesuffix(")")
    if solution is None or not call.startswith(f"tests.{letter}("):
        raise SpeclabError(
            f"Exercise {letter} has no solution or no call of tests.{letter}: expected both in the "
            "cells after its answer."
        )
    visible = f"{call}, seed=None)"
    return Parts(letter, int(points), stub, solution.group(1), f"{call}, seed={seed})", visible)


def _points(cells: list[Cell]) -> Iterator[tuple[str, int, int, int]]:
    """Letter, stars, minutes and points of each exercise."""
    for letter, stars, minutes, points in HEADING.findall(_prose(cells)):
        yield letter, stars.count("★"), int(minutes), int(points)


def _prose(cells: list[Cell]) -> str:
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    return "\n\n".join(texts)
