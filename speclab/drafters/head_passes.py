"""A draft head's passes over one growing tree, and the one way to ask whatever drafts for its next tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from speclab.drafters.base import TopK
from speclab.drafters.draft_forward import DraftForward, Row

if TYPE_CHECKING:
    from torch import Tensor

    from speclab.models.head_runner import HeadRunner
    from speclab.models.runner import Runner


class Passes(Protocol):
    """What a tree is grown from: `DraftForward` of a draft model, or `HeadPasses` of a draft head."""

    def after_root(self, tokens: Sequence[int]) -> TopK: ...

    def after(self, rows: Sequence[Row]) -> list[TopK]: ...

    def renumber(self, place: Mapping[int, int]) -> None: ...

    def commit_cache(self, path: Iterable[int]) -> None: ...


def passes(source: Runner | HeadRunner, target: Runner, width: int) -> Passes:
    """The passes of a draft head on its target, or of a draft model; `width`: likeliest next tokens wanted."""
    from speclab.models.head_runner import HeadRunner  # brings torch, which settings and records do without

    return HeadPasses(source, target, width) if isinstance(source, HeadRunner) else DraftForward(source, width)


def watch(source: Runner | HeadRunner, target: Runner) -> None:
    """Has the target keep the hidden states that a draft head reads; a draft model reads none."""
    from speclab.models.head_runner import HeadRunner

    if isinstance(source, HeadRunner):
        target.watch(source.config.layers)


class HeadPasses:
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
        """Next tokens after the root, the last of `tokens`, which becomes node 0."""
        head, root = self._head, len(tokens) - 1
        assert self._target.hidden is not None
        head.crop(min(head.length, root - 1))  # a fork may hold the root's place already, without what came of it
        states = self._target.hidden.rows(head.length, root, head.config.layers)
        logits, feature = head.extend(tokens[head.length + 1 :], states, self._width)
        self._settled = root
        self._path, self._feature = {0: ()}, {0: feature}
        return logits.likeliest(self._width)[0]

    def after(self, rows: Sequence[Row]) -> list[TopK]:
        """Next tokens after each row, all rows in one pass; their parents have been passed before."""
        import torch

        start = self._head.length - self._settled
        visible = np.zeros((len(rows), start + len(rows)), dtype=np.bool_)
        for place, row in enumerate(rows):
            path = (*self._path[row.parent], start + place)
            self._path[row.node] = path
            visible[place, path] = True
        positions = [self._settled + len(self._path[row.node]) - 1 for row in rows]
        features = torch.stack([self._feature[row.parent] for row in rows])
        logits, features = self._head.forward([row.token for row in rows], features, positions, visible, self._width)
        self._feature.update(zip((row.node for row in rows), features, strict=True))
        return logits.likeliest(self._width)

    def renumber(self, place: Mapping[int, int]) -> None:
        """Nothing to do: `commit_cache` keeps no node of the tree."""

    def commit_cache(self, path: Iterable[int]) -> None:
        """Drops the whole tree but its root; the committed tokens are run again on the target's hidden states."""
        self._head.crop(self._settled)
