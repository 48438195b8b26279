"""A measured node budget: what it follows from, where times are kept, and when passes are timed."""

from __future__ import annotations

import json
import os
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pairs import PROMPT, headed_pair, pair_of

import speclab
from speclab.drafters import cost

pytestmark = pytest.mark.model
TIMES = (
    st.lists(st.floats(1e-4, 1.0), min_size=len(cost.ROWS), max_size=len(cost.ROWS))
    .map(sorted)
    .map(tuple)
)


def at(times: tuple[float, ...], rows: int) -> float:
    """Between measured sizes on a line, in plain Python."""
    for low, high in zip(range(len(times) - 1), range(1, len(times)), strict=True):
        if rows <= cost.ROWS[high]:
            share = (rows - cost.ROWS[low]) / (cost.ROWS[high] - cost.ROWS[low])
            return times[low] + share * (times[high] - times[low])
    raise AssertionError(rows)


@given(TIMES)
def test_the_budget_commits_most_tokens_per_second(times):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "pass_seconds", lambda _: times)
        speeds = {rows: cost.expected_tokens(rows) / at(times, rows) for rows in range(4, 65)}
        assert speeds[cost.node_budget(None)] == pytest.approx(max(speeds.values()))
        assert cost.seconds(None, 12) == pytest.approx(at(times, 12))
        assert cost.seconds(None, 80) == pytest.approx(times[-1] + (times[-1] - times[-2]))


def test_rows_that_cost_nothing_are_all_taken_and_dear_ones_are_not(monkeypatch):
    for times, budget in ((dict.fromkeys(cost.ROWS, 1.0), 64), ({r: r for r in cost.ROWS}, 4)):
        monkeypatch.setattr(cost, "pass_seconds", lambda _, times=times: tuple(times.values()))
        assert cost.node_budget(None) == budget
    # a chain of one: the root's pass commits the bonus token, and its child if it is accepted
    assert cost.expected_tokens(1) == 1
    assert cost.expected_tokens(2) == 1 + cost.ACCEPTED[0]


@pytest.fixture
def measured(monkeypatch, tmp_path, pass_seconds):
    """The real measurement, with a cache folder of its own."""
    monkeypatch.setattr(cost, "pass_seconds", pass_seconds)
    monkeypatch.setenv("SPECLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(cost, "QUIET", 1e9)
    cost._known.clear()
    return tmp_path / "costs"


def test_a_pass_is_measured_once_and_its_times_are_kept(measured, monkeypatch):
    pair = headed_pair("llama")
    timed = []
    monkeypatch.setattr(
        cost, "_measure", lambda *given, real=cost._measure: timed.append(given) or real(*given)
    )
    for runner in (pair.target, pair.heads[0]):
        before = runner.length, runner.calls
        times = cost.pass_seconds(runner)
        assert list(times) == sorted(times)
        assert min(times) > 0
        assert cost.pass_seconds(runner.fork()) == times
        assert (runner.length, runner.calls) == before
    files = sorted(measured.iterdir())
    assert len(timed) == len(files) == 2
    cost._known.clear()
    assert cost.pass_seconds(pair.target) in [
        tuple(json.loads(file.read_text())["seconds"]) for file in files
    ]
    assert len(timed) == 2, "read from disk"
    for damaged in ("", '{"seconds": [1]}', '{"seconds": "x"}'):
        cost._known.clear()
        for file in files:
            file.write_text(damaged)
        cost.pass_seconds(pair.target)
    assert len(timed) == 5


def test_a_busy_machine_and_a_folder_that_cannot_be_written_keep_nothing(measured, monkeypatch):
    pair = pair_of("llama")
    with monkeypatch.context() as busy:
        busy.setattr(cost, "QUIET", 0.0)
        assert cost.pass_seconds(pair.target)
    assert not measured.exists()
    measured.write_text("a file where the folder should be")
    cost._known.clear()
    assert cost.pass_seconds(pair.target)


def _quick() -> cost._Measured:
    return cost._Measured((1.0,) * len(cost.ROWS), inf)


def test_times_of_a_busy_machine_are_taken_again_and_the_faster_ones_stay(measured, monkeypatch):
    runner = pair_of("llama").target
    taken = [tuple(range(start, start + len(cost.ROWS))) for start in (3, 1, 2)]
    monkeypatch.setattr(cost, "_measure", lambda *_: cost._Measured(taken.pop(0), -inf))
    seen = [cost.pass_seconds(runner)[0] for _ in range(3)]
    assert seen == [3, 1, 1]


def test_times_on_disk_are_taken_again_when_they_are_old(measured, monkeypatch):
    runner = pair_of("llama").target
    times = cost.pass_seconds(runner)
    (file,) = measured.iterdir()
    monkeypatch.setattr(cost, "_measure", lambda *_: _quick())
    for age, expected in ((0, times), (2 * cost.OLD, _quick().times)):
        os.utime(file, (file.stat().st_mtime - age,) * 2)
        cost._known.clear()
        assert cost.pass_seconds(runner) == expected


def test_passes_are_timed_before_a_texts_clock_starts(measured, monkeypatch):
    order = []
    pair = pair_of("llama")
    monkeypatch.setattr(cost, "_measure", lambda *_: order.append("measure") or _quick())
    monkeypatch.setattr(
        "speclab.engine.generate.perf_counter", lambda: order.append("clock") or 0.0
    )
    for strategy, measures in ((speclab.LinearSpeculation(), False), (speclab.Goose(), True)):
        speclab.generate(pair, strategy, PROMPT, max_new_tokens=4)
        assert ("measure" in order) == measures
        assert order.index("clock") == int(measures)
        order.clear()


def test_the_trace_has_the_setting_and_a_step_has_the_number():
    session = speclab.Session(pair_of("llama"), speclab.DynaTree(), PROMPT, max_new_tokens=20)
    step = session.step()
    assert session.trace.settings["node_budget"] == "auto"
    assert session.trace.settings["measured_node_budget"] == 9
    assert step.settings["node_budget"] == session.fork(at=0).step().settings["node_budget"] == 9
