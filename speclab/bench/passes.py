"""Seconds and number of forward passes of a call, by role: ours at the runner, a peer's at the module.

On CUDA a pair of events brackets each pass, so that no reading waits for the device; they are read after the call.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, cast

import torch
from torch import nn

from speclab.models.head_runner import HeadRunner
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner


@dataclass
class Clock:
    """Passes of one role, added up."""

    cuda: bool = False
    calls: int = 0
    _spent: float = 0.0
    _began: float = 0.0
    _events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = field(default_factory=list)

    def start(self) -> None:
        """A pass begins."""
        self.calls += 1
        if self.cuda:
            self._events.append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
            self._events[-1][0].record()
        else:
            self._began = perf_counter()

    def stop(self) -> None:
        """It ends."""
        if self.cuda:
            self._events[-1][1].record()
        else:
            self._spent += perf_counter() - self._began

    @property
    def seconds(self) -> float:
        """Inside all passes; on CUDA call it when the device has been waited for."""
        return self._spent + sum(float(began.elapsed_time(ended)) for began, ended in self._events) / 1000


@dataclass
class Clocks:
    """Of the target, and of draft model and heads together."""

    target: Clock
    draft: Clock

    @classmethod
    def on(cls, device: torch.device) -> Clocks:
        """Clocks that fit the device."""
        cuda = device.type == "cuda"
        return cls(Clock(cuda), Clock(cuda))


class _Timed:
    """What a pass goes through, with a clock around it; everything else is as it was."""

    def __init__(self, through: Any, clock: Clock) -> None:
        self._through, self._clock = through, clock

    def __call__(self, *args: Any, **settings: Any) -> Any:
        self._clock.start()
        try:
            return self._through(*args, **settings)
        finally:
            self._clock.stop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._through, name)


def timed_pair(pair: ModelPair, *, by_module: bool = False) -> tuple[ModelPair, Clocks]:
    """A pair with caches of its own whose passes are timed, and the clocks.

    Args:
        pair: left as it is.
        by_module: take the modules' own forward, not a lean one.
    """
    clocks = Clocks.on(pair.target.device)

    def timed(runner: Runner, clock: Clock) -> Runner:
        own = runner.by_module() if by_module else copy.copy(runner)
        own.through = _Timed(own.through, clock)
        return own

    def head(runner: HeadRunner | Runner) -> HeadRunner | Runner:
        if not isinstance(runner, HeadRunner):
            return timed(runner, clocks.draft)
        own: Any = copy.copy(runner)
        own.model, own._output = _Timed(own.model, clocks.draft), _Timed(own._output, clocks.draft)
        return cast("HeadRunner", own)

    own = replace(
        pair,
        target=timed(pair.target, clocks.target),
        draft=timed(pair.draft, clocks.draft) if pair.draft else None,
        heads=tuple(head(runner) for runner in pair.heads),
    )
    return own.fresh(), clocks


@contextmanager
def timed_modules(modules: Mapping[nn.Module, Clock]) -> Iterator[None]:
    """Times every call of these modules while the context is open."""

    def before(clock: Clock) -> Callable[..., None]:
        return lambda _module, _args: clock.start()

    def after(clock: Clock) -> Callable[..., None]:
        return lambda _module, _args, _output: clock.stop()

    handles = [module.register_forward_pre_hook(before(clock)) for module, clock in modules.items()]
    handles += [module.register_forward_hook(after(clock), always_call=True) for module, clock in modules.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
