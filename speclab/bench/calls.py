"""One call of a contender on one prompt, timed: our loop, or transformers' own `generate`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from transformers.generation.streamers import BaseStreamer
from transformers.utils import logging

from speclab.bench.contenders import DRAFT, Contender
from speclab.bench.memory import Peak
from speclab.bench.passes import Clock, Clocks, timed_modules, timed_pair
from speclab.bench.result import VerifyCost
from speclab.drafters.base import Strategy
from speclab.engine.decode import Iteration, iterate, start
from speclab.models.pair import ModelPair
from speclab.models.timing import Stopwatch
from speclab.settings import SessionSettings
from speclab.trace.metrics import Counts

PLACES = 32
"""Points kept of how a text grew."""


@dataclass(frozen=True, slots=True)
class Call:
    """A text, and the fields of a `Result` that were measured with it."""

    token_ids: list[int]
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Pass:
    """What is kept of an iteration while the clock runs: no tensor."""

    tokens: int
    ended: float
    rows: int
    path: int
    accepted: int
    watch: Stopwatch
    counts: Counts


@dataclass
class _Growth(BaseStreamer):
    """When which tokens of a peer came; the prompt comes first and is not counted."""

    now: Callable[[], float]
    arrived: list[tuple[int, float]] = field(default_factory=list)
    _prompt: bool = True

    def put(self, value: Tensor) -> None:
        """New tokens are at hand."""
        if not self._prompt:
            before = self.arrived[-1][0] if self.arrived else 0
            self.arrived.append((before + value.numel(), self.now()))
        self._prompt = False

    def end(self) -> None:
        """The text is done."""


def call(pair: ModelPair, contender: Contender, prompt_ids: Sequence[int], settings: SessionSettings) -> Call:
    """Decodes once; the device is waited for before and after, and memory is read beside the clock.

    Raises:
        SpeclabError: ours cannot decode this; of a peer, whatever it raises.
    """
    peak = Peak(pair.target.device)
    if contender.strategy is None:
        done = _peer(pair, contender, prompt_ids, settings)
    else:
        done = _ours(pair, contender.strategy, prompt_ids, settings, by_module=contender.by_module)
    memory = peak.read()
    if memory is not None:
        done.figures.update(peak_memory_bytes=memory[0], memory_kind=memory[1])
    return done


def _ours(
    pair: ModelPair, strategy: Strategy, prompt_ids: Sequence[int], settings: SessionSettings, *, by_module: bool
) -> Call:
    """The loop of `generate`, with the clock read after every iteration."""
    own, clocks = timed_pair(pair, by_module=by_module)
    wait = _waiter(pair)
    passes: list[_Pass] = []
    began = wait()
    decoding = start(own, strategy, prompt_ids, settings)
    ttft = wait() - began
    prefill_calls = decoding.pair.target.calls
    while not decoding.finished:
        iteration = iterate(decoding)
        passes.append(_noted(iteration, len(decoding.tokens) - len(prompt_ids), perf_counter() - began))
    seconds = wait() - began
    token_ids = decoding.tokens[len(prompt_ids) :]
    arrived = [(1, ttft), *((one.tokens, one.ended) for one in passes)]
    figures = _figures(token_ids, seconds, arrived, clocks) | _counted(passes, prefill_calls)
    return Call(token_ids, {**figures, "finished": decoding.finished})


def _peer(pair: ModelPair, contender: Contender, prompt_ids: Sequence[int], settings: SessionSettings) -> Call:
    """As its users run it: greedy, on the modules of the pair."""
    target, draft = pair.target.model, pair.draft.model if pair.draft else None
    extra = {name: draft if value == DRAFT else value for name, value in contender.arguments.items()}
    if not settings.stop_at_eos:
        extra["eos_token_id"] = None
    ids = torch.tensor([list(prompt_ids)], device=target.device)
    clocks, wait = Clocks.on(target.device), _waiter(pair)
    modules: dict[torch.nn.Module, Clock] = {target: clocks.target} | ({draft: clocks.draft} if draft else {})
    with timed_modules(modules), _quiet():
        began = wait()
        growth = _Growth(lambda: perf_counter() - began)
        output = target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=settings.max_new_tokens,
            do_sample=False,
            pad_token_id=0,
            streamer=growth,
            **extra,
        )
        seconds = wait() - began
    token_ids = output[0, len(prompt_ids) :].tolist()
    passes, drafts = clocks.target.calls, clocks.draft.calls
    counts = {"iterations": passes, "target_calls": passes, "draft_calls": drafts, "committed": len(token_ids)}
    finished = "max_new_tokens" if len(token_ids) >= settings.max_new_tokens else "end of text"
    return Call(token_ids, _figures(token_ids, seconds, growth.arrived, clocks) | counts | {"finished": finished})


@contextmanager
def _quiet() -> Iterator[None]:
    """Its warnings on arguments that it sets itself say nothing to whoever measures."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _waiter(pair: ModelPair) -> Callable[[], float]:
    """The time, when the device has done all it was asked."""
    if pair.target.device.type != "cuda":
        return perf_counter

    def wait() -> float:
        torch.cuda.synchronize(pair.target.device)
        return perf_counter()

    return wait


def _noted(iteration: Iteration, tokens: int, ended: float) -> _Pass:
    draft, outcome, counts = iteration.draft, iteration.outcome, iteration.counts
    rows = len(draft.tree) + len(draft.extra.token)
    return _Pass(tokens, ended, rows, counts.longest_path, len(outcome.accepted), iteration.watch, counts)


def _figures(
    token_ids: Sequence[int], seconds: float, arrived: Sequence[tuple[int, float]], clocks: Clocks
) -> dict[str, Any]:
    return {
        "new_tokens": len(token_ids),
        "seconds": seconds,
        "ttft": arrived[0][1] if arrived else None,
        "progress": thinned(arrived),
        "target_seconds": clocks.target.seconds,
        "draft_seconds": clocks.draft.seconds,
    }


def _counted(passes: Sequence[_Pass], prefill_calls: int) -> dict[str, Any]:
    total = sum((one.counts for one in passes), Counts())
    phases: Counter[str] = Counter()
    laps = [one.watch.phase_seconds for one in passes]
    for each in laps:
        phases.update(each)
    deepest = max((one.path for one in passes), default=0)
    rows = sorted({one.rows for one in passes})
    took = {n: [each["verify"] for one, each in zip(passes, laps, strict=True) if one.rows == n] for n in rows}
    return {
        "phases": dict(phases),
        "iterations": total.iterations,
        "target_calls": total.target_calls + prefill_calls,
        "draft_calls": total.draft_calls,
        "committed": total.committed,
        "drafted": total.drafted,
        "accepted": total.accepted,
        "longest_path": total.longest_path,
        "nodes": sum(one.rows for one in passes),
        "depth_drafted": tuple(sum(one.path >= depth for one in passes) for depth in range(1, deepest + 1)),
        "depth_accepted": tuple(sum(one.accepted >= depth for one in passes) for depth in range(1, deepest + 1)),
        "verify_cost": tuple(VerifyCost(nodes=n, passes=len(own), seconds=median(own)) for n, own in took.items()),
    }


def thinned(arrived: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Some `PLACES` of the points, evenly over them, the first and the last included."""
    if len(arrived) <= PLACES:
        return tuple(arrived)
    last = len(arrived) - 1
    return tuple(arrived[round(place * last / (PLACES - 1))] for place in range(PLACES))
