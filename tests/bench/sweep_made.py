"""What sweeps measure in these tests: made-up figures of a strategy's settings, which any process can import."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy
from pyarrow import parquet

from speclab import FixedTree
from speclab.bench.sweep import Measured, Sweep, sweep
from speclab.drafters.base import Strategy

OVER = ["depth=2:4", "branching=2,3"]


def peak(strategy: Strategy) -> Measured:
    """Highest, at 0, for a tree of depth 4 and 3 branches."""
    return Measured(
        {"score": -float((strategy.depth - 4) ** 2 + (strategy.branching - 3) ** 2)}, prompts=2, text="same"
    )


def troubled(strategy: Strategy) -> Measured:
    """As `peak`; depth 3 raises, and the peak itself is no number."""
    if strategy.depth == 3:
        raise ZeroDivisionError("made up\nsecond line")
    found = peak(strategy)
    return found if found.figures["score"] else Measured({"score": float("nan")})


@dataclass(frozen=True)
class Marked:
    """As `peak`, and leaves a file for every call, named by settings and process; `deadly` depths kill their process.

    Args:
        folder: of the marks.
        deadly: depths whose process is killed, as often as it says.
        seconds: that each call takes.
    """

    folder: Path
    deadly: tuple[tuple[int, int], ...] = ()
    seconds: float = 0.0

    def __call__(self, strategy: Strategy) -> Measured:
        calls = self.calls(strategy.depth, strategy.branching)
        (self.folder / f"{strategy.depth}-{strategy.branching}-{calls}-{os.getpid()}").touch()
        if calls < dict(self.deadly).get(strategy.depth, 0):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.seconds)
        return peak(strategy)

    def calls(self, depth: int, branching: int = 2) -> int:
        return len(list(self.folder.glob(f"{depth}-{branching}-*")))


def made(out: Path, executor=None, over=OVER, strategy=FixedTree, **asked) -> Sweep:
    """A sweep over made-up figures."""
    return sweep(strategy, over, out, executor=executor, **{"objective": "score", "measure": peak, **asked})


def stored(out: Path) -> list[int]:
    """The trials that the table holds."""
    return sorted(parquet.read_table(out / "trials.parquet")["trial"].to_pylist())


def killed_at(moment: int, out: Path, marks: Path, study: str) -> None:
    """In a process of its own: a sweep that is killed as it sends its `moment`-th change to the database."""
    sent = 0

    def count(connection, cursor, statement, *_):
        nonlocal sent
        sent += statement.startswith(("INSERT", "UPDATE"))
        if sent == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def at_once(connection, _record):
        connection.execute("PRAGMA synchronous=OFF")

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", count)
    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", at_once)
    with ThreadPoolExecutor(1) as threads:
        made(out, threads, ["depth=2:4"], measure=Marked(marks), study=study, trials=3, workers=1, resume=out.exists())
