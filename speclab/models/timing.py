"""Wall-clock time by phase, device work included, without a wait for the device."""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter
from typing import Any

import torch


class Stopwatch:
    """Laps in seconds since the last one, or since the start.

    On CUDA a reading is a mark in the queue of `device`, which notes the time when the device gets there: a phase lasts
    until its work is done, as if the host had waited for it. What the marks say is asked for when laps are read.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._phases = device, list[str]()
        self._marks: list[Any] = []
        self._times: list[float] = []
        self._read()

    def mark(self, phase: str) -> None:
        """Ends the phase that ran since the last reading."""
        self._phases.append(phase)
        self._read()

    @property
    def seconds(self) -> float:
        """From the start to the last lap by the host's clock; what the device still does then is not in it."""
        return self._times[-1] - self._times[0]

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Seconds of every phase. Waits for the device if it has not come to the last of them."""
        if self._marks and not self._marks[-1].query():
            self._marks[-1].synchronize()
        if self._marks:
            spent = [began.elapsed_time(ended) / 1000 for began, ended in pairwise(self._marks)]
        else:
            spent = [ended - began for began, ended in pairwise(self._times)]
        laps = dict.fromkeys(self._phases, 0.0)
        for phase, seconds in zip(self._phases, spent, strict=True):
            laps[phase] += seconds
        return laps

    def _read(self) -> None:
        if self._device.type == "cuda":
            mark = torch.cuda.Event(enable_timing=True)
            mark.record(torch.cuda.current_stream(self._device))
            self._marks.append(mark)
        self._times.append(perf_counter())
