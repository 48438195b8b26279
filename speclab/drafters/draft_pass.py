"""Passes of a draft model or draft head over one growing tree, with a cache that persists between iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from speclab.drafters.base import Context, Drafter, Outcome, Strategy, TopK, lacks_head, paired
from speclab.errors import NoDraftError
from speclab.tree import CandidateSampling, Floats

if TYPE_CHECKING:
    from speclab.models.answer import Answer
    from speclab.models.source import Columns, DraftSource
    from speclab.pair import ModelPair

DRAFT = "draft"
"""The source of a draft model's nodes; a head's nodes have the head's name."""
TOP_K = 8
"""Fewest most-probable next tokens kept per expanded node."""

Head = Annotated[
    int | None,
    Field(
        ge=0,
        le=15,
        description="which of the pair's draft heads drafts, counted from 0; none: the draft model, or head 0 if the "
        "pair has no draft model",
    ),
]
Candidates = Annotated[
    Literal["top", "independent", "without_replacement"],
    Field(
        description="children of a node: the most probable tokens, as in the paper; or (not in the paper) samples: "
        "independent (SpecInfer's rule), or without replacement (EAGLE-1's and Sequoia's); at temperature 0 the most "
        "probable"
    ),
]


class DraftPass:
    """Next tokens after the nodes of one growing tree, one pass per level. First call it with node
    0, or call `root`.

    A row sees the committed text and its ancestors; the first pass also runs committed tokens that
    the cache lacks.

    `width`: most probable next tokens per node. `candidates`: how children are chosen; samples come
    from the draft's distribution `draft_probs` (by node, `[V]` float64), with the target's
    temperature, top-k and top-p (SpecInfer, EAGLE-1 and Sequoia need that), and `draw` draws them.
    """

    def __init__(
        self,
        source: DraftSource,
        context: Context,
        width: int,
        candidates: Candidates = "top",
    ) -> None:
        self.sampling = CandidateSampling.DETERMINISTIC
        self.draft_probs: dict[int, Floats] = {}
        self.context = context
        self._source = source
        self._width = max(width, TOP_K)
        self._wanted = self._width
        self._begun = False
        if candidates != "top" and context.sampling.temperature > 0:
            from speclab.sampling import PositionalRng, RngPurpose  # imports torch

            self.sampling = CandidateSampling[candidates.upper()]
            self._wanted = 0  # samples come from whole rows
            self._rng = PositionalRng(
                context.sampling.seed, len(context.tokens) - 1, RngPurpose.DRAFTING
            )

    def root(self) -> TopK:
        """Next tokens after the committed text: candidates for a drafted root."""
        return self._top([-1], self._text(-1))[0]

    def __call__(self, tree: Columns, nodes: Sequence[int]) -> list[TopK]:
        """Next tokens after each of `nodes`, best first, in one pass; their parents ran before.

        Nothing follows nodes below the reach of the draft, or where a context ends.
        """
        self.context.check()
        room = self.context.max_depth
        if not self._begun and room > 0:
            return self._top([0], self._text(0))  # node 0 is the newest committed token
        if self._source.reach is not None:
            room = min(room, self._source.reach)
        runnable = [node for node in nodes if _depth(tree, node) < room]
        if not runnable:
            return [()] * len(nodes)
        answer = self._source.after_nodes(tree, runnable, self._wanted)
        tops = dict(zip(runnable, self._top(runnable, answer), strict=True))
        return [tops.get(node, ()) for node in nodes]

    def keep(self, path: Sequence[int]) -> None:
        """Brings the cache to the committed text; `path`: the committed nodes, from the root down."""
        if self._begun:
            self._source.keep_path(path)
        else:
            self._source.crop(self._source.length)

    def _text(self, node: int) -> Answer:
        """Runs the committed tokens that the cache lacks; the last is `node`, or -1 before a drafted root."""
        self._begun = True
        return self._source.after_text(self.context.tokens, self._wanted, node)

    def marginals(self) -> list[TopK]:
        """Of a block head: the most probable tokens at depths 1, 2, … below the newest token of the text."""
        if self.context.max_depth <= 0:
            return []
        self._text(0)
        depths = range(self._source.reach or 0)
        return self._top(depths, self._source.at_depths(depths, None, self._wanted))

    def at_depths(self, depths: Sequence[int], tokens: Sequence[int]) -> list[TopK]:
        """Of a block head: next tokens after `tokens` at these depths, on any path."""
        answer = self._source.at_depths(depths, tokens, self._wanted)
        return self._top(range(len(tokens)), answer)

    def draw(self, node: int, count: int) -> TopK:
        """Samples of the next token after a node, in the order drawn, with their log-probabilities."""
        from speclab.sampling import draw_independent, draw_without_replacement

        probs = self.draft_probs[node]
        if self.sampling is CandidateSampling.WITHOUT_REPLACEMENT:
            tokens = draw_without_replacement(probs, count, self._rng)
        else:
            tokens = draw_independent(probs, count, self._rng)
        return tuple((token, log(probs[token])) for token in tokens)

    def _top(self, nodes: Sequence[int], answer: Answer) -> list[TopK]:
        if self._wanted:  # the pass has found them
            tokens, log_probs = answer.topk(self._width)
            return paired(tokens, log_probs)
        from speclab.sampling import transform

        probs = transform(answer.logits, self.context.sampling).cpu()
        self.draft_probs.update(zip(nodes, probs.numpy(), strict=True))
        best = probs.topk(min(self._width, probs.shape[-1]))
        tops = []
        for top in paired(best.indices.numpy(), best.values.numpy()):
            tops.append(tuple([(token, log(prob)) for token, prob in top if prob > 0]))
        return tops


class DraftPassDrafter(Drafter):
    """A drafter that runs a draft model, or a draft head on its target; subclasses implement
    `draft`.

    `begin` starts the passes of a tree. If `Draft.tree` numbers its nodes differently from the
    passes, `draft` sets `numbers`: for each node of the tree, its number in the passes.

    `head`: which of the pair's heads; None: the draft model, or the first head if there is none.

    Raises:
        NoDraftError: the pair has no such head, or neither draft nor heads.
    """

    def __init__(self, settings: Strategy, pair: ModelPair, head: int | None = None) -> None:
        super().__init__(settings)
        if sentence := lacks_head(settings, pair.offer, head):
            raise NoDraftError(sentence)
        source: DraftSource
        if head is None and pair.draft is not None:
            source = pair.draft
            self.source = DRAFT
        else:
            source = pair.heads[head or 0]
            self.source = pair.head_names[head or 0]
        self.runners = (source,)
        self.numbers: Sequence[int] | None = None
        self._passes: DraftPass | None = None
        pair.target.watch(source.layers)

    def begin(self, context: Context, width: int, candidates: Candidates = "top") -> DraftPass:
        """Starts the passes of a new tree; arguments as in `DraftPass`.

        Their context ends where the draft's own does: its `max_depth` is then smaller than the
        target's, and below 0 if a drafted root does not fit.
        """
        longest = self.runners[0].context
        if longest is not None:
            room = longest - len(context.tokens)  # node 0 has position len(tokens) - 1
            if self.root == "drafted":
                room -= 1  # its position is the next one
            context = replace(context, max_depth=min(context.max_depth, room))
        self._passes = DraftPass(self.runners[0], context, width, candidates)
        self.numbers = None
        return self._passes

    def commit(self, outcome: Outcome) -> None:
        """Keeps the rows of the committed path; with `rebuild`, empties the cache."""
        if self.rebuild:
            self.runners[0].crop(0)
        elif self._passes is not None:
            path = outcome.path[: len(outcome.committed)]
            if self.numbers is not None:
                path = tuple([self.numbers[node] for node in path])
            self._passes.keep(path)


def _depth(tree: Columns, node: int) -> int:
    """By the parents: a strategy of the user's may keep no column of depths."""
    depth = 0
    while (node := tree.parent[node]) >= 0:
        depth += 1
    return depth
