"""Which forward a model's passes go through: a lean one where its family has it, else the module's own.

The library's module spends up to half of a small model's pass in Python; a lean forward shares its weights and keeps to
its arithmetic. A module that somebody has changed goes through itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from speclab.models.cache import KVCache
from speclab.models.fast import llama as lean_llama
from speclab.models.fast import neox as lean_neox
from speclab.models.fast.changes import Snapshot
from speclab.models.fast.graphs import GraphPass
from speclab.models.fast.packed import Copies, Linear, packable
from speclab.models.fast.rotary import Rotary
from speclab.models.forward import Answer, Batch, Ladder, ModulePass, Parts, stacked
from speclab.models.masks import Mask, MaskPlan
from speclab.models.memory import is_out_of_memory, weighs_itself

_FAMILIES: dict[str, Callable[..., Parts]] = {
    "GPTNeoXForCausalLM": lean_neox.parts,
    "LlamaForCausalLM": lean_llama.parts,
}
_PLAIN = {nn.Linear, nn.Embedding, nn.LayerNorm, nn.Dropout, nn.ModuleList, nn.Module}
"""Parts that every family is built of."""
_FIXED_ANGLES = {"default", "linear", "llama3", "yarn"}
"""Kinds of rotary embedding whose angles are a function of the position alone."""


class LeanPass:
    """Through the layers of a family, written out; it takes no pass while a hook waits for the module's call."""

    name, feature = "lean", "lean forward"

    def __init__(self, model: PreTrainedModel, parts: Parts, *, pack: bool) -> None:
        self.embed, self.layers, self.norm = parts.embed, parts.layers, parts.norm
        self.rotary = Rotary(parts.rotary, parts.embed.weight)
        self.head = Linear(parts.head, pack=pack)
        self.copies = Copies([self.head, *(linear for layer in parts.layers for linear in layer.linears)])
        self._hookable, self._hooks_seen, self._hooked = tuple(model.modules()), -1, False

    def takes(self, batch: Batch, cache: KVCache) -> bool:  # noqa: ARG002
        """Whether nobody watches the module."""
        return not self.hooked

    def blames_itself(self, error: Exception) -> bool:
        """The module would need as much memory."""
        return not is_out_of_memory(error)

    def __call__(self, batch: Batch, cache: KVCache) -> Answer:
        """A pass, as `Through` says."""
        self.rotary.reserve(cache.length + len(batch.tokens))
        self.copies.refresh()
        return self.rows(*batch.tensors(), cache, last=batch.last, layers=batch.layers)

    @property
    def hooked(self) -> bool:
        """Whether a hook waits for the module's call, for that of a part, or for any module's.

        Every hook has a handle, and torch numbers them: where none was made since the last look, none was added.
        """
        if self._hooked or RemovableHandle.next_id != self._hooks_seen:
            self._hooks_seen = RemovableHandle.next_id
            self._hooked = bool(module._global_forward_hooks or module._global_forward_pre_hooks) or any(
                part._forward_hooks or part._forward_pre_hooks for part in self._hookable
            )
        return self._hooked

    def rows(
        self, tokens: Tensor, positions: Tensor, mask: Mask, cache: KVCache, *, last: int, layers: Sequence[int]
    ) -> Answer:
        """The pass itself: tensor work alone, over angles that were reserved."""
        assert not isinstance(mask, dict)
        rows = F.embedding(tokens, self.embed.weight)
        angles = self.rotary.at(positions)
        kept = [rows]
        for layer in self.layers:
            rows = layer(rows, angles, mask, cache)
            kept.append(rows)
        rows = kept[-1] = self.norm(rows)
        return Answer(self.head(rows[-last:]), stacked(kept, layers) if layers else None, mask)


def through(model: PreTrainedModel) -> Ladder:
    """The lean forward of a model where it has one and runs as its family's module does, else the module's own.

    On CUDA its small passes run as graphs.
    """
    return _choose(model)[0]


class Forwards:
    """The forward of one module, shared by all runners on it, and chosen anew when the module is found changed.

    Attributes:
        through: what passes go through.
        version: counts the changes found; cached entries of an earlier version are those of another model.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model, self._one_at_a_time, self.version = model, Lock(), 0
        self._choose()

    @torch.inference_mode()
    def look(self) -> int:
        """Compares the module with what it was, sets it to eval mode again if it trains, and returns the version.

        Called once at each start of a text, not in passes.
        """
        with self._one_at_a_time:
            if self._snapshot.training:
                self._model.eval()
            if not self._snapshot.same_module() or (self._lean is not None and not self._lean.rotary.holds()):
                self._choose()
                self.version += 1
            elif not all([self._snapshot.same_values(), self._lean is None or self._lean.copies.compare()]):
                self.version += 1
        return self.version

    def _choose(self) -> None:
        self._model.eval()  # a part that was put in may be new, and in training mode
        _use_maskable_attention(self._model)
        self._snapshot = Snapshot(self._model)
        self.through, self._lean = _choose(self._model)


def _choose(model: PreTrainedModel) -> tuple[Ladder, LeanPass | None]:
    """What passes go through, and the lean forward inside it."""
    family = _FAMILIES.get(type(model).__name__)
    reason = "" if family is None else _why_not(model)
    if family is None or reason:
        return Ladder(ModulePass(model, reason)), None
    pack = packable(model)
    with torch.inference_mode():
        lean = LeanPass(model, family(model, pack=pack), pack=pack)
    banded = MaskPlan.of(model.config).window is not None  # a graph's mask knows no window
    graphs = [GraphPass(lean, model)] if model.device.type == "cuda" and not banded else []
    return Ladder(*graphs, lean, ModulePass(model)), lean


def _why_not(model: PreTrainedModel) -> str:
    """Why a module of a family with a lean forward does not run as the family's does; empty if it does."""
    config, layers = model.config, len(list(model.base_model.get_submodule("layers").children()))
    rope = getattr(config, "rope_parameters", None) or {}
    if config._attn_implementation != "sdpa":
        return f"its attention is {config._attn_implementation}"
    if rope.get("rope_type", "default") not in _FIXED_ANGLES:
        return f"its rotary angles ({rope['rope_type']}) are no function of the position alone"
    if not weighs_itself(model) or len({(weight.device, weight.dtype) for weight in model.parameters()}) != 1:
        return "its weights differ in kind, device or dtype"
    if layers != config.num_hidden_layers:
        return f"it has {layers} layers and its config says {config.num_hidden_layers}"
    return next((reason for part in model.modules() if (reason := _foreign(part, type(model).__module__))), "")


def _foreign(part: nn.Module, family: str) -> str:
    """What makes a part another than the library's own for this family; empty if nothing does."""
    kind = type(part)
    own = {family, "transformers.activations", "torch.nn.modules.activation"}
    if kind not in _PLAIN and kind.__module__ not in own:
        return f"a part of it is a {kind.__module__}.{kind.__qualname__}"
    if "forward" in vars(part) or kind.forward.__module__ not in own | {parent.__module__ for parent in _PLAIN}:
        return f"the forward of its {kind.__name__} was replaced"
    return f"its {kind.__name__} is placed by accelerate" if hasattr(part, "_hf_hook") else ""


def _use_maskable_attention(model: PreTrainedModel) -> None:
    if model.config._attn_implementation in {"sdpa", "eager"}:
        return
    try:
        model.set_attn_implementation("sdpa")
    except ValueError:  # the family has none
        model.set_attn_implementation("eager")
