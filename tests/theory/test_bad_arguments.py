"""Arguments out of their range are refused in one sentence that names them."""

from __future__ import annotations

import math

import pytest

from speclab import theory
from speclab.errors import SettingsError
from speclab.tree import DraftTree

ROOT, PAIR = DraftTree.root(0), DraftTree.of([0, 1, 2], [-1, 0, 0], [0.0] * 3, "random")
BAD = [
    ("chain_yield", (1.1, 3), "acceptance"),
    ("chain_yield", (0.5, -1), "length"),
    ("chain_yield", (math.nan, 3), "acceptance"),
    ("isotropic_yield", (-0.1, 3, 3), "acceptance"),
    ("isotropic_yield", (0.5, 0, 3), "branching"),
    ("isotropic_yield", (0.5, 2.5, 3), "branching"),
    ("best_isotropic", (0.5, 0), "node_budget"),
    ("spine_yield", (1.5, 0.1, [1], 6), "spine_acceptance"),
    ("spine_yield", (0.5, -1, [1], 6), "branch_acceptance"),
    ("spine_yield", (0.5, 0.1, [1, -1], 6), r"widths\.1"),
    ("spine_yield", (0.5, 0.1, [math.nan], 6), r"widths\.0"),
    ("spine_yield", (0.5, 0.1, [[1, 2]], 6), "widths"),
    ("spine_yield", (0.5, 0.1, ["x"], 6), "widths"),
    ("spine_yield", (0.5, 0.1, [1], 0), "branch_depth"),
    ("optimal_widths", (0.5, 0.1, 0, 6), "spine_length"),
    ("optimal_widths", (0.5, 0.1, 3, -1), "branch_budget"),
    ("optimal_widths", (0.5, 0.1, 3, math.inf), "branch_budget"),
    ("best_spine", (0.5, 0.1, 0, 6), "node_budget"),
    ("dominance_gap", (0.5, 1.1, 60), "branch_acceptance"),
    ("tree_yield", (ROOT, [0.5, 1.5]), r"rank_acceptance\.1"),
    ("tree_yield", (ROOT, []), "rank_acceptance"),
    ("tree_yield", (PAIR, [0.5]), "rank_acceptance has 1 rates: give one for each"),
    ("sequoia_shape", ([0.5], -1, 3), "node_budget"),
    ("sequoia_shape", ([0.5], 3, -1), "depth"),
    ("sequoia_shape", ([-0.5], 3, 3), "rank_acceptance"),
]


@pytest.mark.parametrize(("name", "arguments", "said"), BAD)
def test_bad_input_is_refused_in_one_sentence(name, arguments, said):
    with pytest.raises(SettingsError, match=said) as caught:
        getattr(theory, name)(*arguments)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_by_name_too():
    with pytest.raises(SettingsError, match="best_spine: nodes_per_branch must be greater than or equal to 1"):
        theory.best_spine(0.5, 0.1, 60, 6, nodes_per_branch=0)
