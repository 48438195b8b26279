"""What a sweep tries, keeps, gives and refuses, and what a kill costs it; on made-up figures."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import optuna
import pytest
import sqlalchemy
from pyarrow import parquet

from speclab import DynaTree, FixedTree, MeasurementError, SettingsError
from speclab.bench.sweep import Sweep, read_rows, sweep
from speclab.bench.sweep_texts import Measured
from speclab.drafters.base import Strategy

OVER = ["depth=2:4", "branching=2,3"]


def peak(strategy: Strategy) -> Measured:
    """Highest, at 0, for a tree of depth 4 and 3 branches."""
    return Measured({"score": -float((strategy.depth - 4) ** 2 + (strategy.branching - 3) ** 2)}, texts=2)


def troubled(strategy: Strategy) -> Measured:
    """As `peak`; depth 3 raises, and the peak itself is no number."""
    if strategy.depth == 3:
        raise ZeroDivisionError("made up\nsecond line")
    found = peak(strategy)
    return found if found.figures["score"] else Measured({"score": float("nan")})


@dataclass(frozen=True)
class Marked:
    """As `peak`, and leaves a line for every call in a file; of depth 3 its process dies, if it is `deadly`."""

    file: Path
    deadly: bool = False

    def __call__(self, strategy: Strategy) -> Measured:
        with self.file.open("a") as file:
            file.write(f"{strategy.depth}\n")
        if self.deadly and strategy.depth == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return peak(strategy)


def made(out: Path, over=OVER, strategy=FixedTree, **asked) -> Sweep:
    """A sweep over made-up figures."""
    return sweep(strategy, over, out, **{"objective": "score", "measure": peak, **asked})


def stored(out: Path) -> list[int]:
    """The trials that the table holds."""
    return parquet.read_table(out / "trials.parquet")["trial"].to_pylist()


def at_once(connection, _record) -> None:
    """SQLite waits for no disk: a process that is killed loses nothing by that, and here no machine is switched off."""
    connection.execute("PRAGMA synchronous=OFF")


@pytest.fixture(autouse=True)
def swift():
    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", at_once)
    yield
    sqlalchemy.event.remove(sqlalchemy.Engine, "connect", at_once)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_grid_tries_the_default_and_every_combination_once(tmp_path, workers):
    heard = []
    with ThreadPoolExecutor(2) as threads:
        executor = threads if workers > 1 else None
        found = made(tmp_path, executor=executor, workers=workers, report=lambda *told: heard.append(told))
    assert [(row.settings["depth"], row.settings["branching"]) for row in found.rows] == [
        (5, 2), (2, 2), (2, 3), (3, 2), (3, 3), (4, 2), (4, 3),
    ]  # fmt: skip
    assert [row.objective for row in found.rows] == [-2, -5, -4, -2, -1, -1, 0]
    assert [row.trial for row in found.ranked] == [6, 4, 5, 0, 3, 2, 1]
    assert sorted(row.trial for row, _, _ in heard) == list(range(7))
    assert [(done, total) for _, done, total in heard] == [(done, 7) for done in range(1, 8)]
    assert found.best.code == "speclab.FixedTree(depth=4, branching=3)"
    assert found.strategy == FixedTree(depth=4, branching=3)
    assert (found.default.trial, found.default.code, found.default.objective) == (0, "speclab.FixedTree()", -2)
    assert read_rows(tmp_path) == list(found.rows)


def test_the_table_has_a_column_for_each_setting_and_figure_and_says_why_there_is_none(tmp_path):
    found = made(tmp_path, measure=troubled)
    table = parquet.read_table(tmp_path / "trials.parquet")
    assert table["trial"].to_pylist() == list(range(7))
    assert table["setting_depth"].to_pylist() == [5, 2, 2, 3, 3, 4, 4]
    assert table["objective"].to_pylist() == table["score"].to_pylist() == [-2, -5, -4, None, None, -1, None]
    failed = ["ZeroDivisionError: made up"] * 2
    assert table["failed"].to_pylist()[2:] == [None, *failed, None, "score is nan, which cannot be compared."]
    assert "3 of 7 trials have no figure; trial 3: ZeroDivisionError: made up" in found.notes()


def test_settings_that_contradict_each_other_are_rows_that_say_why(tmp_path):
    over = {"low_confidence": [0.3, 0.95], "high_confidence": [0.9, 0.99]}
    found = made(tmp_path, over, DynaTree, measure=lambda strategy: Measured({"score": strategy.low_confidence}))
    (failed,) = [row for row in found.rows if row.failed]
    assert failed.settings == {"low_confidence": 0.95, "high_confidence": 0.9}
    assert "low_confidence (0.95) is above high_confidence (0.9)" in failed.failed
    assert found.best.code == "speclab.DynaTree(high_confidence=0.99, low_confidence=0.95)"


def test_the_best_is_the_default_where_nothing_beats_it_and_the_least_of_times(tmp_path):
    equal = made(tmp_path / "equal", ["depth=2"], measure=lambda strategy: Measured({"score": 1.0}))
    assert (equal.best.trial, equal.strategy) == (0, FixedTree())
    found = made(
        tmp_path / "tpot", ["depth=2,6"], objective="tpot",
        measure=lambda strategy: Measured({"tpot": strategy.depth}, inexact="it guesses"),
    )  # fmt: skip
    assert found.best.settings == {"depth": 2}
    assert "modelled" in " ".join(found.notes())
    assert "it guesses" in " ".join(found.notes())


def test_a_study_proposes_settings_in_their_ranges_and_goes_on_with_more_trials(tmp_path):
    asked = {"over": ["depth=1:8", "branching=1:6", "prune_probability=0.1:0.3:0.1"], "study": "optuna"}
    made(tmp_path, trials=3, **asked, seed=1)
    found = made(tmp_path, trials=6, resume=True, **asked, seed=1)
    assert [row.trial for row in found.rows] == stored(tmp_path) == list(range(7))
    assert found.default.settings == {"depth": 5, "branching": 2, "prune_probability": 0.0}, "outside the range given"
    assert {row.settings["prune_probability"] for row in found.rows[1:]} <= {0.1, 0.2, 0.3}
    assert all(1 <= row.settings["depth"] <= 8 and 1 <= row.settings["branching"] <= 6 for row in found.rows[1:])
    assert len({str(row.settings) for row in found.rows}) > 4, "a sampler that goes on does not repeat itself"
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert [trial.value for trial in study.trials] == [row.objective for row in found.rows]
    assert [trial.params for trial in study.trials[1:]] == [row.settings for row in found.rows[1:]]
    assert (study.best_value, study.direction.name) == (found.best.objective, "MAXIMIZE")


def test_a_folder_is_gone_on_with_only_on_demand_and_only_by_the_same_sweep_and_one_at_a_time(tmp_path):
    def meanwhile(*_):
        with pytest.raises(MeasurementError, match="is in use by another sweep"):
            made(tmp_path, resume=True)

    made(tmp_path, ["depth=2"], report=meanwhile)
    with pytest.raises(MeasurementError, match="2 trials done: go on with --resume"):
        made(tmp_path, ["depth=2"])
    other = {"over": ["depth=2:3"], "objective": "tpot", "measure": troubled}
    with pytest.raises(MeasurementError, match=r"another sweep .*over was.*objective was.*peak"):
        made(tmp_path, resume=True, **other)
    assert len(made(tmp_path, ["depth=2"], resume=True).rows) == 2


def test_what_no_setting_can_mend_stops_the_sweep(tmp_path):
    def nothing(strategy):
        raise MeasurementError("the models are not there")

    def never(strategy):
        raise SettingsError(f"no depth of {strategy.depth}")

    with pytest.raises(MeasurementError, match="the models are not there"):
        made(tmp_path / "a", measure=nothing)
    with pytest.raises(MeasurementError, match="There is no figure 'speed': choose one of score"):
        made(tmp_path / "b", objective="speed")
    found = made(tmp_path / "c", ["depth=2"], measure=never)
    with pytest.raises(MeasurementError, match="None of the 2 trials gave score; the first says: no depth of 5"):
        _ = found.best


def test_a_full_disk_is_one_sentence_and_keeps_what_is_done(tmp_path, monkeypatch):
    """Files may grow no further after the second trial, as on a disk that is full."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # optuna tries several times
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(row, done, total):
        if done == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))

    try:
        with pytest.raises(MeasurementError, match=r"study\.db cannot be written or read .*--resume goes on"):
            made(tmp_path, ["depth=2:4"], report=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [row.trial for row in read_rows(tmp_path)] == [0, 1]
    found = made(tmp_path, ["depth=2:4"], resume=True)
    assert [row.trial for row in found.rows] == stored(tmp_path) == list(range(4))


def test_a_folder_or_study_that_cannot_be_used_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(MeasurementError, match=r"file/sweep cannot be made \(Not a directory\)"):
        made(tmp_path / "file" / "sweep")
    with pytest.raises(MeasurementError, match="holds no trials of a sweep"):
        read_rows(tmp_path)
    (tmp_path / "study.db").write_bytes(b"no database " * 100)
    with pytest.raises(MeasurementError, match="not a database"):
        made(tmp_path, resume=True)


# Whatever kills a sweep, and when: no finished trial is lost, none counts twice.


def killed_at(moment: int, out: Path, marks: Path, study: str) -> None:
    """In a process of its own: a sweep that is killed as it sends its `moment`-th change to the database."""
    sent = 0

    def count(connection, cursor, statement, *_):
        nonlocal sent
        sent += statement.startswith(("INSERT", "UPDATE"))
        if sent == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", count)
    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", at_once)
    made(out, ["depth=2:4"], measure=Marked(marks), study=study, trials=3, resume=out.exists())


@pytest.mark.model  # seconds each: processes start and die
@pytest.mark.parametrize(("study", "moments"), [("grid", (11, 2, 3, 5, 8)), ("optuna", (12, 5))])
def test_a_driver_killed_at_any_moment_goes_on(tmp_path, study, moments):
    """Killed again and again, each time some changes further on, until it comes to its end."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["pyarrow.parquet", "alembic.command", "optuna.storages._rdb.storage", __name__])
    out, marks, done, kills = tmp_path / "out", tmp_path / "marks", [], 0
    for moment in (*moments, 1000):
        driver = processes.Process(target=killed_at, args=(moment, out, marks, study))
        driver.start()
        driver.join(600)
        kills += driver.exitcode == -signal.SIGKILL
        rows = read_rows(out) if (out / "study.db").exists() else []
        assert rows[: len(done)] == done, "what is stored stands"
        done = rows
    assert driver.exitcode == 0
    assert kills >= len(moments) - 1
    assert [row.trial for row in done] == stored(out) == [0, 1, 2, 3]
    if study == "grid":
        assert [row.settings["depth"] for row in done] == [5, 2, 3, 4]
    assert len(marks.read_text().split()) <= 4 + kills, "at most the trial under way was measured again"


@pytest.mark.model
def test_a_worker_that_dies_is_one_sentence_and_costs_no_trial_that_is_done(tmp_path):
    out, marks = tmp_path / "out", tmp_path / "marks"
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as workers,
        pytest.raises(MeasurementError, match=r"workers cannot run trials .*what is done is kept"),
    ):
        made(out, ["depth=2:4"], measure=Marked(marks, deadly=True), executor=workers)
    assert [row.trial for row in read_rows(out)] == stored(out) == [0, 1]
    found = made(out, ["depth=2:4"], measure=Marked(marks), resume=True)
    assert [row.objective for row in found.rows] == [-2, -5, -2, -1]
    assert Counter(marks.read_text().split()) == {"5": 1, "2": 1, "3": 2, "4": 1}
