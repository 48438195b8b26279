"""What else may be wrong with a pass: the cache's contents, the mask's numbers, and the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.utils._pytree import tree_map

from speclab.clinic._faults import NO_WINDOW, final_norm, without_final_norm
from speclab.clinic._passes import BOTH, Change, ChangedPasses
from speclab.models.masks import Mask, MaskPlan
from speclab.models.runner import Runner

PADS = range(1, 17)
SOFT = (-1.0, -2.0, -4.0, -8.0)
"""What a mask may add instead of minus infinity; -1 as a boolean mask that is added does."""


@dataclass(frozen=True)
class SoftPlan(MaskPlan):
    """A mask that adds `hidden` instead of the lowest number."""

    hidden: float = 0.0

    def build(self, *given: Any) -> Mask:
        mask: Mask = tree_map(lambda rows: rows.clamp_min(self.hidden), super().build(*given))
        return mask


def variants(passes: ChangedPasses) -> Iterator[Change]:
    """Changes of the cache's contents, of the mask's numbers and of the model."""
    if passes.oracle.pair.target.plan.window is not None:
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


def _planned(passes: ChangedPasses, plan: type[MaskPlan] = MaskPlan, **values: Any) -> Runner:
    """With other masks of the tree's pass alone."""
    runner = passes.written(passes.path)
    runner.plan = plan(**{"window": runner.plan.window, "kinds": runner.plan.kinds, **values})
    return runner


def _texts(passes: ChangedPasses) -> Iterator[Change]:
    """Another text in the cache; in the first iteration another prompt, or padding before it."""
    text = list(passes.text)
    root = int(passes.own["tokens"][0])
    others = {"the prefix contains the root too": [*text, root]}
    if passes.oracle.drafts:
        others["the draft does not see the newest token"] = text[:-1]
    if passes.step.index == 0:
        start = getattr(passes.oracle.pair.tokenizer, "bos_token_id", None) or 0
        others |= {
            "the prompt begins with one start token more": [start, *text],
            "the prompt's first token is missing": text[1:],
            "the token before the root is in the cache twice": [*text, *text[-1:]],
        }
        for pads in PADS:
            places = [*[0] * pads, *range(len(text))]
            make = partial(passes.fresh, [*[0] * pads, *text], places=places)
            yield Change("prefix", f"rows see {pads} padding tokens before the prompt", make=make)
    for says, tokens in others.items():
        change = Change("prefix", says, make=partial(passes.fresh, tokens))
        yield from (change, passes.moved(change, len(tokens) - len(text)))


def _caches(passes: ChangedPasses) -> Iterator[Change]:
    """Keys, values or a layer in which the first rows of the step before stayed, uncopied."""
    rows = range(len(passes.path))
    changes: dict[str, Any] = {f"only the {part}": {"parts": (part,)} for part in BOTH}
    changes |= {
        f"layer {layer}": {"only": layer} for layer in range(len(passes.right.cache.layers))
    }
    for what, where in changes.items():
        says = f"{what} of the cache kept the first rows"
        yield Change("cache", says, make=partial(passes.written, rows, **where))
