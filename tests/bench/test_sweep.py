"""What a sweep tries, keeps, gives and refuses, on made-up figures."""

from __future__ import annotations

import resource
import time

import optuna
import pytest
from pyarrow import parquet
from sweep_made import made, stored, troubled

from speclab import DynaTree, FixedTree, MeasurementError, SettingsError
from speclab.bench.sweep import Measured
from speclab.bench.sweep_study import read_rows

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
    assert read_rows(tmp_path) == list(found.rows)


def test_the_table_has_a_column_for_each_setting_and_figure_and_says_why_there_is_none(tmp_path, threads):
    found = made(tmp_path, threads, measure=troubled)
    table = parquet.read_table(tmp_path / "trials.parquet")
    assert table == found.table()
    assert table["trial"].to_pylist() == list(range(7))
    assert table["setting_depth"].to_pylist() == [5, 2, 2, 3, 3, 4, 4]
    assert table["objective"].to_pylist() == table["score"].to_pylist() == [-2, -5, -4, None, None, -1, None]
    failed = ["ZeroDivisionError: made up"] * 2
    assert table["failed"].to_pylist()[2:] == [None, *failed, None, "score is nan, which cannot be compared."]
    assert "3 of 7 trials have no figure; trial 3: ZeroDivisionError: made up" in found.notes()


def test_settings_that_contradict_each_other_are_rows_that_say_why(tmp_path, threads):
    over = {"low_confidence": [0.3, 0.95], "high_confidence": [0.9, 0.99]}
    figure = {"measure": lambda strategy: Measured({"score": strategy.low_confidence})}
    found = made(tmp_path, threads, over, DynaTree, **figure)
    pruned = [row for row in found.rows if row.pruned]
    assert [row.settings for row in pruned] == [{"low_confidence": 0.95, "high_confidence": 0.9}]
    assert "low_confidence (0.95) is above high_confidence (0.9)" in pruned[0].failed
    assert found.best.code == "speclab.DynaTree(high_confidence=0.99, low_confidence=0.95)"


def test_the_best_is_the_default_where_nothing_beats_it_and_the_least_of_times(tmp_path, threads):
    equal = made(tmp_path / "equal", threads, ["depth=2"], measure=lambda strategy: Measured({"score": 1.0}))
    assert (equal.best.trial, equal.strategy) == (0, FixedTree())
    timed = {"objective": "tpot", "measure": lambda strategy: Measured({"tpot": strategy.depth}, text=strategy.depth)}
    found = made(tmp_path / "timed", threads, ["depth=2,6"], **timed)
    assert found.best.settings == {"depth": 2}
    assert "its noise is not known" in " ".join(found.notes())
    assert "decoded 3 different texts" in " ".join(found.notes())


def test_a_study_proposes_settings_in_their_ranges_and_goes_on_with_more_trials(tmp_path, threads):
    asked = {
        "over": ["depth=1:8", "branching=1:6", "prune_probability=0.1:0.3:0.1"], "study": "optuna", "workers": 1,
    }  # fmt: skip
    made(tmp_path, threads, trials=3, **asked)
    found = made(tmp_path, threads, trials=6, resume=True, **asked)
    assert [row.trial for row in found.rows] == stored(tmp_path) == list(range(7))
    assert found.default.settings == {"depth": 5, "branching": 2, "prune_probability": 0.0}, "outside the range given"
    assert {row.settings["prune_probability"] for row in found.rows[1:]} <= {0.1, 0.2, 0.3}
    assert all(1 <= row.settings["depth"] <= 8 and 1 <= row.settings["branching"] <= 6 for row in found.rows[1:])
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert [trial.value for trial in study.trials] == [row.objective for row in found.rows]
    assert study.trials[0].params == {"depth": 5, "branching": 2}, "the sampler learns from the default"
    assert (study.best_value, study.direction.name) == (found.best.objective, "MAXIMIZE")


def test_a_folder_is_gone_on_with_only_on_demand_and_only_by_the_same_sweep_and_one_at_a_time(tmp_path, threads):
    def meanwhile(*_):
        with pytest.raises(MeasurementError, match="is in use by another sweep"):
            made(tmp_path, threads, resume=True)

    made(tmp_path, threads, ["depth=2"], report=meanwhile)
    with pytest.raises(MeasurementError, match="2 trials begun: go on with --resume"):
        made(tmp_path, threads, ["depth=2"])
    other = {"over": ["depth=2:3"], "objective": "tpot", "measure": troubled}
    with pytest.raises(MeasurementError, match=r"another sweep .*over was.*objective was.*peak"):
        made(tmp_path, threads, resume=True, **other)
    assert len(made(tmp_path, threads, ["depth=2"], resume=True).rows) == 2


def test_what_no_setting_can_mend_stops_the_sweep(tmp_path, threads):
    def nothing(strategy):
        raise MeasurementError("the models are not there")

    def never(strategy):
        raise SettingsError(f"no depth of {strategy.depth}")

    with pytest.raises(MeasurementError, match="the models are not there"):
        made(tmp_path / "a", threads, measure=nothing)
    with pytest.raises(MeasurementError, match="There is no figure 'speed': choose one of score"):
        made(tmp_path / "b", threads, objective="speed")
    found = made(tmp_path / "c", threads, ["depth=2"], measure=never)
    with pytest.raises(MeasurementError, match="None of the 2 trials gave score; the first says: no depth of 5"):
        _ = found.best


def test_a_full_disk_is_one_sentence_and_keeps_what_is_done(tmp_path, threads, monkeypatch):
    """Files may grow no further after the second trial, as on a disk that is full."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # optuna tries several times
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(row, done, total):
        if done == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))

    try:
        with pytest.raises(MeasurementError, match=r"study\.db cannot be written or read .*--resume goes on"):
            made(tmp_path, threads, ["depth=2:4"], workers=1, report=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [row.trial for row in read_rows(tmp_path)] == [0, 1]
    found = made(tmp_path, threads, ["depth=2:4"], resume=True)
    assert [row.trial for row in found.rows] == stored(tmp_path) == list(range(4))


def test_a_folder_or_study_that_cannot_be_used_is_one_sentence(tmp_path, threads):
    (tmp_path / "file").touch()
    with pytest.raises(MeasurementError, match=r"file/sweep cannot be made \(Not a directory\)"):
        made(tmp_path / "file" / "sweep", threads)
    with pytest.raises(MeasurementError, match="holds no trials of a sweep"):
        read_rows(tmp_path)
    (tmp_path / "study.db").write_bytes(b"no database " * 100)
    with pytest.raises(MeasurementError, match="not a database"):
        made(tmp_path, threads, resume=True)
