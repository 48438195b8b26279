"""The exercises can be solved, and only so: their folded solutions pass the test cells, and answers that look right and
are not, in `wrong/<notebook>.py`, fail them.

Cells tagged `setup` hold all that exercises and their tests stand on, so nothing else of a notebook is run here.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.display import display

pytestmark = pytest.mark.notebook

HERE = Path(__file__).parent
NOTEBOOKS = sorted((HERE.parents[1] / "notebooks").glob("*.ipynb"))
FOLDED = re.compile(r"<details>\s*<summary>Solution</summary>.*?```python\n(.*?)```", re.DOTALL)


def _tagged(notebook: Any, *tags: str) -> list[Any]:
    return [cell for cell in notebook.cells if {*cell.metadata.get("tags", ())} & {*tags}]


def _defined(code: str) -> list[str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in ast.parse(code).body if isinstance(node, kinds)]


def _solutions(notebook: Any) -> dict[str, str]:
    """Name of what an exercise asks for → its folded solution: the last that a solution defines is the answer."""
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    return {_defined(code)[-1]: code for text in texts for code in FOLDED.findall(text)}


class _Solution(str):
    """A folded solution, some of which is replaced: what is to be replaced must stand there once."""

    __slots__ = ()

    def replace(self, old: str, new: str) -> _Solution:
        assert self.count(old) == 1, f"{old!r} stands {self.count(old)} times in the solution:\n{self}"
        return _Solution(super().replace(old, new))


def _wrong_answers(path: Path, solutions: dict[str, str]) -> dict[str, list[tuple[str, str]]]:
    """Name of what an exercise asks for → what is wrong with each answer, and the answer.

    `name = solution.replace(old, new)` is an answer that differs from the solution only there.
    """
    answers: dict[str, list[tuple[str, str]]] = {}
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for block in re.split(r"^# %% ", text, flags=re.MULTILINE)[1:]:
        title, _, code = block.partition("\n")
        first = ast.parse(code).body[0]
        if isinstance(first, ast.Assign):
            name = ast.unparse(first.targets[0])
            code = eval(ast.unparse(first.value), {"solution": _Solution(solutions[name].rstrip())})
        answers.setdefault(_defined(code)[-1], []).append((title, code))
    return answers


def _said(code: str, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    exec(compile(code, "<cell>", "exec"), names)
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_test_cell_takes_the_solution_and_no_other_answer(path, capsys, monkeypatch):
    notebook = nbformat.read(path, as_version=4)
    solutions = _solutions(notebook)
    wrong = _wrong_answers(HERE / "wrong" / f"{path.stem}.py", solutions)
    monkeypatch.chdir(path.parent)
    names: dict[str, Any] = {"__name__": "__main__", "display": display}
    asked, taken, mute = [], [], []
    cells = _tagged(notebook, "setup", "exercise", "test") if solutions else []
    for place, cell in enumerate(cells):
        code = "\n".join(line for line in cell.source.splitlines() if not line.startswith("%"))
        if "exercise" not in cell.metadata.tags:
            said = _said(code, names, capsys)
            assert "test" not in cell.metadata.tags or said.endswith("is right"), f"{path.name}: {said}"
            continue
        (name,) = _defined(code)
        asked.append(name)
        _said(code, names, capsys)
        test = cells[place + 1].source
        assert " is open: " in _said(test, {**names}, capsys)
        for title, answer in wrong.get(name, ()):
            given = {**names}
            exec(compile(answer, "<answer>", "exec"), given)
            try:
                if _said(test, given, capsys).endswith("is right"):
                    taken.append(f"{name}: {title}")
            except NameError as error:  # an answer that cannot run is refused for nothing
                taken.append(f"{name}: {title}: {error}")
            except AssertionError as error:
                if len(re.findall(r"[a-z]{2,}", str(error))) < 2:
                    mute.append(f"{name}: {title}: {error}")
            except Exception:
                pass
        exec(compile(solutions[name], "<solution>", "exec"), names)
    assert sorted(asked) == sorted(solutions), "an exercise without a solution, or a solution without an exercise"
    assert taken == [], "wrong answers that the test takes, or that cannot run"
    assert mute == [], "wrong answers whose student is not told in words what is wrong"
    assert [name for name in asked if len(wrong.get(name, ())) < 5] == [], "exercises with fewer than 5 wrong answers"
    assert {*wrong} <= {*asked}, "wrong answers to nothing"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_an_exercise_says_how_hard_and_long_it_is_and_has_two_hints(path):
    notebook = nbformat.read(path, as_version=4)
    for exercise in _tagged(notebook, "exercise"):
        at = notebook.cells.index(exercise)
        before, test, after = (notebook.cells[at + step] for step in (-1, 1, 2))
        assert re.search(r"^### Exercise [A-Z] · [★☆]{3} · \d+ minutes$", before.source, re.MULTILINE), before.source
        assert all(f"<summary>Hint {number}</summary>" in before.source for number in (1, 2)), before.source
        assert "test" in test.metadata.tags
        assert FOLDED.search(after.source), after.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_wrong_answer_stands_twice(path):
    solutions = _solutions(nbformat.read(path, as_version=4))
    for answers in _wrong_answers(HERE / "wrong" / f"{path.stem}.py", solutions).values():
        assert len({code for _, code in answers}) == len(answers)
        assert all(title for title, _ in answers)
