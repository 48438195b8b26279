"""Other ways to run a draft head than as it is loaded: what people's heads turned out to need, each a `Way` to measure.

Public threads behind them: sgl-project/sglang #25454 (layer ids counted from the block or from its input), #32334 and
vllm-project/vllm #38111 (norms that a config asks for and an engine leaves out), #11672 and #14464 (norms and residual
of EAGLE), NVIDIA-NeMo/Automodel #2447, sgl-project/SpecForge #534 and verl-project/verl-SpeCo #67 (the vocabulary map
missing, replaced, or ids for offsets), sgl-project/SpecForge #265 and vllm-project/speculators #574 (rotary base).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from speclab.analysis.head_trials import States, Way, depth_of
from speclab.models.heads import HeadRunner
from speclab.models.runner import Runner

LAYERS, NORM, MAP, ALIGNMENT, ROPE, DTYPE = (
    "layer indices", "norm", "vocabulary map", "alignment of tokens and states", "rotary base", "dtype",
)  # fmt: skip
_THETAS = (1e4, 1e5, 5e5, 1e6, 5e6)
"""Rotary bases of widespread models."""


def other_ways(head: HeadRunner, target: Runner) -> list[Way]:
    """What else to try with a head."""
    kinds = (_maps, _layers, _norms, _alignments, _bases, _dtypes)
    return [way for kind in kinds for way in kind(head, target)]


def _twin(head: HeadRunner, target: Runner, /, buffers: dict[str, Tensor] | None = None, **changes: Any) -> HeadRunner:
    """A runner of the same weights with other fields in its config, or other buffers."""
    model = copy.copy(head.model)
    model.config = model.config.model_copy(update=changes)
    model._buffers = {**model._buffers, **(buffers or {})}
    twin = type(head)(model, target)
    twin.vocab_size = head.vocab_size
    return twin


def _maps(head: HeadRunner, target: Runner) -> Iterator[Way]:
    """Where the output layer is the head's own: what its columns may mean."""
    ids = head.model.token_ids
    if ids is None or head.model.lm_head is None:
        return
    offsets, marks, columns = head.model.get_buffer("d2t"), head.model.get_buffer("t2d"), torch.arange(len(ids))
    columns, size = columns.to(ids.device), len(marks)
    marked = marks.nonzero()[:, 0]
    named = {
        "its tokens one id further": ids + 1,
        "its tokens one id before": ids - 1,
        "its tokens moved on by one column": ids.roll(1),
        "its tokens moved back by one column": ids.roll(-1),
        "d2t as ids, not as offsets": offsets,
        "the first ids of the vocabulary": columns,
        "the tokens that t2d marks": marked if len(marked) == len(ids) else ids,
    }
    for how, other in named.items():
        if not torch.equal(other, ids) and len(other.unique()) == len(other):
            inside = other.clamp(0, size - 1)
            out = "Write d2t anew: the target's id of each of the head's tokens, less the token's own number."
            yield Way(MAP, how, _twin(head, target, {"d2t": inside - columns}), out=out)


def _layers(head: HeadRunner, target: Runner) -> Iterator[Way]:
    """Neighbouring layers, other ways to count them, and what EAGLE-3's programs take by default."""
    depth = depth_of(target)
    now = [layer % (depth + 1) for layer in head.config.layers]
    if len(now) == 1:
        tried = [[layer] for layer in range(depth + 1)]
    else:
        tried = [[layer + by for layer in now] for by in (-2, -1, 1, 2)] + [now[::-1]]
        if len(now) == 3:
            three = [2, depth // 2, depth - 3]
            tried += [three, [layer + 1 for layer in three], [0, 1, 2], [depth - 2, depth - 1, depth]]
    for layers in dict.fromkeys(map(tuple, tried)):
        if layers != tuple(now) and all(0 <= layer <= depth for layer in layers):
            out = f"Set the layers in the head's config to {list(layers)}, counted as hidden_states of transformers."
            yield Way(LAYERS, _named(layers, depth), head, _at(layers), out)


def _named(layers: Sequence[int], depth: int) -> str:
    if len(layers) > 1:
        return f"layers {', '.join(map(str, layers))}"
    return "the embeddings" if layers == (0,) else f"layer {layers[0]}" + (" (the last)" if layers[0] == depth else "")


def _at(layers: Sequence[int]) -> Callable[[States], Tensor]:
    return lambda states: states.at(layers)


def _norms(head: HeadRunner, target: Runner) -> Iterator[Way]:
    """Before or after the target's final norm, and the norms that a head's config switches."""
    depth = depth_of(target)
    now = [layer % (depth + 1) for layer in head.config.layers]

    def before(states: States) -> Tensor:
        kept = [*states.layers[:-1], states.layers[-1] if states.raw is None else states.raw]
        return torch.cat([kept[layer] for layer in now], dim=-1)

    def after(states: States) -> Tensor:
        norm = states.norm or torch.nn.Identity()
        return torch.cat([states.layers[layer] if layer == depth else norm(states.layers[layer]) for layer in now], -1)

    out = "Hand the head states from {} the target's final norm, as it was trained, or train it on those it is handed."
    if depth in now:
        yield Way(NORM, "states before the target's final norm", head, before, out.format("before"))
    yield Way(NORM, "states after the target's final norm", head, after, out.format("after"))
    for guess, flag in enumerate(("norm_before_residual", "norm_output"), 1):  # the second changes what is fed back
        if getattr(head.config, "eagle3", False) and (value := getattr(head.config, flag, None)) is not None:
            how = f"{flag} {'off' if value else 'on'}"
            out = f'Set "{flag}" to {str(not value).lower()} in the head\'s config.'
            yield Way(NORM, how, _twin(head, target, None, **{flag: not value}), out=out, depth=guess)


def _alignments(head: HeadRunner, _: Runner) -> Iterator[Way]:
    """A token goes with the state at the place before it."""
    out = "Train the head, or hand it states, so that each token stands beside the state at the place before it."
    yield Way(ALIGNMENT, "states one place earlier", head, lambda states: states.given.roll(1, 0), out)
    yield Way(ALIGNMENT, "states one place later", head, lambda states: states.given.roll(-1, 0), out)


def _bases(head: HeadRunner, target: Runner) -> Iterator[Way]:
    config = target.model.config.get_text_config(decoder=True)
    own = (getattr(config, "rope_parameters", None) or {}).get("rope_theta")
    for theta in sorted({*_THETAS, *([float(own)] if own else [])} - {head.config.rope_theta}):
        how = f"rope_theta {theta:,.0f}" + (" (the target's)" if theta == own else "")
        out = f'Set "rope_theta" to {theta:.0f} in the head\'s config.'
        yield Way(ROPE, how, _twin(head, target, rope_theta=theta), out=out)


def _dtypes(head: HeadRunner, target: Runner) -> Iterator[Way]:
    """In float32, where the target is loaded in half precision."""
    if head.dtype.itemsize >= 4:
        return
    embed, output = (
        copy.deepcopy(part).float()
        for part in (target.model.get_input_embeddings(), target.model.get_output_embeddings())
    )
    model = SimpleNamespace(get_input_embeddings=lambda: embed, get_output_embeddings=lambda: output)
    names = ("device", "vocab_size", "context", "version")
    wide: Any = SimpleNamespace(**{name: getattr(target, name) for name in names}, dtype=torch.float32, model=model)
    twin = type(head)(copy.deepcopy(head.model).float(), wide)
    twin.vocab_size = head.vocab_size
    yield Way(DTYPE, "the head in float32", twin, out="Load the pair with dtype=float32 (--dtype float32).")
