"""Seven faults of real engines: `broken(pair, name)` returns a copy of the pair with the fault
injected.

A fault is a subclass of `Runner` or a changed copy of a module. The engine knows nothing of faults,
and the given pair stays unchanged.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from speclab.errors import SettingsError
from speclab.models.answer import Answer
from speclab.models.runner import Runner
from speclab.pair import ModelPair, checked_pair
from speclab.tree import Bools, Ints

PADDING = 8
"""Slots of padding that positions count by mistake."""
NO_WINDOW = 1 << 30
"""A window wider than any text."""


def sharing_weights(model: PreTrainedModel) -> PreTrainedModel:
    """A copy with separate parts, buffers and configs, but the same parameters."""
    return copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})


@dataclass(frozen=True)
class BrokenPair(ModelPair):
    """A pair with a fault, which its sessions, forks and records name."""

    fault: str = ""
    healthy: ModelPair | None = field(default=None, repr=False, compare=False)

    def describe(self) -> dict[str, str | int | float | bool | None]:
        return {**super().describe(), "fault": self.fault}


class TreePasses(Runner):
    """Passes over trees go wrong; the prompt's pass into an empty cache is right."""

    @torch.inference_mode()
    def logits(
        self,
        tokens: Sequence[int],
        positions: Sequence[int] | None = None,
        visible: Bools | None = None,
        **more: Any,
    ) -> Answer:
        if positions is None or visible is None or not self.length:
            return super().logits(tokens, positions, visible, **more)
        places, seen = self.given(np.array(positions), visible)
        answer = super().logits(tokens, places.tolist(), seen)
        return self.answered(answer, tokens)

    def given(self, positions: Ints, visible: Bools) -> tuple[Ints, Bools]:
        """The positions and the mask that the model receives."""
        return positions, visible

    def answered(self, answer: Answer, tokens: Sequence[int]) -> Answer:
        """What is taken for the model's answer."""
        return answer


class SiblingVisible(TreePasses):
    """A row also sees its earlier siblings."""

    def given(self, positions: Ints, visible: Bools) -> tuple[Ints, Bools]:
        above = visible & ~np.eye(len(visible), dtype=np.bool_)
        return positions, visible | np.tril((above[:, None] == above[None]).all(axis=-1))


class WrongPositions(TreePasses):
    """Drafted rows are one position too far; the root is right."""

    def given(self, positions: Ints, visible: Bools) -> tuple[Ints, Bools]:
        drafted = np.arange(len(positions)) > 0
        return np.where(drafted, positions + 1, positions), visible


class PaddedPositions(TreePasses):
    """Rows after the prompt count padding that the prompt's positions do not count."""

    def given(self, positions: Ints, visible: Bools) -> tuple[Ints, Bools]:
        return positions + PADDING, visible


class UnverifiedFirst(TreePasses):
    """The root's row always chooses the first drafted token."""

    def answered(self, answer: Answer, tokens: Sequence[int]) -> Answer:
        rows = answer.logits.clone()
        if len(tokens) > 1:
            rows[0] = -torch.inf
            rows[0, tokens[1]] = 0
        return Answer(rows)


class PhantomRows(Runner):
    """One rejected row stays in the cache."""

    def keep(self, prefix: int, slots: Sequence[int]) -> None:
        rejected = sorted(set(range(prefix, self.length)).difference(slots))
        later = [slot for slot in rejected if not slots or slot > slots[-1]] or rejected
        super().keep(prefix, sorted(list(slots) + later[:1]))


def final_norm(model: PreTrainedModel) -> str:
    """The name of the norm before the output layer, or empty."""
    outside_layers = [
        name
        for name, part in model.named_modules()
        if "norm" in type(part).__name__.lower() and not re.search(r"\b\d+\b", name)
    ]
    return outside_layers[-1] if outside_layers else ""


def without_final_norm(model: PreTrainedModel) -> PreTrainedModel:
    """A copy on the same weights that skips the final norm."""
    twin = sharing_weights(model)
    above, _, name = final_norm(model).rpartition(".")
    setattr(twin.get_submodule(above), name, nn.Identity())
    return twin


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: what goes `wrong`, in a sentence.

    `inject`: returns the broken runners of a pair by role. `lacks`: what a pair that cannot have this
    fault lacks; it then has no runners.
    """

    wrong: str
    inject: Callable[[ModelPair], Mapping[str, Runner]]
    lacks: str = ""


def _target(kind: type[Runner]) -> Callable[[ModelPair], Mapping[str, Runner]]:
    return lambda pair: {"target": pair.target.beside(sharing_weights(pair.target.model), kind)}


def _skip_norm(pair: ModelPair) -> Mapping[str, Runner]:
    if pair.draft is None or not final_norm(pair.draft.model):
        return {}
    return {"draft": pair.draft.beside(without_final_norm(pair.draft.model))}


def _no_window(pair: ModelPair) -> Mapping[str, Runner]:
    if not pair.target.plan.window:
        return {}
    return {"target": pair.target.beside(sharing_weights(pair.target.model), window=NO_WINDOW)}


FAULTS: Mapping[str, Fault] = {
    "sibling visible": Fault(
        "In the tree's mask a node sees the siblings before it, which are other guesses for the same position.",
        _target(SiblingVisible),
    ),
    "wrong positions": Fault(
        "The drafted rows of a pass are one position too far.", _target(WrongPositions)
    ),
    "phantom KV rows": Fault(
        "After a rejection the row of a rejected token stays in the cache, and all that follows sees it.",
        _target(PhantomRows),
    ),
    "skipped norm in the draft": Fault(
        "The draft's output layer reads the last layer as it is, without the final norm.",
        _skip_norm,
        "it needs a draft model with a final norm",
    ),
    "window run as full attention": Fault(
        "A target with a sliding window attends to the whole text.",
        _no_window,
        "it needs a target with a sliding window",
    ),
    "unverified first token": Fault(
        "The first drafted token is committed whatever the target's answer.",
        _target(UnverifiedFirst),
    ),
    "padded positions": Fault(
        f"Rows after the prompt are behind {PADDING} slots of padding that the prompt does not count.",
        _target(PaddedPositions),
    ),
}
"""The faults by name."""


def broken(pair: ModelPair, fault: str) -> BrokenPair:
    """A copy of the pair with the fault injected, and without the strategies' shared state.

    Raises:
        SettingsError: the fault does not exist, or cannot be injected into this pair.
    """
    checked_pair(pair)
    if fault not in FAULTS:
        raise SettingsError(f"There is no fault {fault!r}: choose one of {', '.join(FAULTS)}.")
    runners = FAULTS[fault].inject(pair)
    if not runners:
        lacks = FAULTS[fault].lacks
        raise SettingsError(f"The fault {fault!r} cannot be injected into {pair.name}: {lacks}.")
    name = f"{pair.name} with a fault: {fault}"
    values = {each.name: getattr(pair, each.name) for each in fields(ModelPair)}
    values |= {"shared_state": {}, "name": name, **runners}
    return BrokenPair(**values, fault=fault, healthy=pair)
