"""Named ways to decode that are measured against each other: strategies of ours, and transformers' own `generate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from speclab.bench.result import Group
from speclab.drafters import Strategy
from speclab.drafters.chain import Autoregressive, LinearSpeculation
from speclab.drafters.draft_head import DraftHead
from speclab.drafters.dynatree import DynaTree
from speclab.drafters.fixed_tree import FixedTree
from speclab.drafters.goose import Goose
from speclab.drafters.isotropic import IsotropicTree
from speclab.drafters.lookahead import Lookahead
from speclab.drafters.prompt_lookup import PromptLookup
from speclab.drafters.retrieval import Retrieval
from speclab.drafters.sequoia import SequoiaTree
from speclab.drafters.token_recycling import TokenRecycling

DRAFT = "the pair's draft"
"""Stands for the draft's module in the arguments of a peer."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A named way to decode.

    Args:
        name: what tables call it.
        strategy: ours; None for transformers' own `generate`.
        arguments: for `generate` beside the greedy ones; `DRAFT` becomes the draft's module.
        by_module: our passes go through the module, not through a lean forward.
        x, x2: swept values that it stands for.
    """

    name: str
    strategy: Strategy | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    by_module: bool = False
    x: float | None = None
    x2: float | None = None

    @property
    def group(self) -> Group:
        """Whose it is."""
        return "transformers" if self.strategy is None else "ours"

    @property
    def settings(self) -> dict[str, Any]:
        """All that tells it from others, for records."""
        if self.strategy is None:
            return {"strategy": "generate", "do_sample": False, **self.arguments}
        through = {"passes": "module"} if self.by_module else {}
        return {"strategy": type(self.strategy).__name__, **self.strategy.model_dump(mode="json"), **through}

    def at(self, x: float | None, x2: float | None = None) -> Contender:
        """The same for other swept values."""
        return replace(self, x=x, x2=x2)


def ours(name: str, strategy: Strategy) -> Contender:
    """One of our strategies."""
    return Contender(name, strategy)


PLAIN = ours("plain", Autoregressive())
PLAIN_BY_MODULE = Contender("plain, by the module", Autoregressive(), by_module=True)

LINEAR_5 = ours("linear, K 5", LinearSpeculation())
LINEAR_8 = ours("linear, K 8", LinearSpeculation(draft_tokens=8))
LINEAR_LONG = ours("linear, long while sure", LinearSpeculation(draft_tokens=20, confidence_stop=0.4))
FIXED_5_2 = ours("fixed tree, D 5 B 2", FixedTree())
FIXED_8_3 = ours("fixed tree, D 8 B 3 τ 0.1", FixedTree(depth=8, branching=3, prune_probability=0.1))
DYNATREE = ours("DynaTree", DynaTree())
DYNATREE_UNSURE = ours("DynaTree, for an unsure draft", DynaTree.for_unsure_draft())
DYNATREE_SMALL = ours("DynaTree, unsure, 8 nodes", DynaTree.for_unsure_draft().changed(node_budget=8))
PAPERS_PROCEDURE = ours("DynaTree, paper's procedure", DynaTree.presets()["paper's procedure"])
AUTHORS_CODE = ours("DynaTree, authors' code", DynaTree.authors_code())

LINEAR_PAYS = ours("linear, as long as it pays", LinearSpeculation(draft_tokens=32, budget="auto"))
FIXED_PAYS = ours("fixed tree, D 5 B 2, auto", FixedTree(budget="auto"))
DYNATREE_PAYS = ours("DynaTree, as deep as it pays", DynaTree.cost_aware())
RECYCLING_PAYS = ours("token recycling, auto", TokenRecycling(budget="auto"))
GOOSE_PAYS = ours("Goose, auto", Goose(budget="auto"))

LOOKUP = ours("prompt lookup", PromptLookup())
RECYCLING = ours("token recycling", TokenRecycling())
RECYCLING_SMALL = ours("token recycling, 12 nodes", TokenRecycling(node_budget=13))
LOOKAHEAD = ours("lookahead", Lookahead())
RETRIEVAL = ours("retrieval", Retrieval())
SEQUOIA = ours("Sequoia tree", SequoiaTree())
EAGLE_TREE = ours("draft head, EAGLE-2 tree", DraftHead())
EAGLE_SMALL = ours("draft head, 12 nodes", DraftHead(node_budget=12, depth=5, children=4))
GOOSE = ours("Goose", Goose())
GOOSE_PAPER = ours("Goose, the paper's bypass", Goose(bypass_acceptance=0))
GOOSE_AUTHORS = ours("Goose, authors' code", Goose.of_authors_code())
GOOSE_SMALL = ours("Goose, 12 nodes", Goose(node_budget=12))
ISOTROPIC_3 = ours("isotropic, b 3", IsotropicTree())
ISOTROPIC_TABLE = ours("isotropic, b 3, table alone", IsotropicTree(copies=False))
ISOTROPIC_5 = ours("isotropic, b 5", IsotropicTree(branching=5))

PEER = Contender("transformers, greedy")
PEER_ASSISTED = Contender("transformers, assisted", arguments={"assistant_model": DRAFT})
PEER_LOOKUP = Contender("transformers, prompt lookup", arguments={"prompt_lookup_num_tokens": 10})
PEERS = (PEER, PEER_ASSISTED, PEER_LOOKUP)
