"""Sweeps on a Dask cluster: a worker killed in the middle, a scheduler that goes or was never there."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from distributed import Client, LocalCluster
from pyarrow import parquet
from sweep_made import Marked, peak

from speclab import FixedTree, MeasurementError, SettingsError
from speclab.bench.sweeping import cluster, sweep

OVER = ["depth=2:4", "branching=2,3"]


def made(out, executor, **settings):
    return sweep(FixedTree, OVER, out, objective="score", executor=executor, **{"measure": peak, **settings})


def stored(out):
    return sorted(parquet.read_table(out / "trials.parquet")["trial"].to_pylist())


def test_a_worker_killed_in_the_middle_costs_no_trial_and_none_counts_twice(tmp_path):
    """Killed from outside after the first trial; and depth 3 kills the process that measures it, once."""
    marks, killed = tmp_path / "marks", []
    marks.mkdir()

    def kill(row, done, total):
        if not killed:
            killed.append(row.worker)
            os.kill(int(row.worker.rsplit(":", 1)[1]), signal.SIGKILL)

    measure = Marked(marks, deadly=((3, 1),), seconds=0.1)
    found = made(tmp_path / "out", "local:2", measure=measure, report=kill)
    assert [row.trial for row in found.rows] == stored(tmp_path / "out") == list(range(7))
    assert [row.objective for row in found.rows] == [-2, -5, -4, -2, -1, -1, 0]
    assert len(killed) == 1
    assert len({row.worker for row in found.rows}) >= 3, "two workers, and one in the place of each that died"
    again = {mark.name.rsplit("-", 2)[0] for mark in marks.glob("*-1-*")}
    assert {"3-2", "3-3"} <= again, "measured again, and told once"


def test_a_scheduler_that_goes_keeps_what_is_done_and_the_sweep_goes_on_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 2)
    one = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=None)
    address = one.scheduler_address
    with pytest.raises(MeasurementError, match=r"Dask .*--resume goes on") as caught:
        made(tmp_path, address, report=lambda row, done, total: one.close(1) if done == 2 else None)
    assert address in str(caught.value)
    assert "\n" not in str(caught.value)
    assert stored(tmp_path) == [0, 1]
    with ThreadPoolExecutor(2) as executor:
        found = made(tmp_path, executor, resume=True)
    assert [row.trial for row in found.rows] == stored(tmp_path) == list(range(7))


def test_a_clients_own_executor_measures_too(tmp_path):
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as own,
        Client(own) as client,
    ):
        found = made(tmp_path, client.get_executor(pure=False))
    assert found.best.code == "speclab.FixedTree(depth=4, branching=3)"


def test_a_scheduler_that_is_not_there_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 0.2)
    with pytest.raises(MeasurementError, match=r"tcp://127\.0\.0\.1:9 cannot be reached.*check the address") as caught:
        made(tmp_path, "tcp://127.0.0.1:9")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["local", "127.0.0.1:8786", "local:0", "local:-1", "local:²", "local:" + "7" * 5000]
)
def test_what_is_no_address_says_how_to_write_one(tmp_path, address):
    with pytest.raises(SettingsError, match=r"local:\d"):
        made(tmp_path, address)
