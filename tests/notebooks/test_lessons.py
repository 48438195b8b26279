"""The tests of each notebook take right answers and refuse wrong ones; nbval runs the notebook itself."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any

import plotly.io
import pytest
import torch
from course import (
    LESSONS,
    RIGHT,
    WRONG,
    needed,
    printed,
    read,
    solutions,
    submitted,
    tagged,
)
from IPython.display import display

pytestmark = pytest.mark.notebook
DECODING = ("08_your_own_strategy", "elective_two_heads")
"""Notebooks whose answers decode for half a minute: at night."""
TRIED = re.compile(r"expected|changed", re.IGNORECASE)


def _refusal(test: str, answer: str, names: dict[str, Any]) -> str:
    """What a test cell says of an answer; "" where it takes it."""
    names = dict(names)
    try:
        printed(answer, names)
        said = printed(test, names)
    except AssertionError as error:
        return str(error)
    except NameError:  # an answer that cannot run is refused for nothing
        return ""
    except Exception as error:
        return f"changed nothing: {error!r}"
    return "" if said.endswith("is right") else said


def _by_day_or_night(path: Path) -> Any:
    marks = [pytest.mark.night] if path.stem in DECODING else []
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("path", list(map(_by_day_or_night, reversed(LESSONS))))
def test_right_answers_are_taken_and_wrong_ones_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with all other exercises open; only cells that exercises need run here, nbval runs them all."""
    monkeypatch.chdir(path.parent)
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.setattr(plotly.io.renderers, "default", "json")
    torch.set_grad_enabled(True)  # the notebook before this one may have ended without
    known = solutions(read(path))
    right = submitted(path, RIGHT)
    wrong = submitted(path, WRONG)
    code = [cell for cell in read(path).cells if cell.cell_type == "code"]
    tests = [cell.source for cell in code if tagged(cell, "test")]
    given = [answer for _, answer in chain.from_iterable([*right.values(), *wrong.values()])]
    kept = needed(code, [*tests, *known.values(), *given])
    cells = [cell for cell in code if cell in kept or tagged(cell, "test")]
    names: dict[str, Any] = {"__name__": "__main__", "display": display}
    refused = []
    taken = []
    exercise = ""
    for cell in cells:
        if tagged(cell, "exercise"):
            (exercise,) = re.findall(r"^def (\w+)", cell.source, re.MULTILINE)
        if not tagged(cell, "test"):
            printed(cell.source, names)
            continue
        test = cell.source
        assert " is open: " in printed(test, names), exercise
        for what, answer in [("the solution", known[exercise]), *right.get(exercise, ())]:
            refused.append((exercise, what, _refusal(test, answer, names)))
        for what, answer in wrong.get(exercise, ()):
            taken.append((exercise, what, _refusal(test, answer, names)))
    assert [each for each in refused if each[2]] == [], "right answers that a test refuses"
    assert [each for each in taken if not each[2]] == [], "wrong ones it takes, or that cannot run"
    mute = [each for each in taken if not TRIED.search(each[2])]
    assert mute == [], "refusals that say neither what was expected nor what was changed"
    assert {*right} == {*wrong} == {*known}, "exercises without such answers, or answers to nothing"
    assert [name for name, answers in wrong.items() if len(answers) < 3] == []
