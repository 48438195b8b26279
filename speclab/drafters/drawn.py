"""Candidates drawn from the draft's law, which the acceptance rules of SpecInfer, EAGLE-1 and Sequoia ask for.

The law is the draft's, warped by temperature, top-k and top-p as the target's is. A drawn candidate stays in the tree
whatever its probability; only whether it is expanded, and how many children it gets, may depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from speclab.drafters.base import Context
from speclab.engine.acceptance import Chance, Probabilities, Stream, Use, draw_independent, draw_without_replacement
from speclab.tree import Law

Candidates = Literal["top", "independent", "without_replacement"]
CANDIDATES_HELP = (
    "children of a node: the likeliest, as in the paper; or, ours, draws: independent (SpecInfer's rule), or without "
    "replacement (EAGLE-1's and Sequoia's); at temperature 0 the likeliest"
)

_WAYS: dict[Candidates, tuple[Law, Callable[[Probabilities, int, Chance], list[int]]]] = {
    "independent": (Law.INDEPENDENT, draw_independent),
    "without_replacement": (Law.WITHOUT_REPLACEMENT, draw_without_replacement),
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """How the children of one tree are drawn: `pick(law, count)` gives their tokens, in the order drawn."""

    law: Law
    pick: Callable[[Probabilities, int], list[int]]


def drawing(candidates: Candidates, context: Context) -> Drawing | None:
    """The drawing of this iteration's tree; None where its candidates are the likeliest, as always at temperature 0."""
    if candidates == "top" or context.sampling.temperature == 0:
        return None
    law, draw = _WAYS[candidates]
    noise = Stream(context.sampling.seed, len(context.tokens) - 1, Use.DRAFTING)
    return Drawing(law, lambda probabilities, count: draw(probabilities, count, noise))
