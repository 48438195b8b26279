"""Measuring what passes cost: through the runner's own passes, kept on disk, measured again where a file is damaged."""

from __future__ import annotations

import json

import pytest
from heads import random_head
from tiny import tiny

import speclab
from speclab.costs import curve as cost_files
from speclab.costs import measured as cost_curves
from speclab.costs.curve import Curve
from speclab.costs.measured import ROWS, curve_of, facts_of
from speclab.models.head_runner import HeadRunner
from speclab.models.runner import Runner

pytestmark = pytest.mark.model
CURVE = Curve(name="target", rows=(1, 2), seconds=(0.1, 0.2), prefix=0, rounds=1)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(cost_curves, "_known", {})
    monkeypatch.setattr(cost_curves, "ROUNDS", 3)
    monkeypatch.setattr(cost_curves, "CALM", float("inf"))  # a busy machine must not turn a test red
    return tmp_path


def counted(monkeypatch) -> list[str]:
    """Names of the runners that are measured from now on."""
    measured = []
    measure = cost_curves.measure
    monkeypatch.setattr(
        cost_curves, "measure", lambda runner, report: measured.append(runner.name) or measure(runner, report)
    )
    return measured


def test_a_curve_of_every_size_and_the_runner_as_it_was():
    runner = Runner(tiny("gpt_neox"))
    runner.extend([1, 2, 3])
    calls = runner.calls
    curve = curve_of(runner)
    assert curve.rows == ROWS
    assert all(seconds > 0 for seconds in curve.seconds)
    assert curve.prefix == min(cost_curves.PREFIX, runner.context // 2)
    assert (runner.length, runner.calls) == (3, calls)


def test_a_draft_head_is_timed_on_made_states():
    target = tiny("llama")
    pair = speclab.load_pair(target=target, heads=[random_head(target, 1, "prose", layers=(0, 1))])
    assert isinstance(pair.heads[0], HeadRunner)
    assert curve_of(pair.heads[0]).rows == ROWS


def test_a_curve_is_measured_once_and_again_when_asked(monkeypatch, own_folder):
    measured, runner = counted(monkeypatch), Runner(tiny("gpt_neox"))
    first = curve_of(runner)
    assert curve_of(Runner(tiny("gpt_neox", seed=5))) is first, "weights do not change what a pass costs"
    cost_curves._known.clear()
    assert curve_of(runner) == first
    assert len(measured) == 1
    assert len(list(own_folder.rglob("*.json"))) == 1
    curve_of(runner, again=True)
    assert len(measured) == 2
    assert facts_of(runner) != facts_of(Runner(tiny("gpt_neox", hidden_size=16)))
    assert facts_of(runner) != facts_of(runner.by_module())


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"curve": {}}', '{"curve": {"name": "x", "rows": [1], "seconds": []}}']
)
def test_a_damaged_file_is_measured_again(damage, monkeypatch, own_folder):
    measured, runner = counted(monkeypatch), Runner(tiny("gpt_neox"))
    curve_of(runner)
    (file,) = own_folder.rglob("*.json")
    file.write_text(damage)
    cost_curves._known.clear()
    assert curve_of(runner).rows == ROWS
    assert len(measured) == 2
    assert json.loads(file.read_text())["curve"]["rows"] == list(ROWS)


def test_what_a_busy_machine_gave_is_not_kept(monkeypatch, own_folder):
    monkeypatch.setattr(cost_curves, "CALM", 0.5)
    measured, runner = counted(monkeypatch), Runner(tiny("gpt_neox"))
    assert curve_of(runner) is curve_of(runner)
    assert len(measured) == 1
    assert not list(own_folder.rglob("*.json"))


def test_the_fastest_pass_counts_and_the_spread_is_told(monkeypatch):
    """Every second round is twice as slow."""
    passes = iter(range(1000))
    slow = len(ROWS)
    monkeypatch.setattr(cost_curves, "_bench", lambda _: lambda rows: rows * (1.0 + (next(passes) // slow) % 2))
    clock = iter(range(1000))
    monkeypatch.setattr(cost_curves, "perf_counter", lambda: 1e-6 * next(clock))
    monkeypatch.setattr(cost_curves, "process_time", cost_curves.perf_counter)
    curve = cost_curves.measure(Runner(tiny("gpt_neox")))
    assert curve.seconds == tuple(float(rows) for rows in ROWS)
    assert curve.spread == 2


def test_waiting_for_a_processor_shows(monkeypatch):
    """Every pass is as slow as the others, and the process ran a third of the time."""
    clock = iter(range(1000))
    monkeypatch.setattr(cost_curves, "_bench", lambda _: lambda rows: 1.0 * rows)
    monkeypatch.setattr(cost_curves, "perf_counter", lambda: 1e-6 * next(clock))
    monkeypatch.setattr(cost_curves, "process_time", lambda: 1e-6 * next(clock) / 3)
    assert cost_curves.measure(Runner(tiny("gpt_neox"))).spread > 2


def test_where_nothing_can_be_written_it_is_measured_all_the_same(monkeypatch, own_folder):
    (own_folder / "costs").write_text("a file where the folder should be")
    assert curve_of(Runner(tiny("gpt_neox"))).rows == ROWS


def test_what_the_report_raises_ends_the_measurement(own_folder):
    heard = []

    def stop(done: int, of: int) -> None:
        heard.append((done, of))
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        curve_of(Runner(tiny("gpt_neox")), report=stop)
    assert heard[-1] == (5, 3 * len(ROWS))
    assert not list(own_folder.rglob("*.json"))
    assert cost_curves._known == {}


@pytest.mark.parametrize(("platform", "variable"), [("linux", "XDG_CACHE_HOME"), ("win32", "LOCALAPPDATA")])
def test_the_folder_is_the_platforms_own(platform, variable, monkeypatch, tmp_path):
    monkeypatch.delenv("SPECLAB_CACHE")
    monkeypatch.setattr(cost_files.sys, "platform", platform)
    monkeypatch.setenv(variable, str(tmp_path / "kept"))
    assert cost_files.folder() == tmp_path / "kept" / "speclab" / "costs"


def test_without_a_home_directory_nothing_is_kept_and_nothing_fails(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    for name in ("SPECLAB_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cost_files.Path, "home", homeless)
    cost_files.write("curve", CURVE, {})
    assert cost_files.read("curve") is None


@pytest.mark.parametrize("place", ["/dev/null", "/proc", "a\0b", "x" * 5000], ids=["file", "read-only", "NUL", "long"])
def test_a_cache_directory_that_cannot_be_is_as_none(monkeypatch, place):
    monkeypatch.setattr(cost_files.os, "environ", {"SPECLAB_CACHE": place})
    cost_files.write("curve", CURVE, {})
    assert cost_files.read("curve") is None


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 100_000, b"\xff", b'{"curve": {"rows": [1]}}'], ids=len)
def test_a_damaged_curve_counts_as_none(monkeypatch, tmp_path, content):
    monkeypatch.setenv("SPECLAB_CACHE", str(tmp_path))
    (tmp_path / "costs").mkdir()
    (tmp_path / "costs" / "curve.json").write_bytes(content)
    assert cost_files.read("curve") is None
