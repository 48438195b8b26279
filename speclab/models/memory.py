"""Whether models fit the memory of a device, estimated before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from speclab.errors import OutOfMemoryError

# Weights, and a fifth more for activations, caches and the loading itself: a default of ours, not a
# measurement.
HEADROOM = 1.2
_CGROUP = Path("/sys/fs/cgroup")


def needed(parameters: int, item_bytes: float) -> int:
    """Bytes that a model takes while it decodes."""
    return int(parameters * item_bytes * HEADROOM)


def free(device: torch.device) -> int | None:
    """Bytes free on a device, None where the machine does not say; on CPU the container's limit counts."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    return min((amount for amount in (_machine(), _container()) if amount is not None), default=None)


def require(sizes: Mapping[str, int], device: torch.device) -> None:
    """Refuses models that do not fit together.

    Args:
        sizes: bytes needed by each model, by name.
        device: where they are to go.

    Raises:
        OutOfMemoryError: more is needed than is free.
    """
    room, total = free(device), sum(sizes.values())
    if room is not None and total > room:
        names = " and ".join(f"{name} ({_gib(size)})" for name, size in sizes.items())
        raise OutOfMemoryError(
            f"{names} need {_gib(total)} of memory on {device} and {_gib(room)} are free: choose smaller models, "
            'dtype="float16" or "bfloat16", or another device.'
        )


def _gib(amount: float) -> str:
    return f"{amount / 2**30:.1f} GiB"


def _machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _container() -> int | None:
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        # File pages count as used and are given back on demand.
        stats = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no container, or no limit ("max")
        return None
    return max(0, limit - used + int(stats.get("inactive_file", 0)))
