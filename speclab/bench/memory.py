"""Peak memory of one call: of the CUDA allocator, or of the process."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import torch

from speclab.bench.result import Memory

_RESET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


class Peak:
    """From its creation on: bytes of the CUDA allocator, or resident bytes of the whole process (Linux).

    What an earlier call has freed may still be resident, so on a CPU small differences tell nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with suppress(OSError):  # without it the peak is that of the process's whole life
                _RESET.write_text("5", encoding="ascii")

    def read(self) -> tuple[int, Memory] | None:
        """Bytes at the peak and whose they are; None where the system does not tell."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device), "cuda allocator"
        try:
            found = re.search(r"VmHWM:\s*(\d+) kB", _STATUS.read_text(encoding="ascii"))
        except OSError:
            return None
        return (1024 * int(found[1]), "rss") if found else None
