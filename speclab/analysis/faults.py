"""Faults of real engines, each injected into a pair from outside: what its runners are given, answer and keep.

A fault is a subclass of `Runner` that takes a runner's place in a copy of the pair, or another implementation of its
pass. The engine has no line for it, and the pair that was given stays as it is: there is nothing to undo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from speclab.models.answer import Answer
from speclab.models.pair import ModelPair
from speclab.models.probe import sharing_weights
from speclab.models.runner import Runner
from speclab.tree import Bools

PADDING = 8
"""Slots of padding that positions count by mistake."""
NO_WINDOW = 1 << 30
"""A window wider than any text."""


@dataclass(frozen=True)
class BrokenPair(ModelPair):
    """A pair with a fault injected. Sessions, forks and records of it say so, as `fault` among what ran where."""

    fault: str = ""

    def describe(self) -> dict[str, str | int | float | bool | None]:
        """What runs where, for records."""
        return {**super().describe(), "fault": self.fault}


def with_fault(pair: ModelPair, fault: str, runners: Mapping[str, Runner]) -> BrokenPair:
    """A copy of the pair with other runners, marked; what strategies learned of the healthy one is left behind."""
    own = {each.name: getattr(pair, each.name) for each in fields(ModelPair)}
    own |= {"shared_state": {}, "name": f"{pair.name} with a fault: {fault}"}
    return BrokenPair(**own | dict(runners), fault=fault)


def as_kind(runner: Runner, kind: type[Runner]) -> Runner:
    """An empty runner of the same module that behaves as `kind` does."""
    twin = runner.fork()
    twin.__class__ = kind
    return twin


class _TreePasses(Runner):
    """A runner whose passes over trees go wrong; the prompt's into an empty cache is right."""

    @torch.inference_mode()
    def logits(
        self,
        tokens: Sequence[int],
        positions: Sequence[int] | None = None,
        visible: Bools | None = None,
        *,
        topk: int = 0,
    ) -> Answer:
        if positions is None or visible is None or not self.length:
            return super().logits(tokens, positions, visible, topk=topk)
        given = super().logits(tokens, self._place(positions), self._show(visible), topk=topk)
        return self._answer(given, tokens)

    def _place(self, positions: Sequence[int]) -> Sequence[int]:
        """The positions that the model is given."""
        return positions

    def _show(self, visible: Bools) -> Bools:
        """The mask that the model is given, `[m, m]`."""
        return visible

    def _answer(self, given: Answer, tokens: Sequence[int]) -> Answer:
        """The answer that is taken for the model's."""
        return given


class SiblingVisible(_TreePasses):
    """Rows with the same ancestors see each other, the earlier ones."""

    def _show(self, visible: Bools) -> Bools:
        above = visible & ~np.eye(len(visible), dtype=np.bool_)
        shown: Bools = visible | np.tril((above[:, None] == above[None]).all(axis=-1))
        return shown


class WrongPositions(_TreePasses):
    """Drafted rows stand one position too far; the root's is right."""

    def _place(self, positions: Sequence[int]) -> Sequence[int]:
        return [position + (row > 0) for row, position in enumerate(positions)]


class PaddedPositions(_TreePasses):
    """Every row after the prompt stands behind padding that the prompt's own positions do not count."""

    def _place(self, positions: Sequence[int]) -> Sequence[int]:
        return [position + PADDING for position in positions]


class UnverifiedFirst(_TreePasses):
    """The row of the root answers with the first drafted token, whatever the model made of it."""

    def _answer(self, given: Answer, tokens: Sequence[int]) -> Answer:
        if len(tokens) < 2:
            return given
        rows: Tensor = given.logits.clone()
        rows[0] = -torch.inf
        rows[0, tokens[1]] = 0
        return Answer(rows)


class PhantomRows(Runner):
    """One row of a rejected node stays in the cache when the others are dropped."""

    def keep(self, prefix: int, slots: Sequence[int]) -> None:
        """Keeps the rows of `slots`, and that of a rejected node: the first behind them, if there is one."""
        rejected = sorted({*range(prefix, self.length)} - {*slots})
        later = [slot for slot in rejected if not slots or slot > slots[-1]] or rejected
        super().keep(prefix, sorted([*slots, *later[:1]]))


def skip_draft_norm(draft: Runner) -> Runner:
    """The draft through a copy of its module that lacks the final norm; the module itself is left alone."""
    twin = Runner(without_final_norm(draft.model), draft.name, draft.plan, lean=False)
    twin.vocab_size = draft.vocab_size
    return twin


def final_norm(model: PreTrainedModel) -> str:
    """The name of the norm before the output layer; empty where there is none."""
    norms = [
        name
        for name, part in model.named_modules()
        if ("norm" in type(part).__name__.lower()) and not any(piece.isdigit() for piece in name.split("."))
    ]
    return norms[-1] if norms else ""


def without_final_norm(model: PreTrainedModel) -> PreTrainedModel:
    """A copy on the same weights that hands the last layer's output to the output layer as it is."""
    twin = sharing_weights(model)
    above, _, name = final_norm(model).rpartition(".")
    setattr(twin.get_submodule(above), name, nn.Identity())
    return twin


def ignore_window(target: Runner) -> Runner:
    """The target with masks that know no window, in every pass."""
    twin = target.fork()
    twin.plan = replace(target.plan, window=NO_WINDOW)
    return twin
