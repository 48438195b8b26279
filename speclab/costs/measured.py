"""What passes of a model cost on this machine, by their rows: measured once, and kept in the user's cache directory.

A pass goes through the runner's own `forward`, on a fork behind a typical prefix. Sizes alternate, so that a machine
that slows down meanwhile slows all of them. The fastest pass of each size counts: whatever else runs can only add time.
Where passes vary much the machine was busy, and the curve serves this process alone.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import median
from threading import Lock
from time import perf_counter, process_time
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn

from speclab.costs import curve as cost_files
from speclab.costs.curve import Curve
from speclab.models.head_runner import HeadRunner
from speclab.models.heads import HeadConfig
from speclab.models.runner import Runner
from speclab.models.timing import Stopwatch

ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
PREFIX = 128
"""Entries in the cache behind which passes are timed, or as many as the context has room for."""
ROUNDS, FEWEST = 7, 3
"""Rounds over all sizes; fewer, but not fewer than so many, once `PATIENCE` is spent."""
PATIENCE = 1.5
"""Seconds."""

CALM = 1.25
"""Spread up to which a curve is kept on disk."""

Report = Callable[[int, int], None]
"""Hears how many of how many passes are done; what it raises ends the measurement."""


def silent(done: int, of: int) -> None:
    """Hears nothing."""


_known: dict[str, Curve] = {}
_shapes: WeakKeyDictionary[nn.Module, dict[str, str]] = WeakKeyDictionary()
"""Worked out once a model: every text asks for its curve before the first token."""
_one_at_a_time = Lock()


def curve_of(runner: Runner | HeadRunner, *, again: bool = False, report: Report = silent) -> Curve:
    """The cost curve of a model here: as known, as kept on disk, or measured now (`again`: in any case).

    A kept curve that is damaged or of another machine is measured anew. Where none is kept, each process measures.
    """
    facts = facts_of(runner)
    key = cost_files.key(facts)
    with _one_at_a_time:
        if again or key not in _known:
            curve = None if again else cost_files.read(key)
            if curve is None:
                curve = measure(runner, report)
                if curve.spread <= CALM:
                    cost_files.write(key, curve, facts)
            _known[key] = curve
        return _known[key]


def facts_of(runner: Runner | HeadRunner) -> dict[str, str]:
    """All that a pass's time depends on, as far as it can be known: shape, number format, device, threads, versions."""
    device = runner.device
    if runner.model not in _shapes:
        _shapes[runner.model] = _shape(runner)
    return {
        "model": runner.name,
        **_shapes[runner.model],
        "through": str(getattr(getattr(runner, "through", None), "name", "module")),
        "dtype": str(runner.dtype),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device} {_processor()}",
        "threads": str(torch.get_num_threads()),
        **_versions(),
    }


def measure(runner: Runner | HeadRunner, report: Report = silent) -> Curve:
    """Times passes of every size behind a prefix, round by round; the runner's own cache stays as it is."""
    bench = _bench(runner)
    times: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for rows in ROWS:
        bench(rows)  # the first pass of a size is slower: buffers grow
    began, worked, rounds = perf_counter(), process_time(), 0
    while rounds < ROUNDS and (rounds < FEWEST or perf_counter() - began < PATIENCE):
        for place, rows in enumerate(ROWS if rounds % 2 == 0 else ROWS[::-1]):
            times[rows].append(bench(rows))
            report(rounds * len(ROWS) + place + 1, ROUNDS * len(ROWS))
        rounds += 1
    seconds = tuple(min(times[rows]) for rows in ROWS)
    spread = median(median(times[rows]) / min(times[rows]) for rows in ROWS)
    if runner.device.type == "cpu":  # waiting for a processor shows even where it slows all passes alike
        spread = max(spread, (perf_counter() - began) / (process_time() - worked))
    return Curve(
        name=runner.name, rows=ROWS, seconds=seconds, prefix=_prefix(runner), rounds=rounds, spread=spread
    )  # fmt: skip


def _bench(runner: Runner | HeadRunner) -> Callable[[int], float]:
    """A function that times one pass of so many rows, and puts the cache back."""
    fork, length, prefix = runner.fork(), 0, _prefix(runner)
    features = torch.empty(0)
    if isinstance(fork, HeadRunner):
        width = fork.model.config.hidden_size
        states = torch.zeros((prefix, width * len(fork.config.layers)), dtype=fork.dtype, device=fork.device)
        features = fork.extend([0] * prefix, states)[1][None]
    else:
        fork.extend([0] * prefix)
    length = fork.length

    def seconds(rows: int) -> float:
        tokens, positions, visible = [0] * rows, [length] * rows, np.eye(rows, dtype=np.bool_)
        watch = Stopwatch(fork.device)
        if isinstance(fork, HeadRunner):
            logits = fork.forward(tokens, features.expand(rows, -1), positions, visible)[0]
        else:
            logits = fork.logits(tokens, positions, visible)
        assert len(logits.choices) == rows  # read, as in decoding
        watch.mark("pass")
        fork.crop(length)
        return watch.phase_seconds["pass"]

    return seconds


def _shape(runner: Runner | HeadRunner) -> dict[str, str]:
    config = runner.model.config
    values = config.model_dump() if isinstance(config, HeadConfig) else config.to_dict()
    named = {name: str(value) for name, value in values.items() if name != "_name_or_path"}
    parameters = sum(weights.numel() for weights in runner.model.parameters())
    return {"shape": json.dumps(named, sort_keys=True), "parameters": str(parameters)}


@cache
def _versions() -> dict[str, str]:
    return {package: version(package) for package in ("torch", "transformers")}


def _prefix(runner: Runner | HeadRunner) -> int:
    return PREFIX if runner.context is None else max(1, min(PREFIX, runner.context // 2))


@cache
def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()
