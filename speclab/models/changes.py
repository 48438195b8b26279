"""Detects that a module was changed between two texts: trained, pruned, adapted or patched."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

_SAMPLED = 8  # numbers compared per weight, since writes through `.data` and fused optimisers change no version counter
_NOT_READ = {"training", "generation_config", "_output_capturing_hooks_installed"}  # attributes that no pass reads


class ModuleWatch:
    """Detects changes of a module since the last check: its parts, their attributes, its config, its weights.

    A check takes some milliseconds, once per text. Cache entries of an earlier `version` belong to another model; a
    lean pass and packed weights belong to version 0.

    Attributes:
        version: changes detected so far.
        admitted: the version that the probe accepted.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.version = 0
        self.admitted = 0
        self._look()

    @torch.inference_mode()
    def refresh(self) -> int:
        """Checks the module, sets it to eval mode, and returns the version."""
        self._module.eval()
        contents, sample = self._contents, self._sample
        self._look()
        try:
            same = contents == self._contents and all(map(torch.equal, sample, self._sample))
        except RuntimeError:  # a tensor attribute was replaced: comparing two tensors has no truth value
            same = False
        self.version += not same
        return self.version

    def _look(self) -> None:
        module = self._module
        parts = list(module.modules())
        weights = [*module.parameters(), *module.buffers()]
        config: Any = getattr(module, "config", None)
        self._weights = weights  # so that no new tensor gets the id of one of them
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
