"""What a module was at one moment: an edit of any kind is noticed later, without a pass.

An edit changes a tensor (its storage, version counter or values), a part (its class, functions or
attributes), a hook or the config. Some marks change with every pass: a text must not end because a
part counts its calls, or because a family computes new rotary frequencies for a long text.
"""

from __future__ import annotations

import sys
import weakref
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as every_module
from transformers import PreTrainedConfig
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

SAMPLE = 64
"""A step compares so many values of each tensor."""
BLOCK = 63
"""Words of a partial sum: odd, so that opposite signs show, and seldom a multiple of a row."""
HOOKS = 0
"""The fact that lists the user's hooks."""
_SIMPLE = {int, float, str, bool}
_OWN_PATHS = "speclab.models.own_paths"
_CAPTURING = "transformers.utils.output_capturing"  # the library's hooks, which only read
# what torch keeps in a module is read by name; the others are notes of the library's, in a config too
_IGNORED = {
    *vars(nn.Module()), "generation_config", "_output_capturing_hooks_installed",
    "_previous_max_cache_length", "architectures", "dtype",
}  # fmt: skip


class Fingerprint:
    """Marks of a module, sums of all its values, so that rows written behind torch's back show, and
    samples of them.

    The sums are exact, whatever the number of threads. They read each weight once, as a pass of one
    row does.

    Args:
        moving: the facts that every pass changes.
    """

    @torch.inference_mode()
    def __init__(self, module: nn.Module, moving: frozenset[int] = frozenset()) -> None:
        marks = self.marks = _Marks(module)
        self.moving = moving
        self._sample = _values(marks.tensors, moving, whole=False)
        self._sums = _values(marks.tensors, moving, whole=True)
        marks.tensors = {}

    @torch.inference_mode()
    def holds(self, module: nn.Module, *, whole: bool = True, hooks: bool = True) -> bool:
        """Whether a module is still the same.

        Args:
            whole: compare all values; False: a sample.
            hooks: compare the hooks, too.
        """
        now = _Marks(module)
        ignored = self.moving
        if not hooks:
            ignored |= {HOOKS}
        differing = self._differing(now)
        if differing is None or differing - ignored:
            return False
        before = self._sample
        if whole:
            before = self._sums
        values = _values(now.tensors, self.moving, whole=whole)
        return all(map(torch.equal, values, before))

    def after_a_pass(self, module: nn.Module) -> Fingerprint:
        """As it is now; what has changed since is what every pass changes."""
        return Fingerprint(module, self._differing(_Marks(module)) or frozenset())

    def _differing(self, now: _Marks) -> frozenset[int] | None:
        """The facts that are others now; None if there are more or fewer."""
        before = self.marks.facts
        if len(now.facts) != len(before):
            return None
        if now.facts == before:
            return frozenset()
        pairs = enumerate(zip(before, now.facts, strict=True))
        return frozenset(index for index, (one, other) in pairs if one != other)


class _Marks:
    """What is cheap to compare: `facts`, one per part, attribute and tensor, after the user's `hooks`.

    Attributes:
        tensors: by the index of their fact.
    """

    def __init__(self, module: nn.Module) -> None:
        # torch gives each registration a number of its own
        self.hooks = list(every_module._global_forward_hooks)
        self.hooks += every_module._global_forward_pre_hooks
        self.facts: list[object] = [self.hooks]
        for function in ALL_ATTENTION_FUNCTIONS.values():
            if function.__module__ != _OWN_PATHS:  # registered when it is first needed
                self.facts.append(function)
        self.tensors: dict[int, Tensor] = {}
        self._held: list[object] = []  # facts are ids of these, which no other object may get
        self._known: set[int] = set()
        kinds: set[type] = set()
        for part in module.modules():
            self._add(part)
            kinds.add(type(part))
        # a notebook defines functions at any time
        homes = {kind.__module__ for kind in kinds} - {"__main__"}
        places: list[object] = [functional, *kinds]
        places += [sys.modules[home] for home in homes if home in sys.modules]
        for place in places:
            self.facts.append(list(filter(callable, vars(place).values())))

    def _add(self, part: nn.Module) -> None:
        own = vars(part)
        self.facts += (
            self._id(weakref.ref(part)),  # what is replaced need not stay
            type(part),
            type(part).forward,
            part.training,
            list(map(id, part._modules.values())),
        )
        for hooks in (part._forward_hooks, part._forward_pre_hooks):
            self.hooks += [key for key, hook in hooks.items() if hook.__module__ != _CAPTURING]
        # rotary frequencies that are computed anew for a long text
        if "dynamic" in str(own.get("rope_type")):
            return
        values = [value for name, value in own.items() if name not in _IGNORED]
        values += part._parameters.values()
        values += part._buffers.values()
        for value in values:
            if type(value) not in _SIMPLE:
                value = self._plain(value)
            self.facts.append(value)

    def _id(self, thing: object) -> int:
        self._held.append(thing)
        return id(thing)

    def _plain(self, value: Any) -> object:
        """What can be compared later: the content of a container or config, the id of another
        object that may change itself."""
        if isinstance(value, Tensor):
            return self._tensor(value)
        if getattr(value, "__hash__", None) and not isinstance(value, tuple):
            return value
        inner = value
        if isinstance(value, PreTrainedConfig):
            inner = vars(value)
        if isinstance(inner, dict):
            entries = [entry for entry in inner.items() if entry[0] not in _IGNORED]
            inner = list(chain.from_iterable(entries))
        if id(value) in self._known or not isinstance(inner, list | tuple | set):
            return self._id(value)
        self._known.add(id(value))
        return [self._plain(entry) for entry in inner]

    def _tensor(self, tensor: Tensor) -> object:
        if tensor.is_meta:  # offloaded: every pass replaces it
            return tensor.shape, tensor.dtype
        # the values of a distributed or packed one cannot be read here
        if type(tensor) in (nn.Parameter, Tensor):
            self.tensors[len(self.facts)] = tensor
        version = 0
        if not tensor.is_inference():
            version = tensor._version
        mark = self._id(weakref.ref(tensor))
        return mark, tensor.data_ptr(), version, tensor.shape, tensor.dtype, tensor.device


def _values(tensors: dict[int, Tensor], moving: frozenset[int], *, whole: bool) -> list[Tensor]:
    """The sum of each tensor, or the bytes of `SAMPLE` values of each, of a small one all; a tensor
    per dtype and device."""
    groups: dict[object, list[Tensor]] = {}
    for index, tensor in tensors.items():
        if index in moving:
            continue
        values = tensor.flatten()
        if whole:
            values = _sum(values)
        elif len(values) >= SAMPLE:
            step = len(values) // SAMPLE
            if step % 2 == 0:
                step -= 1  # odd, so that the values are in different columns
            values = values[: SAMPLE * step : step]
        groups.setdefault((tensor.device, values.dtype), []).append(values)
    return [torch.cat(values).view(torch.uint8) for values in groups.values()]


def _sum(flat: Tensor) -> Tensor:
    """A sum of all bits, `[1]` int64: of words of 8 bytes, mixed by block, so that signs and order
    show."""
    start = int(flat.storage_offset()) * flat.itemsize
    kind = torch.uint8
    if flat.nbytes % 8 == 0 and start % 8 == 0:
        kind = torch.int64
    words = flat.view(kind)
    whole = len(words) // BLOCK * BLOCK
    blocks = torch.cat((words[:whole].view(-1, BLOCK).sum(-1), words[whole:]))
    mixed = (blocks >> 31) | 1  # odd, so that no block is lost in the product
    return (blocks * mixed).sum()[None]
