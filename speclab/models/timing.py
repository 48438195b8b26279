"""Wall-clock time by phase, device work included, without a wait for the device."""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter
from typing import Any

import torch


class Stopwatch:
    """Seconds of each phase, from one mark to the next.

    On CUDA a mark is an event in the queue of `device`, which notes the time when the device gets there: a phase lasts
    until its work is done, as if the host had waited for it. The events are read when `phase_seconds` are.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._phases: list[str] = []
        self._events: list[Any] = []
        self._times: list[float] = []
        self._note()

    def mark(self, phase: str) -> None:
        """Ends the phase that ran since the last mark."""
        self._phases.append(phase)
        self._note()

    @property
    def seconds(self) -> float:
        """From the start to the last mark by the host's clock, without what the device still does then."""
        return self._times[-1] - self._times[0]

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Seconds of every phase. Waits for the device if it has not come to the last of them."""
        if self._events:
            if not self._events[-1].query():
                self._events[-1].synchronize()
            spent = [start.elapsed_time(end) / 1000 for start, end in pairwise(self._events)]
        else:
            spent = [end - start for start, end in pairwise(self._times)]
        seconds = dict.fromkeys(self._phases, 0.0)
        for phase, duration in zip(self._phases, spent, strict=True):
            seconds[phase] += duration
        return seconds

    def _note(self) -> None:
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._device))
            self._events.append(event)
        self._times.append(perf_counter())
