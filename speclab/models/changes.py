"""Whether a module is still what it was: checked at every start of a text, for people train, prune, adapt and patch.

A lean forward, packed weights and captured graphs are right for the module that they were made from, and cached
entries for its weights. The check reads no weight: it compares parts, addresses and version counters. What is written
past the counters (`.data`, fused optimisers) shows in the values alone: packed weights are compared with those.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import chain
from threading import Lock
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from speclab.errors import UnsupportedModelError
from speclab.models.fast import implementations
from speclab.models.forward import FallbackChain, ModuleForward


class Snapshot:
    """A module as it was when this was made: its parts, their attributes, its config, where its weights lie.

    Hooks, buffers and the training flag are left out: a pass asks for hooks itself, and buffers are state.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._parts = tuple(model.modules())
        self._kinds = [(type(part), type(part).forward) for part in self._parts]
        self._contents = [(vars(part).copy(), part._modules.copy(), part._parameters.copy()) for part in self._parts]
        self._configs = [(config, _fields(config)) for config in (model.config, model.config.get_text_config())]
        self._weights = list(chain.from_iterable(part._parameters.values() for part in self._parts))
        self._layout, self._versions = self._current_layout(), self._current_versions()

    @property
    def training(self) -> bool:
        """Whether a part is in training mode, in which dropout changes a text."""
        return any(part.training for part in self._parts)

    def same_module(self) -> bool:
        """Whether parts, attributes, config, and the addresses, dtypes and shapes of weights are what they were."""
        try:
            return (
                self._kinds == [(type(part), type(part).forward) for part in self._parts]
                and all(map(_same_contents, self._parts, self._contents))
                and all(_fields(config) == fields for config, fields in self._configs)
                and self._current_layout() == self._layout
            )
        except RuntimeError:  # two tensors under one name, which have no single truth value
            return False

    def same_values(self) -> bool:
        """Whether no weight was written since it was last asked, as far as their version counters tell."""
        before, self._versions = self._versions, self._current_versions()
        return before == self._versions

    def _current_layout(self) -> list[tuple[object, ...]]:
        weights = [weight for weight in self._weights if weight is not None]
        return [(weight.data_ptr(), weight.dtype, weight.shape, weight.stride()) for weight in weights]

    def _current_versions(self) -> list[int]:
        return [weight._version for weight in self._weights if weight is not None and not weight.is_inference()]


def _same_contents(part: nn.Module, contents: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]) -> bool:
    attributes, modules, parameters = contents
    own = vars(part)
    if "generation_config" in own:  # read at every start of a text, and part of no pass
        own = own | {"generation_config": attributes.get("generation_config")}
    return bool(part._modules == modules and part._parameters == parameters and own == attributes)


def _fields(config: Any) -> dict[str, Any]:
    return {name: deepcopy(value) if isinstance(value, dict | list) else value for name, value in vars(config).items()}


class SharedForward:
    """The forward of one module, shared by all runners on it, and chosen again when the module is found changed.

    Args:
        model: the module; set to eval mode, and to attention that takes a tree mask.
        fast: use the implementations of `speclab.models.fast` where the module has some; False: the module alone.
        bitwise: compute so that a row's bits depend on its own text alone (`speclab.models.fast.exact`); None: where
            that is possible for a module in half precision on a CPU.
        pack: multiply by packed copies of the weights where that is faster; False: no weight is copied.

    Attributes:
        forward: what passes call.
        bitwise: whether it computes so now.
        version: counts the changes found; cached entries of an earlier version are those of another model.
    """

    def __init__(
        self, model: PreTrainedModel, *, fast: bool = True, bitwise: bool | None = False, pack: bool = True
    ) -> None:
        self._model, self._fast, self._wanted, self._lock, self.version = model, fast, bitwise, Lock(), 0
        self._pack = pack
        self._choose()

    @torch.inference_mode()
    def refresh(self) -> int:
        """Compares the module with what it was, sets it to eval mode again if it trains, and returns the version.

        Called once at each start of a text, not in passes.
        """
        with self._lock:
            if self._snapshot.training:
                self._model.eval()
            if not self._snapshot.same_module() or (self._lean is not None and not self._lean.rotary.is_current()):
                self._choose()
                self.version += 1
            elif not all([self._snapshot.same_values(), self._lean is None or self._lean.packed.compare()]):
                self.version += 1
        return self.version

    def _choose(self) -> None:
        self._model.eval()  # a part that was put in may be new, and in training mode
        use_maskable_attention(self._model)
        self._snapshot = Snapshot(self._model)
        half, on_cpu = self._model.dtype.itemsize == 2, self._model.device.type == "cpu"
        self.bitwise = half and on_cpu and self._fast if self._wanted is None else self._wanted
        if self.bitwise:
            quick, self._lean, reason = implementations(self._model, bitwise=True) if self._fast else ([], None, "")
            if self._lean is not None:
                self.forward = FallbackChain(*quick)
                return
            self._check_unwanted(reason or "only passes of its family's own lean forward are, and it has none")
            self.bitwise = False
        quick, self._lean, reason = implementations(self._model, pack=self._pack) if self._fast else ([], None, "")
        self.forward = FallbackChain(*quick, ModuleForward(self._model, reason))

    def drop_bitwise(self, why: str) -> None:
        """Ordinary arithmetic takes the place of exact arithmetic that failed, unless that was asked for.

        Raises:
            UnsupportedModelError: it was.
        """
        self._check_unwanted(why)
        self._wanted = False
        self._choose()
        self.forward.dropped["exact arithmetic"] = why
        self.version += 1

    def _check_unwanted(self, why: str) -> None:
        if self._wanted:
            family = self._model.config.model_type
            raise UnsupportedModelError(
                f"The target (family {family}) cannot be decoded bit for bit: {why}; load it with bitwise=False."
            )


def use_maskable_attention(model: PreTrainedModel) -> None:
    """Switches to attention that takes a tree mask, where the model's own does not."""
    if model.config._attn_implementation in {"sdpa", "eager"}:
        return
    try:
        model.set_attn_implementation("sdpa")
    except ValueError:  # the family has none
        model.set_attn_implementation("eager")
