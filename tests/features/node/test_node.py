"""The distributions after a node."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.view_samples import five_nodes

from speclab import views


def test_target_and_draft_share_their_rows_and_children_are_marked():
    step = five_nodes()
    figure = views.node(step, 1)
    target, draft = figure.data
    assert target.y == draft.y
    ticks = figure.layout.yaxis.ticktext
    (chosen,) = [place for place, tick in enumerate(ticks) if "★ chosen" in tick]
    assert "node 3 ●" in ticks[chosen]
    assert (target.x[chosen], draft.x[chosen]) == (step.nodes[1].choice_prob, pytest.approx(0.7))
    assert target.customdata[chosen] == 3


def test_what_a_plain_run_gives_stands_beside_them():
    step = replace(five_nodes(), plain=(((1, 0.5), (8, 0.25)),) * 5)
    assert len(views.node(step, 2).data) == 3
