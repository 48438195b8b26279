"""Wall-clock time by phase, with the device's queue emptied before each reading."""

from __future__ import annotations

from time import perf_counter

import torch


class Stopwatch:
    """Laps in seconds since the last one, or since the start."""

    def __init__(self, device: torch.device) -> None:
        self._waits = device.type == "cuda"
        self.laps: dict[str, float] = {}
        self._last = self._now()

    def lap(self, phase: str) -> None:
        """Ends the phase that ran since the last reading."""
        now = self._now()
        self.laps[phase] = self.laps.get(phase, 0.0) + now - self._last
        self._last = now

    def _now(self) -> float:
        if self._waits:
            torch.cuda.synchronize()
        return perf_counter()
