"""What one click costs in calls, files and validations of settings: counted, for a clock tells little."""

from __future__ import annotations

import cProfile
from collections import Counter
from pathlib import Path

import pytest
from lab_tools import PATIENCE

import speclab
from speclab.lab import Lab
from speclab.settings import Settings

HOME = f"{Path(speclab.__file__).parent}/"
CALLS, FILES = 2800, 54
"""Of the whole package; the bounds below are of the views and the lab alone."""
VIEWS, LAB, SHOWN_FILES = 1650, 270, 32


def calls(lab: Lab, work) -> Counter[str]:
    """Calls of speclab's own functions by file, counted on the lab's thread, where the work is done."""
    profile, found = cProfile.Profile(), Counter[str]()
    lab._worker.submit(lambda: profile.runcall(work)).result(PATIENCE)
    for entry in profile.getstats():
        if not isinstance(entry.code, str) and entry.code.co_filename.startswith(HOME):
            found[entry.code.co_filename.removeprefix(HOME)] += entry.callcount
    return found


def of(found: Counter[str], *rooms: str) -> Counter[str]:
    return Counter({file: count for file, count in found.items() if file.split("/")[0] in rooms})


@pytest.fixture(scope="module")
def counted() -> list[Counter[str]]:
    """The second step, the step back, and the same step again, of the mini family with the strategy of the lab."""
    lab = Lab(speclab.load_pair())
    lab.step()
    found = [calls(lab, work) for work in (lab.step, lab.back, lab.step)]
    assert lab.state.cursor == 2
    lab.close()
    return found


def test_a_step_takes_few_calls_and_few_files(counted):
    step, _, _ = counted
    assert step.total() <= CALLS, step
    assert len(step) <= FILES
    assert len(of(step, "views", "lab")) <= SHOWN_FILES
    assert of(step, "views").total() <= VIEWS
    assert of(step, "lab").total() <= LAB


def test_going_back_and_on_again_draws_nothing_twice(counted):
    _, back, again = counted
    assert of(back, "views").total() < 250
    assert of(again, "views").total() < 250
    assert of(back, "engine", "models", "drafters").total() <= 60


def test_settings_are_validated_once_per_change(lab, monkeypatch):
    validated: list[type] = []
    made = Settings.__init__
    monkeypatch.setattr(
        Settings, "__init__", lambda self, **values: (validated.append(type(self)), made(self, **values))[1]
    )
    lab.step()
    validated.clear()
    lab.step()
    lab.back()
    lab.select(0)
    assert validated == []
    lab.config.session.controls["seed"].value = 7
    assert validated.count(type(lab.config.session.read())) == 1
    validated.clear()
    lab.config.strategy.form.controls["max_branches"].value += 1
    kind = lab.config.strategy.kind
    assert validated.count(kind) <= 3, "the form, and the preview of what would have been"
