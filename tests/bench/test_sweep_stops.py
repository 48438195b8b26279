"""Whatever stops or kills a sweep on made-up figures: it goes on, tries each setting once, and says why."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sweep_made import Marked, peak, troubled
from sweeps import made, stored

from speclab import MeasurementError, SettingsError
from speclab.bench.sweeping import drive as driving
from speclab.bench.sweeping import ledger as books

pytestmark = pytest.mark.usefixtures("swift")

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
