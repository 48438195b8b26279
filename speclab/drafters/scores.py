"""What two trees are compared by: the paper's mean confidence, alone or beside what each part got right lately."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from speclab.tree import DraftTree

FADING = 0.8
"""What an iteration counts for in the next one; ours."""
FIRST = 1.0
"""Tokens that a part is taken to have got right before it has proposed; ours."""
LEAST = 0.25
"""Added to these tokens, so that a part that got none right may be chosen again; ours."""


def confidence(tree: DraftTree) -> float:
    """Mean of exp(cumulative log-probability) over the nodes but the root, 0…1; 0 where there are none.

    Dual-Draft Routing, sections 4 (c) and 5 (mu).
    """
    return float(np.exp(tree.path_log_prob[1:]).mean()) if len(tree) > 1 else 0.0


def weighed(mean: float, recent: float) -> float:
    """A mean confidence times the square of the tokens that the part got right lately (ours).

    The mean of one iteration says more of how hard the text is just there than of which part knows it; what was right
    lately says the latter, so it weighs double.
    """
    return mean * (recent + LEAST) ** 2


def faded(recent: Sequence[float], followed: Sequence[int]) -> tuple[float, ...]:
    """Tokens got right lately, after an iteration in which the text followed each tree so far."""
    return tuple(FADING * old + (1 - FADING) * new for old, new in zip(recent, followed, strict=True))
