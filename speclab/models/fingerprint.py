"""What a module was at one moment: an edit of any kind is noticed later, without a pass.

An edit changes a tensor (its storage, version counter or values), a part (its class, functions or
attributes), a hook or the config. Some marks change with every pass: a text must not end because a
part counts its calls, or because a family computes new rotary frequencies for a long text.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as every_module
from transformers import PreTrainedConfig
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

EACH, TURNS = 16, 4
"""A step compares `EACH` values of each tensor, the next one others, `EACH * TURNS` in all."""
BLOCK = 63
"""Words of a partial sum: odd, so that opposite signs show, and seldom a multiple of a row."""
LONGEST = 1000
_CAPTURING = "transformers.utils.output_capturing"  # the library's hooks, which only read
# what torch keeps in a module is read by name; no pass reads the others
_IGNORED = {*vars(nn.Module()), "generation_config", "_output_capturing_hooks_installed"}


class Marks(NamedTuple):
    """What is cheap to compare: a fact per part, attribute and tensor, and the user's hooks.

    `tensors`: by the index of their fact; of tied weights, one. `held`: objects whose ids are
    facts, so that no other object gets them.
    """

    facts: list[object]
    hooks: list[object]
    tensors: dict[int, Tensor]
    held: list[object]

    @classmethod
    def of(cls, module: nn.Module) -> Marks:
        marks = cls([*ALL_ATTENTION_FUNCTIONS.values()], [], {}, [])
        known: set[int] = set()
        parts = [*module.modules()]
        for part in parts:
            marks.add(part, known)
        kinds = dict.fromkeys(map(type, parts))
        homes = dict.fromkeys(sys.modules.get(kind.__module__, functional) for kind in kinds)
        for home in (functional, *homes, *kinds):
            marks.facts.append([each for each in vars(home).values() if callable(each)])
        for hooks in (every_module._global_forward_hooks, every_module._global_forward_pre_hooks):
            marks.hooks.extend(hooks.values())
        return marks

    def add(self, part: nn.Module, known: set[int]) -> None:
        own = vars(part)
        mark = self.number(part)
        children = [*map(id, part._modules.values())]
        self.facts.append((mark, type(part), type(part).forward, part.training, children))
        for kind in ("_forward_hooks", "_forward_pre_hooks"):
            for key, hook in own[kind].items():
                if getattr(hook, "__module__", "") != _CAPTURING:
                    self.hooks.append((mark, kind, hook, key in own[f"{kind}_with_kwargs"]))
        # rotary frequencies that the family computes anew in its passes
        if any(name in str(own.get("rope_type")) for name in ("dynamic", "longrope")):
            return
        attributes = [value for name, value in own.items() if name not in _IGNORED]
        for value in (*attributes, *part._parameters.values(), *part._buffers.values()):
            self.facts.append(self.plain(value, known))

    def number(self, thing: nn.Module | Tensor) -> int:
        """A number that no other object gets while these marks exist; the object itself may go."""
        reference = weakref.ref(thing)
        self.held.append(reference)
        return id(reference)

    def plain(self, value: object, known: set[int]) -> object:
        """What can be compared later: of a container or config its content, of another object that
        may change itself its id."""
        if isinstance(value, Tensor):
            return self.tensor(value, known)
        if getattr(value, "__hash__", None) and not isinstance(value, tuple):
            return value
        inner: Any = vars(value) if isinstance(value, PreTrainedConfig) else value
        if isinstance(inner, dict):
            inner = [*inner, *inner.values()]
        if id(value) in known or not isinstance(inner, list | tuple | set) or len(inner) > LONGEST:
            self.held.append(value)
            return id(value)
        known.add(id(value))
        return [self.plain(each, known) for each in inner]

    def tensor(self, tensor: Tensor, known: set[int]) -> object:
        if tensor.is_meta:  # offloaded: every pass replaces it
            return tensor.shape, tensor.dtype
        # the values of a distributed or packed one cannot be read here
        plain = type(tensor) in (nn.Parameter, Tensor) and not tensor.is_quantized
        if plain and id(tensor) not in known and tensor.layout is torch.strided:
            known.add(id(tensor))
            self.tensors[len(self.facts)] = tensor
        version = 0 if tensor.is_inference() else tensor._version
        address = tensor.data_ptr()
        return self.number(tensor), address, version, tensor.shape, tensor.dtype, tensor.device


class Fingerprint:
    """Marks of a module and its values: sums of all, so that rows written behind torch's back show,
    and samples.

    The sums are exact, whatever the number of threads. They read each weight once, as a pass of one
    row does.

    Args:
        moving: the facts that every pass changes.
    """

    @torch.inference_mode()
    def __init__(self, module: nn.Module, moving: frozenset[int] = frozenset()) -> None:
        marks, self.hooks, tensors, self._held = Marks.of(module)
        self.moving = moving
        self._marks = len(marks)
        self._facts = [*marks, *(_sum(tensor).item() for tensor in tensors.values())]
        sampled = [tensor for index, tensor in tensors.items() if index not in moving]
        self._samples = [_sample(sampled, turn) for turn in range(TURNS)]
        self._turn = 0

    def same(self, now: Fingerprint) -> bool:
        return now.hooks == self.hooks and self.same_parts(now)

    def same_parts(self, now: Fingerprint) -> bool:
        """Whether nothing but hooks, and what every pass changes, is different."""
        return self._is_same(now._facts)

    @torch.inference_mode()
    def holds(self, module: nn.Module) -> bool:
        """Whether a module is the same by all marks and one sample of its values."""
        now = Marks.of(module)
        if now.hooks != self.hooks or not self._is_same(now.facts):
            return False
        self._turn = (self._turn + 1) % TURNS
        sampled = [tensor for index, tensor in now.tensors.items() if index not in self.moving]
        return all(map(torch.equal, _sample(sampled, self._turn), self._samples[self._turn]))

    def differing(self, now: Fingerprint) -> frozenset[int]:
        """The facts that are others now; none if the parts themselves are."""
        return self._differing(now._facts) or frozenset()

    def _is_same(self, facts: list[object]) -> bool:
        differing = self._differing(facts)
        return differing is not None and differing <= self.moving

    def _differing(self, facts: list[object]) -> frozenset[int] | None:
        """None if there are more or fewer of them."""
        if len(facts) not in (self._marks, len(self._facts)):
            return None
        if facts == self._facts[: len(facts)]:
            return frozenset()
        pairs = enumerate(zip(facts, self._facts, strict=False))
        return frozenset(index for index, (now, before) in pairs if now != before)


def _sum(tensor: Tensor) -> Tensor:
    """A sum of all bits, int64: of words of 8 bytes, mixed by block, so that signs and order show."""
    flat = tensor.flatten()
    words_fit = flat.nbytes % 8 == 0 == int(flat.storage_offset()) * flat.itemsize % 8
    words = flat.view(torch.int64 if words_fit else torch.uint8)
    whole = len(words) // BLOCK * BLOCK
    blocks = torch.cat((words[:whole].view(-1, BLOCK).sum(-1), words[whole:].long()))
    return (blocks * (blocks >> 31 | 1)).sum()


def _sample(tensors: Iterable[Tensor], turn: int) -> list[Tensor]:
    """The bytes of `EACH` values of each tensor, of a small one all; a tensor per dtype and device."""
    groups: dict[object, list[Tensor]] = {}
    for tensor in tensors:
        # odd, so that the values are in different columns
        step = tensor.numel() // (EACH * TURNS) - 1 | 1
        values = tensor.flatten()
        if step > 0:
            values = values.as_strided(
                (EACH,), (TURNS * step,), values.storage_offset() + turn * step
            )
        groups.setdefault((tensor.device, tensor.dtype), []).append(values)
    return [torch.cat(values).view(torch.uint8) for values in groups.values()]
