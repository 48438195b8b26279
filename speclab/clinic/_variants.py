"""What else may be wrong with a pass: the cache's contents, the mask's numbers, and the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from speclab.clinic._faults import NO_WINDOW, final_norm, without_final_norm
from speclab.clinic._passes import Change, ChangedPasses
from speclab.models.masks import Mask, MaskPlan
from speclab.models.runner import Runner

PADS = range(1, 17)
SOFT = (-1.0, -2.0, -4.0, -8.0)
"""What a mask may add instead of minus infinity; -1 as a boolean mask that is added does."""
BOTH = ("keys", "values")


@dataclass(frozen=True)
class SoftPlan(MaskPlan):
    """A mask that adds `hidden` instead of the lowest number."""

    hidden: float = 0.0

    def build(self, *given: Any) -> Mask:
        mask = super().build(*given)
        if isinstance(mask, dict):
            return {kind: rows.clamp_min(self.hidden) for kind, rows in mask.items()}
        assert mask is not None
        return mask.clamp_min(self.hidden)


def variants(passes: ChangedPasses) -> Iterator[Change]:
    """Changes of the cache's contents, of the mask's numbers and of the model."""
    target = passes.oracle.pair.target
    if target.plan.window is not None:
        fault = "window run as full attention"
        wide = partial(passes.fresh, window=NO_WINDOW)
        yield Change("window", "the model ignores its sliding window", make=wide, fault=fault)
        tree = partial(_planned, passes, window=NO_WINDOW)
        yield Change("window", "only the tree's pass ignores the sliding window", make=tree)
    yield from _texts(passes)
    if passes.before is not None:
        yield from _caches(passes)
    for hidden in SOFT:
        says = f"hidden rows are masked by {hidden:.3g} instead of minus infinity"
        yield Change("mask", says, make=partial(_planned, passes, SoftPlan, hidden=hidden))
    if final_norm(passes.oracle.model):
        plain = without_final_norm(passes.oracle.model)
        yield Change("norm", "the final norm is left out", make=partial(passes.fresh, model=plain))
    if passes.oracle.drafts:
        entries = passes.shown.copy()
        entries[entries.nonzero()[0][-1]] = False
        tokens = [passes.text[-1], *passes.own["tokens"][1:]]
        says = "the draft does not see the newest token"
        change = Change("token", says, {"tokens": tokens, "entries": entries})
        yield passes.moved(change, -1)


def _planned(passes: ChangedPasses, plan: type[MaskPlan] = MaskPlan, **values: Any) -> Runner:
    """With other masks of the tree's pass alone."""
    runner = passes.copied()
    runner.plan = plan(**{"window": runner.plan.window, "kinds": runner.plan.kinds, **values})
    return runner


def _texts(passes: ChangedPasses) -> Iterator[Change]:
    """Another text in the cache; in the first iteration another prompt, or padding before it."""
    text = list(passes.text)
    others = {"the prefix contains the root too": [*text, int(passes.own["tokens"][0])]}
    if passes.step.index == 0:
        start = getattr(passes.oracle.pair.tokenizer, "bos_token_id", None) or 0
        others |= {
            "the prompt begins with one start token more": [start, *text],
            "the prompt's first token is missing": text[1:],
            "the token before the root is in the cache twice": [*text, *text[-1:]],
        }
        for pads in PADS:
            make = partial(
                passes.fresh, [*[0] * pads, *text], places=[*[0] * pads, *range(len(text))]
            )
            yield Change("prefix", f"rows see {pads} padding tokens before the prompt", make=make)
    for says, tokens in others.items():
        change = Change("prefix", says, make=partial(passes.fresh, tokens))
        yield from (change, passes.moved(change, len(tokens) - len(text)))


def _caches(passes: ChangedPasses) -> Iterator[Change]:
    """Entries of the iteration before that are empty, or those of other rows."""
    for parts in (("keys",), BOTH):
        says = f"the newest {' and '.join(parts)} of the cache are empty"
        yield Change("cache", says, make=partial(_emptied, passes, parts))
    path = passes.path
    n = passes.right.length - passes.start
    orders = {
        "the first rows": list(range(len(path))),
        "the last rows": list(range(n - len(path), n)),
        "the rows after the right ones": [min(row + (row > 0), n - 1) for row in path],
        "the right rows with the root in place of the last": [*path[:-1], 0],
        "the root twice": [0, *path],
        "all rows": list(range(n)),
    }
    for what, rows in orders.items():
        if rows == path or len(rows) > n:
            continue
        says = f"iteration {passes.step.index} kept {what}"
        make = partial(_written, passes, rows)
        if len(rows) > len(path):
            change = Change("prefix", says, make=make)
            yield from (change, passes.moved(change, len(rows) - len(path)))
            continue
        yield Change("order", says, make=make)
        for part in BOTH:
            says = f"only the {part} of the cache are those of {what}"
            yield Change("cache", says, make=partial(make, parts=(part,)))
        for layer in range(len(passes.right.cache.layers)):
            says = f"layer {layer} kept {what}"
            yield Change("cache", says, make=partial(make, only=layer))


@torch.inference_mode()
def _emptied(passes: ChangedPasses, parts: Sequence[str]) -> Runner:
    runner = passes.copied()
    for layer in runner.cache.layers:
        for part in parts:
            getattr(layer, part)[:, :, -1] = 0
    return runner


@torch.inference_mode()
def _written(
    passes: ChangedPasses,
    rows: Sequence[int],
    parts: Sequence[str] = BOTH,
    only: int | None = None,
) -> Runner:
    """With other rows' keys or values of the step before, in all layers or one."""
    start = passes.start
    runner = passes.right.fork(passes.right.length, lean=False)
    runner.keep(start, range(start, start + len(rows)))  # so many entries; their contents follow
    layers = zip(runner.cache.layers, passes.right.cache.layers, strict=True)
    for index, (layer, right) in enumerate(layers):
        for part in BOTH:
            changed = part in parts and only in (None, index)
            source = [start + row for row in (rows if changed else passes.path)]
            getattr(layer, part)[:, :, start:] = getattr(right, part)[:, :, source]
    return runner
