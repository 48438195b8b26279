"""What may be wrong with what computes a pass: the cache's contents, the mask's numbers, the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from speclab.clinic._detectors import path_of
from speclab.clinic._faults import NO_WINDOW, final_norm, norms, without_final_norm
from speclab.clinic._measure import Measured
from speclab.clinic._passes import Bench, Change, SoftPlan, Variant
from speclab.models.masks import MaskPlan
from speclab.models.probe import sharing_weights
from speclab.models.runner import Runner

PADS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
FACTORS = {
    "scaling": ("scale", "attention scores"),
    "inv_freq": ("position", "rotary frequencies"),
}
"""Numbers of a model that an engine may have otherwise."""
SOFT = (-1.0, -2.0, -4.0, -8.0)
"""What a mask may add instead of minus infinity; -1 as a boolean mask that is added does."""
KNOBS = (0.4, 0.7, 0.9, 1.1, 1.4, 2.5)


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
        yield turn(bench, "hidden", hidden)
    yield from _models(bench)
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


@torch.inference_mode()
def _computed(make: Callable[[], PreTrainedModel], bench: Bench, tree_only: bool = False) -> Runner:
    """With another model, or with another one for the tree's pass alone."""
    if not tree_only:
        return bench.fresh(make())
    runner = bench.copied()
    runner.model = make()
    return runner


def _models(bench: Bench) -> Iterator[Change]:
    model = bench.oracle.model
    first = next(iter(norms(model)), "")
    if final_norm(model):
        make = partial(_computed, partial(without_final_norm, model))
        yield _made("norm", "the final norm is left out", make)
    for only, of in ((False, ""), (True, " of the tree's pass")):
        if first and first != final_norm(model):
            without = partial(_without, model, first)
            make = partial(_computed, without, tree_only=only)
            yield _made("norm", f"the first norm{of} is left out", make)
        for index in range(len(_layers(model))):
            skipping = partial(_skipping, model, index)
            make = partial(_computed, skipping, tree_only=only)
            yield _made("layer", f"layer {index}{of} is left out", make)
    width = model.get_input_embeddings().embedding_dim
    for scale in (sqrt(width), 1 / sqrt(width)):
        scaled = partial(_scaled, model, scale)
        yield _made("scale", f"embeddings are scaled by {scale:.3g}", partial(_computed, scaled))
    for what in FACTORS:
        if any(isinstance(getattr(part, what, None), float | Tensor) for part in model.modules()):
            for factor in KNOBS:
                yield turn(bench, what, factor)


def turn(bench: Bench, what: str, factor: float) -> Change:
    """A change of a number of the model or of its mask."""
    if what == "hidden":
        says = f"hidden rows are masked by {factor:.3g} instead of minus infinity"
        make = partial(_planned, plan=SoftPlan, hidden=factor)
        variant = Variant(f"hidden {factor}", make, soft=True)
        return Change("mask", says, variant=variant, factor=factor)
    kind, says = FACTORS[what]
    make = partial(_computed, partial(_turned, bench.oracle.model, what, factor))
    variant = Variant(f"{what} {factor}", make)
    return Change(kind, f"{says} are scaled by {factor:.3g}", variant=variant, factor=factor)


def _layers(model: PreTrainedModel) -> nn.ModuleList:
    count = model.config.get_text_config(decoder=True).num_hidden_layers
    lists = [
        part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) == count
    ]
    return lists[0] if lists else nn.ModuleList()


def _without(model: PreTrainedModel, name: str) -> PreTrainedModel:
    twin = sharing_weights(model)
    twin.set_submodule(name, nn.Identity())
    return twin


def _scaled(model: PreTrainedModel, scale: float) -> PreTrainedModel:
    twin = sharing_weights(model)
    twin.get_input_embeddings().register_forward_hook(lambda _, __, rows: rows * scale)
    return twin


def _skipping(model: PreTrainedModel, index: int) -> PreTrainedModel:
    def skip(_: Any, given: Any, named: Any, output: Any) -> Any:
        states = given[0] if given else named["hidden_states"]
        return (states, *output[1:]) if isinstance(output, tuple) else states

    twin = sharing_weights(model)
    _layers(twin)[index].register_forward_hook(skip, with_kwargs=True)
    return twin


def _turned(model: PreTrainedModel, name: str, factor: float) -> PreTrainedModel:
    """With a number of every module that has it times a factor."""
    twin = sharing_weights(model)
    for part in twin.modules():
        value = getattr(part, name, None)
        if isinstance(value, float | Tensor):
            setattr(part, name, value * factor)
    return twin
