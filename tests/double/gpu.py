"""What a device double is, and what it counts."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Gpu:
    """One kind of device, `count` times.

    Attributes:
        free, total, reserved, allocated: bytes that `torch.cuda`'s functions of these names tell.
        waits: how often the host waited, by kind and line of the package.
        kernels: launched, by operator.
        copies: between host and device, "upload" and "download".
    """

    count: int = 1
    name: str = "Double H100"
    free: int = 70 << 30
    total: int = 80 << 30
    reserved: int = 0
    allocated: int = 0
    waits: Counter[tuple[str, str]] = field(default_factory=Counter)
    kernels: Counter[str] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)

    def reset(self) -> None:
        """Counts from nothing again."""
        for counter in (self.waits, self.kernels, self.copies):
            counter.clear()

    def waited(self, *kinds: str) -> int:
        """Waits of these kinds, or of all."""
        return sum(count for (kind, _), count in self.waits.items() if not kinds or kind in kinds)


_put: list[Gpu] = [Gpu()]


def put(machine: Gpu) -> Gpu:
    """The machine that counts from now on."""
    _put[0] = machine
    return machine


def now() -> Gpu:
    """The machine of the innermost `device`."""
    return _put[0]


def line() -> str:
    """The innermost three lines of the package that led here."""
    frame, lines = sys._getframe(1), []
    while frame is not None and len(lines) < 3:
        _, inside, name = frame.f_code.co_filename.rpartition("/speclab/")
        if inside:
            lines.append(f"{name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(lines)
