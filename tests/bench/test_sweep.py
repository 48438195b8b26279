"""Sweeps on made-up figures: each trial once, whatever stops or kills what; the best as code; errors in a sentence."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import optuna
import pytest
import sqlalchemy
from pyarrow import parquet
from sweep_made import Marked, peak, troubled

from speclab import DynaTree, FixedTree, MeasurementError, SettingsError
from speclab.bench.sweeping import Measured, Sweep, sweep
from speclab.bench.sweeping import drive as driving
from speclab.bench.sweeping import ledger as books

OVER = ["depth=2:4", "branching=2,3"]


@pytest.fixture(autouse=True)
def swift():
    """SQLite waits for no disk: a process that is killed loses nothing by that, and here no machine is switched off."""

    def at_once(connection, _record):
        connection.execute("PRAGMA synchronous=OFF")

    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", at_once)
    yield
    sqlalchemy.event.remove(sqlalchemy.Engine, "connect", at_once)


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2) as executor:
        yield executor


def made(out: Path, executor: Executor | None, **settings) -> Sweep:
    asked = {"strategy": FixedTree, "over": OVER, "objective": "score", "measure": peak, **settings}
    return sweep(asked.pop("strategy"), asked.pop("over"), out, executor=executor, **asked)


def stored(out: Path) -> list[int]:
    return sorted(parquet.read_table(out / "trials.parquet")["trial"].to_pylist())


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


CUTS = {
    "before its settings are stored": (books.Ledger, "_job"),
    "while it is measured": (driving, "_row"),
    "before its row is stored": (books.Ledger, "put"),
    "between row and verdict": (books.Ledger, "_tell"),
    "between verdict and parquet": (books, "write_part"),
}


@pytest.mark.parametrize(
    ("cut", "study"), [*((cut, "grid") for cut in CUTS), ("before its settings are stored", "optuna")]
)
def test_a_sweep_cut_short_anywhere_goes_on_and_tries_each_once(tmp_path, threads, monkeypatch, cut, study):
    """The cut comes in the third trial; what was committed before it is measured no second time."""
    place, name = CUTS[cut]
    whole, calls = getattr(place, name), []

    def cutting(*arguments, **named):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(*arguments, **named)

    marks = tmp_path / "marks"
    marks.mkdir()
    asked = {"over": ["depth=2:5"], "study": study, "trials": 3, "workers": 1, "measure": Marked(marks)}
    with monkeypatch.context() as patch:
        patch.setattr(place, name, cutting)
        with pytest.raises(KeyboardInterrupt):
            made(tmp_path / "out", threads, **asked)
    found = made(tmp_path / "out", threads, resume=True, **asked)
    assert [row.trial for row in found.rows] == stored(tmp_path / "out") == [0, 1, 2, 3]
    assert len(list(marks.iterdir())) <= 5, "at most the trial that was under way was measured twice"
    if study == "grid":
        assert [row.settings["depth"] for row in found.rows] == [5, 2, 3, 4]


def test_a_folder_that_holds_a_sweep_is_not_written_over(tmp_path, threads):
    made(tmp_path, threads, over=["depth=2"])
    with pytest.raises(MeasurementError, match="2 of 2 trials begun: go on with --resume"):
        made(tmp_path, threads, over=["depth=2"])
    assert len(made(tmp_path, threads, over=["depth=2"], resume=True).rows) == 2


def test_another_sweep_does_not_go_on_in_the_same_folder(tmp_path, threads):
    made(tmp_path, threads, over=["depth=2"])
    others = {
        "over was": {"over": ["depth=2:3"]},
        "objective was": {"objective": "tpot"},
        "peak": {"measure": troubled},
    }
    for said, other in others.items():
        with pytest.raises(MeasurementError, match=f"holds another sweep .*{said}"):
            made(tmp_path, threads, resume=True, **{"over": ["depth=2"], **other})


def test_two_sweeps_do_not_share_a_folder(tmp_path, threads):
    def meanwhile(*_):
        with pytest.raises(MeasurementError, match="is in use by another sweep"):
            made(tmp_path, threads, resume=True)

    made(tmp_path, threads, over=["depth=2"], report=meanwhile)


def test_a_figure_that_does_not_exist_lists_those_there_are(tmp_path, threads):
    with pytest.raises(MeasurementError, match="There is no figure 'speed': choose one of score"):
        made(tmp_path, threads, objective="speed")


def test_what_no_strategy_could_mend_stops_the_sweep(tmp_path, threads):
    def nothing(strategy):
        raise MeasurementError("the models are not there")

    with pytest.raises(MeasurementError, match="the models are not there"):
        made(tmp_path, threads, measure=nothing)


def test_where_every_trial_fails_the_first_reason_is_told(tmp_path, threads):
    def never(strategy):
        raise SettingsError(f"no depth of {strategy.depth}")

    found = made(tmp_path, threads, over=["depth=2"], measure=never)
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
        with pytest.raises(MeasurementError, match=r"study\.db cannot be written or read .*--resume goes on") as caught:
            made(tmp_path, threads, workers=1, report=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert stored(tmp_path) == [0, 1]
    assert [row.trial for row in made(tmp_path, threads, resume=True).rows] == list(range(7))


def test_a_part_that_cannot_be_written_is_one_sentence_and_is_written_when_it_goes_on(tmp_path, threads):
    def block(row, done, total):
        if done == 2:
            (tmp_path / "trials.parquet").rename(tmp_path / "elsewhere")

    with pytest.raises(
        MeasurementError, match=r"trial-000002\.parquet cannot be written \(No such file.*--resume goes on"
    ):
        made(tmp_path, threads, workers=1, report=block)
    assert [row.trial for row in made(tmp_path, threads, resume=True).rows] == stored(tmp_path) == list(range(7))


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path, threads):
    (tmp_path / "file").touch()
    with pytest.raises(MeasurementError, match=r"file/sweep cannot be made \(Not a directory\)"):
        made(tmp_path / "file" / "sweep", threads)


def test_a_study_that_is_damaged_is_one_sentence(tmp_path, threads):
    (tmp_path / "study.db").write_bytes(b"no database " * 100)
    with pytest.raises(MeasurementError, match="not a database"):
        made(tmp_path, threads, resume=True)


def test_processes_that_die_cost_no_trial_and_no_neighbour(tmp_path):
    """Depth 2 kills every process that it meets, and its row says so; the default was beside it, and is tried again."""
    marks = tmp_path / "marks"
    marks.mkdir()
    measure = Marked(marks, deadly=((2, 9),), seconds=0.2)
    found = made(tmp_path / "out", None, over=["depth=2:3"], measure=measure, workers=2)
    assert [row.trial for row in found.rows] == stored(tmp_path / "out") == [0, 1, 2]
    assert [row.objective for row in found.rows] == [-2, None, -2]
    assert len(list(marks.glob("2-*"))) == 3
    assert "Its worker died 3 times" in found.rows[1].failed
    assert not {row.worker for row in found.measured} & {found.rows[1].worker, f"{os.uname().nodename}:{os.getpid()}"}


def test_what_another_process_cannot_import_is_one_sentence(tmp_path):
    def inner(strategy):
        return peak(strategy)

    with pytest.raises(MeasurementError, match=r"The processes of this machine can run no trial .*can import what"):
        made(tmp_path, None, over=["depth=2"], measure=inner, workers=1)


DRIVER = """
import sys
from pathlib import Path
from sweep_made import Marked
from speclab import FixedTree
from speclab.bench.sweeping import sweep

if __name__ == "__main__":
    out, marks = map(Path, sys.argv[1:])
    sweep(FixedTree, ["depth=2:6"], out, objective="score", measure=Marked(marks, seconds=0.3), workers=2)
"""


def test_a_driver_killed_in_the_middle_goes_on_and_its_processes_end(tmp_path, threads):
    marks, out, script = tmp_path / "marks", tmp_path / "out", tmp_path / "driver.py"
    marks.mkdir()
    script.write_text(DRIVER)
    path = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    driver = subprocess.Popen([sys.executable, script, out, marks], env=path, stderr=subprocess.DEVNULL)
    until(lambda: len(list(out.glob("trials.parquet/*.parquet"))) >= 2 or driver.poll() is not None)
    assert driver.poll() is None, "killed in the middle"
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    kept = stored(out)
    workers = {int(mark.name.rsplit("-", 1)[1]) for mark in marks.iterdir()}
    until(lambda: not any(Path(f"/proc/{worker}/cmdline").exists() for worker in workers))
    found = made(out, threads, over=["depth=2:6"], measure=Marked(marks, seconds=0.3), resume=True)
    assert [row.trial for row in found.rows] == stored(out) == list(range(5))
    calls = [len(list(marks.glob(f"{row.settings['depth']}-*"))) for row in found.rows]
    assert all(calls[trial] == 1 for trial in kept)
    assert sum(calls) <= 5 + 2, "at most the two under way were begun again"


def until(true, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
