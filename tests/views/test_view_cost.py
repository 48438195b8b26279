from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from picture import HTML, check_svg, parse, texts
from view_samples import drafted_root, five_nodes, trace

from speclab.trace.records import BudgetRecord
from speclab.views import budget_chart, drafter_state

RECORD = BudgetRecord(
    probabilities=(0.8, 0.5, 0.3, 0.1, 0.05, 0.02),
    verified=5,
    verified_root=True,
    extra=0,
    spent=0.002,
    rows=(1, 2, 4, 8),
    seconds=(0.004, 0.004, 0.005, 0.012),
)
STEP = replace(five_nodes(), budget=RECORD)


def test_this_machine_by_hand():
    here, *others = budget_chart.machines(RECORD)
    assert here.note == "measured"
    assert here.seconds.tolist() == pytest.approx([0.004, 0.004, 0.0045, 0.005, 0.00675, 0.0085, 0.01025])
    assert here.rate[1] == pytest.approx(1.8 / 0.006)
    assert here.rate[3] == pytest.approx(2.6 / 0.007)
    assert here.best == 4
    assert all(other.note.startswith("modelled") for other in others)
    assert all(other.seconds[0] == here.seconds[0] for other in others)
    best = {machine.name: machine.best for machine in others}
    assert best["memory-bound"] == 7
    assert best["slow CPU"] < best["wide GPU"] == 7


def test_a_drafted_root_gains_and_extra_rows_cost():
    """Rows that are no candidates are in every pass."""
    record = replace(RECORD, verified_root=False, extra=2)
    here = budget_chart.machines(record)[0]
    assert len(here.rate) == len(record.probabilities)
    assert here.seconds[0] == pytest.approx(0.0045)
    assert here.rate[0] == pytest.approx(1.8 / 0.0065)


def test_the_picture_says_what_was_chosen():
    root = check_svg(budget_chart.cost_svg(STEP))
    assert "5 verified" in texts(root)
    assert root[0].get("aria-label") == budget_chart.summary(STEP)
    assert "Verified 5 of 7 nodes" in budget_chart.summary(STEP)
    rings = [element for element in root.iter() if element.tag.endswith("circle")]
    assert len(rings) == len(RECORD.rows) + 2


def test_the_table_calls_other_machines_modelled():
    found = "".join(parse(budget_chart.table(STEP), HTML).itertext())
    for name in ("this machine", "wide GPU", "memory-bound", "slow CPU"):
        assert name in found
    assert found.count("modelled") == 3


def test_large_trees_and_small_ones_fit():
    for count in (1, 2, 300):
        likely = tuple(np.linspace(0.9, 0.001, count).tolist())[: count - 1]
        step = replace(five_nodes(), budget=replace(RECORD, probabilities=likely, verified=1))
        root = check_svg(budget_chart.cost_svg(step))
        assert "1 verified" in texts(root)


def test_without_a_choice_it_says_so():
    assert budget_chart.table(five_nodes()) == ""
    assert "budget='auto'" in budget_chart.summary(five_nodes())
    check_svg(budget_chart.cost_svg(drafted_root()))
    parse(budget_chart.cost_html(five_nodes()), HTML)


def test_it_stands_with_the_strategys_decisions():
    made = replace(trace(1), steps=(STEP,))
    assert "Verified 5 of 7 nodes" in drafter_state.strategy_html(made)
    plain = replace(trace(1), steps=(five_nodes(),))
    assert "Budget" not in drafter_state.strategy_html(plain)
