"""Whatever kills a sweep, and when: no finished trial is lost, none counts twice, and what was under way is retried."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sweep_made import Marked, killed_at, made, stored

from speclab.bench.sweep_study import read_rows

pytestmark = pytest.mark.model  # seconds each: processes start and die

PRELOADED = ["pyarrow.parquet", "alembic.command", "optuna.storages._rdb.storage", "speclab.bench.sweep"]


@pytest.fixture
def marks(tmp_path):
    (tmp_path / "marks").mkdir()
    return tmp_path / "marks"


@pytest.mark.parametrize(("study", "moments"), [("grid", (11, 2, 3, 5, 8)), ("optuna", (12, 5))])
def test_a_driver_killed_at_any_moment_goes_on(tmp_path, marks, study, moments):
    """Killed again and again, each time some changes further on, until it comes to its end."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(PRELOADED)
    out, done, kills = tmp_path / "out", [], 0
    for moment in (*moments, 1000):
        driver = processes.Process(target=killed_at, args=(moment, out, marks, study))
        driver.start()
        driver.join(60)
        kills += driver.exitcode == -signal.SIGKILL
        rows = read_rows(out) if (out / "study.db").exists() else []
        assert rows[: len(done)] == done, "what is stored stands"
        done = rows
    assert driver.exitcode == 0
    assert kills >= len(moments) - 1
    assert [row.trial for row in done] == stored(out) == [0, 1, 2, 3]
    if study == "grid":
        assert [row.settings["depth"] for row in done] == [5, 2, 3, 4]
    assert len(list(marks.iterdir())) <= 4 + kills, "at most the trial under way was measured again"


DRIVER = """
import sys
from pathlib import Path
from sweep_made import Marked, made

if __name__ == "__main__":
    out, marks = map(Path, sys.argv[1:])
    made(out, None, ["depth=2:6"], measure=Marked(marks, seconds=0.3), workers=2)
"""


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_driver(tmp_path, threads, marks, ended_by):
    out, script = tmp_path / "out", tmp_path / "driver.py"
    script.write_text(DRIVER)
    path = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    driver = subprocess.Popen([sys.executable, script, out, marks], env=path, stderr=subprocess.PIPE)
    until(lambda: len(list(marks.iterdir())) >= 3 or driver.poll() is not None)
    assert driver.poll() is None, "ended in the middle"
    driver.send_signal(ended_by)
    driver.communicate()
    kept = [row.trial for row in read_rows(out)]
    workers = {int(mark.name.rsplit("-", 1)[1]) for mark in marks.iterdir()}
    until(lambda: not any(Path(f"/proc/{worker}/cmdline").exists() for worker in workers))
    found = made(out, threads, ["depth=2:6"], measure=Marked(marks), resume=True)
    assert [row.trial for row in found.rows] == stored(out) == list(range(5))
    calls = [Marked(marks).calls(row.settings["depth"]) for row in found.rows]
    assert all(calls[trial] == 1 for trial in kept)
    assert sum(calls) <= 5 + 2, "at most the two under way were begun again"


def test_workers_that_die_cost_no_trial_and_no_neighbour(tmp_path, marks):
    """Depth 2 kills every process that it meets, and its row says so; depth 3 kills one."""
    measure = Marked(marks, deadly=((2, 9), (3, 1)))
    found = made(tmp_path / "out", None, ["depth=2:4"], measure=measure, workers=2)
    assert [row.objective for row in found.rows] == [-2, None, -2, -1]
    assert "Its worker died 3 times" in found.rows[1].failed
    assert measure.calls(2) <= 3
    assert measure.calls(3) >= 2, "killed once, and tried again"
    assert os.getpid() not in {int(mark.name.rsplit("-", 1)[1]) for mark in marks.iterdir()}


def until(true, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
