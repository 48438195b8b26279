"""The arithmetic of a comparison on made-up timings, and every way on a tiny pair."""

import pytest
from tiny import tiny

from speclab.bench.compare import measure, rows
from speclab.bench.ways import Run, Way, ways
from speclab.metrics import Counts, Metrics
from speclab.models.pair import load_pair


def made_up(name, seconds, metrics=None, tokens=(1, 2, 3, 4)):
    """A way whose runs take the given seconds, one after the other."""
    clock = iter(seconds)

    class Fake(Way):
        def run(self, prompt_ids, max_new_tokens):
            spent = next(clock)
            return Run(list(tokens), spent, spent / 2, metrics)

    return Fake(name, lambda ids, n: ([], None), ())


def test_a_row_takes_medians_over_repeats_and_ratios_to_the_first_way():
    metrics = Metrics(Counts(iterations=2, committed=6, drafted=8, accepted=4, longest_path=4, target_calls=2))
    plain = made_up("plain", [9.0, 2.0, 4.0, 3.0])
    fast = made_up("fast", [9.0, 1.0, 0.5, 8.0], metrics)
    table = rows("prose", [measure([plain, fast], [1], max_new_tokens=4, repeats=3)])
    assert [row.way for row in table] == ["plain", "fast"]
    assert table[0].tokens_per_second == pytest.approx(4 / 3.0)
    assert table[1].tokens_per_second == pytest.approx(4 / 1.0)
    assert table[0].speedup == 1
    assert table[1].speedup == pytest.approx(3.0)
    assert table[0].tokens_per_iteration is None
    assert table[1].tokens_per_iteration == 3
    assert table[1].acceptance_rate == 0.5
    assert table[1].host_ms == pytest.approx(1000 * 0.5 / 2)


def test_the_warm_up_round_is_not_counted():
    runs = measure([made_up("plain", [100.0, 1.0])], [1], max_new_tokens=4, repeats=1)
    assert [run.seconds for run in runs["plain"]] == [1.0]


def test_the_order_turns_each_round():
    order = []

    class Noted(Way):
        def run(self, prompt_ids, max_new_tokens):
            order.append(self.name)
            return Run([1], 1.0, 0.5)

    three = [Noted(name, lambda ids, n: ([], None), ()) for name in "abc"]
    measure(three, [1], max_new_tokens=1, repeats=2)
    assert "".join(order) == "abcbcacab"


def test_texts_that_differ_are_counted():
    plain = made_up("plain", [1.0, 1.0])
    other = made_up("other", [1.0, 1.0], tokens=(1, 2, 9, 9))
    table = rows("prose", [measure([plain, other], [1], max_new_tokens=4, repeats=1)])
    assert [row.equal for row in table] == [1, 0]


@pytest.mark.model
def test_every_way_decodes_the_same_text():
    pair = load_pair(target=tiny("gpt_neox"), draft=tiny("gpt_neox", seed=1))
    every = ways(pair)
    runs = measure(every, [3, 1, 4, 1, 5], max_new_tokens=12, repeats=1)
    assert all(own[0].token_ids == runs["plain"][0].token_ids for own in runs.values())
    assert all(0 < own[0].model_seconds < own[0].seconds for own in runs.values())
    assert [name for name in runs if name.startswith("transformers")] == [way.name for way in every[-2:]]
