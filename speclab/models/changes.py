"""Whether a module is still the one that was loaded: people train, prune, adapt and patch between two texts."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

_SAMPLED = 8
"""Numbers of each weight that are compared: writes through `.data` and fused optimisers raise no version counter."""
_NOT_READ = {"training", "generation_config", "_output_capturing_hooks_installed"}
"""Attributes that no pass depends on."""


class ModuleWatch:
    """Notices that a module was changed since it was last asked: its parts, their attributes, its config, its weights.

    Asked once at each start of a text, it costs some milliseconds. Cached entries of an earlier `version` belong to
    another model; a lean pass and packed weights belong to version 0 alone.

    Attributes:
        version: changes noticed so far.
        admitted: the version that the probe admitted.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.version = 0
        self.admitted = 0
        self._look()

    @torch.inference_mode()
    def refresh(self) -> int:
        """Looks at the module, sets it to eval mode, and returns the version."""
        self._module.eval()
        contents, sample = self._contents, self._sample
        self._look()
        try:
            same = contents == self._contents and all(map(torch.equal, sample, self._sample))
        except RuntimeError:  # a tensor attribute was exchanged: two tensors have no single truth value
            same = False
        self.version += not same
        return self.version

    def _look(self) -> None:
        module = self._module
        parts = list(module.modules())
        weights = [*module.parameters(), *module.buffers()]
        config: Any = getattr(module, "config", None)
        self._held = weights  # so that no other tensor takes the id of one of them
        self._contents: list[Any] = [
            [(part, type(part), type(part).forward) for part in parts],
            [{name: value for name, value in vars(part).items() if name not in _NOT_READ} for part in parts],
            deepcopy(config.to_dict()) if hasattr(config, "to_dict") else None,
            [(id(weight), weight.data_ptr(), weight.dtype, weight.shape, _version(weight)) for weight in weights],
        ]
        on_host = [weight.detach() for weight in weights if weight.device.type == "cpu" and weight.numel()]
        self._sample = [weight.flatten()[:: max(1, weight.numel() // _SAMPLED)].clone() for weight in on_host]


def _version(weight: Tensor) -> int:
    return 0 if weight.is_inference() else weight._version
