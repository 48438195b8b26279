"""What every notebook of the course has in common."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from course import LESSONS, ROOT, SOLUTION, read, tagged
from support.density import too_dense

pytestmark = pytest.mark.notebook
BESIDE = {"speclab.course", *(path.stem for path in (ROOT / "notebooks").glob("*.py"))}
"""What gives a notebook names: the course's package, and the modules beside it."""


@pytest.fixture(params=LESSONS, ids=lambda path: path.stem)
def cells(request: pytest.FixtureRequest) -> list[Any]:
    return list(read(request.param).cells)


def _text(cells: list[Any]) -> str:
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def _code(cells: list[Any]) -> list[Any]:
    return [cell for cell in cells if cell.cell_type == "code"]


def _docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_a_reader_learns_what_it_needs_takes_and_gives(cells):
    for mark in ("**Before.**", "**Goal.**", "**Time.**", "**Read.**", "(glossary.md"):
        assert mark in _text(cells), f"{mark} is nowhere"
    quiz = _text(cells).partition("\n## Quiz")[2].partition("\n## ")[0]
    assert quiz.count("<summary>Answer</summary>") == 5


def test_a_class_can_follow_it(cells):
    """Cells of few statements, all of them shown."""
    code = _code(cells)
    assert len([cell for cell in code if not tagged(cell, "exercise") | tagged(cell, "test")]) <= 27
    for number, cell in enumerate(code):
        assert not cell.metadata.get("jupyter", {}).get("source_hidden"), number
        nodes = ast.walk(ast.parse(cell.source))
        statements = [node for node in nodes if isinstance(node, ast.stmt) and not _docstring(node)]
        assert len(statements) <= 8, f"cell {number}: {len(statements)} statements"


def test_an_exercise_is_tested_in_one_line(cells):
    for cell in _code(cells):
        if tagged(cell, "test"):
            assert re.fullmatch(r"tests\.[A-Z]\(\w+(, \S+)*\)", cell.source), cell.source


def test_cells_read_as_plain_statements():
    """All lessons together, by the limits of the package."""
    assert too_dense([cell.source for path in LESSONS for cell in _code(read(path).cells)]) == {}


def test_no_cell_overwrites_a_name_of_the_course(cells):
    """So that going back to an exercise breaks nothing."""
    imported = set()
    for cell in _code(cells):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.ImportFrom) and node.module in BESIDE:
                imported |= {alias.asname or alias.name for alias in node.names}
    for number, cell in enumerate(_code(cells)):
        tree = ast.parse(cell.source)
        written = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                written.add(node.id)
        assert not written & imported, f"cell {number}"


def test_every_picture_has_a_description(cells):
    for cell in cells:
        for picture in re.findall(r"!\[(.*?)\]\(attachment:", cell.source):
            assert picture
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                alt = output.metadata.get("image/png", {}).get("alt", "")
                assert len(alt.split()) > 4, f"{cell.id}: {alt!r}"


def test_it_imports_speclab_and_what_that_exports(cells):
    for cell in _code(cells):
        tree = ast.parse(re.sub(r"(?m)^%.*$", "", cell.source))
        modules = [
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        ]
        modules += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        inside = {name for name in modules if name.startswith("speclab.")}
        assert inside <= {"speclab.theory", "speclab.course"}


def test_an_exercise_says_how_hard_and_long_it_is_and_has_two_hints(cells):
    heading = r"^### Exercise [A-Z] · [★☆]{3} · \d+ minutes · \d points?$"
    for number, cell in enumerate(cells):
        if tagged(cell, "exercise"):
            text = next(
                each.source for each in reversed(cells[:number]) if "### Exercise" in each.source
            )
            assert re.search(heading, text, re.MULTILINE), text
            for hint in ("Hint 1: the idea", "Hint 2: a plan"):
                assert f"<summary>{hint}</summary>" in text, text
            for hint in re.findall(r"<summary>Hint \d.*?</details>", text, re.DOTALL):
                assert "```" not in hint, text
            after = next(
                each.source for each in cells[number + 1 :] if each.cell_type == "markdown"
            )
            assert SOLUTION.search(after), after


def test_what_is_saved_needs_no_kernel(cells):
    """Every cell ran in order and without error; no widget state and no figure's data is kept."""
    assert [cell.execution_count for cell in _code(cells)] == list(range(1, len(_code(cells)) + 1))
    for cell in _code(cells):
        for output in cell.outputs:
            assert output.output_type != "error"
            assert not [
                kind for kind in output.get("data", {}) if "widget" in kind or "plotly" in kind
            ]
    for cell in _code(cells):
        if tagged(cell, "lab"):
            shown = [output.get("data", {}) for output in cell.outputs]
            assert [each["text/plain"] for each in shown if "image/png" in each] == ["tree", "mask"]
            pages = "".join(each.get("text/html", "") for each in shown)
            asks = "predict=True" in cell.source
            assert ("<table" in pages) != asks, "a lab tells what it asks"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_teachers_find_every_exercise_with_its_points(path: Path) -> None:
    page = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
    section = page.rpartition(f"(../notebooks/{path.name})\n")[2].partition("\n### ")[0]
    assert section, f"{path.name} has no section"
    text = _text(list(read(path).cells))
    for letter, points in re.findall(r"### Exercise ([A-Z]) ·[^\n]*· (\d) points?", text):
        assert re.search(rf"\b{letter}\b[^|\n]*\({points}", section), (
            f"{path.name}: {letter} ({points})"
        )
