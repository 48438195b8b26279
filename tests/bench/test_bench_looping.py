from __future__ import annotations

from speclab.bench.run import loops, periodic, repeated


def test_repeated_marks_the_end_of_a_4gram_seen_before() -> None:
    assert repeated([1, 2, 3, 4, 5]) == [False] * 5
    assert repeated([1, 2, 3, 4, 1, 2, 3, 4]) == [False] * 7 + [True]
    assert repeated([7] * 6) == [False] * 4 + [True, True]
    assert repeated([1, 2]) == [False, False]


def test_repeated_can_let_a_4gram_pass_twice() -> None:
    assert repeated([1, 2, 3, 4] * 3, before=2) == [False] * 11 + [True]


def test_fresh_text_does_not_loop() -> None:
    assert not loops(list(range(128)))
    assert not periodic(list(range(128)))


def test_exact_loops_of_any_period_loop() -> None:
    for period in (1, 2, 7, 24, 40):
        tokens = list(range(100, 100 + period)) * 128
        assert loops(tokens[:128]), period
        assert periodic(tokens[:128]) == (period <= 24), period


def test_a_loop_that_begins_late_counts() -> None:
    assert loops([*range(80), *[500, 501, 502] * 16])
    assert not loops([*range(112), *[500, 501] * 8])  # 16 tokens are no loop yet


def test_a_near_loop_counts() -> None:
    lines = [token for i in range(13) for token in (1, 2, 3, 4, 5, 6, 7, 8, 9, 100 + i)]
    assert loops(lines[:128])
    assert not periodic(lines[:128])


def test_text_that_ended_early_does_not_loop() -> None:
    assert not loops([1, 2] * 20 + [0])


def test_some_repetition_is_no_loop() -> None:
    chorus = [900, 901, 902, 903, 904, 905]
    text = [t for verse in range(8) for t in [*range(verse * 12, verse * 12 + 12), *chorus]]
    assert not loops(text[:128])
