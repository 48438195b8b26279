"""Candidates drawn from the draft's distribution, which the acceptance rules of SpecInfer, EAGLE-1 and Sequoia ask for.

The distribution is the draft's, warped by temperature, top-k and top-p as the target's is. A drawn candidate stays in
the tree whatever its probability; only whether it is expanded, and how many children it gets, may depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from speclab.drafters.base import Context
from speclab.engine.acceptance import (
    PositionalRng,
    Probabilities,
    Rng,
    RngPurpose,
    draw_independent,
    draw_without_replacement,
)
from speclab.tree import CandidateSampling

Candidates = Literal["top", "independent", "without_replacement"]
CANDIDATES_HELP = (
    "children of a node: the likeliest, as in the paper; or, ours, draws: independent (SpecInfer's rule), or without "
    "replacement (EAGLE-1's and Sequoia's); at temperature 0 the likeliest"
)

_WAYS: dict[Candidates, tuple[CandidateSampling, Callable[[Probabilities, int, Rng], list[int]]]] = {
    "independent": (CandidateSampling.INDEPENDENT, draw_independent),
    "without_replacement": (CandidateSampling.WITHOUT_REPLACEMENT, draw_without_replacement),
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """How the children of one tree are drawn: `pick(distribution, count)` gives their tokens, in the order drawn."""

    sampling: CandidateSampling
    pick: Callable[[Probabilities, int], list[int]]


def drawing(candidates: Candidates, context: Context) -> Drawing | None:
    """The drawing of this iteration's tree; None where its candidates are the likeliest, as always at temperature 0."""
    if candidates == "top" or context.sampling.temperature == 0:
        return None
    sampling, draw = _WAYS[candidates]
    rng = PositionalRng(context.sampling.seed, len(context.tokens) - 1, RngPurpose.DRAFTING)
    return Drawing(sampling, lambda probabilities, count: draw(probabilities, count, rng))
