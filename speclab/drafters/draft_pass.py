"""Passes of a draft model or draft head over one growing tree, with a cache that persists between iterations."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import numpy as np
from pydantic import Field

from speclab.drafters.base import Context, Drafter, Outcome, Strategy, TopK, lacks_head
from speclab.errors import NoDraftError, NotRecordedError
from speclab.tree import Bools, CandidateSampling, Floats

if TYPE_CHECKING:
    from torch import Tensor

    from speclab.heads.block_head import BlockRunner
    from speclab.heads.runner import HeadRunner
    from speclab.models.answer import Answer
    from speclab.models.runner import Runner
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


class Columns(Protocol):
    """A tree under construction: parents come before their children, and node 0 has the parent -1."""

    @property
    def token(self) -> Sequence[int]: ...
    @property
    def parent(self) -> Sequence[int]: ...
    @property
    def depth(self) -> Sequence[int]: ...


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
        runner: Runner | HeadRunner,
        context: Context,
        width: int,
        candidates: Candidates = "top",
    ) -> None:
        sampled = candidates if context.sampling.temperature > 0 else "top"
        self.sampling = {
            "top": CandidateSampling.DETERMINISTIC,
            "independent": CandidateSampling.INDEPENDENT,
            "without_replacement": CandidateSampling.WITHOUT_REPLACEMENT,
        }[sampled]
        self.draft_probs: dict[int, Floats] = {}
        self.context = context
        self._width = max(width, TOP_K)
        self._wanted = self._width if sampled == "top" else 0
        self._prefix = runner.length
        self._path: dict[int, tuple[int, ...]] = {}
        """For each node that ran: the slots of its ancestors and its own, counted from the prefix."""
        self._begun = False
        if sampled != "top":
            from speclab.sampling import PositionalRng, RngPurpose  # imports torch

            self._rng = PositionalRng(
                context.sampling.seed, len(context.tokens) - 1, RngPurpose.DRAFTING
            )

    def root(self) -> TopK:
        """Next tokens after the committed text: candidates for a drafted root."""
        self._begun = True
        return self._top([-1], self._run_text(-1))[0]

    def __call__(self, tree: Columns, nodes: Sequence[int]) -> list[TopK]:
        """Next tokens after each of `nodes`, best first, in one pass; their parents ran before."""
        self.context.check()
        if self._begun:
            return self._top(nodes, self._run_nodes(tree, nodes))
        self._begun = True
        return self._top([0], self._run_text(0))  # node 0 is the newest committed token

    def draw(self, node: int, count: int) -> TopK:
        """Samples of the next token after a node, in the order drawn, with their log-probabilities."""
        from speclab.sampling import draw_independent, draw_without_replacement

        probs = self.draft_probs[node]
        independent = self.sampling is CandidateSampling.INDEPENDENT
        tokens = (draw_independent if independent else draw_without_replacement)(
            probs, count, self._rng
        )
        return tuple((token, log(probs[token])) for token in tokens)

    def keep(self, path: Sequence[int]) -> None:
        """Brings the cache to the committed text; `path`: the committed nodes, from the root down."""
        raise NotImplementedError

    def _run_text(self, node: int) -> Answer:
        """Runs the committed tokens that the cache lacks; the last is `node`, or -1 before a drafted root."""
        raise NotImplementedError

    def _run_nodes(self, tree: Columns, nodes: Sequence[int]) -> Answer:
        raise NotImplementedError

    def _rows(
        self, tree: Columns, nodes: Sequence[int], length: int
    ) -> tuple[list[int], list[int], Bools]:
        """Tokens, positions, and which slots after the prefix each row sees, `[rows, length - prefix + rows]` bool."""
        start = length - self._prefix
        visible = np.zeros((len(nodes), start + len(nodes)), dtype=np.bool_)
        for row, node in enumerate(nodes):
            self._path[node] = (*self._path.get(tree.parent[node], ()), start + row)
            visible[row, self._path[node]] = True
        positions = [self._prefix + len(self._path[node]) - 1 for node in nodes]
        return [tree.token[node] for node in nodes], positions, visible

    def _top(self, nodes: Sequence[int], answer: Answer) -> list[TopK]:
        if self.sampling is CandidateSampling.DETERMINISTIC:
            ids, log_probs = answer.topk(self._width)
            return [
                tuple(zip(*row, strict=True))
                for row in zip(ids.tolist(), log_probs.tolist(), strict=True)
            ]
        from speclab.sampling import transform

        if answer.rows is None:
            raise NotRecordedError(
                "Its candidates are drawn at random, so acceptance depends on probabilities that "
                "are not recorded."
            )
        probs = transform(answer.rows, self.context.sampling).cpu()
        self.draft_probs.update(zip(nodes, probs.numpy(), strict=True))
        best = probs.topk(min(self._width, probs.shape[-1]), dim=-1)
        rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [
            tuple((token, log(prob)) for token, prob in zip(*row, strict=True) if prob > 0)
            for row in rows
        ]


class ModelPass(DraftPass):
    """Runs a draft model, whose cache contains the committed tokens, then one row per expanded node."""

    def __init__(
        self, runner: Runner, context: Context, width: int, candidates: Candidates = "top"
    ) -> None:
        super().__init__(runner, context, width, candidates)
        self._runner = runner

    def keep(self, path: Sequence[int]) -> None:
        slots = [self._prefix + self._path[node][-1] for node in path if node in self._path]
        self._runner.keep(min(self._prefix, self._runner.length), slots)

    def _run_text(self, node: int) -> Answer:
        tokens = self.context.tokens
        self._prefix = len(tokens) - (node == 0)
        self._path = {0: (0,)} if node == 0 else {}
        return self._runner.logits(tokens[self._runner.length :], topk=self._wanted)

    def _run_nodes(self, tree: Columns, nodes: Sequence[int]) -> Answer:
        return self._runner.logits(*self._rows(tree, nodes, self._runner.length), topk=self._wanted)


class HeadPass(DraftPass):
    """Runs a draft head.

    A node's input is its token and the head's output at its parent; committed positions use the
    target's hidden states.
    """

    def __init__(
        self,
        head: HeadRunner,
        target: Runner,
        context: Context,
        width: int,
        candidates: Candidates = "top",
    ) -> None:
        super().__init__(head, context, width, candidates)
        self._head = head
        self._target = target
        self._feature: dict[int, Tensor] = {}

    def keep(self, path: Sequence[int]) -> None:
        """Drops the whole tree; the next pass runs the committed tokens on the target's hidden states."""
        self._head.crop(self._prefix)

    def _run_text(self, node: int) -> Answer:
        head = self._head
        tokens = self.context.tokens
        last = len(tokens) - 1
        assert self._target.hidden is not None
        # a fork may have the last position, but not its output
        head.crop(min(head.length, last - 1))
        states = self._target.hidden.rows(head.length, last, head.config.layers)
        answer, self._feature[node] = head.extend(tokens[head.length + 1 :], states, self._wanted)
        self._prefix = last
        self._path = {node: ()}
        return answer

    def _run_nodes(self, tree: Columns, nodes: Sequence[int]) -> Answer:
        import torch

        tokens, positions, visible = self._rows(tree, nodes, self._head.length)
        features = torch.stack([self._feature[tree.parent[node]] for node in nodes])
        answer, features = self._head.forward(tokens, features, positions, visible, self._wanted)
        self._feature.update(zip(nodes, features, strict=True))
        return answer


class BlockPass(DraftPass):
    """Runs a block head once for a whole tree: the next tokens of a node are the marginal of its
    depth, whatever its path.
    """

    def __init__(
        self,
        head: BlockRunner,
        target: Runner,
        context: Context,
        width: int,
        candidates: Candidates = "top",
    ) -> None:
        super().__init__(head, context, width, candidates)
        self._head = head
        self._target = target

    def __call__(self, tree: Columns, nodes: Sequence[int]) -> list[TopK]:
        """As of any pass; nothing follows nodes that are as deep as the block is long."""
        known = [
            node for node in nodes if self._first + tree.depth[node] < self._head.config.drafted
        ]
        tops = dict(zip(known, super().__call__(tree, known), strict=True)) if known else {}
        return [tops.get(node, ()) for node in nodes]

    def marginals(self) -> list[TopK]:
        """The most probable tokens at depths 1, 2, … below the newest token of the text."""
        self._run_text(0)
        return self._top(range(len(self._block)), self._block)

    def keep(self, path: Sequence[int]) -> None:
        """Drops the block; the committed positions join the cache in the next pass."""
        self._head.crop(self._prefix)

    _first = 0
    """The row of the block that follows node 0: the second one where node 0 is drafted from the first."""

    def _run_text(self, node: int) -> Answer:
        head = self._head
        tokens = self.context.tokens
        last = len(tokens) - 1
        assert self._target.hidden is not None
        head.crop(min(head.length, last))
        states = self._target.hidden.rows(head.length, last, head.config.layers)
        self._block = head.draft(tokens[last], states, self._wanted)
        self._prefix = last
        self._first = int(node < 0)
        return self._block[:1]

    def _run_nodes(self, tree: Columns, nodes: Sequence[int]) -> Answer:
        return self._block[[self._first + tree.depth[node] for node in nodes]]


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
        from speclab.heads.runner import HeadRunner  # imports torch

        super().__init__(settings)
        runner: Runner | HeadRunner
        if sentence := lacks_head(settings, pair.offer, head):
            raise NoDraftError(sentence)
        if head is None and pair.draft is not None:
            runner = pair.draft
            self.source = DRAFT
        else:
            runner = pair.heads[head or 0]
            self.source = pair.head_names[head or 0]
        self.runners = (runner,)
        self.numbers: Sequence[int] | None = None
        self._target = pair.target
        self._passes: DraftPass | None = None
        if isinstance(runner, HeadRunner):
            self._target.watch(runner.config.layers)

    def begin(self, context: Context, width: int, candidates: Candidates = "top") -> DraftPass:
        """Starts the passes of a new tree; arguments as in `DraftPass`."""
        from speclab.heads.block_head import BlockRunner
        from speclab.heads.runner import HeadRunner

        runner = self.runners[0]
        if isinstance(runner, BlockRunner):
            self._passes = BlockPass(runner, self._target, context, width, candidates)
        elif isinstance(runner, HeadRunner):
            self._passes = HeadPass(runner, self._target, context, width, candidates)
        else:
            self._passes = ModelPass(runner, context, width, candidates)
        self.numbers = None
        return self._passes

    def commit(self, outcome: Outcome) -> None:
        """Keeps the rows of the committed path; with `rebuild`, empties the cache."""
        if self.rebuild:
            self.runners[0].crop(0)
        elif self._passes is not None:
            path = outcome.accepted if self.root == "drafted" else (0, *outcome.accepted)
            path = path[: len(outcome.committed)]
            self._passes.keep(
                path if self.numbers is None else [self.numbers[node] for node in path]
            )
