"""One draft head and its KV cache, on the target whose hidden states it reads."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from speclab.models.cache import KVCache
from speclab.models.forward import no_cudnn_attention
from speclab.models.heads import Head, rotary
from speclab.models.runner import Kept, Runner
from speclab.models.transfers import Logits, checked, to_device
from speclab.tree import Bools


class HeadRunner:
    """A draft head with a cache of its own, batch 1, on the target's device and in its dtype.

    Entry `i` of the cache belongs to token `i + 1` of the text and the target's hidden state at place `i`, so a head
    that has caught up holds as many entries as its target. Every entry is a function of the committed text alone:
    whichever head drafted, all of them stand on the same prefix (Dual-Draft Routing, section 7).

    Attributes:
        length: entries in the cache.
        calls: forward passes so far.
        kept: what the last `crop` left, for records.
        vocab_size, context, device, dtype: the target's.
    """

    def __init__(self, head: Head, target: Runner) -> None:
        self.model = head.to(device=target.device, dtype=target.dtype).eval()
        self.config, self.name, self.family = head.config, head.config.name, "draft head"
        self.vocab_size, self.context = target.vocab_size, target.context
        self.device, self.dtype = target.device, target.dtype
        self.cache = KVCache()
        self.length = 0
        self.calls = 0
        self.kept = Kept(0, 0, ())
        self._target_version = target.version
        self._embed = target.model.get_input_embeddings()
        self._output = target.model.get_output_embeddings()
        self._angles = rotary(self.config, torch.arange(0, device=self.device))

    @property
    def capacity(self) -> int:
        """Slots allocated in the cache."""
        return self.cache.capacity

    @property
    def slot_bytes(self) -> int:
        """Bytes a slot takes; 0 before the first pass."""
        return self.cache.slot_bytes

    @torch.inference_mode()
    def extend(self, tokens: Sequence[int], states: Tensor, likeliest: int = 0) -> tuple[Logits, Tensor]:
        """Appends committed places.

        Args:
            tokens: `m` ids, those of text places `length + 1` and on.
            states: `[m, layers * hidden]`, the target's hidden states at the places before them.
            likeliest: tokens that the host will read, as in `Runner.logits`.

        Returns:
            What follows the last of them: logits `[1, V]` and the head's own feature `[hidden]`.
        """
        rows = len(tokens)
        visible = np.tri(rows, dtype=np.bool_) if rows > 1 and self.length else None
        positions = range(self.length, self.length + rows)
        logits, features = self._pass(tokens, self.model.fused(states), positions, visible, likeliest, last=True)
        return logits, features[-1]

    @torch.inference_mode()
    def forward(
        self, tokens: Sequence[int], features: Tensor, positions: Sequence[int], visible: Bools, likeliest: int = 0
    ) -> tuple[Logits, Tensor]:
        """A pass over rows of a tree, appended to the cache.

        Args:
            tokens: `m` ids.
            features: `[m, hidden]`, the head's own output at each row's parent.
            positions: `m` places; that of the newest committed entry is `length - 1`.
            visible: `[m, c]` bool, which of the last `c` columns each row sees; all before them are visible.
            likeliest: tokens that the host will read, as in `Runner.logits`.

        Returns:
            Logits `[m, V]` and features `[m, hidden]`.
        """
        return self._pass(tokens, features, positions, visible, likeliest, last=False)

    def crop(self, length: int) -> None:
        """Forgets the entries from `length` on."""
        self.kept = Kept(self.length, length, ())
        self.cache.shorten(length)
        self.length = length

    @torch.inference_mode()
    def fork(self, length: int = 0, target: Runner | None = None) -> HeadRunner:
        """A runner of the same head with its own copy of the first `length` entries.

        `target`: what it drafts for; where that module was changed since, no entry is copied.
        """
        if target is not None and target.version != self._target_version:
            anew = HeadRunner(self.model, target)
            anew.vocab_size = self.vocab_size
            return anew
        twin = copy.copy(self)
        twin.cache, twin.length, twin.calls = self.cache.copy(length), length, 0
        return twin

    def _pass(
        self,
        tokens: Sequence[int],
        features: Tensor,
        positions: Sequence[int],
        visible: Bools | None,
        likeliest: int,
        *,
        last: bool,
    ) -> tuple[Logits, Tensor]:
        ids = to_device(tokens, self.device)
        joined = self.model.join(self._embed(ids), features.to(self.dtype))
        try:
            with no_cudnn_attention:
                out = self.model(joined[None], self._turns(positions), self._mask(visible, len(tokens)), self.cache)[0]
            rows = self._output(out[-1:] if last else out)[:, : self.vocab_size]
            logits = checked(rows, None, likeliest, self.name)
        except BaseException:
            self.cache.shorten(self.length)
            raise
        self.calls += 1
        self.length += len(tokens)
        return logits, out

    def _turns(self, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
        highest = max(positions)
        if highest >= len(self._angles[0]):
            self._angles = rotary(self.config, torch.arange(2 * highest + 256, device=self.device))
        rows = to_device(positions, self.device)
        return self._angles[0][rows], self._angles[1][rows]

    def _mask(self, visible: Bools | None, rows: int) -> Tensor | None:
        """`[rows, length + rows]` bool, or None where every row sees all, or the cache is empty."""
        if visible is None or (rows == 1 and visible.all()):
            return None
        mask = torch.ones((rows, self.length + rows), dtype=torch.bool, device=self.device)
        mask[:, mask.shape[1] - visible.shape[1] :] = to_device(visible, self.device)
        return mask
