"""A fixed number of nodes against as many as pay here: the same strategies with `budget` "fixed" and "auto"."""

from __future__ import annotations

from collections.abc import Iterator

from speclab.bench import contenders as ways
from speclab.bench.contenders import Contender, ours
from speclab.bench.protocols import Protocol
from speclab.drafters.dual_draft import DualDraft

FIXED = (
    ways.LINEAR_8, ways.FIXED_5_2, ways.DYNATREE, ways.DYNATREE_UNSURE, ways.EAGLE_TREE, ways.EAGLE_SMALL,
    ours("two heads, 12 nodes", DualDraft(node_budget=12, depth=5, children=4)), ways.LOOKUP, ways.RECYCLING,
    ways.RECYCLING_SMALL, ways.GOOSE, ways.ISOTROPIC_3, ways.SEQUOIA,
)  # fmt: skip
"""The small ones have budgets that were tuned for a CPU by hand."""


def _in_pairs() -> Iterator[Contender]:
    for fixed in FIXED:
        assert fixed.strategy is not None
        yield from (fixed, ours(f"{fixed.name}, auto", fixed.strategy.changed(budget="auto")))


BUDGET = Protocol(
    name="budget",
    title="A fixed number of nodes against as many as pay, by the measured cost of a pass",
    source="ours",
    contenders=(ways.PLAIN, *_in_pairs(), ways.LINEAR_PAYS, ways.DYNATREE_PAYS),
    limit=1,
)

PROTOCOLS = (BUDGET,)
