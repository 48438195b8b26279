"""How far a spine tree is ahead of an isotropic tree of the same budget."""

from __future__ import annotations

from speclab.theory.spine import best_spine
from speclab.theory.yields import best_isotropic


def dominance_gap(
    spine_acceptance: float,
    branch_acceptance: float,
    node_budget: int,
    branch_depth: int = 6,
    *,
    nodes_per_branch: float = 1.0,
) -> float:
    """Tokens that the best spine tree yields above the best isotropic tree of p_t with the same budget.

    GOOSE, Proposition 3: above 0 whenever p_s > p_t, growing with p_s − p_t (p_t fixed), vanishing with it.
    Measured here on the yield of Proposition 1 with D = 6, for p_s > p_t on a grid of 0.05 (171 pairs):

    - Negative for 0 pairs at N = 60, 4 at 120, 16 at 250, 46 at 1,000. No spine tree passes
      1 + p_s / (1 − p_s) + (1 + E), while the isotropic yield grows with N without end: for any p_s < 1 and p_t > 0
      some budget turns the gap. We found the first at N = 72, p_t = 0.20, p_s = 0.201: b = 8 with 2 levels is ahead.
    - It does not vanish: at p_s = p_t and N = 60 it is 0.03 to 3.84. The shapes differ where the rates do not.
    - The extensions of the branches cost no nodes. With every node counted (`nodes_per_branch=branch_depth`) the gap
      is negative for 28 pairs at N = 60, low rates such as p_s = 0.3, p_t = 0.05 among them, and −0.51 to 2.35 at
      equal rates; with the best D of 1…6 for each pair it is negative for 2.
    - It grows with p_s on that grid for N = 10 to 1,000, but not everywhere for N = 2 and 5.

    The proof (E.3) takes an isotropic tree, raises one path to p_s, and calls it a tree of Proposition 1; but its
    branches branch, and those do not. That raised tree does beat the isotropic one for every p_s > p_t.

    Args: as for `best_spine`.

    Raises:
        SettingsError: an argument is out of its range.
    """
    spine = best_spine(
        spine_acceptance, branch_acceptance, node_budget, branch_depth, nodes_per_branch=nodes_per_branch
    )
    return spine.expected_tokens - best_isotropic(branch_acceptance, node_budget).expected_tokens
