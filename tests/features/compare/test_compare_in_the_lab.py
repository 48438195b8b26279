"""Strategies are compared in the lab."""

from __future__ import annotations

import pytest
from support.lab_page import PATIENCE


def test_strategies_are_compared_on_this_prompt(page):
    names = [page.panels["catalog"]["current"], "Autoregressive"]
    page.hear()
    page.ask(do="compare", names=names)
    page.lab.wait(PATIENCE)
    page.hear()
    assert page.status["busy"] == ""
    mine, plain = page.panels["compared"]["rows"]
    assert [mine["name"], plain["name"]] == names
    assert plain["tokens_per_iteration"] == pytest.approx(1)
    assert mine["tokens"] == 120
    assert mine["differs_at"] is plain["differs_at"] is None
    page.do("compare", names=[])
    assert page.error["where"] == "compare"
    assert page.panels["compared"]["rows"], "the former comparison stays"
