"""The state of the lab as one traitlets object, and the setup of a run as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traitlets import Dict, HasTraits, Instance, Int, Unicode

from speclab.drafters.base import Strategy
from speclab.errors import SettingsError
from speclab.loading.presets import PRESETS
from speclab.prompts import PromptInput, is_conversation
from speclab.settings import SessionSettings
from speclab.trace.records import Step, Trace

if TYPE_CHECKING:
    from speclab.pair import ModelPair


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A preset by name, or, if the name is empty, models by hub id or folder."""

    name: str = "mini"
    target: str = ""
    draft: str = ""
    heads: tuple[str, ...] = ()
    device: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Arguments of `load_pair`."""
        if self.name:
            return {"name": self.name, "device": self.device}
        return {
            "target": self.target,
            "draft": self.draft or None,
            "heads": self.heads,
            "device": self.device,
        }

    def __str__(self) -> str:
        if not self.name:
            return Path(self.target).name
        return Path(PRESETS[self.name].target).name if PRESETS[self.name].hub else self.name


@dataclass(frozen=True, slots=True)
class LabConfig:
    """The setup of a session. `models` None: the pair given to the lab."""

    models: ModelChoice | None
    strategy: Strategy
    prompt: PromptInput
    settings: SessionSettings

    def forks_from(self, other: LabConfig) -> bool:
        """Whether models and prompt are the same, so a fork is enough."""
        return (self.models, self.prompt) == (other.models, other.prompt)

    def changed(
        self, strategy: Strategy | None = None, settings: Mapping[str, Any] | None = None
    ) -> LabConfig:
        """A copy with changed settings, of the session or else of the strategy."""
        given = dict(settings or {})
        own = {name: given.pop(name) for name in SessionSettings.model_fields if name in given}
        chosen = strategy or self.strategy
        chosen = chosen.changed(**given) if given else chosen
        return replace(
            self, strategy=chosen, settings=self.settings.changed(**own) if own else self.settings
        )


def differences(old: LabConfig, new: LabConfig) -> list[str]:
    """Describe the changes: `node budget 24 → 12`."""
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
    return [
        f"{name.replace('_', ' ')} {_written(before)} → {_written(after)}"
        for name, before, after in pairs
    ]


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def prompt_text(prompt: PromptInput) -> str:
    """The text of a prompt as a user would type it; the last one of several messages."""
    if isinstance(prompt, str):
        return prompt
    if is_conversation(prompt):
        return str(prompt[-1]["content"])
    return " ".join(map(str, prompt))


def prompt_of(pair: ModelPair, config: LabConfig) -> Any:
    """The prompt for a pair; without a tokenizer, parse the ids in the text."""
    if pair.tokenizer is not None or not isinstance(config.prompt, str):
        return config.prompt
    words = config.prompt.replace("#", " ").replace(",", " ").split()
    if not all(word.isdecimal() for word in words):
        raise SettingsError(
            "These models have no tokenizer: write the prompt as token ids, such as 5 17 3."
        )
    return [int(word) for word in words]


def refuse_long(pair: ModelPair | None, config: LabConfig) -> None:
    """Raises SettingsError for a prompt that leaves no room in the models' context."""
    if pair is None or pair.context is None:
        return
    count = len(pair.encode(prompt_of(pair, config)))
    if count >= pair.context:
        raise SettingsError(
            f"The prompt has {count} tokens, and the models' context is {pair.context}: shorten it."
        )


class LabState(HasTraits):
    """The state of a lab. Commands change it on the worker's thread; the screen sends the changes
    to the page.

    `trace`: the current run, or None. `cursor`: iterations shown. `phase`: draft, flatten, verify,
    accept, commit or all. `selected`: a node. `busy`: the running work, empty when idle.
    `sentence`: its result. `error`: one sentence, or empty. `wanted`: the settings of the form and
    the sliders. `panels`: messages for stage and tabs (preview, curve, redone, compared, …), by
    name.
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
        # where an error is shown: step, prompt, until, settings, hand, compare, files
        self.where = ""
        self.applied: LabConfig | None = None  # the setup of the current run
        self.number = -1  # the number of the current run
        self.live = False  # whether the current run has a session
        self.predict = False

    @property
    def step(self) -> Step | None:
        """The current iteration; None before the first."""
        steps = self.trace.steps if self.trace is not None else ()
        return steps[self.cursor - 1] if 0 < self.cursor <= len(steps) else None

    @property
    def pending(self) -> str:
        """A sentence on the changes that the next Step applies; empty without changes."""
        if self.applied is None or self.wanted == self.applied:
            return ""
        words = "; ".join(differences(self.applied, self.wanted))
        if not self.wanted.forks_from(self.applied):
            return f"Changed: {words}. It starts a new run."
        return f"Changed: {words}. Applies from iteration {self.cursor + 1} on."

    def fail(self, where: str, sentence: str) -> None:
        """Show an error next to its cause; an empty sentence removes it."""
        self.where = where
        self.error = sentence

    def preview(self, data: Any) -> None:
        """Show a preview on the tree; None removes it."""
        if data is not None or self.panels.get("preview", {}).get("preview") is not None:
            self.panels = {
                **self.panels,
                "preview": {"type": "preview", "index": self.cursor - 1, "preview": data},
            }

    def put(self, tab: str, place: str, *parts: Any) -> None:
        """Show figures and HTML in a place of a tab; without parts, clear the place."""
        if parts or place in self.panels:
            self.panels = {
                **self.panels,
                place: {"type": "parts", "tab": tab, "place": place, "parts": list(parts)},
            }
