"""What a sweep goes by: texts that the target writes once, and what a strategy would have done on them, replayed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from speclab.drafters.base import Strategy
from speclab.errors import MeasurementError, NoDraftError, SpeclabError
from speclab.prompts import PromptInput

if TYPE_CHECKING:
    from speclab.analysis.replay import Replayer
    from speclab.models.pair import ModelPair

MODELLED = frozenset({"throughput", "tpot"})
"""Figures that rest on the measured cost of passes; the others are counts, the same on any machine."""
FIGURES = ("tokens_per_iteration", "throughput", "tpot", "iterations", "draft_calls")
LESS_IS_BETTER = frozenset({"tpot", "iterations", "draft_calls"})


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a strategy: figures by name, of so many texts, and why a run might differ ("" where it does not)."""

    figures: Mapping[str, float]
    texts: int = 0
    inexact: str = ""


@dataclass(frozen=True)
class Texts:
    """Prompts that the target goes on with once, plainly; a strategy's figures are those of all texts together.

    Args:
        pair: what `load_pair` is to load, by its arguments; or a pair in memory.
        name: what the prompts are called.
        settings: further settings of the session that decodes them.
        report: hears how many are decoded.
    """

    pair: Mapping[str, Any] | ModelPair
    prompts: Sequence[PromptInput]
    max_new_tokens: int = 128
    name: str = "prompts"
    settings: Mapping[str, Any] = field(default_factory=dict)
    report: Callable[[int], object] | None = field(default=None, compare=False, repr=False)

    def __call__(self, strategy: Strategy) -> Measured:
        """What this strategy would have done, at once where the texts are decoded.

        Raises:
            MeasurementError: the models cannot be loaded, or are not what this strategy needs.
            SpeclabError: it cannot be replayed.
        """
        replayers = self.decoded()
        try:
            replays = [replayer.replay(strategy) for replayer in replayers]
        except NoDraftError as error:
            raise MeasurementError(str(error)) from None
        committed = sum(len(tokens) for each in replays for tokens in each.committed)
        iterations, seconds = sum(each.iterations for each in replays), sum(each.seconds for each in replays)
        calls = sum(each.draft_calls for each in replays)
        values = (committed / iterations, committed / seconds, seconds / committed, iterations, calls)
        inexact = next((each.inexact for each in replays if each.inexact), "")
        return Measured(dict(zip(FIGURES, map(float, values), strict=True)), len(replays), inexact)

    def decoded(self) -> list[Replayer]:
        """The texts, decoded where this process has not yet.

        Raises:
            MeasurementError: the models cannot be loaded, a prompt does not fit them, or no text has an iteration.
        """
        known = self.pair if isinstance(self.pair, Mapping) else id(self.pair)
        key = repr((known, self.prompts, self.max_new_tokens, self.settings))
        if key not in _KEPT:
            from speclab.analysis.replay import Replayer
            from speclab.drafters.chain import Autoregressive
            from speclab.engine.session import Session

            settings = {"max_new_tokens": self.max_new_tokens, **self.settings}
            _KEPT.clear()
            try:
                pair, found = self.models(), []
                for number, prompt in enumerate(self.prompts, 1):
                    session = Session(pair, Autoregressive(), prompt, **settings)
                    session.run()
                    if session.steps:  # none where the text ends with its first token
                        found.append(Replayer(session, ask_target=True))
                    if self.report is not None:
                        self.report(number)
            except SpeclabError as error:
                raise MeasurementError(str(error)) from None
            if not found:
                raise MeasurementError("Every text ends with its first token: give other prompts, or more new tokens.")
            _KEPT[key] = found
        return _KEPT[key]

    def models(self) -> ModelPair:
        """The pair, loaded where it is not in memory."""
        return _load(*sorted(self.pair.items())) if isinstance(self.pair, Mapping) else self.pair

    def describe(self) -> dict[str, Any]:
        """What decides the figures, for records."""
        digest = hashlib.sha256("\n".join(map(str, self.prompts)).encode()).hexdigest()[:12]
        return {
            "pair": dict(self.pair) if isinstance(self.pair, Mapping) else self.pair.describe(),
            "workload": self.name, "prompts": len(self.prompts), "digest": digest,
            "max_new_tokens": self.max_new_tokens, "settings": dict(self.settings),
        }  # fmt: skip


_KEPT: dict[str, list[Replayer]] = {}
"""In each process: the texts of its sweep."""


@lru_cache(1)
def _load(*asked: tuple[str, Any]) -> ModelPair:
    from speclab.models.pair import load_pair

    return load_pair(**dict(asked))
