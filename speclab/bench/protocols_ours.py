"""Protocols that no paper has: every way at once, what each idea of the procedure is worth; and routing's."""

from __future__ import annotations

from speclab.bench import contenders as ways
from speclab.bench.contenders import ours
from speclab.bench.protocols import Protocol
from speclab.drafters.dual_draft import DualDraft
from speclab.drafters.dynatree import DynaTree

MAIN = Protocol(
    name="main",
    title="Every strategy, and transformers' own decoding",
    source="ours",
    contenders=(
        ways.PLAIN, ways.PLAIN_BY_MODULE,
        ways.LINEAR_5, ways.LINEAR_LONG, ways.FIXED_5_2, ways.FIXED_8_3,
        ways.DYNATREE, ways.DYNATREE_UNSURE, ways.DYNATREE_SMALL,
        ways.EAGLE_TREE, ways.EAGLE_SMALL,
        ways.LOOKUP, ways.RECYCLING, ways.RECYCLING_SMALL, ways.GOOSE, ways.GOOSE_SMALL, ways.ISOTROPIC_3,
        ways.SEQUOIA, ways.RETRIEVAL, ways.LOOKAHEAD,
        ways.LINEAR_PAYS, ways.FIXED_PAYS, ways.DYNATREE_PAYS, ways.RECYCLING_PAYS, ways.GOOSE_PAYS,
        *ways.PEERS,
    ),
)  # fmt: skip

PROCEDURE = Protocol(
    name="procedure",
    title="DynaTree step by step from the paper's procedure to ours: what each idea is worth",
    source="ours",
    contenders=(
        ways.PLAIN,
        ways.PAPERS_PROCEDURE,
        ours("+ a level a pass", DynaTree(root="drafted", commit="rebuild", history_statistic="nodes")),
        ours("+ entries gathered", DynaTree(root="drafted", history_statistic="nodes")),
        ours("+ the target's own root", DynaTree(history_statistic="nodes")),
        ours("+ history by the longest path (ours)", DynaTree()),
    ),
)

ROUTING = Protocol(
    name="dual-draft-routing",
    title="Routing between two draft heads against either head, and both trees as one",
    source="Dual-Draft Routing, sections 5, 9 and 10",
    contenders=(
        ways.PLAIN,
        ours("first head", DualDraft(mode="first")),
        ours("second head", DualDraft(mode="second")),
        ours("routing", DualDraft()),
        ours("routing that remembers", DualDraft(confidence="recent")),
        ours("both trees as one", DualDraft(mode="merge")),
    ),
    recorded=True,
)

PROTOCOLS = (MAIN, PROCEDURE, ROUTING)
