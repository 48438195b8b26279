"""What a person has chosen: plain data between the pickers and the player."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from speclab.drafters.base import Strategy

Prompt = str | Sequence[int]


@dataclass(frozen=True, slots=True)
class Models:
    """Which models, and where they run. `name`: of a preset, empty if `target` names the models; None: as loaded.

    `heads`: hub ids or folders of draft heads, for models of one's own.
    """

    name: str = "mini"
    target: str = ""
    draft: str = ""
    device: str | None = None
    dtype: str | None = None
    heads: tuple[str, ...] = ()

    def arguments(self) -> dict[str, Any]:
        """For `load_pair`."""
        own = {"target": self.target, "draft": self.draft or None, "heads": self.heads}
        return {**(own if self.target else {"name": self.name}), "device": self.device, "dtype": self.dtype}


@dataclass(frozen=True, slots=True)
class Change:
    """A strategy in force and the one that Apply would put in its place, for a session of these `settings`.

    `alone`: whether nothing else would change: not the models, the prompt or the settings of the session.
    """

    before: Strategy
    after: Strategy
    settings: Mapping[str, Any]
    alone: bool


@dataclass(frozen=True, slots=True)
class Choices:
    """Everything a session is made of. `models` None: the pair that was given to the lab."""

    models: Models | None
    strategy: Strategy
    prompt: Prompt
    settings: Mapping[str, Any] = field(default_factory=dict)

    def change_from(self, other: Choices) -> Change | None:
        """What Apply would change of the strategy; None where that is nothing."""
        if self.strategy == other.strategy:
            return None
        return Change(
            other.strategy, self.strategy, self.settings, alone=replace(self, strategy=other.strategy) == other
        )

    def forks_from(self, other: Choices) -> bool:
        """Whether a fork of the other's session is enough: models and prompt are the same."""
        return (self.models, self.prompt) == (other.models, other.prompt)
