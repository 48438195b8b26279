"""Graft: a confident draft's small tree, filled up with tokens that the text and the target gave before.

"Draft Less, Retrieve More: Hybrid Tree Construction for Speculative Decoding" (2026, arXiv
2605.20104): pruning a draft's tree by its confidence frees nodes, and retrieved tokens take their
places. Here DynaTree's rules grow and stop the draft; copies of the text and transitions, the two
sources of GOOSE, go on where they stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from speclab.drafters.base import Context, Depth, Draft, Drafter, Outcome, PathProbability, Strategy
from speclab.drafters.candidates import Candidates, followed
from speclab.drafters.cost import NodeBudget
from speclab.drafters.draft_pass import Head
from speclab.drafters.dynatree import DynaTree
from speclab.drafters.grow import GrownDrafter
from speclab.drafters.suffix import SuffixAutomaton
from speclab.drafters.transitions import TableDrafter

if TYPE_CHECKING:
    from speclab.pair import ModelPair

LONGEST = 16  # tokens of the longest match that is copied
WIDTH = 8  # transitions of a token


class Graft(Strategy):
    """DynaTree's rules grow the draft's part of the tree; copies and transitions fill the rest of the node budget."""

    group: ClassVar[str] = "papers"

    node_budget: NodeBudget = "auto"
    stop_probability: PathProbability = Field(
        default=0.1, ge=0, lt=1, title="ρ_stop", description="the draft stops at less likely paths"
    )
    max_depth: Depth = Field(
        default=8, ge=1, le=64, title="D_max", description="maximum depth of the draft's paths"
    )
    max_branches: int = Field(
        default=3, ge=1, le=16, title="B_max", description="children if the draft is unsure"
    )
    head: Head = None

    @property
    def needs_draft(self) -> bool:
        return True

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {"a chain, then copies (llama.cpp)": cls(max_branches=1)}

    def drafter(self, pair: ModelPair) -> Drafter:
        return GraftDrafter(self, pair)


class GraftDrafter(TableDrafter):
    settings: Graft

    def __init__(self, settings: Graft, pair: ModelPair) -> None:
        super().__init__(settings, pair, WIDTH, pairs=True)
        values = settings.model_dump(exclude={"head"})
        # one gate for paths of any depth: what it cuts off is what the other sources fill
        rules = DynaTree(**values, base_depth=1, deep_probability=settings.stop_probability)
        self._grown = GrownDrafter(rules, pair, settings.head)
        self._text = SuffixAutomaton(LONGEST + 1)
        self.runners = self._grown.runners

    def draft(self, context: Context) -> Draft:
        drafted = self._grown.draft(context)
        self._part = drafted.tree
        tree = self.rooted(context)
        tree.merge(drafted, self._grown.source)
        self._graft(tree, context)
        return tree.draft(drafted.events)

    def commit(self, outcome: Outcome) -> None:
        """The draft ran no grafted node: it reads these tokens with the next text."""
        self._grown.commit(followed(outcome, self._part))

    def _graft(self, tree: Candidates, context: Context) -> None:
        """Adds the most probable of all tokens that may follow a leaf, until the tree is full."""
        self._text.read(context.tokens)
        phrases = [list(context.tokens[-LONGEST:])]  # what ends in each node
        waiting: list[tuple[float, int, int, int, float, str]] = []
        age = count()
        node = 0
        while len(tree) < self.settings.number_of_nodes:
            # leaves of the draft, then each grafted node: all may go on
            for new in range(node, len(tree)):
                if new:
                    phrases.append([*phrases[tree.parent[new]], tree.token[new]][-LONGEST:])
                if tree.children[new] or tree.depth[new] >= context.max_depth:
                    continue
                for token, prob, source in self._followers(tree, new, phrases[new]):
                    path_prob = tree.path_prob[new] * prob
                    heappush(waiting, (-path_prob, next(age), new, token, prob, source))
            node = len(tree)
            if not waiting:
                break
            _, _, parent, token, prob, source = heappop(waiting)
            tree.add(parent, token, prob, source)  # nothing, if the other source gave it before

    def _followers(
        self, tree: Candidates, node: int, phrase: list[int]
    ) -> Iterator[tuple[int, float, str]]:
        """Tokens that may follow a node, with their probabilities and sources."""
        state, length = self._text.match(phrase)
        # a longer match is more likely to go on as it did (not in the paper); if it does not,
        # a transition follows, as in GOOSE
        trust = length / (length + 2)
        if length:
            for token, _, share in self._text.continuations(state):
                yield token, trust * share, "context"
        for token, prob in self.successors(tree, node, 1.0 - trust).by_token().items():
            yield token, prob, "transition"
