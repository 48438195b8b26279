"""How fast a strategy should decode here, by passes that take these seconds."""

from __future__ import annotations

import pytest

import speclab
from speclab.drafters import cost
from speclab.features.pace import pace


@pytest.fixture
def passes(monkeypatch, pair):
    """Passes of the target that take one second and so much for each row; those of the draft take none."""

    def take(a_row):
        seconds = {id(pair.target.model): tuple(1.0 + a_row * rows for rows in cost.ROWS)}
        free = (0.0,) * len(cost.ROWS)
        monkeypatch.setattr(cost, "pass_seconds", lambda one: seconds.get(id(one.model), free))
        monkeypatch.setattr(cost, "is_timed", lambda _: True)

    return take


def test_many_rows_pay_where_they_are_free_and_not_where_each_costs_a_pass(passes, pair):
    strategy = speclab.FixedTree()  # 63 nodes
    passes(0.0)
    assert pace(strategy, pair) == pytest.approx(cost.expected_tokens()[62])
    passes(1.0)
    assert pace(strategy, pair) < 0.2
    assert pace(strategy.changed(depth=1), pair) > pace(strategy, pair)  # three nodes


def test_a_strategy_without_a_budget_of_nodes_has_none(passes, pair):
    passes(1.0)
    assert pace(speclab.PromptLookup(), pair) is None


def test_nothing_is_timed_while_a_person_waits(monkeypatch, pair):
    monkeypatch.setattr(cost, "_measure", lambda *_: pytest.fail("passes are timed"))
    assert pace(speclab.DynaTree(), pair.fresh()) is None


def test_trees_that_were_accepted_count(passes, pair):
    passes(0.1)
    strategy = speclab.DynaTree(node_budget=9)
    fresh = pair.fresh()
    before = pace(strategy, fresh)
    chain = speclab.DraftTree.of(range(9), range(-1, 8), [0.0] + [-0.1] * 8, "drawn")
    for _ in range(200):
        cost.observe(strategy, fresh, chain, range(9), 1.9)
    assert pace(strategy, fresh) > before


def test_the_form_says_before_it_is_applied_what_should_be_slower(passes, page):
    passes(1.0)
    page.do("want", strategy={"name": "FixedTree", "settings": {}})
    assert page.panels["pace"]["strategy"] == "FixedTree"
    assert 0 < page.panels["pace"]["times"] < 1
    page.do("step")
    assert not page.panels["pace"].get("strategy"), "it was applied"
    passes(0.0)
    page.do("want", strategy={"name": "DynaTree", "settings": {"node_budget": 16}})
    assert not page.panels["pace"].get("strategy"), "it pays"
