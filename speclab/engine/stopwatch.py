"""Seconds of each phase of an iteration, without a wait for the device."""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter
from typing import Any

import torch


class Stopwatch:
    """Seconds of each phase, from one mark to the next, device work included.

    On CUDA a mark is an event in the queue of `device`: a phase lasts until its work is done, as if
    the host had waited for it. Reading `phase_seconds` reads the events.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[tuple[str, float, Any]] = []
        self.mark("")

    def mark(self, phase: str) -> None:
        """Ends the phase that ran since the last mark."""
        event = None
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._device))
        self._marks.append((phase, perf_counter(), event))

    @property
    def seconds(self) -> float:
        """From the start to the last mark by the host's clock, without device work that is still running."""
        return self._marks[-1][1] - self._marks[0][1]

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Seconds of every phase; waits for the device if it is still running."""
        last = self._marks[-1][2]
        if last is not None and not last.query():
            last.synchronize()
        seconds: dict[str, float] = {}
        for (_, start, before), (phase, end, after) in pairwise(self._marks):
            spent = end - start
            if before is not None:
                spent = before.elapsed_time(after) / 1000
            seconds[phase] = seconds.get(phase, 0.0) + spent
        return seconds
