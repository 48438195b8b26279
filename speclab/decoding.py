"""The state of one text being decoded, what an iteration leaves behind, and the way back when one fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import NamedTuple

from torch import Tensor

from speclab.acceptance import Choice, Rule, Walk
from speclab.drafters.base import Draft, Drafter, Outcome, Strategy
from speclab.errors import CancelledError
from speclab.metrics import Counts
from speclab.models.head_runner import HeadRunner
from speclab.models.pair import ModelPair
from speclab.models.processors import Processors
from speclab.models.runner import Runner
from speclab.settings import SessionSettings
from speclab.timing import Stopwatch
from speclab.trace import Adaptation


@dataclass
class Decoding:
    """The state of one text being decoded: `tokens` is the prompt and everything committed since.

    Between iterations the target's cache holds all of `tokens` but the newest, which is the next root; with a drafted
    root it holds them all, and `next_logits` `[V]` are what the target makes of them. `processors`: what the target's
    generation_config does to its logits, None where it does nothing; all logits that are kept went through them.
    """

    pair: ModelPair
    drafter: Drafter
    settings: SessionSettings
    tokens: list[int]
    prompt_length: int
    processors: Processors | None = None
    next_logits: Tensor | None = None
    cancel: Flag = field(default_factory=Flag)

    @property
    def context(self) -> int | None:
        """Positions that the target and whatever drafts were trained for; None if no config names a bound."""
        bounds = (runner.context for runner in self._used)
        return min((bound for bound in bounds if bound is not None), default=None)

    @property
    def bound(self) -> int | None:
        """Positions that the text may have: the context, or the border that its prompt does not cross.

        See `border` of `speclab.models.runner.Runner`. None if there is no bound.
        """
        borders = (runner.border for runner in self._used if isinstance(runner, Runner))
        bounds = (*(border for border in borders if border and self.prompt_length <= border), self.context)
        return min((bound for bound in bounds if bound is not None), default=None)

    @property
    def _used(self) -> tuple[Runner | HeadRunner, ...]:
        return self.pair.target, *self.drafter.runners

    @property
    def room(self) -> int:
        """New tokens that may still be committed."""
        return self.prompt_length + self.settings.max_new_tokens - len(self.tokens)

    @property
    def finished(self) -> str:
        """Why the text has ended; empty while it goes on."""
        if self.ends(self.tokens[-1]):
            return "end of text"
        return "" if self.room > 0 else "max_new_tokens"

    def processed(self, logits: Tensor, ids: Sequence[int]) -> Tensor:
        """The target's logits `[V]` after `ids` as its generation_config has them."""
        return logits if self.processors is None else self.processors(logits[None], ids)[0]

    def ends(self, token: int) -> bool:
        """Whether this token ends the text."""
        return self.settings.stop_at_eos and token in self.pair.eos_ids

    def check(self) -> None:
        """Raises where the run was cancelled."""
        if self.cancel.is_set():
            raise CancelledError("stopped before this iteration was committed: step again to go on")


@dataclass(frozen=True, slots=True)
class Verification:
    """What the target makes of a tree: `logits` `[n, V]` and its choice after each node.

    `extra` `[m, V]`: its logits after the draft's extra rows.
    With a drafted root also `root_logits` `[V]` and `root_choice` for the root's own place.
    """

    logits: Tensor
    extra: Tensor
    choose: Choice
    root_logits: Tensor | None = None
    root_choice: int | None = None


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration, with the tensors still at hand for whoever records it. `lengths`: of the caches before it.

    `watch`: seconds by phase; on CUDA they are known when the device is done, so they are read when it was waited for.
    """

    prefix_length: int
    strategy: Strategy
    draft: Draft
    verification: Verification
    rule: Rule
    walk: Walk
    outcome: Outcome
    adaptation: Adaptation
    lengths: tuple[int, ...]
    watch: Stopwatch
    counts: Counts


class Standing(NamedTuple):
    """Where a text stands between two iterations: what `put_back` needs, and nothing that decoding on changes.

    `tokens`: how many there are, prompt included. `learned`: the drafter's snapshot. `lengths`: of the caches.
    """

    tokens: int
    next_logits: Tensor | None
    learned: object
    lengths: tuple[int, ...]


def standing(decoding: Decoding) -> Standing:
    """Where `decoding` stands; cheap."""
    return Standing(len(decoding.tokens), decoding.next_logits, decoding.drafter.snapshot(), lengths(decoding.pair))


def put_back(decoding: Decoding, to: Standing) -> None:
    """Takes back whatever part of an iteration has happened since `to`, wherever it stopped; runs no model.

    An iteration only adds to tokens and caches, and stores note a change before they make it. So this may itself be
    stopped anywhere, by a second Ctrl-C, and is then done again from the start.
    """
    del decoding.tokens[to.tokens :]
    decoding.next_logits = to.next_logits
    decoding.drafter.restore(to.learned)
    for runner, length in zip(runners(decoding.pair), to.lengths, strict=True):
        runner.crop(min(length, runner.length))


def runners(pair: ModelPair) -> tuple[Runner | HeadRunner, ...]:
    """Target, then draft if there is one, then the heads."""
    return (*((pair.target,) if pair.draft is None else (pair.target, pair.draft)), *pair.heads)


def lengths(pair: ModelPair) -> tuple[int, ...]:
    """Entries in each runner's cache."""
    return tuple(runner.length for runner in runners(pair))


def calls(pair: ModelPair) -> tuple[int, ...]:
    """Forward passes of each runner so far."""
    return tuple(runner.calls for runner in runners(pair))
