"""Wall-clock time by phase; before each reading the host waits for what it has queued on the model's device."""

from __future__ import annotations

from time import perf_counter

import torch


class Stopwatch:
    """Laps in seconds since the last one, or since the start.

    On CUDA it waits for the device's current stream: what others queue, on other streams or devices, is not timed.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.laps: dict[str, float] = {}
        self._last = self._now()

    def lap(self, phase: str) -> None:
        """Ends the phase that ran since the last reading."""
        now = self._now()
        self.laps[phase] = self.laps.get(phase, 0.0) + now - self._last
        self._last = now

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        return perf_counter()
