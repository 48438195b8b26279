"""A measured node budget: what it follows from, where times are kept, and when passes are timed."""

from __future__ import annotations

import json
import os
from math import inf, log2

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.pairs import PROMPT, headed_pair, pair_of

import speclab
from speclab import theory
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


@pytest.fixture
def chosen(monkeypatch, node_budget):
    """The budget of a strategy where passes of the target and of what drafts take these seconds."""
    pair = headed_pair("llama")
    nothing = np.zeros(cost.MOST)
    monkeypatch.setattr(cost, "_load_yields", lambda _: (nothing.copy(), nothing.copy(), 0.0))

    def choose(strategy, target, draft):
        pair.budgets.clear()
        seconds = {id(pair.target.model): target}
        monkeypatch.setattr(cost, "pass_seconds", lambda one: seconds.get(id(one.model), draft))
        return node_budget(strategy, pair)

    return choose


@given(TIMES, TIMES)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_budget_commits_most_tokens_per_second_of_all_passes(chosen, target, draft):
    for strategy, passes in ((speclab.Goose(), lambda _: 0), (speclab.DynaTree(), log2)):
        speeds = {}
        for rows in range(4, 65):
            tokens = theory.sequoia_shape(cost.ACCEPTED, rows - 1, cost.LEVELS).expected_tokens
            drafts = passes(rows)
            spent = at(target, rows) + (drafts and drafts * at(draft, rows / drafts))
            speeds[rows] = tokens / spent
        assert speeds[chosen(strategy, target, draft)] == pytest.approx(max(speeds.values()))


def test_seconds_between_and_beyond_the_measured_sizes(monkeypatch):
    monkeypatch.setattr(cost, "pass_seconds", lambda _: tuple(rows**1.5 for rows in cost.ROWS))
    assert cost.seconds(None, 14) == pytest.approx((12**1.5 + 16**1.5) / 2)
    assert cost.seconds(None, 80) == pytest.approx(2 * 64**1.5 - 48**1.5)


@pytest.fixture
def measured(monkeypatch, tmp_path, pass_seconds, node_budget):
    """The real measurement, with a cache folder of its own."""
    monkeypatch.setattr(cost, "pass_seconds", pass_seconds)
    monkeypatch.setattr(cost, "node_budget", node_budget)
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


# What the last trees gave


CHAIN = speclab.DraftTree.of(range(9), range(-1, 8), [0.0] + [-0.1] * 8, "drawn")
STAR = speclab.DraftTree.of(
    range(9), [-1, *[0] * 8], [0.0, *[-float(k) for k in range(1, 9)]], "drawn"
)


@pytest.fixture
def yields(tmp_path):
    return lambda: cost.Yields(tmp_path / "costs" / "counts.json")


def test_without_counts_the_expected_tokens_hold(yields):
    np.testing.assert_allclose(yields().tokens(), cost.expected_tokens())


def test_each_node_of_a_chain_that_is_always_accepted_counts_as_a_token(yields):
    counted = yields()
    for _ in range(400):
        counted.add(CHAIN, range(9), 1.0)
    tokens = counted.tokens()
    assert tokens[0] == 1
    assert (np.diff(tokens[:9]) > 0.9).all()
    assert (np.diff(tokens[8:]) >= np.diff(cost.expected_tokens()[8:])).all()


def test_siblings_are_ranked_by_probability_and_misses_count(yields):
    counted = yields()
    for turn in range(400):
        counted.add(STAR, [0, 1] if turn % 2 else [0], 1.0)
    gains = np.diff(counted.tokens())
    assert gains[0] == pytest.approx(0.5, abs=0.05)
    assert (gains[1:8] < 0.05).all()


def test_counts_are_kept_on_disk_and_a_damaged_file_is_none(yields, monkeypatch, tmp_path):
    monkeypatch.setattr(cost, "KEEP", -1.0)
    yields().add(CHAIN, [0, 1, 2], 1.0)
    again = yields()
    assert again.trials[:9].tolist() == [1] * 9
    assert again.hits[:4].tolist() == [1, 1, 1, 0]
    for damaged in (
        "[[1], [2]]",
        "{}",
        '{"trials": [1], "hits": [2], "besides": 0}',
        "[[" + ",".join("1" * 64) + "], 3]",
    ):
        (tmp_path / "costs" / "counts.json").write_text(damaged)
        assert not yields().trials.any()


def test_a_run_moves_the_budget_of_the_next_text_and_not_of_its_own_fork(monkeypatch, node_budget):
    """Passes cost the same whatever their rows, so every further token pays."""
    monkeypatch.setattr(cost, "node_budget", node_budget)
    times = tuple(1.0 + 0.02 * rows for rows in cost.ROWS)
    monkeypatch.setattr(cost, "pass_seconds", lambda _: times)
    pair = headed_pair("llama")
    strategy = speclab.TokenRecycling()
    text = pair.fresh()
    first = cost.with_node_budget(strategy, text).node_budget
    for _ in range(400):
        cost.observe(strategy, text, CHAIN, [0], 0.0)
    assert cost.with_node_budget(strategy, text.fork(0)).node_budget == first
    assert cost.with_node_budget(strategy, pair.fresh()).node_budget < first


def test_what_an_iteration_costs_besides_its_passes_makes_more_nodes_pay(monkeypatch, node_budget):
    monkeypatch.setattr(cost, "node_budget", node_budget)
    times = tuple(1.0 + 0.1 * rows for rows in cost.ROWS)
    monkeypatch.setattr(cost, "pass_seconds", lambda _: times)
    strategy = speclab.TokenRecycling()
    budgets = {}
    for besides in (0.0, 0.6, 1000.0):  # half of the cheapest iteration's passes at most count
        pair = headed_pair("llama")
        pair.shared_state.clear()
        text = pair.fresh()
        cost.with_node_budget(strategy, text)
        for turn in range(400):
            cost.observe(strategy, text, CHAIN, range(1 + turn % 9), 1.9 + besides)
        budgets[besides] = cost.with_node_budget(strategy, pair.fresh()).node_budget
        kept = cost.yields("TokenRecycling", pair)
        assert kept.besides == pytest.approx(min(besides, times[1] / 2))
    assert budgets[0.0] < budgets[0.6] <= budgets[1000.0]
