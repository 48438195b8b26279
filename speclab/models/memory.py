"""Devices: how much memory is free, what a model takes, and modules that something else has already placed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import torch
from torch import nn
from transformers import PreTrainedModel

from speclab.errors import OutOfMemoryError, SettingsError, UnsupportedModelError
from speclab.files import byte_count

HEADROOM = 1.2
"""Weights, and a fifth more for activations, caches and the loading itself: a speclab default, not a measurement."""
_CGROUP = Path("/sys/fs/cgroup")


def needed(parameters: int, item_bytes: float) -> int:
    """Bytes that a model takes while it decodes."""
    return int(parameters * item_bytes * HEADROOM)


def free(device: torch.device) -> int | None:
    """Bytes free on a device, None where it does not say; on a CPU the container's limit counts.

    On CUDA the blocks that torch caches, and no tensor uses, are free too: the next model may take them.
    """
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    if device.type != "cpu":
        return None
    machine, container = int(psutil.virtual_memory().available), _container()
    return machine if container is None else min(machine, container)


def require(sizes: Mapping[str, int], device: torch.device) -> None:
    """Refuses models that do not fit on a device together; `sizes`: bytes that each needs, by name.

    Raises:
        OutOfMemoryError: more is needed than is free.
    """
    available, total = free(device), sum(sizes.values())
    if available is not None and total > available:
        names = " and ".join(f"{name} ({byte_count(size)})" for name, size in sizes.items())
        raise OutOfMemoryError(
            f"{names} need {byte_count(total)} of memory on {device} and {byte_count(available)} are free: choose "
            'smaller models, dtype="float16" or "bfloat16", or another device.'
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out; on a CPU torch raises a plain RuntimeError."""
    words = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


def usage(device: torch.device) -> str:
    """What is in use, in words: of a GPU by everyone, of the machine by this process."""
    if device.type == "cuda":
        total = torch.cuda.mem_get_info(device)[1]
        return f"{device}: {byte_count(total - (free(device) or 0))} of {byte_count(total)} in use"
    in_use, available = psutil.Process().memory_info().rss, free(torch.device("cpu"))
    return f"memory: {byte_count(in_use)} in use, {byte_count(available or 0)} free"


def _container() -> int | None:
    """What the limit of a container (cgroup 2) leaves, which psutil does not read; None without a limit."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        # File pages count as used and are given back on demand.
        stats = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no container, or no limit ("max")
        return None
    return max(0, limit - used + int(stats.get("inactive_file", 0)))


def check_device_map(model: PreTrainedModel, name: str, *, moved: bool) -> None:
    """Refuses a module that is asked to move (`moved`) where it cannot, or whose inputs would have no device.

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
    devices = getattr(model, "hf_device_map", None) or {}
    return len(set(devices.values())) > 1 or not has_plain_weights(model)


def has_plain_weights(model: nn.Module) -> bool:
    """Whether every weight is a plain tensor, and no part of one that several processes hold (`DTensor`)."""
    return all(type(weight) is nn.Parameter for weight in model.parameters())
