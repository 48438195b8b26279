"""A lab that lets a person guess."""

from __future__ import annotations

from support.lab_page import Page


def test_a_lab_that_lets_people_guess_says_so_to_the_page_which_ends_it(make, sent):
    page = Page(make(predict=True), sent)
    assert page.status["guess"] is True
    page.do("guess", on=False)
    page.do("step")
    assert page.status["guess"] is False
