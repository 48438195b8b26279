"""Draft heads at work: a head on its target, with its own cache.

A head (`speclab.heads.eagle`) proposes from the target's hidden states. After a drafted token,
where the target has not run, it reads its own output instead.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from speclab.heads.eagle import Angles, DraftModule, rotary
from speclab.models.answer import Answer, Ids
from speclab.models.cache import KVCache
from speclab.models.changes import WeightsWatch
from speclab.models.lean import Linear, pack
from speclab.models.runner import Kept, Runner
from speclab.models.transfers import check_finite, to_device
from speclab.tree import Bools


class HeadRunner:
    """A draft head with its own cache, batch 1, on the target's device and in its dtype.

    Entry `i` of the cache belongs to token `i + 1` of the text and the target's hidden state at
    position `i`, so an up-to-date head has as many entries as its target. Entries depend on the
    committed text alone: all heads share the same prefix, whichever drafted (Dual-Draft Routing,
    section 7).

    Attributes:
        length, calls, kept, capacity, slot_bytes: as in `Runner`.
        vocab_size, context, device, dtype: the target's.
    """

    def __init__(self, head: DraftModule, target: Runner) -> None:
        self.model: Any = head.to(device=target.device, dtype=target.dtype).eval()
        self.config: Any = head.config
        self.name = head.config.name
        self.family = "draft head"
        self.vocab_size = target.vocab_size
        self.context = target.context
        self.device = target.device
        self.dtype = target.dtype
        self.cache = KVCache()
        self.length = 0
        self.calls = 0
        self.kept = Kept(0, 0, ())
        self._target = target
        self._changes = WeightsWatch(self.model)
        self._embed = self.model.embed_tokens or target.model.get_input_embeddings()
        self._angles = self._angles_to(0)

    @property
    def capacity(self) -> int:
        return self.cache.capacity

    @property
    def slot_bytes(self) -> int:
        return self.cache.slot_bytes

    def extend(self, tokens: Sequence[int], states: Tensor, topk: int = 0) -> tuple[Answer, Tensor]:
        """Appends `m` committed tokens; returns an answer of one row after the last, and the head's
        feature `[hidden]`.

        `states`: `[m, layers * states_size]`, the target's hidden states at the positions before
        the tokens. `topk`: as in `Runner.logits`.
        """
        visible = np.tri(len(tokens), dtype=np.bool_) if len(tokens) > 1 and self.length else None
        positions = range(self.length, self.length + len(tokens))
        answer, features = self._pass(
            tokens, states, positions, visible, topk, fuse=True, last_only=True
        )
        return answer, features[-1]

    def after_each(
        self, tokens: Sequence[int], states: Tensor, topk: int = 0
    ) -> tuple[Answer, Tensor]:
        """As `extend`, but after each of the `m` tokens: an answer of `m` rows, and features `[m, hidden]`."""
        positions = range(self.length, self.length + len(tokens))
        visible = np.tri(len(tokens), dtype=np.bool_)
        return self._pass(tokens, states, positions, visible, topk, fuse=True)

    def forward(
        self,
        tokens: Sequence[int],
        features: Tensor,
        positions: Sequence[int],
        visible: Bools,
        topk: int = 0,
    ) -> tuple[Answer, Tensor]:
        """A pass over rows of a tree, appended to the cache.

        Args:
            tokens: `m` ids.
            features: `[m, hidden]`, the head's own output at each row's parent.
            positions: `m` positions; that of the newest committed entry is `length - 1`.
            visible, topk: as in `Runner.logits`.

        Returns:
            An answer of `m` rows, and features `[m, hidden]`.
        """
        return self._pass(tokens, features, positions, visible, topk)

    def crop(self, length: int) -> None:
        self.kept = Kept(self.length, length, ())
        self.cache.shorten(length)
        self.length = length

    @torch.inference_mode()
    def fork(self, length: int = 0, target: Runner | None = None) -> HeadRunner:
        """A runner of the same head with a copy of the first `length` entries.

        `target`: what it drafts for. If the target or the head was changed, the copy has no
        entries.
        """
        if self._changes.refresh() or (
            target is not None and target.version != self._target.version
        ):
            fresh = type(self)(self.model, target or self._target)
            fresh.vocab_size = self.vocab_size
            return fresh
        fork = copy.copy(self)
        fork.cache = self.cache.copy(length)
        fork.length = length
        fork.calls = 0
        return fork

    @torch.inference_mode()
    def _pass(
        self,
        tokens: Sequence[int],
        features: Tensor,
        positions: Sequence[int],
        visible: Bools | None,
        topk: int,
        *,
        fuse: bool = False,
        last_only: bool = False,
    ) -> tuple[Answer, Tensor]:
        """`fuse`: features are the target's states.

        `last_only`: return only the logits of the last row.
        """
        try:
            answer, out = self._rows(
                tokens,
                features.to(self.dtype),
                positions,
                visible,
                topk,
                fuse=fuse,
                last_only=last_only,
            )
        except BaseException:
            self.cache.shorten(self.length)
            raise
        self.calls += 1
        self.length += len(tokens)
        return answer, out

    def _rows(
        self,
        tokens: Sequence[int],
        features: Tensor,
        positions: Sequence[int],
        visible: Bools | None,
        topk: int,
        *,
        fuse: bool,
        last_only: bool,
    ) -> tuple[Answer, Tensor]:
        weights = self._weights
        if fuse:
            features = self.model.fused(features, weights.products)
        embedded = self._embed(to_device(tokens, self.device))
        angles = self._angles_at(positions)
        mask = self._mask(visible, len(tokens))
        out: Tensor = self.model(
            embedded[None], features[None], angles, mask, self.cache, weights.products
        )[0]
        rows = weights.output(self.model.read_out(out[-1:] if last_only else out))[
            :, : self.vocab_size
        ]
        return check_finite(rows, topk, self.name, ids=weights.ids, vocab_size=self.vocab_size), out

    @cached_property
    def _weights(self) -> _Weights:
        """Created once for all forks.

        Tokens that are not in the pair's tokenizer are left out of a draft vocabulary, as they are
        of the target's logits.
        """
        layer: Any = self.model.lm_head or self._target.model.get_output_embeddings()
        ids = self.model.token_ids
        if ids is not None:
            with torch.inference_mode(mode=False):
                known = ids < self.vocab_size
                ids = ids[known]
                layer = _selected(layer, ids if self.model.lm_head is None else known)
        products = type(self.model.products)(self.model)
        output = Linear(layer) if type(layer) is nn.Linear else layer
        pack([*products.linears, *([output] if isinstance(output, Linear) else [])])
        return _Weights(products, output, None if ids is None else ids.cpu().numpy())

    def _angles_to(self, positions: int) -> Angles:
        cos, sin = rotary(self.config, torch.arange(positions, device=self.device))
        return cos.to(self.dtype), sin.to(self.dtype)

    def _angles_at(self, positions: Sequence[int]) -> Angles:
        """The angles of positions; those of one position if all are the same, as in a level of a tree."""
        first = positions[0]
        highest = max(positions)
        if highest >= len(self._angles[0]):
            self._angles = self._angles_to(2 * highest + 256)
        cos, sin = self._angles
        if isinstance(positions, range):
            return cos[first : highest + 1], sin[first : highest + 1]
        if min(positions) == highest:
            return cos[first : first + 1], sin[first : first + 1]
        rows = to_device(positions, self.device)
        return cos[rows], sin[rows]

    def _mask(self, visible: Bools | None, rows: int) -> Tensor | None:
        """`[rows, length + rows]` bool, or None if every row sees all, or the cache is empty."""
        if visible is None or (rows == 1 and visible.all()):
            return None
        mask = torch.ones((rows, self.length + rows), dtype=torch.bool, device=self.device)
        mask[:, mask.shape[1] - visible.shape[1] :] = to_device(visible, self.device)
        return mask


class _Weights(NamedTuple):
    """What a runner's passes multiply by; `ids`: the target's id of each column of the output, None: its own."""

    products: Any
    output: Callable[[Tensor], Tensor]
    ids: Ids | None


def _selected(layer: nn.Linear, rows: Tensor) -> nn.Linear:
    weights = {name: weight.detach()[rows] for name, weight in layer.named_parameters()}
    part = nn.Linear(
        layer.in_features, len(weights["weight"]), bias="bias" in weights, device="meta"
    )
    part.load_state_dict(weights, assign=True)
    return part.requires_grad_(requires_grad=False)
