"""One call of a method on one prompt, timed: speclab's loop, or transformers' own `generate`.

Seconds and number of forward passes by role: of speclab at the runner, of transformers at the module. On CUDA no
reading of these clocks waits for the device; they are read after the call.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.generation.streamers import BaseStreamer
from transformers.utils import logging

from speclab.bench.protocol import DRAFT, Method
from speclab.bench.result import VerifyCost
from speclab.drafters.base import Strategy
from speclab.engine.decode import iterate, start
from speclab.models.heads import HeadRunner
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner
from speclab.models.timing import Stopwatch
from speclab.settings import SessionSettings
from speclab.trace.metrics import Counts


@dataclass(frozen=True, slots=True)
class Call:
    """A text, and the fields of a `Result` that were measured with it."""

    token_ids: list[int]
    figures: dict[str, Any]


def call(pair: ModelPair, method: Method, prompt_ids: Sequence[int], settings: SessionSettings) -> Call:
    """Decodes once; the device is waited for before and after, and memory is read beside the clock.

    Raises:
        SpeclabError: speclab cannot decode this; transformers raises whatever it raises.
    """
    peak = Peak(pair.target.device)
    if method.strategy is None:
        done = _transformers(pair, method.generate, prompt_ids, settings)
    else:
        done = _speclab(pair, method.strategy, prompt_ids, settings, by_module=method.passes == "module")
    memory = peak.read()
    if memory is not None:
        done.figures.update(peak_memory_bytes=memory[0], memory_kind=memory[1])
    return done


_Pass = tuple[int, Stopwatch, Counts]
"""What is kept of an iteration while the clock runs, no tensor among it: rows of the pass, its clock, its counts."""


def _speclab(
    pair: ModelPair, strategy: Strategy, prompt_ids: Sequence[int], settings: SessionSettings, *, by_module: bool
) -> Call:
    """The loop of `generate`, with the clock read after every iteration."""
    own, target, draft = timed_pair(pair, by_module=by_module)
    now = _clock(pair)
    passes: list[_Pass] = []
    began = now()
    decoding = start(own, strategy, prompt_ids, settings)
    ttft = now() - began
    prefill_calls = decoding.pair.target.calls
    while not decoding.finished:
        iteration = iterate(decoding)
        rows = len(iteration.draft.tree) + len(iteration.draft.extra.token)
        passes.append((rows, iteration.watch, iteration.counts))
    seconds = now() - began
    token_ids = decoding.tokens[len(prompt_ids) :]
    figures = _figures(token_ids, seconds, ttft, target, draft) | _counted(passes, prefill_calls)
    return Call(token_ids, {**figures, "finished": decoding.finished})


class _FirstToken(BaseStreamer):
    """When the first token of transformers came; the prompt comes before it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._prompt = now, True
        self.at: float | None = None

    def put(self, _: Tensor) -> None:
        """New tokens are at hand."""
        if not self._prompt and self.at is None:
            self.at = self._now()
        self._prompt = False

    def end(self) -> None:
        """The text is done."""


def _transformers(
    pair: ModelPair, arguments: Mapping[str, Any], prompt_ids: Sequence[int], settings: SessionSettings
) -> Call:
    """As its users run it: greedy, on the modules of the pair."""
    module, draft_module = pair.target.model, pair.draft.model if pair.draft else None
    extra = {name: draft_module if value == DRAFT else value for name, value in arguments.items()}
    if not settings.stop_at_eos:
        extra["eos_token_id"] = None
    ids = torch.tensor([list(prompt_ids)], device=module.device)
    now, target, draft = _clock(pair), PassClock(module.device), PassClock(module.device)
    modules: dict[nn.Module, PassClock] = {module: target} | ({draft_module: draft} if draft_module else {})
    with _timed_modules(modules), _quiet():
        began = now()
        first = _FirstToken(lambda: perf_counter() - began)
        output = module.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=settings.max_new_tokens, do_sample=False,
            pad_token_id=0, streamer=first, **extra,
        )  # fmt: skip
        seconds = now() - began
    token_ids = output[0, len(prompt_ids) :].tolist()
    counts = {"iterations": target.calls, "target_calls": target.calls, "draft_calls": draft.calls}
    finished = "max_new_tokens" if len(token_ids) >= settings.max_new_tokens else "end of text"
    figures = _figures(token_ids, seconds, first.at, target, draft)
    return Call(token_ids, figures | counts | {"committed": len(token_ids), "finished": finished})


@contextmanager
def _quiet() -> Iterator[None]:
    """Its warnings on arguments that it sets itself say nothing to whoever measures."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _clock(pair: ModelPair) -> Callable[[], float]:
    """The time, when the device has done all it was asked."""
    if pair.target.device.type != "cuda":
        return perf_counter

    def now() -> float:
        torch.cuda.synchronize(pair.target.device)
        return perf_counter()

    return now


def _figures(
    token_ids: Sequence[int], seconds: float, ttft: float | None, target: PassClock, draft: PassClock
) -> dict[str, Any]:
    return {
        "new_tokens": len(token_ids), "seconds": seconds, "ttft": ttft,
        "target_seconds": target.seconds, "draft_seconds": draft.seconds,
    }  # fmt: skip


def _counted(passes: Sequence[_Pass], prefill_calls: int) -> dict[str, Any]:
    total = sum((counts for *_, counts in passes), Counts())
    phases: Counter[str] = Counter()
    verify: dict[int, list[float]] = {}
    for rows, watch, _ in passes:
        seconds = watch.phase_seconds
        phases.update(seconds)
        verify.setdefault(rows, []).append(seconds["verify"])
    depths = range(1, max((counts.longest_path for *_, counts in passes), default=0) + 1)
    return {
        "phases": dict(phases),
        "iterations": total.iterations,
        "target_calls": total.target_calls + prefill_calls,
        "draft_calls": total.draft_calls,
        "committed": total.committed,
        "drafted": total.drafted,
        "accepted": total.accepted,
        "longest_path": total.longest_path,
        "nodes": sum(rows for rows, *_ in passes),
        "depth_drafted": tuple(sum(counts.longest_path >= depth for *_, counts in passes) for depth in depths),
        "depth_accepted": tuple(sum(counts.accepted >= depth for *_, counts in passes) for depth in depths),
        "verify_cost": tuple(
            VerifyCost(nodes=rows, passes=len(took), seconds=median(took)) for rows, took in sorted(verify.items())
        ),
    }


class PassClock:
    """Forward passes of one role: their number, and the seconds inside them."""

    def __init__(self, device: torch.device) -> None:
        self._watch = Stopwatch(device)
        self.calls = 0

    def start(self) -> None:
        """A pass begins."""
        self.calls += 1
        self._watch.mark("outside")

    def stop(self) -> None:
        """It ends."""
        self._watch.mark("inside")

    @property
    def seconds(self) -> float:
        """Inside all passes."""
        return self._watch.phase_seconds.get("inside", 0.0)


class _Timed:
    """The implementation of a pass, with a clock around it; everything else is as it was."""

    def __init__(self, inner: Any, clock: PassClock) -> None:
        self._inner, self._clock = inner, clock

    def __call__(self, *args: Any, **settings: Any) -> Any:
        self._clock.start()
        try:
            return self._inner(*args, **settings)
        finally:
            self._clock.stop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _TimedHead(HeadRunner):
    """A head whose passes are timed, in every fork too."""

    clock: PassClock

    def _pass(self, *args: Any, **settings: Any) -> Any:
        self.clock.start()
        try:
            return super()._pass(*args, **settings)
        finally:
            self.clock.stop()


def timed_pair(pair: ModelPair, *, by_module: bool = False) -> tuple[ModelPair, PassClock, PassClock]:
    """A pair with caches of its own whose passes are timed, and the clocks: the target's; draft model and heads.

    Args:
        by_module: take the modules' own forward, not a lean one.
    """
    target, draft = PassClock(pair.target.device), PassClock(pair.target.device)

    def timed(runner: Runner, clock: PassClock) -> Runner:
        own = runner.by_module() if by_module else copy.copy(runner)
        own.implementation = _Timed(own.implementation, clock)
        return own

    def head(runner: HeadRunner | Runner) -> HeadRunner | Runner:
        if not isinstance(runner, HeadRunner):
            return timed(runner, draft)
        own: Any = copy.copy(runner)
        own.__class__, own.clock = _TimedHead, draft
        return cast("HeadRunner", own)

    own = replace(
        pair,
        target=timed(pair.target, target),
        draft=timed(pair.draft, draft) if pair.draft else None,
        heads=tuple(head(runner) for runner in pair.heads),
    )
    return own.fresh(), target, draft


@contextmanager
def _timed_modules(modules: Mapping[nn.Module, PassClock]) -> Iterator[None]:
    """Times every call of these modules while the context is open."""
    handles = []
    for module, clock in modules.items():
        handles.append(module.register_forward_pre_hook(lambda *_, clock=clock: clock.start()))
        handles.append(module.register_forward_hook(lambda *_, clock=clock: clock.stop(), always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Peak:
    """From its creation on: bytes of the CUDA allocator, or resident bytes of the whole process (Linux).

    What an earlier call has freed may still be resident, so on a CPU small differences tell nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with suppress(OSError):  # without it the peak is that of the process's whole life
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def read(self) -> tuple[int, str] | None:
        """Bytes at the peak and whose they are; None where the system does not tell."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device), "cuda allocator"
        try:
            found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
        except OSError:
            return None
        return (1024 * int(found[1]), "rss") if found else None
