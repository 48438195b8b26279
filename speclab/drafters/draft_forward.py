"""Forward passes of a draft model or draft head over one growing tree, on a cache that lives on between iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from speclab.drafters.base import Drafter, Outcome, Root, Strategy, TopK
from speclab.errors import NoDraftError, NotRecordedError
from speclab.settings import SessionSettings
from speclab.tree import Bools, Floats

if TYPE_CHECKING:
    from torch import Tensor

    from speclab.models.answer import Answer
    from speclab.models.heads import HeadRunner
    from speclab.models.pair import ModelPair
    from speclab.models.runner import Runner

DRAFT = "draft"
"""What the nodes of a draft model are said to come from; those of a head have its name."""
TOP_K = 8
"""Most probable next tokens kept of every expanded node, at least."""


class Row(NamedTuple):
    """A node whose next tokens are wanted."""

    node: int
    parent: int
    token: int


class DraftForward:
    """Next tokens after the nodes of one growing tree: from a draft model, a draft head, or the record of a step.

    Attributes:
        source: what the nodes of such a tree are said to come from.
        draft_probs: in a tree of sampled candidates the draft's distribution `[V]` float64 by node.
    """

    source = DRAFT
    draft_probs: Mapping[int, Floats] = {}

    def after_root(self, tokens: Sequence[int]) -> TopK:
        """Next tokens after a verified root, which is the last of `tokens` and becomes node 0."""
        raise NotImplementedError

    def after_text(self, tokens: Sequence[int]) -> TopK:
        """Next tokens after all of `tokens`: the candidates for a drafted root."""
        raise NotImplementedError

    def after(self, rows: Sequence[Row]) -> list[TopK]:
        """Next tokens after each row, all rows in one pass; their parents came before."""
        raise NotImplementedError

    def renumber(self, place: Mapping[int, int]) -> None:
        """Takes over the numbers of the finished tree, after pruning; a node without a place was pruned."""

    def keep(self, path: Sequence[int]) -> None:
        """Brings the cache to the committed text: `path` are the committed nodes, from the root down."""


class _RunnerForward(DraftForward):
    """Runs a draft model or head over the nodes of one tree; a row sees the committed text and its own ancestors.

    Args:
        source: what its nodes are said to come from.
        width: most probable next tokens wanted of each node.
        sampling: to warp the draft's distributions as the target's, where candidates are sampled.
    """

    def __init__(
        self, runner: Runner | HeadRunner, source: str, width: int, sampling: SessionSettings | None = None
    ) -> None:
        self.source = source
        self.draft_probs: dict[int, Floats] = {}
        self._sampling, self._width = sampling, max(width, TOP_K)
        self._wanted = self._width if sampling is None else 0
        self._prefix = runner.length
        self._path: dict[int, tuple[int, ...]] = {}

    def after_root(self, tokens: Sequence[int]) -> TopK:
        return self._catch_up(tokens, 0)

    def after_text(self, tokens: Sequence[int]) -> TopK:
        return self._catch_up(tokens, -1)

    def _catch_up(self, tokens: Sequence[int], node: int) -> TopK:
        """Next tokens after all of `tokens`, of which the cache may lack some; the last is node `node`, -1 of none."""
        raise NotImplementedError

    def _tops(self, answer: Answer, nodes: Sequence[int]) -> list[TopK]:
        if self._sampling is None:
            ids, log_probs = answer.topk(self._width)
            return [tuple(zip(*row, strict=True)) for row in zip(ids.tolist(), log_probs.tolist(), strict=True)]
        from speclab.engine.sampling import transform  # brings torch, which settings and records do without

        if answer.rows is None:
            raise NotRecordedError(
                "its candidates are drawn at random, so what is accepted follows from probabilities that are not kept"
            )
        probs = transform(answer.rows, self._sampling).cpu()
        self.draft_probs.update(zip(nodes, probs.numpy(), strict=True))
        best = probs.topk(min(self._width, probs.shape[-1]), dim=-1)
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [tuple((t, log(p)) for t, p in zip(*pair, strict=True) if p > 0) for pair in pairs]


class ModelForward(_RunnerForward):
    """Runs a draft model.

    The cache holds committed tokens first, then one row for every expanded node. Committed tokens that it lacks go in
    with the first pass, so catching up with the target costs no pass of its own.
    """

    def __init__(self, runner: Runner, source: str, width: int, sampling: SessionSettings | None = None) -> None:
        super().__init__(runner, source, width, sampling)
        self._runner = runner

    def after(self, rows: Sequence[Row]) -> list[TopK]:
        visible, positions = _tree_rows(rows, self._path, self._prefix, self._runner.length)
        logits = self._runner.logits([row.token for row in rows], positions, visible, topk=self._wanted)
        return self._tops(logits, [row.node for row in rows])

    def renumber(self, place: Mapping[int, int]) -> None:
        self._path = {place[node]: path for node, path in self._path.items() if node in place}

    def keep(self, path: Sequence[int]) -> None:
        slots = [self._prefix + self._path[node][-1] for node in path if node in self._path]
        self._runner.keep(min(self._prefix, self._runner.length), slots)

    def _catch_up(self, tokens: Sequence[int], node: int) -> TopK:
        self._prefix = len(tokens) - (node == 0)
        self._path = {0: (0,)} if node == 0 else {}
        return self._tops(self._runner.logits(tokens[self._runner.length :], topk=self._wanted), [node])[0]


class HeadForward(_RunnerForward):
    """Runs a draft head.

    A node's input is its token and the head's own output at its parent; committed places are run on the target's hidden
    states, in one pass with the newest token.
    """

    def __init__(
        self, head: HeadRunner, target: Runner, source: str, width: int, sampling: SessionSettings | None = None
    ) -> None:
        super().__init__(head, source, width, sampling)
        self._head, self._target = head, target
        self._feature: dict[int, Tensor] = {}

    def after(self, rows: Sequence[Row]) -> list[TopK]:
        import torch

        visible, positions = _tree_rows(rows, self._path, self._prefix, self._head.length)
        features = torch.stack([self._feature[row.parent] for row in rows])
        tokens, nodes = [row.token for row in rows], [row.node for row in rows]
        logits, features = self._head.forward(tokens, features, positions, visible, self._wanted)
        self._feature.update(zip(nodes, features, strict=True))
        return self._tops(logits, nodes)

    def keep(self, path: Sequence[int]) -> None:
        """Drops the whole tree; the committed tokens are run again on the target's hidden states."""
        self._head.crop(self._prefix)

    def _catch_up(self, tokens: Sequence[int], node: int) -> TopK:
        head, last = self._head, len(tokens) - 1
        assert self._target.hidden is not None
        head.crop(min(head.length, last - 1))  # a fork may hold the last place already, without what came of it
        states = self._target.hidden.rows(head.length, last, head.config.layers)
        logits, feature = head.extend(tokens[head.length + 1 :], states, self._wanted)
        self._prefix, self._path, self._feature = last, {node: ()}, {node: feature}
        return self._tops(logits, [node])[0]


def _tree_rows(
    rows: Sequence[Row], paths: dict[int, tuple[int, ...]], prefix: int, held: int
) -> tuple[Bools, list[int]]:
    """What each row sees behind the prefix, `[rows, held - prefix + rows]` bool, and its position.

    `paths`: for each node its own slot and those of its ancestors, counted from the prefix; the rows' are added.
    """
    start = held - prefix
    visible = np.zeros((len(rows), start + len(rows)), dtype=np.bool_)
    for place, row in enumerate(rows):
        path = (*paths.get(row.parent, ()), start + place)
        paths[row.node] = path
        visible[place, path] = True
    return visible, [prefix + len(paths[row.node]) - 1 for row in rows]


def drafting_runner(pair: ModelPair, head: int | None, name: str, otherwise: str) -> tuple[Runner | HeadRunner, str]:
    """The draft model or head of a pair that a strategy drafts with, and what its nodes are said to come from.

    Args:
        head: which of the pair's heads; None: the draft model, or the first head where there is none.
        otherwise: what to do where there is neither.

    Raises:
        NoDraftError: the pair has no such head, or neither draft nor heads.
    """
    if head is None and pair.draft is not None:
        return pair.draft, DRAFT
    if (place := head or 0) < len(pair.heads):
        return pair.heads[place], pair.head_names[place]
    if pair.heads:
        raise NoDraftError(f"{pair.name} has no draft head {head}: choose one from 0 to {len(pair.heads) - 1}.")
    what, load = "a draft model or a draft head", "draft=… or heads=…"
    if head is not None:
        what, load = f"draft head {head}", "heads=…"
    raise NoDraftError(f"{name} drafts with {what} and {pair.name} has none: load a pair with {load}, or {otherwise}.")


class ForwardDrafter(Drafter):
    """A drafter that runs a draft model, or a draft head on its target; subclasses implement `draft`.

    `head`, `otherwise`: as of `drafting_runner`.
    """

    def __init__(
        self,
        settings: Strategy,
        pair: ModelPair,
        head: int | None = None,
        root: Root = "verified",
        rebuild: bool = False,
        otherwise: str = "take a strategy that needs none",
    ) -> None:
        from speclab.models.heads import HeadRunner  # brings torch, which settings and records do without

        super().__init__(settings)
        self._runner, self._source = drafting_runner(pair, head, type(settings).__name__, otherwise)
        self.root, self.rebuild, self.runners = root, rebuild, (self._runner,)
        self._target = pair.target
        self._forward: DraftForward | None = None
        self._head = self._runner if isinstance(self._runner, HeadRunner) else None
        if self._head is not None:
            self._target.watch(self._head.config.layers)

    def forward(self, width: int, sampling: SessionSettings | None = None) -> DraftForward:
        """The passes of a new tree. `width`, `sampling`: of each node's next tokens, as in `HeadForward`."""
        if self._head is not None:
            self._forward = HeadForward(self._head, self._target, self._source, width, sampling)
        else:
            self._forward = ModelForward(cast("Runner", self._runner), self._source, width, sampling)
        return self._forward

    def commit(self, outcome: Outcome) -> None:
        """Keeps the rows of the committed path; `rebuild` throws the cache away, to be prefilled anew."""
        if self.rebuild:
            self.runners[0].crop(0)
        elif self._forward is not None:
            path = outcome.accepted if self.root == "drafted" else (0, *outcome.accepted)
            self._forward.keep(path[: len(outcome.committed)])
