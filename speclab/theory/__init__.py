"""Expected yields and best shapes of draft trees from acceptance rates alone: the papers' formulas, as pure functions.

An *expected yield* is the mean number of tokens that one verification pass commits, the bonus token included:
plain decoding has 1. Every function counts nodes as the papers do, drafted nodes only: the root is free. Arguments are
checked against their annotations; one out of its range raises a `SettingsError` that names it.
"""

from __future__ import annotations

from speclab.theory.sequoia import TreeShape, sequoia_shape
from speclab.theory.yields import (
    IsotropicShape,
    SpineShape,
    best_isotropic,
    best_spine,
    chain_yield,
    dominance_gap,
    isotropic_yield,
    optimal_widths,
    spine_yield,
    tree_yield,
)

__all__ = [
    "IsotropicShape",
    "SpineShape",
    "TreeShape",
    "best_isotropic",
    "best_spine",
    "chain_yield",
    "dominance_gap",
    "isotropic_yield",
    "optimal_widths",
    "sequoia_shape",
    "spine_yield",
    "tree_yield",
]
