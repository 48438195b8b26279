"""Measuring what passes cost: through the runner's own passes, kept on disk, measured again where a file is damaged."""

from __future__ import annotations

import json

import pytest
from heads import random_head
from tiny import tiny

import speclab
from speclab.costs import measured
from speclab.costs.curve import Curve
from speclab.costs.measured import ROWS, conditions_of, curve_of
from speclab.models.heads import HeadRunner
from speclab.models.runner import Runner

pytestmark = pytest.mark.model
CURVE = Curve(name="target", rows=(1, 2), seconds=(0.1, 0.2), prefix=0, rounds=1)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(measured, "_known", {})
    monkeypatch.setattr(measured, "ROUNDS", 3)
    monkeypatch.setattr(measured, "QUIET", float("inf"))  # a busy machine must not turn a test red
    return tmp_path


@pytest.fixture
def measurements(monkeypatch) -> list[str]:
    """Names of the runners that were measured; nothing is timed."""
    names = []
    monkeypatch.setattr(measured, "measure", lambda runner, report, **_: names.append(runner.name) or CURVE)
    return names


def test_a_curve_of_every_size_and_the_runner_as_it_was():
    runner = Runner(tiny("gpt_neox"))
    runner.extend([1, 2, 3])
    calls = runner.calls
    curve = curve_of(runner)
    assert curve.rows == ROWS
    assert all(seconds > 0 for seconds in curve.seconds)
    assert curve.prefix == min(measured.PREFIX, runner.context // 2)
    assert (runner.length, runner.calls) == (3, calls)


def test_a_draft_head_is_timed_too():
    target = tiny("llama")
    pair = speclab.load_pair(target=target, heads=[random_head(target, 1, "prose", layers=(0, 1))])
    assert isinstance(pair.heads[0], HeadRunner)
    assert curve_of(pair.heads[0]).rows == ROWS


def test_a_curve_is_measured_once_and_again_when_asked(measurements, own_folder):
    runner = Runner(tiny("gpt_neox"))
    first = curve_of(runner)
    assert curve_of(Runner(tiny("gpt_neox", seed=5))) is first, "weights do not change what a pass costs"
    measured._known.clear()
    assert curve_of(runner) == first
    assert len(measurements) == len(list(own_folder.rglob("*.json"))) == 1
    curve_of(runner, again=True)
    assert len(measurements) == 2
    assert conditions_of(runner) != conditions_of(Runner(tiny("gpt_neox", hidden_size=16)))
    assert conditions_of(runner) != conditions_of(runner.by_module())


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[" * 100_000, b"\xff", b'{"curve": {}}', b'{"curve": {"name": "x", "rows": [1], "seconds": []}}'],
    ids=len,
)
def test_a_damaged_file_is_measured_again(damage, measurements, own_folder):
    runner = Runner(tiny("gpt_neox"))
    curve_of(runner)
    (file,) = own_folder.rglob("*.json")
    file.write_bytes(damage)
    measured._known.clear()
    assert curve_of(runner) == CURVE
    assert len(measurements) == 2
    assert json.loads(file.read_text())["curve"]["rows"] == [1, 2]


def test_what_a_busy_machine_gave_is_not_kept(monkeypatch, measurements, own_folder):
    monkeypatch.setattr(measured, "QUIET", 0.5)
    runner = Runner(tiny("gpt_neox"))
    assert curve_of(runner) is curve_of(runner)
    assert len(measurements) == 1
    assert not list(own_folder.rglob("*.json"))


def measured_by(monkeypatch, time_pass, clock_rate: float = 1.0) -> Curve:
    """A curve of passes that take `time_pass(rows)` seconds, while the process runs for `clock_rate` of the time."""
    clock = iter(range(1000))
    monkeypatch.setattr(measured, "_timed_pass", lambda *_: time_pass)
    monkeypatch.setattr(measured, "perf_counter", lambda: 1e-6 * next(clock))
    monkeypatch.setattr(measured, "process_time", lambda: 1e-6 * next(clock) * clock_rate)
    return measured.measure(Runner(tiny("gpt_neox")))


def test_the_fastest_pass_counts_and_a_busy_machine_shows_in_the_spread(monkeypatch):
    passes = iter(range(1000))
    every_second_round = measured_by(monkeypatch, lambda rows: rows * (1.0 + (next(passes) // len(ROWS)) % 2))
    assert every_second_round.seconds == tuple(float(rows) for rows in ROWS)
    assert every_second_round.spread == pytest.approx(2, abs=0.1)
    assert measured_by(monkeypatch, float, clock_rate=1 / 3).spread > 2


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
    assert measured._known == {}


def test_curves_are_kept_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("SPECLAB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    measured.save("curve", CURVE, {})
    assert (tmp_path / "kept" / "speclab" / "costs" / "curve.json").is_file()
    assert measured.load("curve") == CURVE


@pytest.mark.parametrize(
    "place", ["/dev/null", "/proc", "a\0b", "x" * 5000, ""], ids=["file", "read-only", "NUL", "long", "no home"]
)
def test_without_a_cache_directory_nothing_is_kept_and_nothing_fails(monkeypatch, place):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(measured.os, "environ", {"SPECLAB_CACHE": place})
    monkeypatch.setattr(measured.Path, "home", homeless)
    measured.save("curve", CURVE, {})
    assert measured.load("curve") is None
