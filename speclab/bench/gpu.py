"""How near decoding comes to what the machine allows: random weights of real shapes, every time measured in one run.

The floor of plain decoding is the time to read all weights and the prefix's keys and values once, at the bandwidth that
a copy kernel reaches in the same run. Where acceptance matters it is modelled (`gpu_shapes.Modelled`), and said so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile

from speclab.bench.gpu_rows import FloorRow, SpeedRow, VerifyRow, WorkRow
from speclab.bench.gpu_shapes import modelled
from speclab.drafters import Strategy
from speclab.drafters.chain import Autoregressive, LinearSpeculation
from speclab.drafters.dynatree import DynaTree
from speclab.engine.decode import iterate, start
from speclab.errors import SettingsError
from speclab.models.loading import parse_device
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner
from speclab.models.timing import Stopwatch
from speclab.settings import SessionSettings
from speclab.trace.metrics import Counts

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
STRATEGIES: dict[str, Strategy] = {
    "plain": Autoregressive(),
    "LinearSpeculation": LinearSpeculation(),
    "DynaTree": DynaTree(),
}
COPIED = {"cuda": 1 << 30, "cpu": 1 << 26}
"""Bytes that are copied to measure bandwidth: more than any cache holds."""
WARM_UP = 3
CALLS = {
    "waits": ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"),
    "kernels": ("cudaLaunchKernel", "cuLaunchKernel"),
    "replays": ("cudaGraphLaunch",),
    "copies": ("cudaMemcpy", "cudaMemset"),
}
"""How the calls of CUDA's interface begin, as the profiler names them (cudaLaunchKernelExC, cudaMemcpyAsync, …)."""


class Iterated(NamedTuple):
    """What is kept of an iteration: rows of its tree, counts, and its clock, read when all is done."""

    nodes: int
    counts: Counts
    watch: Stopwatch


def the_device(name: str) -> torch.device:
    """A device that there is.

    Raises:
        SettingsError: CUDA is asked for, and there is none; or it is no device.
    """
    if name.partition(":")[0] not in COPIED:
        raise SettingsError(f"{name!r} is no device for this: use cuda, or cpu with --shape tiny.")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise SettingsError(
            "There is no CUDA device here: run it where there is one, or try --shape tiny --device cpu."
        )
    return parse_device(name) or torch.device(name)


class Bench:
    """Measures one pair of random weights.

    Args:
        pair: target and draft.
        shape: what rows call it.
        prefix: entries in the cache behind which passes are timed; prompts are as long.
        rounds: every figure is a median of so many.
    """

    def __init__(self, pair: ModelPair, shape: str, prefix: int, rounds: int) -> None:
        self._pair, self._prefix, self._rounds = pair, prefix, rounds
        self._device = pair.target.device
        device = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else str(self._device)
        self._facts = {"shape": shape, "dtype": str(pair.target.dtype).removeprefix("torch."), "device": device}
        noise = torch.Generator().manual_seed(0)
        self._prompt = torch.randint(pair.vocab_size, (prefix,), generator=noise).tolist()

    def bandwidth(self) -> float:
        """Bytes a second, read and written, of a copy kernel."""
        size = COPIED[self._device.type]
        source = torch.empty(size, dtype=torch.uint8, device=self._device)
        target = torch.empty_like(source)
        return 2 * size / median(self._timed([lambda: target.copy_(source)])[0])

    def floor(self) -> FloorRow:
        """Plain decoding beside the memory's floor."""
        runner = self._behind_prompt()
        moved, bandwidth = _read(runner) + self._prefix * runner.slot_bytes, self.bandwidth()
        token = median(self._timed([lambda: self._pass(runner, 1)])[0])
        return FloorRow(
            **self._ran(runner),
            prefix=self._prefix,
            gigabytes=moved / 1e9,
            gigabytes_a_second=bandwidth / 1e9,
            floor_ms=1000 * moved / bandwidth,
            token_ms=1000 * token,
            reached=moved / bandwidth / token,
        )

    def verification(self, rows: Sequence[int] = ROWS) -> Iterator[VerifyRow]:
        """Passes of many rows; sizes in turn, round by round."""
        runner = self._behind_prompt()
        works = [partial(self._pass, runner, count) for count in rows]
        times = [median(kept) for kept in self._timed(works)]
        for count, seconds in zip(rows, times, strict=True):
            yield VerifyRow(
                **self._ran(runner),
                prefix=self._prefix,
                rows=count,
                pass_ms=1000 * seconds,
                ratio=seconds / times[0],
            )

    def speed(self, acceptance: float, tokens: int) -> Iterator[SpeedRow]:
        """Every way under one model of acceptance, rounds in turn, each the median of its rounds."""
        pair = modelled(self._pair, acceptance)
        for strategy in STRATEGIES.values():
            self._decode(pair, strategy, tokens)  # the first run of a size is slower: graphs, buffers
        rounds = [
            {way: self._decode(pair, strategy, tokens) for way, strategy in STRATEGIES.items()}
            for _ in range(self._rounds)
        ]
        plain = median(_speed(decoded["plain"]) for decoded in rounds)
        for way in STRATEGIES:
            yield self._speed_row(way, acceptance, [decoded[way] for decoded in rounds], plain)

    def work(self, acceptance: float, tokens: int) -> Iterator[WorkRow]:
        """What an iteration asks for, way by way; only CUDA's calls are seen."""
        pair, activities = modelled(self._pair, acceptance), [ProfilerActivity.CPU]
        if self._device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        for way, strategy in STRATEGIES.items():
            plain = [self._decode(pair, strategy, tokens) for _ in range(1 + self._rounds)][1:]
            with profile(activities=activities) as seen:
                decoded = self._decode(pair, strategy, tokens)
            events, count = seen.events() or [], len(decoded)
            busy = sum(event.time_range.elapsed_us() for event in events if event.device_type == DeviceType.CUDA)
            calls = calls_by_kind(event.name for event in events if event.device_type == DeviceType.CPU)
            spent = 1000 * median(_mean(one.counts.seconds for one in iterations) for iterations in plain)
            yield WorkRow(
                **self._ran(self._pair.target),
                way=way,
                iterations=count,
                **{kind: calls[kind] / count for kind in CALLS},
                device_ms=busy / 1000 / count,
                iteration_ms=spent,
                host=1 - busy / 1000 / count / spent,
            )

    def _speed_row(self, way: str, acceptance: float, rounds: Sequence[Sequence[Iterated]], plain: float) -> SpeedRow:
        iterations = [iteration for decoded in rounds for iteration in decoded]
        counts, speed = [one.counts for one in iterations], median(map(_speed, rounds))
        laps = [one.watch.phase_seconds for one in iterations]
        phases = {phase: [each[phase] for each in laps] for phase in laps[0]}
        return SpeedRow(
            **self._ran(self._pair.target),
            way=way,
            acceptance=acceptance,
            iterations=len(iterations),
            nodes=_mean(one.nodes for one in iterations),
            draft_calls=_mean(count.draft_calls for count in counts),
            tokens_per_iteration=_mean(count.committed for count in counts),
            tokens_a_second=speed,
            speedup=speed / plain,
            milliseconds={phase: 1000 * _mean(seconds) for phase, seconds in phases.items()},
        )

    def _decode(self, pair: ModelPair, strategy: Strategy, tokens: int) -> list[Iterated]:
        settings = SessionSettings(max_new_tokens=tokens, stop_at_eos=False)
        decoding = start(pair.fresh(), strategy, self._prompt, settings)
        iterations: list[Iterated] = []
        while not decoding.finished:
            done = iterate(decoding)
            iterations.append(Iterated(len(done.draft.tree), done.counts, done.watch))
        return iterations

    def _behind_prompt(self) -> Runner:
        runner = self._pair.target.fork()
        runner.extend(self._prompt)
        return runner

    def _pass(self, runner: Runner, rows: int) -> None:
        """A pass of a chain, the choice after every row brought to the host, and the cache put back."""
        positions = range(self._prefix, self._prefix + rows)
        assert len(runner.logits(self._prompt[:1] * rows, positions, np.tri(rows, dtype=np.bool_)).choices) == rows
        runner.crop(self._prefix)

    def _timed(self, works: Sequence[Callable[[], object]]) -> list[list[float]]:
        """Seconds of each work, in turn, so that a machine that slows down slows all of them."""
        kept: list[list[float]] = [[] for _ in works]
        for round_ in range(WARM_UP + self._rounds):
            for work, times in zip(works, kept, strict=True):
                watch = Stopwatch(self._device)
                work()
                watch.mark("work")
                if round_ >= WARM_UP:
                    times.append(watch.phase_seconds["work"])
        return kept

    def _ran(self, runner: Runner) -> dict[str, str]:
        return self._facts | {"forward": runner.through.name}


def calls_by_kind(names: Iterable[str]) -> Counter[str]:
    """Calls by what they do, of `CALLS`, from their names."""
    kinds = ((kind, name) for name in names for kind, begins in CALLS.items() if name.startswith(begins))
    return Counter(kind for kind, _ in kinds)


def _read(runner: Runner) -> int:
    """Bytes of weights that one pass reads: of untied input embeddings it reads a row."""
    model = runner.model
    weights = sum(weight.nbytes for weight in model.parameters())
    embeddings, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    return int(weights - (0 if embeddings is head else embeddings.nbytes))


def _speed(iterations: Sequence[Iterated]) -> float:
    return sum(one.counts.committed for one in iterations) / sum(one.counts.seconds for one in iterations)


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
