"""Suffix decoding: what followed the text's last tokens before, as a tree by frequency (Oliaro et al.
2024, arXiv 2411.04975).

Every suffix of the text that occurred before, in the text or in other texts, offers a tree of at
most α times its own length; the one with the largest score is verified. The score is the sum of the
path probabilities: how many tokens would be accepted if shares were probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, PathProbability, Strategy
from speclab.drafters.candidates import Candidates
from speclab.drafters.cost import NodeBudget
from speclab.drafters.retrieval import corpus
from speclab.drafters.suffix import SuffixAutomaton, add_frequent
from speclab.trace.records import Event, Value

if TYPE_CHECKING:
    from speclab.pair import ModelPair


EARLIER = "earlier answers"
"""Where a pair keeps what it answered before, indexed, if anything does."""


class SuffixDecoding(Strategy):
    """A tree of what followed the last tokens before, most frequent first; a longer match drafts more."""

    group: ClassVar[str] = "training-free"
    paths: ClassVar[tuple[str, ...]] = ("text",)

    text: str = Field(
        "",
        description="a text file or a folder of them, searched beside the text so far; empty: none",
    )
    longest_match: int = Field(
        32, ge=1, le=64, title="P", description="tokens of the longest match"
    )
    factor: float = Field(
        1.0,
        gt=0,
        le=8,
        title="α",
        description="drafted tokens per token of the match (published: 1 to 4)",
    )
    min_probability: PathProbability = Field(
        0.1, ge=0, lt=1, description="less frequent paths are not drafted (published code)"
    )
    node_budget: NodeBudget = "auto"

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {"vLLM (24 tokens, α = 1)": cls(longest_match=24, node_budget=25)}

    def drafter(self, pair: ModelPair) -> Drafter:
        texts = [pair.shared_state.get(EARLIER, SuffixAutomaton())]
        if self.text:
            texts.append(corpus(pair, self.text))
        return SuffixDrafter(self, texts)


class SuffixDrafter(Drafter):
    settings: SuffixDecoding

    def __init__(self, settings: SuffixDecoding, texts: Sequence[SuffixAutomaton]) -> None:
        super().__init__(settings)
        # a match and the deepest path below it
        self._own = SuffixAutomaton(int(settings.longest_match * (1 + settings.factor)))
        self._texts = texts

    def draft(self, context: Context) -> Draft:
        s = self.settings
        text = context.tokens
        self._own.read(text)
        best = Candidates(text[-1])
        best_score = 0.0
        values: dict[str, Value] = {"by": "suffix", "route": "plain", "match": 0}
        for texts in (self._own, *self._texts):
            source = "retrieved"
            if texts is self._own:
                source = "context"
            state, length = texts.match(text[-s.longest_match :])
            # the longest match, then every shorter one that occurs more often: its score is at most
            # its number of tokens
            while state.link and best_score < (most := int(s.factor * length)):
                tree = Candidates(text[-1])
                budget = min(s.number_of_nodes, 1 + most)  # MAX_SPEC(p) = α p
                add_frequent(
                    tree, texts, state, budget, context.max_depth, source, s.min_probability
                )
                score = sum(tree.path_prob[1:])
                if score > best_score:
                    best = tree
                    best_score = score
                    values |= {"route": source, "match": length, "score": score}
                    values |= {"occurrences": texts.followed(state)}
                state = state.link
                length = state.length
        return best.draft([Event("route", None, values)])
