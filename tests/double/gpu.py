"""What a device double is, what it counts, and what may be broken about it."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field

FAULTS = (
    "warm-up",  # whatever runs on a stream beside the default one, uncaptured, raises
    "begin",  # a capture does not begin
    "middle",  # an operator cannot be captured
    "end",  # a capture does not end
    "empty",  # a capture notes nothing
    "wrong",  # a graph that is captured now answers wrong numbers
    "replay",  # a replay raises
    "replay oom",  # a replay finds no memory
)


@dataclass
class Gpu:
    """One kind of device, `count` times.

    Attributes:
        free, total, reserved, allocated: bytes that `torch.cuda`'s functions of these names tell.
        cudnn: with a mask in half precision, attention prefers cuDNN, as on Hopper and Blackwell.
        fault: one of `FAULTS`, or none.
        waits: how often the host waited, by kind and line of the package.
        kernels: launched one by one, by operator, or by operator and line if `by_line`.
        copies: between host and device, "upload" and "download"; those that are captured do not count.
        graphs: "captures", "replays", "empty graphs", "captured kernels".
        plans: shapes that cuDNN made a plan of attention for.
        pools: memory pools that graphs were captured into.
    """

    count: int = 1
    name: str = "Double H100"
    free: int = 70 << 30
    total: int = 80 << 30
    reserved: int = 0
    allocated: int = 0
    cudnn: bool = False
    fault: str = ""
    by_line: bool = False
    waits: Counter[tuple[str, str]] = field(default_factory=Counter)
    kernels: Counter[object] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)
    graphs: Counter[str] = field(default_factory=Counter)
    plans: Counter[object] = field(default_factory=Counter)
    pools: set[object] = field(default_factory=set)

    def reset(self) -> None:
        """Counts from nothing again."""
        for counter in (self.waits, self.kernels, self.copies, self.graphs, self.plans):
            counter.clear()
        self.pools.clear()

    def waited(self, *kinds: str) -> int:
        """Waits of these kinds, or of all."""
        return sum(count for (kind, _), count in self.waits.items() if not kinds or kind in kinds)

    def launched(self, name: str, kernels: int = 1) -> None:
        """Counts kernels that the host launched one by one."""
        self.kernels[(name, line()) if self.by_line else name] += kernels


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
        _, found, name = frame.f_code.co_filename.rpartition("/speclab/")
        if found:
            lines.append(f"{name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(lines)
