"""What the tests of exercises accept, and what they do with answers that are no answers."""

import sys
from contextlib import suppress
from functools import partial
from time import sleep

import numpy as np
import pytest

from speclab.course import check, expect, own
from speclab.course.answers import version


def test_a_tuple_an_array_a_generator_and_rounding_are_accepted():
    expect(lambda pair: (pair[0], np.array([0.1 + 0.2])), [1, 2], expected=[1, [0.3]])
    expect(lambda pair: (each for each in pair), [1, 2], expected=(1, 2))


@pytest.mark.parametrize("answer", [lambda row: row[:1], lambda row: row.append(3) or [1, 2]])
def test_another_value_and_changed_arguments_are_not(answer):
    with pytest.raises(AssertionError, match=r"\(\[1, 2\]\)"):
        expect(answer, [1, 2], expected=[1, 2])


@pytest.mark.parametrize("kind", [list, np.array])
def test_what_an_answer_changes_is_not_the_notebook_s(kind):
    def spoil(row, nested):
        row[0] = nested["deep"][0] = 9
        return 9

    row, nested = kind([1, 2]), {"deep": kind([3])}
    with pytest.raises(AssertionError, match="changed what it was given"):
        expect(spoil, row, nested, expected=9)
    assert [*row, *nested["deep"]] == [1, 2, 3]


def double(number):
    """Twice the number."""
    return 2 * number if number < 90 else 0


def empty(number):
    """Twice the number."""
    # TODO


def world(random):
    number = random.randrange(100)
    return number, 2 * number


def test_cases_pass_and_random_worlds_do_not(capsys):
    check("A", double, [(2, 4)])
    assert own("double") is double
    with pytest.raises(AssertionError, match="expected"):
        check("A", double, [(2, 4)], worlds=world)
    check("A", empty, [(2, 4)], worlds=world)
    assert capsys.readouterr().out.split("\n")[:2] == [
        "A is right",
        "A is open: empty returns None",
    ]
    assert own("empty", double) is double


def test_other_seeds_make_other_worlds():
    drawn = {0: [], 1: []}
    for seed, numbers in drawn.items():

        def seen(number, numbers=numbers):
            numbers.append(number)
            return 2 * number

        check("A", seen, worlds=world, seed=seed)
    assert len(drawn[0]) == len(drawn[1]) == 50
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("wait", [int, partial(sleep, 0.01)], ids=["busy", "waiting"])
def test_an_answer_that_never_ends_is_refused_in_a_sentence(wait):
    def endless(number):
        while True:
            with suppress(Exception):
                wait()

    with pytest.raises(AssertionError, match="seconds"):
        check("A", endless, [(2, 4)], limit=0.2)


def test_what_an_answer_prints_is_not_in_its_verdict_and_an_exit_is_no_answer(capsys):
    check("A", lambda number: print("looked at", number) or 2 * number, [(2, 4)])
    assert capsys.readouterr() == ("A is right\n", "")
    with pytest.raises(AssertionError, match="exit"):
        check("A", lambda number: print("looked at", number) or sys.exit(), [(2, 4)])
    assert "looked at 2" in capsys.readouterr().out


def test_an_answer_may_not_call_the_course_s_version():
    given = version(double)
    assert given(3) == 6

    def fourfold(number):  # the version of an exercise before
        return 2 * given(number)

    def asked(number):
        return given(number)

    check("B", fourfold, [(2, 8)])
    asked.__name__ = double.__name__
    with pytest.raises(AssertionError, match="of your own"):
        check("A", asked, [(2, 4)])


def test_a_deleted_answer_is_replaced_by_the_folded_solution():
    assert own("accepted_chain")([5, 6], [5, 7, 8]) == [5, 7]


def test_parts_have_names_and_the_message_says_what_the_test_was_made_of():
    def both(answer, number, times):
        return {"sum": answer(number) + times, "product": answer(number) * times}

    check("A", double, [(2, 3, {"sum": 7, "product": 12})], through=both)
    with pytest.raises(
        AssertionError, match=r"number = 2, times = 3: product: expected 13, got 12"
    ):
        check("A", double, [(2, 3, {"sum": 7, "product": 13})], through=both)


def test_an_object_may_answer_and_cases_run_without_worlds(capsys):
    class Doubling:
        def __call__(self, number):
            return 2 * number

    check("A", Doubling(), [(2, 4)], worlds=world)
    check("A", double, [(2, 4)], worlds=world, seed=None)  # it is wrong in some worlds
    assert capsys.readouterr().out == "A is right\nA is right\n"
