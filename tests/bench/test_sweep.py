"""What a sweep tries and gives, on made-up figures: each trial once, the best as code, rows and columns."""

from __future__ import annotations

import optuna
import pytest
from pyarrow import parquet
from sweep_made import troubled
from sweeps import made, stored

from speclab import DynaTree, FixedTree
from speclab.bench.sweeping import Measured

pytestmark = pytest.mark.usefixtures("swift")


def test_a_grid_tries_the_default_and_every_combination_once(tmp_path, threads):
    heard = []
    found = made(tmp_path, threads, report=lambda row, done, total: heard.append((row.trial, done, total)))
    assert [(row.settings["depth"], row.settings["branching"]) for row in found.rows] == [
        (5, 2), (2, 2), (2, 3), (3, 2), (3, 3), (4, 2), (4, 3),
    ]  # fmt: skip
    assert [row.objective for row in found.rows] == [-2, -5, -4, -2, -1, -1, 0]
    assert sorted(trial for trial, _, _ in heard) == list(range(7))
    assert [(done, total) for _, done, total in heard] == [(done, 7) for done in range(1, 8)]
    assert found.best.code == "speclab.FixedTree(depth=4, branching=3)"
    assert found.strategy == FixedTree(depth=4, branching=3)
    assert (found.default.trial, found.default.code, found.default.objective) == (0, "speclab.FixedTree()", -2)


def test_rows_lie_in_parquet_with_a_column_for_each_setting_and_figure(tmp_path, threads):
    found = made(tmp_path, threads, measure=troubled)
    table = parquet.read_table(tmp_path / "trials.parquet").sort_by("trial")
    assert table["trial"].to_pylist() == list(range(7))
    assert table["setting_depth"].to_pylist() == [5, 2, 2, 3, 3, 4, 4]
    assert table["score"].to_pylist() == [-2, -5, -4, None, None, -1, 0]
    assert table["objective"].to_pylist() == table["score"].to_pylist()
    assert table["failed"].to_pylist()[2:4] == [None, "ZeroDivisionError: made up"]
    assert set(table["worker"].to_pylist()) == {found.rows[0].worker}
    assert found.table().num_rows == 7
    assert "2 of 7 trials have no figure; trial 3: ZeroDivisionError: made up" in found.notes()


def test_settings_that_contradict_each_other_are_rows_that_say_why(tmp_path, threads):
    over = {"low_confidence": [0.3, 0.95], "high_confidence": [0.9, 0.99]}
    figure = {"measure": lambda strategy: Measured({"score": strategy.low_confidence})}
    found = made(tmp_path, threads, strategy=DynaTree, over=over, **figure)
    pruned = [row for row in found.rows if row.pruned]
    assert [row.settings for row in pruned] == [{"low_confidence": 0.95, "high_confidence": 0.9}]
    assert "low_confidence (0.95) is above high_confidence (0.9)" in pruned[0].failed
    assert found.best.code == "speclab.DynaTree(high_confidence=0.99, low_confidence=0.95)"


def test_a_setting_no_better_than_the_default_is_not_preferred(tmp_path, threads):
    found = made(tmp_path, threads, over=["depth=2"], measure=lambda strategy: Measured({"score": 1.0}))
    assert found.best.trial == 0
    assert found.strategy == FixedTree()


def test_less_is_better_of_times(tmp_path, threads):
    asked = {"over": ["depth=2,6"], "objective": "tpot", "measure": lambda strategy: Measured({"tpot": strategy.depth})}
    found = made(tmp_path, threads, **asked)
    assert found.best.settings == {"depth": 2}
    assert "measured once a trial, so its noise is not known" in " ".join(found.notes())


def test_a_study_proposes_settings_within_their_ranges_and_hears_what_they_gave(tmp_path, threads):
    over = ["depth=1:8", "branching=1:6", "prune_probability=0.1:0.3:0.1"]
    found = made(tmp_path, threads, over=over, study="optuna", trials=11, workers=1)
    assert len(found.rows) == 12
    assert found.default.settings == {"depth": 5, "branching": 2, "prune_probability": 0.0}, "outside the range given"
    assert {row.settings["prune_probability"] for row in found.rows[1:]} <= {0.1, 0.2, 0.3}
    assert all(1 <= row.settings["depth"] <= 8 and 1 <= row.settings["branching"] <= 6 for row in found.rows[1:])
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert [trial.value for trial in study.trials] == [row.objective for row in found.rows], (
        "what its sampler learns from"
    )
    assert (study.best_value, study.direction.name) == (found.best.objective, "MAXIMIZE")


def test_a_study_goes_on_with_more_trials(tmp_path, threads):
    over = ["depth=1:8"]
    made(tmp_path, threads, over=over, study="optuna", trials=2)
    found = made(tmp_path, threads, over=over, study="optuna", trials=4, resume=True)
    assert [row.trial for row in found.rows] == stored(tmp_path) == [0, 1, 2, 3, 4]
