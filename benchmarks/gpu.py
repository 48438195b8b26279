"""How near decoding comes to what the machine allows: random weights of real shapes, every time measured in one run.

The floor of plain decoding is the time to read all weights and the prefix's keys and values once, at the bandwidth that
a copy kernel reaches in the same run. Where acceptance matters it is modelled (`gpu_models.Modelled`), and said so.

    python benchmarks/gpu.py --shape llama
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import mean, median
from typing import Annotated, NamedTuple

import numpy as np
import torch
import typer
from common import Out, Row, show, write
from gpu_models import SHAPES, modelled, random_pair, shape
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile

from speclab.drafters import Strategy
from speclab.drafters.chain import Autoregressive, LinearSpeculation
from speclab.drafters.dynatree import DynaTree
from speclab.engine.decode import iterate, start
from speclab.errors import SettingsError
from speclab.models.loading import parse_device, parse_dtype
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner
from speclab.models.timing import Stopwatch
from speclab.settings import SessionSettings
from speclab.trace.metrics import Counts
from speclab.trace.records import PHASES

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
STRATEGIES: dict[str, Strategy] = {
    "plain": Autoregressive(),
    "LinearSpeculation": LinearSpeculation(budget="fixed"),
    "DynaTree": DynaTree(budget="fixed"),
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
app = typer.Typer(add_completion=False)


class Iterated(NamedTuple):
    """What is kept of an iteration: rows of its tree, counts, and its clock, read when all is done."""

    nodes: int
    counts: Counts
    watch: Stopwatch


class Bench:
    """Measures one pair of random weights.

    Args:
        pair: target and draft.
        name: of its shape, for the rows.
        prefix: entries in the cache behind which passes are timed; prompts are as long.
        rounds: every figure is a median of so many.
    """

    def __init__(self, pair: ModelPair, name: str, prefix: int, rounds: int) -> None:
        self._pair, self._prefix, self._rounds = pair, prefix, rounds
        self._device = pair.target.device
        device = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else str(self._device)
        self._told = {"shape": name, "dtype": str(pair.target.dtype).removeprefix("torch."), "device": device}
        rng = torch.Generator().manual_seed(0)
        self._prompt = torch.randint(pair.vocab_size, (prefix,), generator=rng).tolist()

    def bandwidth(self) -> float:
        """Bytes per second, read and written, of a copy kernel."""
        source = torch.empty(COPIED[self._device.type], dtype=torch.uint8, device=self._device)
        target = torch.empty_like(source)
        return 2 * source.numel() / median(self._timed([lambda: target.copy_(source)])[0])

    def floor(self) -> Row:
        """Plain decoding beside the least time that memory allows; `reached` is their ratio."""
        runner = self._behind_prompt()
        moved, bandwidth = _read(runner) + self._prefix * runner.slot_bytes, self.bandwidth()
        token = median(self._timed([lambda: self._pass(runner, 1)])[0])
        return {
            **self._about(runner), "prefix": self._prefix, "GB per token": moved / 1e9, "GB/s": bandwidth / 1e9,
            "floor ms": 1000 * moved / bandwidth, "token ms": 1000 * token, "reached": moved / bandwidth / token,
        }  # fmt: skip

    def verification(self, rows: Sequence[int] = ROWS) -> list[Row]:
        """Passes of so many rows behind the prefix, sizes in turn, and their ratio to the pass of one row."""
        runner = self._behind_prompt()
        times = [median(kept) for kept in self._timed([partial(self._pass, runner, count) for count in rows])]
        return [
            {"rows": count, "pass ms": 1000 * seconds, "ratio": seconds / times[0]}
            for count, seconds in zip(rows, times, strict=True)
        ]

    def speed(self, acceptance: float, tokens: int) -> list[Row]:
        """Every strategy under one model of acceptance, rounds in turn: medians; by phase, means per iteration."""
        pair = modelled(self._pair, acceptance)
        for strategy in STRATEGIES.values():
            self._decode(pair, strategy, tokens)  # the first run of a size is slower: graphs, buffers
        rounds = [
            {name: self._decode(pair, strategy, tokens) for name, strategy in STRATEGIES.items()}
            for _ in range(self._rounds)
        ]
        plain = median(_speed(decoded["plain"]) for decoded in rounds)
        return [self._speed_row(name, acceptance, [decoded[name] for decoded in rounds], plain) for name in STRATEGIES]

    def _speed_row(self, name: str, acceptance: float, rounds: Sequence[Sequence[Iterated]], plain: float) -> Row:
        iterations = [iteration for decoded in rounds for iteration in decoded]
        speed, phases = median(map(_speed, rounds)), [one.watch.phase_seconds for one in iterations]
        return {
            "strategy": name, "acceptance": acceptance, "nodes": mean(one.nodes for one in iterations),
            "draft calls": mean(one.counts.draft_calls for one in iterations),
            "tok/pass": mean(one.counts.committed for one in iterations), "tok/s": speed, "× plain": speed / plain,
            **{f"{phase} ms": 1000 * mean(each[phase] for each in phases) for phase in PHASES},
        }  # fmt: skip

    def work(self, acceptance: float, tokens: int) -> list[Row]:
        """What an iteration of each strategy asks of host and device; only CUDA's calls are seen.

        Calls by the profiler's count, the time of an iteration without it. `host`: the share of an iteration in which
        the device has nothing to do.
        """
        pair, activities, rows = modelled(self._pair, acceptance), [ProfilerActivity.CPU], []
        if self._device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        for name, strategy in STRATEGIES.items():
            plain = [self._decode(pair, strategy, tokens) for _ in range(1 + self._rounds)][1:]
            with profile(activities=activities) as seen:
                count = len(self._decode(pair, strategy, tokens))
            events = seen.events() or []
            busy = sum(event.time_range.elapsed_us() for event in events if event.device_type == DeviceType.CUDA)
            calls = calls_by_kind(event.name for event in events if event.device_type == DeviceType.CPU)
            spent = 1000 * median(mean(one.counts.seconds for one in decoded) for decoded in plain)
            rows.append({
                "strategy": name, **{kind: calls[kind] / count for kind in CALLS}, "device ms": busy / 1000 / count,
                "iteration ms": spent, "host": 1 - busy / 1000 / count / spent,
            })  # fmt: skip
        return rows

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

    def _about(self, runner: Runner) -> dict[str, str]:
        return self._told | {"forward": runner.implementation.name}


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


def usable(name: str) -> torch.device:
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


@app.command()
def main(
    shape_name: Annotated[str, typer.Option("--shape", help=f"Models: {', '.join(SHAPES)}.")] = "pythia",
    device: Annotated[str, typer.Option(help="cuda, cuda:1, …; cpu for a try with --shape tiny.")] = "cuda",
    dtype: Annotated[str | None, typer.Option(help="float32, float16, bfloat16; else the shape's own.")] = None,
    prefix: Annotated[int, typer.Option(min=1, help="Entries in the cache behind which passes are timed.")] = 256,
    tokens: Annotated[int, typer.Option(min=2, help="New tokens of every decoding.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="Every figure is a median of so many.")] = 10,
    acceptance: Annotated[
        list[float] | None, typer.Option(help="Modelled: how often the draft's first guess is right; may be repeated.")
    ] = None,
    out: Out = None,
) -> None:
    """Time passes of random weights against the memory's floor, and decoding under modelled acceptance."""
    chosen, place, shares = shape(shape_name), usable(device), acceptance or [0.6, 0.8]
    if not all(0 < share < 1 for share in shares):
        raise SettingsError("An acceptance lies between 0 and 1, both excluded: try --acceptance 0.7.")
    context = int(chosen.target["max_position_embeddings"])
    if prefix + tokens + max(ROWS) > context:
        raise SettingsError(
            f"A prefix of {prefix}, {tokens} new tokens and {max(ROWS)} rows exceed the context, {context}: take less."
        )
    bench = Bench(random_pair(chosen, place, parse_dtype(dtype)), shape_name, prefix, rounds)
    tables = {
        "Plain decoding beside the memory's floor": lambda: [bench.floor()],
        "Verification passes by their rows": bench.verification,
    }
    for share in shares:
        title = f"Modelled acceptance, measured time: the first guess is right {share:.0%} of the time"
        tables[title] = partial(bench.speed, share, tokens)
    if place.type == "cuda":
        title = "An iteration: calls by the profiler's count, time without it"
        tables[title] = partial(bench.work, shares[0], tokens)
    found: list[Row] = []
    for title, measure in tables.items():
        rows = measure()
        show(title, rows)
        found += [{"table": title, **row} for row in rows]
    typer.echo("Weights are random and agreement is modelled, so no text is meant; all times were measured.")
    write(out, found)


if __name__ == "__main__":
    app()
