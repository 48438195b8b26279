"""Strategies in many shapes, for tests that hold whatever the strategy."""

from __future__ import annotations

import speclab
from speclab.drafters.base import Strategy

VARIANTS: dict[str, Strategy] = {
    "plain": speclab.Autoregressive(),
    "chain": speclab.LinearSpeculation(draft_tokens=4),
    "chain with a stop": speclab.LinearSpeculation(draft_tokens=8, confidence_stop=0.5),
    "fixed tree": speclab.FixedTree(depth=3, branching=2),
    "dynatree": speclab.DynaTree(),
    "wide dynatree": speclab.DynaTree(
        low_confidence=0.9, high_confidence=0.99, stop_probability=0.0, prune_probability=0.0, node_budget=24
    ),
    "pruned dynatree": speclab.DynaTree(low_confidence=0.9, high_confidence=0.99, prune_probability=0.15),
    "dynatree as in the paper": speclab.DynaTree(root="drafted", commit="rebuild", drafting="node"),
}
