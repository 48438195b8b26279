"""Each notebook runs from top to bottom as it is shipped, prints what is saved, and its tests refuse wrong answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import plotly.io
import pytest
import torch
from course import CHECKED, LESSONS, printed, read, saved, solutions, tagged, wrong_answers
from IPython.display import display

pytestmark = pytest.mark.notebook
TRIED = re.compile(r"expected|changed", re.IGNORECASE)


def _refusal(test: list[str], answer: str, names: dict[str, Any]) -> str:
    """What the test cells say of an answer; "" where they take it."""
    names = dict(names)
    try:
        printed(answer, names)
        said = [printed(cell, names) for cell in test][-1]
    except AssertionError as error:
        return str(error)
    except NameError:  # an answer that cannot run is refused for nothing
        return ""
    except Exception as error:
        return f"changed nothing: {error!r}"
    return "" if said.endswith("is right") else said


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_solutions_are_right_and_wrong_answers_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`names` is the notebook as shipped, its exercises open; cells that use an answer run with the solution, too."""
    monkeypatch.chdir(path.parent)
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.setattr(plotly.io.renderers, "default", "json")
    torch.set_grad_enabled(True)  # the notebook before this one may have ended without
    cells = read(path).cells
    known = solutions(read(path))
    wrong = wrong_answers(path)
    names: dict[str, Any] = {"__name__": "__main__", "display": display}
    answers: dict[str, Any] = {}
    taken = []
    mute = []
    open_exercise = ""
    for number, cell in enumerate(cells):
        if cell.cell_type != "code" or (tagged(cell, "test") and tagged(cells[number - 1], "test")):
            continue
        if tagged(cell, "exercise"):
            (open_exercise,) = re.findall(r"^def (\w+)", cell.source, re.MULTILINE)
        if not tagged(cell, "test"):
            if any(re.search(rf"\b{name}\b", cell.source) for name in answers):
                printed(cell.source, names | answers)
            output = printed(cell.source, names)
            assert not cell.source.startswith(CHECKED) or output == saved(cell), f"cell {number}"
            continue
        test = [each.source for each in cells[number : number + 2] if tagged(each, "test")]
        assert " is open: " in [printed(code, names) for code in test][-1], open_exercise
        for what, answer in wrong.get(open_exercise, ()):
            refusal = _refusal(test, answer, names | answers)
            if not refusal:
                taken.append(f"{open_exercise}: {what}")
            elif not TRIED.search(refusal):
                mute.append(f"{open_exercise}: {what}: {refusal}")
        solved = names | answers
        printed(known[open_exercise], solved)
        assert [printed(code, solved) for code in test][-1].endswith("is right"), open_exercise
        answers[open_exercise] = solved[open_exercise]
    assert taken == [], "wrong answers that a test takes, or that cannot run"
    assert mute == [], "refusals that say neither what was expected nor what was changed"
    assert {*wrong} == {*known}, "exercises without wrong answers, or wrong answers to nothing"
    assert [name for name, answers in wrong.items() if not 3 <= len(answers) <= 8] == []
