"""The state of the lab as one traitlets object, and the setup of a run as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traitlets import Dict, Float, HasTraits, Instance, Int, Unicode

from speclab.drafters.base import Strategy
from speclab.errors import PromptError, SettingsError
from speclab.lab.messages import EMPTY, Message
from speclab.loading.presets import PRESETS
from speclab.prompts import PromptInput, is_conversation
from speclab.settings import SessionSettings
from speclab.trace.records import Step, Trace

if TYPE_CHECKING:
    from speclab.pair import ModelPair

PHASES = ("draft", "flatten", "verify", "accept", "commit", "all")
FORM = ("models", "strategy", "session", "prompt")
"""The parts of the setup; the page shows an error of a part beside its fields."""


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
        return {name: value or None for name, value in asdict(self).items() if name != "name"}

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
        values = dict(settings or {})
        session = {
            name: values.pop(name) for name in SessionSettings.model_fields if name in values
        }
        chosen = strategy or self.strategy
        if values:
            chosen = chosen.changed(**values)
        return replace(self, strategy=chosen, settings=self.settings.changed(**session))

    def data(self) -> Message:
        """The setup as the page shows it in its form."""
        return {
            "models": None if self.models is None else asdict(self.models),
            "strategy": {
                "name": type(self.strategy).__name__,
                "settings": self.strategy.model_dump(mode="json"),
            },
            "session": self.settings.model_dump(mode="json"),
            "prompt": prompt_text(self.prompt),
            "chat": is_conversation(self.prompt),
        }


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
    if value is None:
        return "none"
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


def refuse_empty(prompt: PromptInput) -> None:
    """Raises PromptError for a prompt without text."""
    if not prompt_text(prompt).strip():
        raise PromptError("The prompt is empty: write a text, or choose an example.")


def refuse_long(pair: ModelPair | None, config: LabConfig) -> None:
    """Raises SettingsError for a prompt that leaves no room in the models' context."""
    if pair is None or pair.target.context is None:
        return
    count = len(pair.encode(prompt_of(pair, config)))
    if count >= pair.target.context:
        raise SettingsError(
            f"The prompt has {count} tokens, and the context of {pair.target.name} is "
            f"{pair.target.context}: shorten it."
        )


class LabState(HasTraits):
    """The state of a lab. Commands change it on the worker's thread; the outbox sends the changes
    to the page.

    `trace`: the current run, or None. `cursor`: iterations shown. `phase`: draft, flatten, verify,
    accept, commit or all. `selected`: a node. `busy`: the running work, empty when idle;
    `progress`: its share that is done, None if unknown. `message`: its result. `errors`: sentences
    by place, newest last. `wanted`: the setup that the next Step applies. `panels`: the newest
    message of each kind for stage and tabs (preview, curve, redone, …); `posts`: messages to send
    once.
    """

    trace = Instance(Trace, allow_none=True)
    cursor = Int()
    phase = Unicode("all")
    selected = Int(None, allow_none=True)
    busy = Unicode()
    progress = Float(None, allow_none=True)
    message = Unicode()
    errors = Dict()
    wanted = Instance(LabConfig)
    panels = Dict()

    def __init__(self, wanted: LabConfig, *, guess: bool = False) -> None:
        super().__init__(wanted=wanted)
        self.applied: LabConfig | None = None  # the setup of the current run
        self.number = -1  # the number of the current run
        self.live = False  # whether the current run has a session
        self.edited = False  # whether the tree shown was edited by hand
        self.guess = guess
        self.posts: list[Message] = []

    @property
    def steps(self) -> tuple[Step, ...]:
        """The decoded iterations of the current run."""
        return self.trace.steps if self.trace is not None else ()

    @property
    def step(self) -> Step | None:
        """The current iteration; None before the first."""
        return self.steps[self.cursor - 1] if 0 < self.cursor <= len(self.steps) else None

    @property
    def pending(self) -> list[str]:
        """The changes that the next Step applies."""
        if self.applied is None or self.wanted == self.applied:
            return []
        return differences(self.applied, self.wanted)

    @property
    def new_run(self) -> bool:
        """Whether the changes need a new run."""
        return self.applied is not None and not self.wanted.forks_from(self.applied)

    @property
    def diff(self) -> Message | None:
        """The comparison shown of two runs."""
        shown: Message | None = self.panels.get("diffed", EMPTY["diffed"])["diff"]
        return shown

    @property
    def error(self) -> str:
        """The newest error, or an empty text."""
        return next(reversed(self.errors.values()), "")

    def fail(self, where: str, sentence: str) -> None:
        """Show an error next to its cause."""
        self.mend([where])
        self.errors = {**self.errors, where: sentence}

    def mend(self, places: Iterable[str]) -> None:
        """Remove the errors of these places."""
        gone = set(places)
        self.errors = {where: words for where, words in self.errors.items() if where not in gone}

    def moved(self) -> None:
        """Remove what belongs to the former position: its message, and errors outside the form."""
        self.message = ""
        self.mend(set(self.errors) - set(FORM))

    def show(self, message: Message) -> None:
        """Show a panel; it stays until a newer message of its type."""
        self.panels = {**self.panels, message["type"]: message}

    def hide(self, *names: str) -> None:
        """Clear panels that show something."""
        for name in names:
            if name in self.panels and self.panels[name] != EMPTY[name]:
                self.show(EMPTY[name])
