"""What every notebook of the course has in common."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from course import LESSONS, ROOT, SOLUTION, read, tagged

pytestmark = pytest.mark.notebook


@pytest.fixture(params=LESSONS, ids=lambda path: path.stem)
def cells(request: pytest.FixtureRequest) -> list[Any]:
    return list(read(request.param).cells)


def _text(cells: list[Any]) -> str:
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def _code(cells: list[Any]) -> list[Any]:
    return [cell for cell in cells if cell.cell_type == "code"]


def test_a_reader_learns_what_it_needs_takes_and_gives(cells):
    for mark in ("**Before.**", "**Goal.**", "**Time.**", "**Read.**", "(glossary.md"):
        assert mark in _text(cells), f"{mark} is nowhere"
    quiz = _text(cells).partition("\n## Quiz")[2].partition("\n## ")[0]
    assert quiz.count("<summary>Answer</summary>") == 5


def test_a_class_can_follow_it(cells):
    """Few cells of few lines; a folded cell is for those who unfold it."""
    shown = [cell for cell in cells if not cell.metadata.get("jupyter", {}).get("source_hidden")]
    assert len(shown) <= 40
    for number, cell in enumerate(cells):
        folded = cell.metadata.get("jupyter", {}).get("source_hidden")
        assert folded or not tagged(cell, "test"), number
        if cell.cell_type == "code" and not folded:
            lines = list(filter(str.strip, cell.source.splitlines()))
            assert len(lines) <= 8, f"cell {number}: {len(lines)} lines"


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
