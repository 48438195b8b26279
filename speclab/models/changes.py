"""Notices that a module was changed: its weights, its parts, or what they compute."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from speclab.models.lean import LeanForward, lean_forward
from speclab.models.transfers import is_spread

ROWS = 8
"""Tokens of the pass that shows what a module computes."""
_CAPTURING = "transformers.utils.output_capturing"


class WeightsWatch:
    """Notices that a module's weights were replaced or written to since it was last asked.

    It compares storages and version counters, so it does not see writes through `.data`, by fused
    optimisers or through numpy.

    Attributes:
        version: changes noticed so far.
        admitted: the version that the probe admitted.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.version = self.admitted = 0
        self._marks = self._read(with_buffers=True)

    def refresh(self) -> int:
        """Look at the module, set it to eval mode, and return the version."""
        self._module.eval()
        before = self._marks
        self._marks = self._read(with_buffers=True)
        self.version += before != self._marks
        return self.version

    @property
    def written(self) -> bool:
        """Whether weights were replaced or written to since the last look; costs no pass.

        False for a model partly on disk, whose weights come and go with each pass.
        """
        if is_spread(self._module):
            return False
        weights = self._read(with_buffers=False)
        return weights != self._marks[: len(weights)]

    def _read(self, *, with_buffers: bool) -> list[tuple[object, ...]]:
        """Marks of the weights, then of the buffers, which some families replace while they decode."""
        buffers = self._module.buffers() if with_buffers else ()
        return [
            (
                id(tensor),
                tensor.data_ptr(),
                tensor.dtype,
                tensor.shape,
                0 if tensor.is_inference() else tensor._version,
            )
            for tensor in chain(self._module.parameters(), buffers)
        ]


class ModelWatch(WeightsWatch):
    """Notices, too, that a model computes something else than before, and keeps its lean pass true.

    A look runs one short pass through the module, as it is, and compares its logits with those of
    the look before. So it sees a wrapped or replaced part, another activation, a changed attribute,
    a patched method, and any way to write weights.

    Args:
        lean: build a lean pass, if the family has one, and again after every change.
        packing: let it copy weights if that is faster.

    Attributes:
        lean: the lean pass of the module as it was at the last look; None if passes go through the
            module.
    """

    def __init__(self, model: PreTrainedModel, *, lean: bool, packing: bool) -> None:
        super().__init__(model)
        self._model: Any = model
        self._wanted = lean
        self._packing = packing
        self._parts: tuple[nn.Module, ...] = tuple(model.modules())
        self._hooks_seen = -1
        self._hooked = False
        self._threads = torch.get_num_threads()
        self.lean: LeanForward | None = None
        self._build()

    def refresh(self) -> int:
        noticed = self.version
        super().refresh()
        self._parts = tuple(self._model.modules())
        self._hooks_seen = -1
        if self.version == noticed and not self.hooked and not self._computes_the_same():
            self.version += 1
        if self.version != noticed:
            self._build()
        return self.version

    def _build(self) -> None:
        self.lean = lean_forward(self._model, packing=self._packing) if self._wanted else None
        self._copies = self.lean is not None and self.lean.packed_from > 0
        self._seen = None if self.hooked else self._answer()

    def _computes_the_same(self) -> bool:
        """Whether the logits are those of the look before; from it on they are what is compared with."""
        before = self._seen
        self._seen = self._answer()
        if before is None:
            return not self._copies
        exact = self._threads == torch.get_num_threads()  # products of more threads round otherwise
        self._threads = torch.get_num_threads()
        return _equal(before, self._seen, exact)

    @property
    def hooked(self) -> bool:
        """Whether a user's hook waits for a call of the module, of one of its parts, or of any
        module.

        torch numbers all hooks, so the parts are checked only after a new one was registered or one
        was there. The library's own hooks, which collect hidden states, do not count.
        """
        if self._hooked or RemovableHandle.next_id != self._hooks_seen:
            self._hooks_seen = RemovableHandle.next_id
            waiting = [hooks._global_forward_hooks, hooks._global_forward_pre_hooks]
            for part in self._parts:
                waiting += [part._forward_hooks, part._forward_pre_hooks]
            every = (hook for group in waiting for hook in group.values())
            self._hooked = any(getattr(hook, "__module__", "") != _CAPTURING for hook in every)
        return self._hooked

    @torch.inference_mode()
    def _answer(self) -> tuple[Tensor, ...]:
        """Logits `[ROWS, V]` after tokens from the whole vocabulary; none if the pass fails.

        With packed copies, which a change that these logits do not show would leave as they were,
        also the sum of each weight.
        """
        size = self._model.get_input_embeddings().weight.shape[0]
        tokens = torch.arange(ROWS, device=self._model.device) * (size - 1) // ROWS + 1
        try:
            logits = self._model(tokens[None], use_cache=False).logits[0]
        except Exception:  # a foreign module may raise anything; the probe names it
            return ()
        if not self._copies:
            return (logits.nan_to_num(),)
        sums = [weight.sum(dtype=torch.float32) for weight in self._model.parameters()]
        return logits.nan_to_num(), torch.stack(sums).nan_to_num()


def _equal(before: tuple[Tensor, ...], now: tuple[Tensor, ...], exact: bool) -> bool:
    """Whether two answers of a module are the same, up to rounding if it is not to be exact."""
    kinds = [[(each.shape, each.dtype, each.device) for each in answer] for answer in (before, now)]
    if kinds[0] != kinds[1] or not now:
        return False
    if exact:
        return all(map(torch.equal, before, now))
    return all(
        torch.allclose(one.float(), other.float(), rtol=1e-3, atol=1e-3 * float(one.float().std()))
        for one, other in zip(before, now, strict=True)
    )
