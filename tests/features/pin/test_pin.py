"""An iteration stays beside those that come."""

from __future__ import annotations


def test_a_pinned_iteration_stays_beside_those_that_come(page):
    page.lab.pin()
    page.do("step")
    assert page.panels["pinned"]["step"] == page.steps[0]
    page.lab.pin()
    page.hear()
    assert page.panels["pinned"] == {}
