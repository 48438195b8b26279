"""What may be wrong with what computes a pass: the cache's contents, the mask's numbers, the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from math import sqrt
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from speclab.analysis.detectors import path_of
from speclab.analysis.faults import NO_WINDOW, final_norm, without_final_norm
from speclab.analysis.measure import Measured
from speclab.analysis.passes import Bench, Change, Rewrite, Variant
from speclab.models.probe import sharing_weights

PADS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
FACTORS = {
    "scaling": ("scale", "attention scores"),
    "inv_freq": ("position", "rotary frequencies"),
}
"""Numbers of a model that an engine may have otherwise."""
SOFT = (-1.0, -2.0, -4.0, -8.0)
"""What a mask may add instead of minus infinity; -1 as a boolean mask that is added does."""
KNOBS = (0.25, 0.5, 0.7071, 0.8, 0.9, 1.1, 1.25, 1.4142, 2.0, 4.0)


def variants(bench: Bench, measured: Measured) -> Iterator[Change]:
    """Changes of the cache's contents, of the mask's numbers and of the model."""
    plan = bench.oracle.pair.target.plan
    if plan.window is not None:
        wide = {"window": NO_WINDOW}
        fault = "window run as full attention"
        yield _made("window", "the model ignores its sliding window", fault, whole_plan=wide)
        yield _made("window", "only the tree's pass ignores the sliding window", plan=wide)
        for window in (plan.window - 1, plan.window + 1):
            says = f"the sliding window of the tree's pass is {window}"
            yield _made("window", says, plan={"window": window})
    yield from _caches(bench)
    for hidden in SOFT:
        yield turn(bench, "hidden", hidden)
    yield from _models(bench)
    if measured.step.index == 0:
        for pads, counted in product(PADS, (False, True)):
            says = f"rows see {pads} padding tokens before the prompt" + ", which count" * counted
            yield _made("prefix", says, pads=pads, counted=counted)


def _made(kind: str, says: str, fault: str = "", **what: Any) -> Change:
    return Change(kind, says, variant=Variant(says, **what), fault=fault)


def _caches(bench: Bench) -> Iterator[Change]:
    before = bench.before
    if before is None:
        return
    yield _made("cache", "the newest entry of the cache is empty", cache=_emptied)
    path = list(path_of(before))[: len(before.committed)]
    first = list(range(len(path)))
    last = len(before.tree) - 1
    orders = {
        "the first rows": first,
        "the kept rows in reverse": path[::-1],
        "the rows after them": [min(row + 1, last) for row in path],
    }
    for what, rows in orders.items():
        if rows == path:
            continue
        for which in ("keys", "values"):
            says = f"only the {which} of the cache are those of {what}"
            yield _made("cache", says, cache=_written(rows, which))
        for layer in range(len(bench.right.runner.cache.layers)):
            says = f"layer {layer} kept {what}"
            yield _made("cache", says, cache=_written(rows, "keys values", layer))
        if rows != first:
            says = f"iteration {before.index + 1} kept {what}"
            yield _made("order", says, cache=_written(rows, "keys values"))


def _emptied(_: int, keys: Tensor, values: Tensor, *__: Tensor) -> None:
    keys[:, :, -1] = 0
    values[:, :, -1] = 0


def _written(rows: Sequence[int], which: str, only: int | None = None) -> Rewrite:
    """Writes other rows' keys or values, in all layers or one."""

    def write(
        layer: int, old_keys: Tensor, old_values: Tensor, keys: Tensor, values: Tensor
    ) -> None:
        if only not in (None, layer):
            return
        if "keys" in which:
            old_keys.copy_(keys[:, :, rows])
        if "values" in which:
            old_values.copy_(values[:, :, rows])

    return write


def _models(bench: Bench) -> Iterator[Change]:
    model = bench.oracle.model
    norms = [name for name, part in model.named_modules() if "norm" in type(part).__name__.lower()]
    if final_norm(model):
        yield _made("norm", "the final norm is left out", model=partial(without_final_norm, model))
    for only, of in ((False, ""), (True, " of the tree's pass")):
        if norms and norms[0] != final_norm(model):
            without = partial(_without, model, norms[0])
            yield _made("norm", f"the first norm{of} is left out", model=without, tree_only=only)
        for index in range(len(_layers(model))):
            skipping = partial(_skipping, model, index)
            yield _made("layer", f"layer {index}{of} is left out", model=skipping, tree_only=only)
    width = model.get_input_embeddings().embedding_dim
    for scale in (sqrt(width), 1 / sqrt(width)):
        scaled = partial(_scaled, model, scale)
        yield _made("scale", f"embeddings are scaled by {scale:.3g}", model=scaled)
    for what in FACTORS:
        if any(isinstance(getattr(part, what, None), float | Tensor) for part in model.modules()):
            for factor in KNOBS:
                yield turn(bench, what, factor)


def turn(bench: Bench, what: str, factor: float) -> Change:
    """A change of a number of the model or of its mask."""
    if what == "hidden":
        plan = {"shown": 0.0, "hidden": factor}
        says = f"hidden rows are masked by {factor:.3g} instead of minus infinity"
        return Change("mask", says, variant=Variant(f"hidden {factor}", plan=plan), factor=factor)
    kind, says = FACTORS[what]
    variant = Variant(f"{what} {factor}", model=partial(_turned, bench.oracle.model, what, factor))
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
