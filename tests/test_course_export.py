"""Editions of the course from one source: what students get, and what graders get."""

import csv
import re

import nbformat
import pytest
from support.command import speclab_command

from speclab.course.export import export
from speclab.errors import SpeclabError


@pytest.fixture(scope="module")
def editions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("editions")
    made = {name: export(folder / name, name) for name in ("student", "solutions", "otter")}
    return folder, {**made, "nbgrader": export(folder / "nbgrader", "nbgrader", seed=5)}


def _code(path, tag=""):
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    return [cell for cell in cells if not tag or tag in cell.metadata.get("tags", ())]


def test_each_edition_has_all_notebooks_and_exercises(editions):
    folder, made = editions
    table = (folder / "student" / "points.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(table.splitlines()))
    assert len(rows) == 31
    assert sum(int(row["points"]) for row in rows) == 86
    for paths in made.values():
        assert len({path.name for path in paths}) == len(paths) == 11
        assert sum(len(_code(path, "exercise")) for path in paths) == 31


def test_a_student_s_edition_has_answers_to_predictions_but_no_solution(editions):
    answers = []
    for path in editions[1]["student"]:
        prose = "\n".join(cell.source for cell in nbformat.read(path, 4).cells)
        assert "<summary>Solution</summary>" not in prose
        assert "<summary>Hint 1" in prose or not _code(path, "exercise")
        answers += re.findall(r"<summary>Answer</summary>\s*(.*?)\s*</details>", prose, re.DOTALL)
        for cell in _code(path):
            assert cell.execution_count is None
            assert not cell.outputs
        for cell in _code(path, "test"):
            assert cell.source.startswith("tests.")
            assert (path.parent / "lesson_01.py").is_file(), "what the call needs"
        assert all("# TODO" in cell.source for cell in _code(path, "exercise"))
    assert any(answer.startswith("40 passes read 53 tokens") for answer in answers)
    assert not any("```python" in answer for answer in answers)
    solved = [cell for path in editions[1]["solutions"] for cell in _code(path, "exercise")]
    assert all("# TODO" not in cell.source and '"""' in cell.source for cell in solved)


def test_two_seeds_make_two_editions(editions, tmp_path):
    other = export(tmp_path / "other", "student", seed=1)
    same = export(tmp_path / "same", "student")
    for path, changed, again in zip(editions[1]["student"], other, same, strict=True):
        assert path.read_bytes() == again.read_bytes()
        assert (path.read_bytes() != changed.read_bytes()) == bool(_code(path, "test"))


def test_hidden_tests_have_the_points(editions):
    for path in editions[1]["nbgrader"]:
        for cell in _code(path, "test"):
            visible, _, hidden = cell.source.partition("### BEGIN HIDDEN TESTS")
            assert "seed=None)" in visible
            assert "seed=5)" in hidden
            assert cell.metadata.nbgrader.points > 0


def test_a_folder_with_files_and_an_unknown_edition_are_refused_in_a_sentence(tmp_path):
    (tmp_path / "mine.ipynb").write_text("kept")
    with pytest.raises(SpeclabError, match="not empty"):
        export(tmp_path)
    result = speclab_command("course", "export", tmp_path / "new", "--edition", "x")
    assert result.exit_code == 1
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "mine.ipynb").read_text() == "kept"
