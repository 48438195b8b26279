"""Every metric on counts made by hand."""

from __future__ import annotations

import pytest

from speclab.trace.metrics import Counts, Metrics

# Two iterations: a chain of 4 with 3 accepted, and a bonus; then 6 nodes, 3 on the longest path, none accepted,
# and the bonus alone, with a second target pass to rebuild the cache.
FIRST = Counts(
    iterations=1,
    committed=4,
    drafted=4,
    accepted=3,
    longest_path=4,
    target_calls=1,
    draft_calls=4,
    seconds=0.5,
)
SECOND = Counts(
    iterations=1,
    committed=1,
    drafted=6,
    accepted=0,
    longest_path=3,
    target_calls=2,
    draft_calls=3,
    seconds=0.25,
)
BOTH = Metrics(FIRST + SECOND, ttft=0.125)


def test_counts_add_up():
    assert Counts(2, 5, 10, 3, 7, 3, 7, 0.75) == FIRST + SECOND
    assert sum((FIRST, SECOND), Counts()) == FIRST + SECOND


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("iterations", 2),
        ("tokens_per_iteration", 5 / 2),
        ("acceptance_rate", 3 / 10),
        ("path_acceptance", 3 / 7),
        ("paper_acceptance", 5 / 7),
        ("target_calls", 3 + 1),
        ("draft_calls", 7),
        ("target_calls_saved", 1 - 3 / 5),
        ("throughput", 5 / 0.75),
        ("tpot", 0.75 / 5),
        ("ttft", 0.125),
    ],
)
def test_definitions(name, value):
    assert getattr(BOTH, name) == pytest.approx(value)
    assert BOTH.as_dict()[name] == pytest.approx(value)


def test_paper_acceptance_may_exceed_one_and_the_honest_rates_never():
    full = Metrics(Counts(1, committed=4, drafted=3, accepted=3, longest_path=3, target_calls=1))
    assert full.paper_acceptance == pytest.approx(4 / 3)
    assert full.acceptance_rate == full.path_acceptance == 1.0


def test_nothing_decoded_gives_zero_everywhere():
    empty = Metrics(Counts())
    assert all(value == 0 for name, value in empty.as_dict().items() if name != "target_calls")
    assert empty.target_calls == 1


def test_plain_decoding_saves_nothing():
    plain = Metrics(Counts(iterations=3, committed=3, target_calls=3, seconds=1.0))
    assert plain.target_calls_saved == 0.0
    assert plain.tokens_per_iteration == 1.0
