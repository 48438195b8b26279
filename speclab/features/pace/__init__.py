"""How fast a strategy should decode here, said before it does.

pace(FixedTree(), pair)  # 0.5: half as fast as plain decoding
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.drafters import cost
from speclab.drafters.grow import GrownStrategy

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.pair import ModelPair


def pace(strategy: Strategy, pair: ModelPair) -> float | None:
    """Modelled tokens per second, as a multiple of plain decoding's on this machine.

    The tokens are those of the strategy's last trees on this pair, or expected ones; the seconds
    are those of measured passes of as many rows as its trees have at most (not in the papers).

    Returns:
        None if the strategy's trees have no budget of nodes, or a pass would have to be timed first,
        which takes seconds (`node_budget="auto"` does, when a text begins).
    """
    if not hasattr(strategy, "node_budget"):
        return None
    if not cost.is_timed(pair.target):
        return None
    drafts = cost.drafting(strategy, pair)
    if not all(map(cost.is_timed, drafts)):
        return None
    settled = cost.with_node_budget(strategy, pair)
    nodes = min(settled.node_budget, _nodes_of_shape(settled), cost.MOST)
    tokens = float(cost.yields(type(strategy).__name__, pair).tokens()[nodes - 1])
    plain = cost.seconds(pair.target, 1)
    return tokens * plain / cost.iteration_seconds(strategy, pair, drafts, nodes)


def _nodes_of_shape(strategy: Strategy) -> int:
    """Nodes of a tree that is full down to its last level; no bound for a strategy without a shape."""
    if not isinstance(strategy, GrownStrategy):
        return cost.MOST
    shape = strategy.shape()
    nodes = 1
    level = 1
    for _ in range(shape.max_depth):
        level *= max(shape.branches)
        nodes += level
        if nodes >= cost.MOST:
            break
    return nodes
