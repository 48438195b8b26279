"""`node_budget="auto"`: as many rows as this machine verifies for little more than one row costs.

The budget is the largest number of rows, from 4 to 64, whose verification pass costs at most a third more than a pass
of one row. Passes are timed once per machine and model, and the times are kept in the user's cache directory.
"""

from __future__ import annotations

import json
import os
import platform
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from statistics import median
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import numpy as np
from annotated_types import Ge, Le
from pydantic import Field

from speclab.drafters.base import Strategy
from speclab.drafters.measures import NODES
from speclab.files import read_whole, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from speclab.models.heads import HeadRunner
    from speclab.models.pair import ModelPair
    from speclab.models.runner import Runner

LEAST, MOST = 4, 64
EXTRA = 4 / 3
"""What a verification pass may cost, in passes of one row."""
ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
PREFIX = 128
"""Entries in the cache behind which passes are timed, or half of a shorter context."""
ROUNDS = 7
QUIET = 1.25
"""Median over fastest pass, up to which times are kept on disk: beyond it the machine was busy."""

Auto = Literal["auto"]
NodeBudget = Annotated[
    Annotated[int, Ge(1), Le(1024)] | Auto,
    NODES,
    Field(
        description="most nodes of a tree, root included; auto (not in the paper): as many as one verification pass "
        "checks on this machine for at most a third more than a pass of one row costs, from 4 to 64",
    ),
]
S = TypeVar("S", bound=Strategy)
Times = tuple[float, ...]

_known: dict[str, Times] = {}
_one_at_a_time = Lock()


def node_budget(setting: int | Auto, target: Runner) -> int:
    """The setting itself, or for "auto" the largest affordable number of rows of this target on this machine."""
    if setting != "auto":
        return setting
    limit = EXTRA * seconds(target, 1)
    affordable = [rows for rows in range(LEAST, MOST + 1) if seconds(target, rows) <= limit]
    return max(affordable, default=LEAST)


def with_node_budget(strategy: S, target: Runner) -> S:
    """The strategy with a number in place of `node_budget="auto"`: what its drafter goes by and its steps record."""
    setting = getattr(strategy, "node_budget", None)
    if setting != "auto":
        return strategy
    return strategy.model_copy(update={"node_budget": node_budget("auto", target)})


def prepare(strategy: Strategy, pair: ModelPair) -> None:
    """Measures what the strategy's "auto" needs where this machine does not know it: call it before a clock starts."""
    with_node_budget(strategy, pair.target)
    for name in type(strategy).model_fields:
        if isinstance(part := getattr(strategy, name), Strategy):
            prepare(part, pair)


def seconds(runner: Runner | HeadRunner, rows: int) -> float:
    """Seconds of a pass of so many rows: between measured sizes on a line, which goes on beyond the largest."""
    times = pass_seconds(runner)
    if rows > ROWS[-1]:
        slope = (times[-1] - times[-2]) / (ROWS[-1] - ROWS[-2])
        return times[-1] + slope * (rows - ROWS[-1])
    return float(np.interp(rows, ROWS, times))


def pass_seconds(runner: Runner | HeadRunner, *, again: bool = False) -> Times:
    """Seconds of a pass of each number of `ROWS`, never falling: as known, as kept on disk, or measured now.

    `again`: measure in any case.
    """
    conditions = _conditions(runner)
    key = sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()[:24]
    with _one_at_a_time:
        if again or key not in _known:
            times = None if again else _load(key)
            if times is None:
                times, quiet = _measure(runner)
                if quiet:
                    _save(key, times, conditions)
            _known[key] = times
        return _known[key]


def _measure(runner: Runner | HeadRunner) -> tuple[Times, bool]:
    """The fastest pass of each size, and whether the machine was quiet; the runner's own cache stays as it is.

    Sizes alternate, so that a machine that slows down meanwhile slows all of them.
    """
    timed = _timed_pass(runner)
    found: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for rows in ROWS:
        timed(rows)  # the first pass of a size is slower: buffers grow
    for _ in range(ROUNDS):
        for rows in ROWS:
            found[rows].append(timed(rows))
    fastest = [min(found[rows]) for rows in ROWS]
    spread = median(median(found[rows]) / min(found[rows]) for rows in ROWS)
    never_falling = np.minimum.accumulate(fastest[::-1])[::-1]  # fewer rows never cost more
    return tuple(never_falling.tolist()), spread <= QUIET


def _timed_pass(runner: Runner | HeadRunner) -> Callable[[int], float]:
    """A function that times one pass of so many rows in seconds, and puts the cache back."""
    import torch

    from speclab.models.heads import HeadRunner

    fork = runner.fork()
    prefix = [0] * (PREFIX if runner.context is None else max(1, min(PREFIX, runner.context // 2)))
    features = torch.empty(0)
    if isinstance(fork, HeadRunner):
        width = fork.model.config.hidden_size * len(fork.config.layers)
        states = torch.zeros((len(prefix), width), dtype=fork.dtype, device=fork.device)
        features = fork.extend(prefix, states)[1][None]
    else:
        fork.extend(prefix)
    length = fork.length

    def timed(rows: int) -> float:
        tokens, positions, visible = [0] * rows, [length] * rows, np.eye(rows, dtype=np.bool_)
        began = perf_counter()
        if isinstance(fork, HeadRunner):
            answer = fork.forward(tokens, features.expand(rows, -1), positions, visible)[0]
        else:
            answer = fork.logits(tokens, positions, visible)
        assert len(answer.choice) == rows  # read, as in decoding: on CUDA this waits for the pass
        took = perf_counter() - began
        fork.crop(length)
        return took

    return timed


def _conditions(runner: Runner | HeadRunner) -> dict[str, str]:
    """All that a pass's time depends on, as far as it can be known: model, number format, device, threads, versions."""
    import torch

    config = runner.model.config
    shape = config.to_dict() if hasattr(config, "to_dict") else config.model_dump()
    cuda = runner.device.type == "cuda"
    return {
        "model": runner.name,
        "shape": str(sorted((name, str(value)) for name, value in shape.items() if name != "_name_or_path")),
        "through": getattr(runner, "forward_name", "lean"),
        "dtype": str(runner.dtype),
        "device": torch.cuda.get_device_name(runner.device) if cuda else f"{runner.device} {_processor()}",
        "threads": str(torch.get_num_threads()),
        "versions": f"torch {version('torch')}, transformers {version('transformers')}, format 3",
    }


@cache
def _processor() -> str:
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return platform.processor()


def _path(key: str) -> Path:
    """`SPECLAB_CACHE`, or `~/.cache` as for models from the hub."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("SPECLAB_CACHE") or home / "speclab") / "costs" / f"{key}.json"


def _load(key: str) -> Times | None:
    """The times kept under that name; None where there are none, or the file is damaged."""
    try:
        times = tuple(map(float, json.loads(read_whole(_path(key), max_bytes=1 << 20))["seconds"]))
    except (RuntimeError, ValueError, KeyError, TypeError):  # no home directory, no file, no times
        return None
    return times if len(times) == len(ROWS) and min(times) > 0 else None


def _save(key: str, times: Times, conditions: dict[str, str]) -> None:
    """Keeps times; where the directory cannot be written they last as long as the process."""
    text = json.dumps({"rows": ROWS, "seconds": times, "measured": conditions}, indent=1)
    with suppress(RuntimeError, OSError, ValueError):  # no home directory, or none that may be written
        _path(key).parent.mkdir(parents=True, exist_ok=True)
        write_whole(_path(key), text.encode())
