"""Cost curves of models on this machine: measured once, and kept in the user's cache directory.

A pass goes through the runner's own `forward`, on a fork behind a typical prefix. Sizes alternate, so that a machine
that slows down meanwhile slows all of them. The fastest pass of each size counts: whatever else runs can only add time.
Where passes vary much the machine was busy, and the curve serves this process alone.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from statistics import median
from threading import Lock
from time import perf_counter, process_time
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn

from speclab.costs.curve import Curve
from speclab.drafters.draft_forward import TOP_K
from speclab.files import read_whole, write_whole
from speclab.models.eagle import HeadConfig
from speclab.models.heads import HeadRunner
from speclab.models.runner import Runner
from speclab.models.timing import Stopwatch

ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
PREFIX = 128
"""Entries in the cache behind which passes are timed, or as many as the context has room for."""
ROUNDS, FEWEST = 7, 3
"""Rounds over all sizes; fewer, but not fewer than so many, once `PATIENCE` is spent."""
PATIENCE = 1.5
"""Seconds."""
QUIET = 1.25
"""Spread up to which a curve is kept on disk."""
FORMAT = "2"
"""Changes with what is measured and with speclab's own passes, so that older files are not read."""

Report = Callable[[int, int], object]
"""Called with how many of how many passes are done; what it raises ends the measurement."""

_known: dict[str, Curve] = {}
_shapes: WeakKeyDictionary[nn.Module, dict[str, str]] = WeakKeyDictionary()
"""Worked out once per model: every text asks for its curve before the first token."""
_one_at_a_time = Lock()


def curve_of(
    runner: Runner | HeadRunner, *, drafts: bool = False, again: bool = False, report: Report | None = None
) -> Curve:
    """The cost curve of a model here: as known, as kept on disk, or measured now (`again`: in any case).

    `drafts`: of passes that are asked for the most probable next tokens, as a draft is, and not for the best alone.

    A kept curve that is damaged or of another machine is measured again. Where none is kept, each process measures.
    """
    drafts = drafts or isinstance(runner, HeadRunner)
    conditions = conditions_of(runner) | {"asked for": "the most probable tokens" if drafts else "the best token"}
    key = sha256(json.dumps([FORMAT, sorted(conditions.items())]).encode()).hexdigest()[:24]
    with _one_at_a_time:
        if again or key not in _known:
            curve = None if again else load(key)
            if curve is None:
                curve = measure(runner, report, drafts=drafts)
                if curve.spread <= QUIET:
                    save(key, curve, conditions)
            _known[key] = curve
        return _known[key]


def measure(runner: Runner | HeadRunner, report: Report | None = None, *, drafts: bool = False) -> Curve:
    """Times passes of every size behind a prefix, round by round; the runner's own cache stays as it is."""
    time_pass = _timed_pass(runner, TOP_K if drafts or isinstance(runner, HeadRunner) else 0)
    times: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for rows in ROWS:
        time_pass(rows)  # the first pass of a size is slower: buffers grow
    began, worked, rounds = perf_counter(), process_time(), 0
    while rounds < ROUNDS and (rounds < FEWEST or perf_counter() - began < PATIENCE):
        for place, rows in enumerate(ROWS if rounds % 2 == 0 else ROWS[::-1]):
            times[rows].append(time_pass(rows))
            if report is not None:
                report(rounds * len(ROWS) + place + 1, ROUNDS * len(ROWS))
        rounds += 1
    seconds = tuple(min(times[rows]) for rows in ROWS)
    spread = median(median(times[rows]) / min(times[rows]) for rows in ROWS)
    if runner.device.type == "cpu":  # waiting for a processor shows even where it slows all passes alike
        spread = max(spread, (perf_counter() - began) / (process_time() - worked))
    name, prefix = runner.name, _prefix(runner)
    return Curve(name=name, rows=ROWS, seconds=seconds, prefix=prefix, rounds=rounds, spread=spread)


def _timed_pass(runner: Runner | HeadRunner, asked: int) -> Callable[[int], float]:
    """A function that times one pass of so many rows in seconds, and puts the cache back.

    `asked`: for how many of the most probable next tokens of each row; 0: for the best.
    """
    fork, prefix = runner.fork(), [0] * _prefix(runner)
    features = torch.empty(0)
    if isinstance(fork, HeadRunner):
        width = fork.model.config.hidden_size * len(fork.config.layers)
        features = fork.extend(prefix, torch.zeros((len(prefix), width), dtype=fork.dtype, device=fork.device))[1][None]
    else:
        fork.extend(prefix)
    length = fork.length

    def seconds(rows: int) -> float:
        tokens, positions, visible = [0] * rows, [length] * rows, np.eye(rows, dtype=np.bool_)
        watch = Stopwatch(fork.device)
        if isinstance(fork, HeadRunner):
            logits = fork.forward(tokens, features.expand(rows, -1), positions, visible, asked)[0]
        else:
            logits = fork.logits(tokens, positions, visible, topk=asked)
        assert len(logits.topk_logprobs(asked) if asked else logits.choices) == rows  # read, as in decoding
        watch.mark("pass")
        fork.crop(length)
        return watch.phase_seconds["pass"]

    return seconds


def _prefix(runner: Runner | HeadRunner) -> int:
    return PREFIX if runner.context is None else max(1, min(PREFIX, runner.context // 2))


def conditions_of(runner: Runner | HeadRunner) -> dict[str, str]:
    """All that a pass's time depends on, as far as it can be known: shape, number format, device, threads, versions."""
    model, device = runner.model, runner.device
    if model not in _shapes:
        config = model.config.model_dump() if isinstance(model.config, HeadConfig) else model.config.to_dict()
        shape = {name: str(value) for name, value in config.items() if name != "_name_or_path"}
        parameters = sum(weights.numel() for weights in model.parameters())
        _shapes[model] = {"shape": json.dumps(shape, sort_keys=True), "parameters": str(parameters)}
    return {
        "model": runner.name,
        **_shapes[model],
        "through": runner.implementation.name if isinstance(runner, Runner) else "lean",
        "dtype": str(runner.dtype),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device} {_processor()}",
        "threads": str(torch.get_num_threads()),
        **_versions(),
    }


@cache
def _versions() -> dict[str, str]:
    return {package: version(package) for package in ("torch", "transformers")}


@cache
def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def load(key: str) -> Curve | None:
    """The curve kept under that name; None where there is none, or what is there is no curve."""
    try:
        kept = json.loads(read_whole(_folder() / f"{key}.json", max_bytes=1 << 20))
        return Curve.model_validate(kept["curve"])
    except (RuntimeError, ValueError, KeyError, TypeError):  # no home directory, no file, no curve
        return None


def save(key: str, curve: Curve, conditions: dict[str, str]) -> None:
    """Keeps a curve, whole or not at all; where the directory cannot be written it is not kept."""
    measured = {name: value for name, value in conditions.items() if name != "shape"}
    text = json.dumps({"curve": curve.model_dump(), "measured": measured}, indent=1)
    with suppress(RuntimeError, OSError, ValueError):  # no home directory, or none that may be written
        place = _folder() / f"{key}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, text.encode())


def _folder() -> Path:
    """Where curves are kept: `SPECLAB_CACHE`, or `~/.cache` as for models from the hub."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("SPECLAB_CACHE") or cache / "speclab") / "costs"
