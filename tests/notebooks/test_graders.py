"""otter-grader and nbgrader grade editions of a small lesson with their own tools."""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from support.processes import python

from speclab.course.export import export

pytestmark = [pytest.mark.notebook, pytest.mark.night]
FACTORS = {"double": 2, "triple": 3, "fourfold": 4, "fivefold": 5, "sixfold": 6, "sevenfold": 7}
"""Functions of the lesson; each gives as many points as its factor."""
ANSWERS = {
    "all": {name: f"return {factor} * number" for name, factor in FACTORS.items()},
    # fitted to the visible case, raising, open, endless, right; sevenfold was deleted
    "one": {
        "double": "return 4",
        "triple": "raise ValueError(number)",
        "fourfold": "",
        "fivefold": "while True: pass",
        "sixfold": "print(number)\n    return 6 * number",
    },
}
"""Bodies by student."""
SCORES = {"all": sum(FACTORS.values()), "one": FACTORS["sixfold"]}
MODULE = """from speclab.course import check
"""
TEST = """

def {letter}(answer, own, seed=0):
    def world(random):
        number = random.randint(50, 99)
        return number, {factor} * number

    check("{letter}", answer, [(own, own * {factor})], limit=2, worlds=world, seed=seed)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    # a lesson's names are its own
    cells = [new_code_cell("import lesson as tests\n\nown = 2")]
    module = MODULE
    for letter, (name, factor) in zip("ABCDEF", FACTORS.items(), strict=True):
        stub = f'def {name}(number):\n    """A product."""'
        answer = f"```python\n{stub}\n    return {factor} * number\n```"
        module += TEST.format(letter=letter, factor=factor)
        cells += [
            new_markdown_cell(f"### Exercise {letter} · ★☆☆ · 5 minutes · {factor} points"),
            new_code_cell(f"{stub}\n    # TODO", metadata={"tags": ["exercise"]}),
            new_code_cell(f"tests.{letter}({name}, own)", metadata={"tags": ["test"]}),
            new_markdown_cell(f"<details><summary>Solution</summary>\n\n{answer}\n\n</details>"),
        ]
    folder = tmp_path_factory.mktemp("source")
    (folder / "lesson.py").write_text(module, encoding="utf-8")
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), folder / "f.ipynb")
    return folder


def _hand_in(lesson: Path, bodies: dict[str, str], to: Path) -> None:
    """A student's copy of a lesson, with their answers; without the cells of those they deleted."""
    book = nbformat.read(lesson, as_version=4)
    kept = []
    for cell in book.cells:
        name = re.match(r"def (\w+)\(number\)", cell.source)
        if name and "exercise" in cell.metadata.get("tags", ()):
            if name[1] not in bodies:
                continue
            if bodies[name[1]]:
                cell.source = f"{name[0]}:\n    {bodies[name[1]]}"
        kept.append(cell)
    book.cells = kept
    to.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(book, to)


def _run(folder: Path, *command: str) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    python("-m", *command, folder=folder, PATH=path)


def test_otter_grades(source, tmp_path):
    export(tmp_path / "master", "otter", source=source)
    _run(tmp_path, "otter", "assign", "--no-run-tests", "master/f.ipynb", "made")
    (grader,) = (tmp_path / "made" / "autograder").glob("*.zip")
    student = tmp_path / "made" / "student" / "f.ipynb"
    assert "seed=0" not in student.read_text(encoding="utf-8")
    for name, bodies in ANSWERS.items():
        _hand_in(student, bodies, tmp_path / f"{name}.ipynb")
        (tmp_path / name).mkdir()
        _run(tmp_path, "otter", "run", "-a", str(grader), "-o", name, f"{name}.ipynb")
        results = json.loads((tmp_path / name / "results.json").read_text(encoding="utf-8"))
        assert sum(test.get("score") or 0 for test in results["tests"]) == SCORES[name]


def test_nbgrader_grades(source, tmp_path):
    export(tmp_path / "course", "nbgrader", source=source)
    course = tmp_path / "course"
    _run(course, "nbgrader", "generate_assignment", "f")
    student = course / "release" / "f" / "f.ipynb"
    text = student.read_text(encoding="utf-8")
    assert "seed=0" not in text
    assert "return" not in text
    for name, bodies in ANSWERS.items():
        _hand_in(student, bodies, course / "submitted" / name / "f" / "f.ipynb")
    _run(course, "nbgrader", "autograde", "f")
    _run(course, "nbgrader", "export")
    rows = csv.DictReader((course / "grades.csv").read_text(encoding="utf-8").splitlines())
    assert {row["student_id"]: float(row["score"]) for row in rows} == SCORES
