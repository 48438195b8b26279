"""What the lab shows and does, as one traitlets object; and what a run is made of, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traitlets import Dict, HasTraits, Instance, Int, Unicode

from speclab.drafters.base import Strategy
from speclab.errors import SettingsError
from speclab.models.presets import PRESETS
from speclab.prompts import PromptInput, is_conversation
from speclab.settings import SessionSettings
from speclab.trace.records import Step, Trace

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A preset by name; or, with an empty name, models by hub id or folder."""

    name: str = "mini"
    target: str = ""
    draft: str = ""
    heads: tuple[str, ...] = ()
    device: str | None = None

    def arguments(self) -> dict[str, Any]:
        """For `load_pair`."""
        if self.name:
            return {"name": self.name, "device": self.device}
        return {"target": self.target, "draft": self.draft or None, "heads": self.heads, "device": self.device}

    def __str__(self) -> str:
        if not self.name:
            return Path(self.target).name
        return Path(PRESETS[self.name].target).name if PRESETS[self.name].hub else self.name


@dataclass(frozen=True, slots=True)
class LabConfig:
    """What a session is made of. `models` None: the pair that the lab was given."""

    models: ModelChoice | None
    strategy: Strategy
    prompt: PromptInput
    settings: SessionSettings

    def forks_from(self, other: LabConfig) -> bool:
        """Whether a fork of the other's session is enough: models and prompt are the same."""
        return (self.models, self.prompt) == (other.models, other.prompt)

    def changed(self, strategy: Strategy | None = None, settings: Mapping[str, Any] | None = None) -> LabConfig:
        """A copy; settings that the session does not have are the strategy's."""
        given = dict(settings or {})
        own = {name: given.pop(name) for name in SessionSettings.model_fields if name in given}
        chosen = strategy or self.strategy
        chosen = chosen.changed(**given) if given else chosen
        return replace(self, strategy=chosen, settings=self.settings.changed(**own) if own else self.settings)


def differences(old: LabConfig, new: LabConfig) -> list[str]:
    """What changed, in words: `node budget 24 → 12`."""
    words = []
    if new.models != old.models:
        words.append(f"models {old.models or 'given'} → {new.models or 'given'}")
    if new.prompt != old.prompt:
        words.append("prompt")
    if type(new.strategy) is not type(old.strategy):
        words.append(f"strategy {type(old.strategy).__name__} → {type(new.strategy).__name__}")
    else:
        words += _changed_values(old.strategy.model_dump(), new.strategy.model_dump())
    return words + _changed_values(old.settings.model_dump(), new.settings.model_dump())


def _changed_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    pairs = [(name, old.get(name), value) for name, value in new.items() if old.get(name) != value]
    return [f"{name.replace('_', ' ')} {_written(before)} → {_written(after)}" for name, before, after in pairs]


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def prompt_text(prompt: PromptInput) -> str:
    """The text of a prompt as a person would type it: of messages, the last one."""
    if isinstance(prompt, str):
        return prompt
    if is_conversation(prompt):
        return str(prompt[-1]["content"])
    return " ".join(map(str, prompt))


def prompt_of(pair: ModelPair, config: LabConfig) -> Any:
    """The prompt for a pair; without a tokenizer, the ids that are written in it."""
    if pair.tokenizer is not None or not isinstance(config.prompt, str):
        return config.prompt
    words = config.prompt.replace("#", " ").replace(",", " ").split()
    if not all(word.isdecimal() for word in words):
        raise SettingsError("These models have no tokenizer: write the prompt as token ids, such as 5 17 3.")
    return [int(word) for word in words]


def refuse_long(pair: ModelPair | None, config: LabConfig) -> None:
    """Raises SettingsError for a prompt that leaves no room in the models' context."""
    if pair is None or pair.context is None:
        return
    count = len(pair.encode(prompt_of(pair, config)))
    if count >= pair.context:
        raise SettingsError(f"The prompt has {count} tokens, and these models take {pair.context}: shorten it.")


class LabState(HasTraits):
    """What a lab shows. Commands change it on the worker's thread; the screen tells the page what changed.

    `trace`: the run shown, None before there is one. `cursor`: iterations shown. `phase`: draft, flatten, verify,
    accept, commit or all. `selected`: a node. `busy`: what the worker does, empty when idle. `sentence`: what came of
    it, besides what the iteration itself says. `error`: one sentence, empty when there is none. `wanted`: what the
    form and the sliders say. `panels`: messages on what stage and tabs show besides the run (preview, curve, redone,
    compared, …), by name.
    """

    trace = Instance(Trace, allow_none=True)
    cursor = Int()
    phase = Unicode("all")
    selected = Int(None, allow_none=True)
    busy = Unicode()
    sentence = Unicode()
    error = Unicode()
    wanted = Instance(LabConfig)
    panels = Dict()

    def __init__(self, wanted: LabConfig) -> None:
        super().__init__(wanted=wanted)
        self.where = ""  # beside what an error is shown: step, prompt, until, settings, hand, compare, files
        self.applied: LabConfig | None = None  # what the run shown was made of
        self.number = -1  # of the run shown
        self.live = False  # whether a session stands behind it
        self.predict = False

    @property
    def step(self) -> Step | None:
        """The iteration shown; None before the first."""
        steps = self.trace.steps if self.trace is not None else ()
        return steps[self.cursor - 1] if 0 < self.cursor <= len(steps) else None

    @property
    def pending(self) -> str:
        """What the next Step would apply first, as a sentence; empty where nothing changed."""
        if self.applied is None or self.wanted == self.applied:
            return ""
        words = "; ".join(differences(self.applied, self.wanted))
        if not self.wanted.forks_from(self.applied):
            return f"Changed: {words}. It starts a new run."
        return f"Changed: {words}. Applies from iteration {self.cursor + 1} on."

    def fail(self, where: str, sentence: str) -> None:
        """Shows an error beside what caused it; an empty sentence takes it away."""
        self.where = where
        self.error = sentence

    def preview(self, data: Any) -> None:
        """Shows on the tree what would be drafted; None takes it away."""
        if data is not None or self.panels.get("preview", {}).get("preview") is not None:
            self.panels = {**self.panels, "preview": {"type": "preview", "index": self.cursor - 1, "preview": data}}

    def put(self, tab: str, place: str, *parts: Any) -> None:
        """Shows figures and HTML in a place of a tab; without parts the place is empty."""
        if parts or place in self.panels:
            self.panels = {**self.panels, place: {"type": "parts", "tab": tab, "place": place, "parts": list(parts)}}
