"""Whether a module is still what it was: one look at every start of a text, for people train, prune, adapt and patch.

A lean forward, packed weights and captured graphs are right for the module that they were made from, and cached
entries for its weights. The look reads no weight: it compares parts, addresses and version counters. What is written
past the counters (`.data`, fused optimisers) shows in the values alone: `linear.Copies.compare` reads those of which
there are copies.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import chain
from typing import Any

from torch import nn
from transformers import PreTrainedModel


class Snapshot:
    """A module as it was when this was made: its parts, their attributes, its config, where its weights lie.

    Hooks, buffers and the training flag are left out: a pass asks for hooks itself, and buffers are state.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._parts = tuple(model.modules())
        self._kinds = [(type(part), type(part).forward) for part in self._parts]
        self._held = [(vars(part).copy(), part._modules.copy(), part._parameters.copy()) for part in self._parts]
        self._configs = [(config, _fields(config)) for config in (model.config, model.config.get_text_config())]
        self._weights = list(chain.from_iterable(part._parameters.values() for part in self._parts))
        self._places, self._versions = self._where(), self._written()

    @property
    def training(self) -> bool:
        """Whether a part is in training mode, in which dropout changes a text."""
        return any(part.training for part in self._parts)

    def same_module(self) -> bool:
        """Whether parts, attributes, config, and the addresses, dtypes and shapes of weights are what they were."""
        try:
            return (
                self._kinds == [(type(part), type(part).forward) for part in self._parts]
                and all(map(_holds, self._parts, self._held))
                and all(_fields(config) == fields for config, fields in self._configs)
                and self._where() == self._places
            )
        except RuntimeError:  # two tensors under one name, which have no single truth value
            return False

    def same_values(self) -> bool:
        """Whether no weight was written since it was last asked, as far as their version counters tell."""
        before, self._versions = self._versions, self._written()
        return before == self._versions

    def _where(self) -> list[tuple[object, ...]]:
        weights = [weight for weight in self._weights if weight is not None]
        return [(weight.data_ptr(), weight.dtype, weight.shape, weight.stride()) for weight in weights]

    def _written(self) -> list[int]:
        return [weight._version for weight in self._weights if weight is not None and not weight.is_inference()]


def _holds(part: nn.Module, held: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]) -> bool:
    attributes, modules, parameters = held
    own = vars(part)
    if "generation_config" in own:  # read anew for every text, and part of no pass
        own = own | {"generation_config": attributes.get("generation_config")}
    return bool(part._modules == modules and part._parameters == parameters and own == attributes)


def _fields(config: Any) -> dict[str, Any]:
    return {name: deepcopy(value) if isinstance(value, dict | list) else value for name, value in vars(config).items()}
