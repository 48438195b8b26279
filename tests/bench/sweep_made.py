"""What sweeps measure in these tests: made-up figures of a strategy's settings, which any process can import."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from speclab.bench.sweeping import Measured
from speclab.drafters.base import Strategy


def peak(strategy: Strategy) -> Measured:
    """Highest, at 0, for a tree of depth 4 and 3 branches."""
    return Measured(
        {"score": -float((strategy.depth - 4) ** 2 + (strategy.branching - 3) ** 2)}, prompts=2, text="same"
    )


def troubled(strategy: Strategy) -> Measured:
    """As `peak`; depth 3 raises, and so does depth 2 with one sentence of ours."""
    if strategy.depth == 3:
        raise ZeroDivisionError("made up\nsecond line")
    return peak(strategy)


@dataclass(frozen=True)
class Marked:
    """As `peak`, and leaves a file for every call, named by trial and process; `deadly` depths kill their process.

    Args:
        folder: of the marks.
        deadly: depths whose process is killed, as often as it says.
        seconds: that each call takes.
    """

    folder: Path
    deadly: tuple[tuple[int, int], ...] = ()
    seconds: float = 0.0

    def __call__(self, strategy: Strategy) -> Measured:
        calls = len(list(self.folder.glob(f"{strategy.depth}-{strategy.branching}-*")))
        (self.folder / f"{strategy.depth}-{strategy.branching}-{calls}-{os.getpid()}").touch()
        if calls < dict(self.deadly).get(strategy.depth, 0):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.seconds)
        return peak(strategy)
