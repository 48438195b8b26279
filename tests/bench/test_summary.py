"""The arithmetic of a measurement on made-up timings."""

from __future__ import annotations

import pytest

from speclab.bench.result import Result
from speclab.bench.summary import ALL, Cell, over_kinds, spread, summaries, without_looping


def made(contender: str, seconds: float, prompt: str = "p", repeat: int = 0, **fields) -> Result:
    """A call of so many seconds for 100 new tokens."""
    known = {"protocol": "main", "workload": "w", "kind": "prose", "new_tokens": 100, "ttft": seconds / 10}
    return Result(contender=contender, seconds=seconds, prompt_id=prompt, repeat=repeat, **{**known, **fields})


def of(found, contender, kind="prose", x=None):
    (one,) = [one for one in found if one.cell == Cell(contender, x, None) and one.kind == kind]
    return one


def test_a_prompt_stands_for_the_median_of_its_rounds_and_the_spread_is_that_of_prompts():
    times = {"a": (1.0, 2.0, 50.0), "b": (4.0, 4.0, 4.0), "c": (5.0, 5.0, 5.0)}
    results = [made("plain", took, prompt, i) for prompt, some in times.items() for i, took in enumerate(some)]
    own = of(summaries(results, "plain"), "plain")
    assert (own.throughput.median, own.throughput.count) == (25.0, 3)
    assert (own.throughput.low, own.throughput.high) == (22.5, 37.5)
    assert own.speedup.median == own.speedup.low == own.speedup.high == 1


def test_a_ratio_is_taken_within_a_round_and_not_between_medians():
    plain, fast = (1.0, 10.0, 4.0), (0.5, 2.5, 4.0)
    results = [made("plain", took, repeat=i) for i, took in enumerate(plain)]
    results += [made("fast", took, repeat=i) for i, took in enumerate(fast)]
    own = of(summaries(results, "plain"), "fast")
    assert own.speedup.median == 2.0, "the rounds gave 2, 4 and 1"
    assert own.throughput.median == pytest.approx(100 / 2.5), "and medians alone would say 4 / 2.5"


def test_a_round_without_the_baseline_has_no_ratio():
    results = [made("plain", 1.0), made("fast", 0.5), made("fast", 0.1, repeat=1)]
    assert of(summaries(results, "plain"), "fast").speedup.count == 1
    assert of(summaries(results, "plain"), "fast").speedup.median == 2
    assert of(summaries(results[1:], "plain"), "fast").speedup is None


def test_the_baseline_of_a_swept_value_is_the_one_at_that_value_or_the_only_one():
    swept = [made("plain", 1.0, x=10), made("plain", 8.0, x=20), made("fast", 0.5, x=10), made("fast", 2.0, x=20)]
    assert of(summaries(swept, "plain"), "fast", x=10).speedup.median == 2
    assert of(summaries(swept, "plain"), "fast", x=20).speedup.median == 4
    alone = [made("plain", 1.0), made("fast", 0.5, x=0.9, x2=0.4)]
    assert summaries(alone, "plain")[1].speedup.median == 2


def test_derived_figures():
    result = made(
        "fast", 2.0, ttft=0.5, target_seconds=0.8, draft_seconds=0.4, iterations=25, committed=99, drafted=200,
        accepted=50, longest_path=100,
    )  # fmt: skip
    assert result.throughput == 50
    assert result.tpot == pytest.approx(1.5 / 99)
    assert result.decode_throughput == pytest.approx(99 / 1.5)
    assert (result.model_seconds, result.host_seconds) == (pytest.approx(1.2), pytest.approx(0.8))
    assert result.tokens_per_iteration == 99 / 25
    assert (result.acceptance_rate, result.path_acceptance) == (0.25, 0.5)
    assert (result.paper_acceptance, result.path_length) == (0.99, 2.0)
    own = of(summaries([result], None), "fast")
    assert own.host_ms.median == pytest.approx(1000 * 0.8 / 25)
    assert (own.target_share.median, own.draft_share.median) == (pytest.approx(0.4), pytest.approx(0.2))
    assert own.speedup is None


def test_a_peer_has_no_acceptance_and_a_text_of_one_token_no_time_per_token():
    peer = made("peer", 1.0, group="transformers", new_tokens=1)
    assert (peer.acceptance_rate, peer.path_acceptance, peer.tpot, peer.decode_throughput) == (None,) * 4
    assert of(summaries([peer], None), "peer").tpot is None


def test_looping_prompts_are_left_out_for_all_contenders():
    results = [made(name, 1.0, prompt) for name in ("plain", "fast") for prompt in ("a", "b")]
    results[3] = results[3].model_copy(update={"looping": True})
    assert {result.prompt_id for result in without_looping(results)} == {"a"}
    every, some = summaries(results, "plain"), summaries(results, "plain", looping=False)
    assert (of(every, "plain").prompts, of(some, "plain").prompts) == (2, 1)
    assert (of(every, "fast").looping, of(every, "plain").looping) == (1, 0)


def test_failures_are_said_and_counted_in_nothing():
    broken = Result(
        protocol="main", contender="peer", workload="w", kind="prose", prompt_id="p", repeat=0, failed="no draft"
    )
    own = of(summaries([made("plain", 1.0), broken, broken.model_copy(update={"repeat": 1})], "plain"), "peer")
    assert (own.prompts, own.throughput, own.failed) == (0, None, ("no draft",))
    assert (own.equal, own.compared) == (0, 0)


def test_a_text_is_equal_if_it_was_in_every_round_and_a_tie_is_no_difference():
    rounds = [True, False, True]
    some = [made("fast", 1.0, "a", i, equal=equal) for i, equal in enumerate(rounds)]
    some += [made("fast", 1.0, "b", i, equal=False, tie=True) for i in range(3)]
    some += [made("fast", 1.0, "c", equal=None)]
    own = of(summaries(some, None), "fast")
    assert (own.equal, own.compared, own.prompts) == (1, 2, 3)


def test_kinds_come_one_by_one_and_then_together():
    results = [made("plain", 1.0, "a"), made("plain", 3.0, "b", kind="code"), made("plain", 3.0, "c", kind="code")]
    found = summaries(results, "plain")
    assert [one.kind for one in found] == ["prose", "code", ALL]
    assert of(found, "plain", ALL).prompts == 3
    assert over_kinds(found, lambda one: one.throughput.median)[Cell("plain", None, None)] == pytest.approx(
        (100 + 100 / 3) / 2
    )
    assert [one.kind for one in summaries(results[:1], "plain")] == ["prose"], "one kind needs no sum"


def test_a_spread_of_one_value_and_of_none():
    assert spread([]) is None
    assert (spread([3.0]).low, spread([3.0]).median, spread([3.0]).high) == (3, 3, 3)
