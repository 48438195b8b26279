"""What one click costs in calls, files and validations of settings: counted, for a clock tells little."""

from __future__ import annotations

import pytest
from call_counts import Calls, profiled

import speclab
from speclab.lab import Lab
from speclab.settings import Settings

CALLS, FILES = 2400, 54
"""Of the whole package; the bounds below are of the views and the lab alone."""
VIEWS, LAB, SHOWN_FILES = 1450, 270, 32


@pytest.fixture(scope="module")
def counted() -> tuple[Calls, Calls, Calls]:
    """The second step, the step back, and the same step again, of the mini family with the strategy of the lab."""
    with profiled() as count:
        lab = Lab(speclab.load_pair())
        lab.step()
        found = count(lab.step), count(lab.back), count(lab.step)
        assert lab.state.cursor == 2
        lab.close()
    return found


def test_a_step_takes_few_calls_and_few_files(counted):
    step, _, _ = counted
    assert step.total() <= CALLS, step.by_room()
    assert len(step.files) <= FILES
    shown = step.of("views", "lab")
    assert len(shown.files) <= SHOWN_FILES
    assert shown.of("views").total() <= VIEWS
    assert shown.of("lab").total() <= LAB


def test_going_back_and_on_again_draws_nothing_twice(counted):
    _, back, again = counted
    assert back.of("views").total() < 250
    assert again.of("views").total() < 250
    assert not back.of("engine", "models", "drafters").total() > 60


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
