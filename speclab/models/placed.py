"""Modules in memory that something else has placed: over several devices, partly on disk, or over several processes."""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel

from speclab.errors import SettingsError, UnsupportedModelError


def check_place(model: PreTrainedModel, name: str, *, moved: bool) -> None:
    """Refuses a module that is asked to move where it cannot, or whose inputs would have no device.

    Args:
        model: a module, as it was given.
        name: what to call it.
        moved: whether a device or a dtype is asked for.

    Raises:
        SettingsError: it is spread by a device_map or a tensor-parallel plan, and is to move.
        UnsupportedModelError: its first weights, the embedding, are offloaded.
    """
    if moved and is_spread(model):
        raise SettingsError(
            f"{name} is placed by its device_map or tensor-parallel plan: leave out device= and dtype=, and give them "
            "to from_pretrained, which loads it"
        )
    if model.device.type == "meta":
        raise UnsupportedModelError(
            f"{name} has its embedding offloaded, so its inputs have no device: load it with a device_map that keeps "
            "the embedding on a device"
        )


def is_spread(model: PreTrainedModel) -> bool:
    """Whether several devices, the disk, or several processes hold its weights."""
    places = getattr(model, "hf_device_map", None) or {}
    return len(set(places.values())) > 1 or not weighs_itself(model)


def weighs_itself(model: nn.Module) -> bool:
    """Whether every weight is a plain tensor, and no part of one that several processes hold (`DTensor`)."""
    return all(type(weight) is nn.Parameter for weight in model.parameters())
