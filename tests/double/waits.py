"""What a device double counts: events, the current device, and whatever makes the host wait."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from time import perf_counter
from types import SimpleNamespace

import torch


@dataclass
class Gpu:
    """One kind of device, `count` times.

    `waits`: how often the host waited, by kind. `copies`: "upload" and "download".
    """

    count: int = 1
    waits: Counter[str] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)

    def reset(self):
        """Counts from nothing again."""
        self.waits.clear()
        self.copies.clear()

    def waited(self, *kinds):
        """Waits of these kinds, or of all."""
        return sum(count for kind, count in self.waits.items() if not kinds or kind in kinds)


_machine = [Gpu()]


def put(machine):
    """The machine that counts from now on."""
    _machine[0] = machine
    _here.__dict__.clear()
    return machine


def now():
    """The machine of the innermost `device`."""
    return _machine[0]


_here = threading.local()


def indexed(device):
    """A device with its number: `cuda` is the current one."""
    place = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", current_device())
    return place


def current_device():
    return getattr(_here, "device", 0)


class Event:
    """A mark in a stream."""

    def __init__(self, **_):
        pass

    def record(self, stream):
        self._at = perf_counter()

    def synchronize(self):
        wait("event")

    def query(self):
        return True

    def elapsed_time(self, other):
        return 1000 * (other._at - self._at)


class OnDevice:
    """`torch.cuda.device`: a device is the current one within."""

    def __init__(self, device):
        self._index = indexed(device).index

    def __enter__(self):
        self._before = current_device()
        _here.device = self._index

    def __exit__(self, *_):
        _here.device = self._before


def wait(kind):
    """The host waits until what is queued is done."""
    now().waits[kind] += 1


def patches():
    """What stands in `torch.cuda`."""
    return {
        "Event": Event,
        "device": OnDevice,
        "current_device": current_device,
        "set_device": lambda device: setattr(_here, "device", indexed(device).index),
        "current_stream": lambda *_: SimpleNamespace(synchronize=lambda: wait("stream")),
        "synchronize": lambda *_: wait("device"),
    }
