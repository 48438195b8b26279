"""What may be wrong with what a pass reads: the contents of the cache, the numbers of the mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from speclab.clinic._detectors import path_of
from speclab.clinic._faults import NO_WINDOW, final_norm, without_final_norm
from speclab.clinic._measure import Measured
from speclab.clinic._passes import Bench, Change, SoftPlan, Variant
from speclab.models.masks import MaskPlan
from speclab.models.runner import Runner

PADS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
SOFT = (-1.0, -2.0, -4.0, -8.0)
"""What a mask may add instead of minus infinity; -1 as a boolean mask that is added does."""


def variants(bench: Bench, measured: Measured) -> Iterator[Change]:
    """Changes of the cache's contents, of the mask's numbers and of the model."""
    if bench.oracle.pair.target.plan.window is not None:
        fault = "window run as full attention"
        wide = partial(Bench.fresh, window=NO_WINDOW)
        yield _made("window", "the model ignores its sliding window", wide, fault)
        wide = partial(_planned, window=NO_WINDOW)
        yield _made("window", "only the tree's pass ignores the sliding window", wide)
    yield from _caches(bench)
    for hidden in SOFT:
        says = f"hidden rows are masked by {hidden:.3g} instead of minus infinity"
        make = partial(_planned, plan=SoftPlan, hidden=hidden)
        yield Change("mask", says, variant=Variant(says, make, soft=True))
    if final_norm(bench.oracle.model):
        yield _made("norm", "the final norm is left out", _without_norm)
    for pads in PADS if measured.step.index == 0 else ():
        says = f"rows see {pads} padding tokens before the prompt"
        yield _made("prefix", says, partial(_padded, pads=pads))


def _made(kind: str, says: str, make: Callable[[Bench], Runner], fault: str = "") -> Change:
    return Change(kind, says, variant=Variant(says, make), fault=fault)


def _planned(bench: Bench, plan: type[MaskPlan] = MaskPlan, **values: Any) -> Runner:
    """With other masks of the tree's pass alone."""
    runner = bench.copied()
    runner.plan = plan(**{"window": runner.plan.window, "kinds": runner.plan.kinds, **values})
    return runner


def _padded(bench: Bench, pads: int) -> Runner:
    """Pads are at position 0."""
    places = [*[0] * pads, *range(len(bench.text))]
    return bench.fresh(text=[*[0] * pads, *bench.text], places=places)


def _caches(bench: Bench) -> Iterator[Change]:
    before = bench.before
    if before is None:
        return
    yield _made("cache", "the newest entry of the cache is empty", _emptied)
    path = list(path_of(before))[: len(before.committed)]
    first = list(range(len(path)))
    orders = {
        "the first rows": first,
        "the kept rows in reverse": path[::-1],
    }
    for what, rows in orders.items():
        if rows == path:
            continue
        for which in ("keys", "values"):
            says = f"only the {which} of the cache are those of {what}"
            yield _made("cache", says, partial(_written, rows, which))
        for layer in range(len(bench.right.cache.layers)):
            says = f"layer {layer} kept {what}"
            yield _made("cache", says, partial(_written, rows, "keys values", only=layer))
        says = f"iteration {before.index + 1} kept {what}"
        yield _made("order", says, partial(_written, rows, "keys values"))


def _without_norm(bench: Bench) -> Runner:
    return bench.fresh(without_final_norm(bench.oracle.model))


@torch.inference_mode()
def _emptied(bench: Bench) -> Runner:
    runner = bench.copied()
    for layer in runner.cache.layers:
        layer.keys[:, :, -1] = 0
        layer.values[:, :, -1] = 0
    return runner


@torch.inference_mode()
def _written(rows: Sequence[int], which: str, bench: Bench, only: int | None = None) -> Runner:
    """With other rows' keys or values of the step before, in all layers or one."""
    runner = bench.copied()
    layers = zip(runner.cache.layers, bench.right.cache.layers, strict=True)
    for index, (layer, right) in enumerate(layers):
        if only in (None, index):
            if "keys" in which:
                layer.keys[:, :, bench.start :] = right.keys[:, :, bench.start :][:, :, rows]
            if "values" in which:
                layer.values[:, :, bench.start :] = right.values[:, :, bench.start :][:, :, rows]
    return runner
