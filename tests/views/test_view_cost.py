"""The cost curve and the budget chosen from it: measured here, modelled for other machines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn import figures, said
from view_samples import five_nodes, trace, words

from speclab.trace.records import BudgetRecord
from speclab.views import budget_chart, drafter_state

RECORD = BudgetRecord(
    probabilities=(0.8, 0.5, 0.3, 0.1, 0.05, 0.02), verified=5, verified_root=True, extra=0, spent=0.002,
    rows=(1, 2, 4, 8), seconds=(0.004, 0.004, 0.005, 0.012),
)  # fmt: skip
STEP = replace(five_nodes(), budget=RECORD)


def test_this_machine_by_hand():
    here, *others = budget_chart.machines(RECORD)
    assert here.note == "measured"
    assert here.seconds.tolist() == pytest.approx([0.004, 0.004, 0.0045, 0.005, 0.00675, 0.0085, 0.01025])
    assert (here.rate[1], here.rate[3]) == pytest.approx((1.8 / 0.006, 2.6 / 0.007))
    assert here.best == 4
    assert all(other.note.startswith("modelled") for other in others)
    assert all(other.seconds[0] == here.seconds[0] for other in others)
    best = {machine.name: machine.best for machine in others}
    assert best["slow CPU"] < best["wide GPU"] == best["memory-bound"] == 7


def test_a_drafted_root_gains_and_extra_rows_cost():
    """Rows that are no candidates are in every pass."""
    here = budget_chart.machines(replace(RECORD, verified_root=False, extra=2))[0]
    assert len(here.rate) == len(RECORD.probabilities)
    assert (here.seconds[0], here.rate[0]) == pytest.approx((0.0045, 1.8 / 0.0065))


@pytest.mark.parametrize("count", [1, 2, 7, 300])
def test_picture_words_and_table_say_what_was_chosen_and_what_is_modelled(count):
    likely = tuple(np.linspace(0.9, 0.001, count).tolist())[: count - 1]
    step = replace(STEP, budget=replace(RECORD, probabilities=likely, verified=1))
    (drawn,) = figures(budget_chart.cost_drawing(step))
    assert "you are here: 1 verified" in said(drawn)
    assert len(drawn["data"][0]["x"]) == count
    assert f"Verified 1 of {count} node" in said(drawn)
    table = words(budget_chart.table(step.budget))
    assert all(name in table for name in ("this machine", "wide GPU", "memory-bound", "slow CPU"))
    assert table.count("modelled") == 3


def test_it_stands_with_the_strategys_decisions_where_costs_decided():
    assert "Verified 5 of 7 nodes" in said(drafter_state.strategy_drawing(replace(trace(1), steps=(STEP,))))
    assert "Budget" not in said(drafter_state.strategy_drawing(replace(trace(1), steps=(five_nodes(),))))
    assert budget_chart.cost_drawing(five_nodes()) == []
