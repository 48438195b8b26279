"""A sweep over made-up figures on two threads, and the trials that its folder holds."""

from __future__ import annotations

from concurrent.futures import Executor
from pathlib import Path

from pyarrow import parquet
from sweep_made import peak

from speclab import FixedTree
from speclab.bench.sweeping import Sweep, sweep

OVER = ["depth=2:4", "branching=2,3"]


def made(out: Path, executor: Executor | None, **settings) -> Sweep:
    asked = {"strategy": FixedTree, "over": OVER, "objective": "score", "measure": peak, **settings}
    return sweep(asked.pop("strategy"), asked.pop("over"), out, executor=executor, **asked)


def stored(out: Path) -> list[int]:
    return sorted(parquet.read_table(out / "trials.parquet")["trial"].to_pylist())
