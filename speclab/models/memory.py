"""Devices: free memory, and modules that other libraries placed."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch
from torch import nn
from transformers import PreTrainedModel

from speclab.errors import OutOfMemoryError, SettingsError, UnsupportedModelError
from speclab.files import byte_count

HEADROOM = 1.2  # a fifth more than the weights, for activations, caches and loading (speclab default, not measured)
_CGROUP = Path("/sys/fs/cgroup")


def free(device: torch.device) -> int | None:
    """Bytes free on a device, None if unknown; on a CPU a container's limit counts.

    On CUDA, blocks that torch caches and no tensor uses count as free.
    """
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    if device.type != "cpu":
        return None
    available = int(psutil.virtual_memory().available)
    try:  # cgroup 2, which psutil does not read; it counts file pages as used, but frees them on demand
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        stats = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no container, or no limit ("max")
        return available
    return min(available, max(0, limit - used + int(stats.get("inactive_file", 0))))


def require(name: str, weight_bytes: int, device: torch.device) -> None:
    """Refuses a model whose weights exceed the memory of a device."""
    available, needed = free(device), int(weight_bytes * HEADROOM)
    if available is not None and needed > available:
        raise OutOfMemoryError(
            f"{name} needs {byte_count(needed)} of memory on {device}, but {byte_count(available)} is free: choose "
            'a smaller model, dtype="float16" or "bfloat16", or another device.'
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; on a CPU torch raises a plain RuntimeError."""
    words = ("can't allocate memory", "not enough memory", "out of memory", "unable to mmap")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


def check_device_map(model: PreTrainedModel, name: str, *, moved: bool) -> None:
    """Refuses a module that cannot be `moved`, or whose inputs have no device because its embedding is offloaded."""
    if moved and is_spread(model):
        raise SettingsError(
            f"{name} is placed by its device_map or tensor-parallel plan: leave out device= and dtype=, and pass them "
            "to from_pretrained."
        )
    if model.device.type == "meta":
        raise UnsupportedModelError(
            f"{name} has its embedding offloaded, so its inputs have no device: load it with a device_map that keeps "
            "the embedding on a device."
        )


def is_spread(model: PreTrainedModel) -> bool:
    """Whether its weights are on several devices, on disk, or in several processes."""
    devices = getattr(model, "hf_device_map", None) or {}
    return len(set(devices.values())) > 1 or not has_plain_weights(model)


def has_plain_weights(model: nn.Module) -> bool:
    """Whether every weight is a plain tensor, not part of one that several processes hold (`DTensor`)."""
    return all(type(weight) is nn.Parameter for weight in model.parameters())
