"""One model and its cache: every pass of a target or a draft model goes through a `Runner`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from speclab.errors import LogitsError, OutOfMemoryError, UnsupportedModelError
from speclab.models.answer import Answer
from speclab.models.cache import FIRST_CAPACITY, HiddenStates, KVCache
from speclab.models.changes import SharedForward
from speclab.models.forward import Batch, Forward, ModuleForward, without_cudnn_attention
from speclab.models.masks import Mask, MaskPlan, read_back
from speclab.models.memory import is_out_of_memory
from speclab.models.transfers import check_finite, to_device
from speclab.tree import Bools

_CONTEXT_FIELDS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length")


class Kept(NamedTuple):
    """What the last keep or crop left of `before` entries: the first `prefix`, then those of `slots`."""

    before: int
    prefix: int
    slots: tuple[int, ...]


class Runner:
    """One model and its KV cache, batch 1, on whatever device the module lies.

    Every method runs in inference mode, on whichever thread it is called. A pass that fails (out of memory,
    an interrupt) leaves the cache as it was.

    Args:
        model: a causal language model of `transformers`; set to eval mode, now and at each start of a text.
            Attention other than sdpa and eager takes no tree mask: it is switched to one of these, for good.
        name: what errors and pictures call it; by default the family.
        plan: how masks are made; by default as the config says.
        fast: use the faster implementations of `speclab.models.fast`; False: every pass is the module's own.
        bitwise: compute so that a row's bits depend on its own text alone, as `SharedForward` explains.
        pack: multiply by packed copies of the weights where that is faster; False: no weight is copied.

    Attributes:
        length: entries in the cache.
        calls: forward passes so far.
        kept: what the last `keep` or `crop` left, for records.
        vocab_size: columns of the logits.
        context: positions that the model was trained for, None if the config names no bound.
        border: positions up to which a text is turned by other angles than a longer one (longrope), None where there
            is no such length. A pass takes the angles of its own largest position for all its rows, so the passes of
            one text have to lie on one side.
        implementation: what computes a pass: the family's lean forward, or the module.
        version: counts the changes of the module that were found at starts of texts.
        allow_nonfinite: whoever reads the logits replaces those that are not finite, so no pass is refused for them.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        name: str = "",
        plan: MaskPlan | None = None,
        *,
        fast: bool = True,
        bitwise: bool | None = False,
        pack: bool = True,
    ) -> None:
        self.model: Any = model
        self.name = name
        self.calls = 0
        self.length = 0
        self.kept = Kept(0, 0, ())
        self.allow_nonfinite = False
        self._given: tuple[Mask, int, int] = (None, 0, 0)
        self._plan, self._shared = plan, SharedForward(model, fast=fast, bitwise=bitwise, pack=pack)
        self._read()
        self.implementation: Forward = self._own
        self.vocab_size = self._vocabulary

    def _read(self, watched: Sequence[int] = ()) -> None:
        """Takes from the module what it is now; the cache is empty then, and keeps hidden states of `watched`."""
        config = self.model.config.get_text_config(decoder=True)
        self.family: str = config.model_type
        self.name = self.name or self.family
        self.device, self.dtype = self.model.device, self.model.dtype
        bounds = (getattr(config, field, None) for field in _CONTEXT_FIELDS)
        self.context: int | None = next((bound for bound in bounds if isinstance(bound, int)), None)
        self.border = _border(config)
        self.plan = self._plan or MaskPlan.of(config)
        self.cache = KVCache(watched)
        self._slots = self._columns = torch.arange(0, device=self.device)  # the latter: position of every slot
        self._zeros = torch.zeros((1, 1, 1, 0), dtype=self.dtype, device=self.device)
        self._vocabulary: int = config.vocab_size
        self._own, self.version = self._shared.forward, self._shared.version

    @property
    def bitwise(self) -> bool:
        """Whether the bits of a row's result depend on its own text alone."""
        return self._shared.bitwise and not isinstance(self.implementation, ModuleForward)

    @property
    def hidden(self) -> HiddenStates | None:
        """Hidden states of every entry, None unless `watch` asked for them."""
        return self.cache.hidden

    @property
    def capacity(self) -> int:
        """Slots allocated in the cache."""
        return self.cache.capacity

    @property
    def slot_bytes(self) -> int:
        """Bytes a slot takes over all layers; 0 before the model's first pass."""
        return self.cache.slot_bytes

    @torch.inference_mode()
    def extend(self, tokens: Sequence[int]) -> Tensor:
        """A causal pass: appends `tokens` at positions `length` and on; logits after the last of them, `[V]`.

        Raises:
            OutOfMemoryError: the pass does not fit; the cache is as it was.
            LogitsError: the model gave a NaN; the cache is as it was.
        """
        return self.logits(tokens).row(-1)

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], positions: Sequence[int], visible: Bools) -> Tensor:
        """A pass over rows at any positions, such as a flattened tree; they are appended to the cache.

        Args:
            tokens: `m` ids.
            positions: `m` positions; a tree node has prefix length + depth.
            visible: `[m, c]` bool, which of the last `c` columns (cache slots, then the new rows) each row
                sees; every earlier column is visible to all, so the host does no work in the length of the
                prefix.

        Returns:
            Logits of every row, `[m, V]`, in the model's dtype.

        Raises:
            OutOfMemoryError: the pass does not fit; the cache is as it was.
            LogitsError: the model gave a NaN; the cache is as it was.
        """
        return self.logits(tokens, positions, visible).logits

    @torch.inference_mode()
    def logits(
        self,
        tokens: Sequence[int],
        positions: Sequence[int] | None = None,
        visible: Bools | None = None,
        *,
        topk: int = 0,
    ) -> Answer:
        """As `forward`, or without `positions` as `extend`, with what the host will read of the logits.

        On CUDA that comes with the pass: its check and these tokens in one transfer, the only wait of a pass.

        Args:
            topk: so many most probable tokens of every row and their log-probabilities; 0: the argmax alone.
        """
        causal, layers = positions is None, self.cache.watched
        if positions is None:
            positions = range(self.length, self.length + len(tokens))

        def tensors() -> tuple[Tensor, Tensor, Mask]:
            return self._tensors(tokens, positions, visible, causal=causal)

        batch = Batch(tokens, positions, visible, tensors, int(causal), layers, self.vocab_size, topk)
        try:
            output = without_cudnn_attention(self.device, lambda: self.implementation(batch, self.cache))
            rows = output.logits
            self._check_shape(rows, 1 if causal else len(tokens))
            rows = rows if rows.shape[-1] == self.vocab_size else rows[:, : self.vocab_size]
            answer = check_finite(rows, output.summary, topk, self.name, allow_nonfinite=self.allow_nonfinite)
            if self.hidden is not None and output.states is not None:
                self.hidden.append(output.states)
            self.calls += 1
            self.length += len(tokens)
        except BaseException as error:
            self.cache.shorten(self.length)
            if is_out_of_memory(error):
                raise OutOfMemoryError(
                    f"{self.name} ran out of memory on {self.device} at {self.length + len(tokens)} tokens: "
                    "use a shorter prompt, a smaller tree, float16, or a smaller model."
                ) from None
            raise
        if visible is not None:
            self._given = (output.mask, len(tokens), self.length)
        return answer

    def _check_shape(self, logits: Tensor, count: int) -> None:
        if logits.ndim == 2 and len(logits) >= count and logits.shape[1] >= self.vocab_size:
            return
        raise LogitsError(
            f"{self.name} gave logits of shape {list(logits.shape)} and not [{count}, {self.vocab_size}]: a hook or a "
            "changed module gives other logits than the model does; undo that, or load the pair again"
        )

    def watch(self, layers: Sequence[int]) -> None:
        """Keeps the hidden states of `layers` from now on, beside those watched already.

        Entries whose states were not kept are forgotten, to be run again.
        """
        watched = self.cache.watched
        wanted = tuple(sorted({*watched, *layers}))
        if wanted != watched:
            self.cache.watch(wanted)
            self.crop(0)

    @torch.inference_mode()
    def keep(self, prefix: int, slots: Sequence[int]) -> None:
        """Keeps the first `prefix` entries, then those of `slots` (absolute, increasing), gathered in place.

        Entry `i` of the cache then has position `i`: the caller keeps a path, whose positions follow the
        prefix's.
        """
        self.kept = Kept(self.length, prefix, tuple(slots))
        self.cache.keep(prefix, slots)
        self.length = prefix + len(slots)
        if self.plan.window is not None:
            self._columns[prefix : self.length] = self._slots[prefix : self.length]

    def crop(self, length: int) -> None:
        """Forgets the entries from `length` on; moves nothing."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot crop a cache of {self.length} entries to {length}")
        self.kept = Kept(self.length, length, ())
        self.cache.shorten(length)
        self.length = length

    @torch.inference_mode()
    def fork(self, length: int = 0) -> Runner:
        """A runner of the same module with its own copy of the first `length` entries; no model call.

        Every text starts with one, so here the module is checked. Where it was changed since, passes are those of the
        module as it is now, and no entry is copied: they are those of another model.

        Raises:
            UnsupportedModelError: its vocabulary was changed.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot fork {length} entries of a cache of {self.length}")
        twin = copy.copy(self)
        if self._shared.refresh() == self.version:
            twin.cache, twin.length = self.cache.copy(length), length
            twin._columns = self._columns.clone()
        else:
            twin._renew()
        twin.calls = 0
        twin._given = (None, 0, 0)
        return twin

    def drop_bitwise(self, why: str) -> None:
        """Goes on in ordinary arithmetic, with an empty cache.

        Raises:
            UnsupportedModelError: exact arithmetic was asked for.
        """
        self._shared.drop_bitwise(why)
        self._renew()

    def by_module(self) -> Runner:
        """A runner with an empty cache whose passes go through the module, whatever its family.

        It watches no layers: the library would leave hooks in the module for them, to which lean passes give way.
        """
        twin = self.fork()
        twin.cache.watch(())
        twin.implementation = ModuleForward(self.model)
        return twin

    def _renew(self) -> None:
        """Starts again on a module that was changed."""
        vocabulary, own = self._vocabulary, self.implementation is self._own
        self._read(self.cache.watched)
        if self._vocabulary != vocabulary:
            raise UnsupportedModelError(
                f"{self.name} had {vocabulary} token ids when it was loaded and now has {self._vocabulary}: load the "
                "pair again."
            )
        self.length, self.kept = 0, Kept(0, 0, ())
        if own:  # and not one that somebody put in its place
            self.implementation = self._own

    @torch.inference_mode()
    def mask_given(self) -> tuple[Bools, list[int]]:
        """What the last `forward` let each row see, read back from the tensor that the model was handed.

        Returns:
            The tree part, `[m, m]` bool, and per row the number of visible entries before it. Where layers
            differ, it is the full-attention layers' mask.
        """
        return read_back(*self._given)

    def _tensors(
        self, tokens: Sequence[int], positions: Sequence[int], visible: Bools | None, *, causal: bool
    ) -> tuple[Tensor, Tensor, Mask]:
        total = self.length + len(tokens)
        self._reserve(total)
        ids = to_device(tokens, self.device)
        places = self._slots[self.length : total] if causal else to_device(positions, self.device)
        return ids, places, self._mask(places, visible)

    def _mask(self, positions: Tensor, visible: Bools | None) -> Mask:
        """The mask of a pass, causal where `visible` is None."""
        rows, total = len(positions), self.length + len(positions)
        if self.plan.window is None:
            if visible is None and rows == total:
                return None  # a prompt into an empty cache: the module's own causal path is its fastest
        else:
            self._columns[self.length : total] = positions
        if rows == 1 and (visible is None or visible.all()) and self.plan.hides_none(total):
            zeros = self._zeros[..., :total]
            mask = self.plan.spread(zeros, zeros)
        else:
            if visible is None:
                hidden = torch.ones((rows, rows), dtype=torch.bool, device=self.device).triu_(1)
            else:
                hidden = to_device(np.logical_not(visible), self.device)
            mask = self.plan.build(hidden, positions, self._columns[:total], self.dtype)
        return mask

    def _reserve(self, total: int) -> None:
        """Prebuilt slot numbers and an empty mask: one token then needs a slice of each, and no new tensor."""
        if total > len(self._slots):
            size = max(FIRST_CAPACITY, 2 * total)
            slots = torch.arange(size, device=self.device)
            columns = slots.clone()
            columns[: self.length] = self._columns[: self.length]
            self._zeros = torch.zeros((1, 1, 1, size), dtype=self.dtype, device=self.device)
            self._columns = columns
            self._slots = slots  # last: its length says that the others are as long


def _border(config: Any) -> int | None:
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = rope.values() if all(isinstance(kind, dict) for kind in rope.values()) else (rope,)
    borders = [kind["original_max_position_embeddings"] for kind in kinds if kind.get("rope_type") == "longrope"]
    return min(borders, default=None)
