"""Forward passes of a draft model or draft head over one growing tree, on a cache that lives on between iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from speclab.drafters.base import Commit, Drafter, Outcome, Root, Strategy, TopK
from speclab.settings import SessionSettings
from speclab.tree import Bools, Floats

if TYPE_CHECKING:
    from torch import Tensor

    from speclab.models.heads import HeadRunner
    from speclab.models.runner import Runner
    from speclab.models.transfers import Logits

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
        draft_probs: in a tree of sampled candidates the draft's distribution `[V]` float64 by node.
    """

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


class ModelForward(DraftForward):
    """Runs a draft model over the nodes of one tree; a row sees the committed text and its own ancestors.

    The cache holds committed tokens first, then one row for every expanded node. Committed tokens that it lacks go in
    with the first pass, so catching up with the target costs no pass of its own.

    Args:
        runner: the draft model.
        width: most probable next tokens wanted of each node.
        sampling: to warp the draft's distributions as the target's, where candidates are sampled.
    """

    def __init__(self, runner: Runner, width: int, sampling: SessionSettings | None = None) -> None:
        self._runner = runner
        self._sampling = sampling
        self.draft_probs: dict[int, Floats] = {}
        self._width = max(width, TOP_K)
        self._wanted = self._width if sampling is None else 0
        self._prefix = runner.length
        self._path: dict[int, tuple[int, ...]] = {}

    def after_root(self, tokens: Sequence[int]) -> TopK:
        self._prefix = len(tokens) - 1
        self._path = {0: (0,)}
        return self._catch_up(tokens, 0)

    def after_text(self, tokens: Sequence[int]) -> TopK:
        self._prefix = len(tokens)
        return self._catch_up(tokens, -1)

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
        return self._tops(self._runner.logits(tokens[self._runner.length :], topk=self._wanted), [node])[0]

    def _tops(self, logits: Logits, nodes: Sequence[int]) -> list[TopK]:
        if self._sampling is None:
            return logits.topk_logprobs(self._width)
        from speclab.engine.sampling import transform  # brings torch, which settings and records do without

        probs = transform(logits.rows, self._sampling).cpu()
        self.draft_probs.update(zip(nodes, probs.numpy(), strict=True))
        best = probs.topk(min(self._width, probs.shape[-1]), dim=-1)
        columns = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [tuple((t, log(p)) for t, p in zip(*column, strict=True) if p > 0) for column in columns]


class HeadForward(DraftForward):
    """Runs a draft head over the nodes of one tree; a row sees the committed text and its own ancestors.

    A node's input is its token and the head's own output at its parent; committed places are run on the target's hidden
    states, in one pass with the root.
    """

    def __init__(self, head: HeadRunner, target: Runner, width: int) -> None:
        self._head, self._target, self._width = head, target, width
        self._path: dict[int, tuple[int, ...]] = {}
        self._feature: dict[int, Tensor] = {}
        self._settled = head.length

    def after_root(self, tokens: Sequence[int]) -> TopK:
        head, root = self._head, len(tokens) - 1
        assert self._target.hidden is not None
        head.crop(min(head.length, root - 1))  # a fork may hold the root's place already, without what came of it
        states = self._target.hidden.rows(head.length, root, head.config.layers)
        logits, feature = head.extend(tokens[head.length + 1 :], states, self._width)
        self._settled = root
        self._path, self._feature = {0: ()}, {0: feature}
        return logits.topk_logprobs(self._width)[0]

    def after(self, rows: Sequence[Row]) -> list[TopK]:
        import torch

        visible, positions = _tree_rows(rows, self._path, self._settled, self._head.length)
        features = torch.stack([self._feature[row.parent] for row in rows])
        logits, features = self._head.forward([row.token for row in rows], features, positions, visible, self._width)
        self._feature.update(zip((row.node for row in rows), features, strict=True))
        return logits.topk_logprobs(self._width)

    def keep(self, path: Sequence[int]) -> None:
        """Drops the whole tree but its root; the committed tokens are run again on the target's hidden states."""
        self._head.crop(self._settled)


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


class ForwardDrafter(Drafter):
    """A drafter that runs a draft model, or a draft head on its target; subclasses implement `draft`."""

    def __init__(
        self,
        settings: Strategy,
        runner: Runner | HeadRunner,
        target: Runner,
        root: Root = "verified",
        commit: Commit = "gather",
    ) -> None:
        from speclab.models.heads import HeadRunner  # brings torch, which settings and records do without

        super().__init__(settings)
        self.root, self.commit, self.runners = root, commit, (runner,)
        self._runner, self._target = runner, target
        self._forward: DraftForward | None = None
        self._head = runner if isinstance(runner, HeadRunner) else None
        if self._head is not None:
            target.watch(self._head.config.layers)

    def forward(self, width: int, sampling: SessionSettings | None = None) -> DraftForward:
        """The passes of a new tree. `width`, `sampling`: as for `ModelForward`."""
        if self._head is not None:
            self._forward = HeadForward(self._head, self._target, width)
        else:
            self._forward = ModelForward(cast("Runner", self._runner), width, sampling)
        return self._forward

    def on_pruned(self, new_index: Mapping[int, int]) -> None:
        if self._forward is not None:
            self._forward.renumber(new_index)

    def commit_cache(self, outcome: Outcome) -> None:
        """Keeps the rows of the committed path; "rebuild" throws the cache away, to be prefilled anew."""
        if self.commit == "rebuild":
            self.runners[0].crop(0)
        elif self._forward is not None:
            path = outcome.accepted if self.root == "drafted" else (0, *outcome.accepted)
            self._forward.keep(path[: len(outcome.committed)])
