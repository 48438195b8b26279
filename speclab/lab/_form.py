"""The form: what it offers, the setup of a run that it describes, and what a change of it does."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic.dataclasses
from huggingface_hub import try_to_load_from_cache

from speclab.drafters import setting_names, strategies
from speclab.drafters.base import Strategy
from speclab.errors import PromptError, SettingsError
from speclab.files import byte_count
from speclab.lab._messages import Message
from speclab.loading.presets import PRESETS, Offer, Preset, find
from speclab.prompts import PromptInput, as_messages, examples, is_conversation
from speclab.settings import SessionSettings
from speclab.trace.codecs import adapter
from speclab.views.run_data import WORDS, strategy_data

if TYPE_CHECKING:
    from speclab.pair import ModelPair

FORM = ("models", "strategy", "session", "prompt")
"""The parts of the setup; the page shows an error of a part beside its fields."""
CURRENT = "current settings"
"""The name of the form's strategy in a comparison."""
_DEVICES = {"automatic": None, "CPU": "cpu", "CUDA": "cuda", "Apple GPU": "mps"}


@pydantic.dataclasses.dataclass(frozen=True, config={"str_strip_whitespace": True})
class ModelChoice:
    """A preset by name, or, if the name is empty, models by hub id or folder."""

    name: str = "mini"
    target: str = ""
    draft: str = ""
    heads: tuple[str, ...] = ()
    device: str | None = None

    def __str__(self) -> str:
        if not self.name:
            return Path(self.target).name
        return Path(PRESETS[self.name].target).name if PRESETS[self.name].hub else self.name


@dataclass(frozen=True)
class LabConfig:
    """The setup of a session. `models` None: the pair given to the lab."""

    models: ModelChoice | None
    strategy: Strategy
    prompt: PromptInput
    settings: SessionSettings

    def forks_from(self, other: LabConfig) -> bool:
        """Whether models and prompt are the same, so a fork is enough."""
        return (self.models, self.prompt) == (other.models, other.prompt)

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


def on_screen(sentence: str) -> str:
    """A sentence with its settings named as on the page: `low confidence`, `length`."""
    known = {name: name.replace("_", " ") for name in setting_names()} | WORDS["session"]
    return re.sub(r"\w+", lambda word: str(known.get(word[0], word[0])), sentence)


def changes(old: LabConfig, new: LabConfig) -> dict[str, tuple[Any, Any]]:
    """What differs between two setups: old and new value by name."""
    before = old.settings.model_dump()
    after = new.settings.model_dump()
    same = type(old.strategy) is type(new.strategy)
    for config, values in ((old, before), (new, after)):
        values |= {"models": config.models or "given", "strategy": type(config.strategy).__name__}
        if same:
            values |= config.strategy.describe()
    return {name: (before[name], value) for name, value in after.items() if before[name] != value}


def differences(old: LabConfig, new: LabConfig) -> list[str]:
    """Describe the changes: `node budget 24 → 12`."""
    sentences = []
    if new.prompt != old.prompt:
        sentences.append("prompt")
    for name, (before, after) in changes(old, new).items():
        sentences.append(f"{name.replace('_', ' ')} {_written(before)} → {_written(after)}")
    return sentences


def short_name(old: LabConfig, new: LabConfig) -> str:
    """The changes as the name of a fork: `τ_ℓ 0.75`, `Goose`."""
    parts = []
    for name, (_, value) in changes(old, new).items():
        field = type(new.strategy).model_fields.get(name)
        label = name.replace("_", " ")
        if field is not None and field.title:
            label = field.title
        if name == "strategy":
            label = ""
        parts.append(f"{label} {_written(value)}".strip())
    return ", ".join(parts)


def _written(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


# What the form offers


def catalog(given: ModelPair | None) -> Message:
    """The fields of the message `catalog`. `given`: the pair that the lab was given."""
    models = []
    if given is not None:
        models.append(_model(None, given.name or "given in Python", "", given.chats))
    for name, preset in PRESETS.items():
        way = ""
        size = byte_count(preset.weight_bytes)
        if preset.missing:
            way = f"speclab fetch {name}"
        elif not _on_this_machine(preset):
            way = f"downloads {size}"
        models.append(_model(name, f"{name} · {size}", way, preset.chat))
    models.append(_model("", "your own …", "", False))
    prompts = []
    for chat in (False, True):
        prompts += [{**asdict(prompt), "chat": chat} for prompt in examples(chat=chat)]
    return {
        "strategies": [strategy_data(kind) for kind in strategies(by_hand=False).values()],
        "models": models,
        "prompts": prompts,
        "devices": [{"label": label, "value": value} for label, value in _DEVICES.items()],
        "current": CURRENT,
    }


def _model(name: str | None, label: str, way: str, chat: bool) -> Message:
    return {"name": name, "label": label, "here": not way, "way": way, "chat": chat}


def _on_this_machine(preset: Preset) -> bool:
    """Whether nothing needs to be downloaded; imports no model library, as a page waits for it."""
    for name in filter(None, (preset.target, preset.draft)):
        if Path(name).is_dir():
            continue
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            return False
    return True


def offered(choice: ModelChoice | None, given: ModelPair | None) -> Offer:
    """What can draft in these models; loads nothing, so the kinds of heads by name are unknown."""
    if choice is None:
        assert given is not None
        return given.offer
    if choice.name:
        return PRESETS[choice.name].offer(choice.name)
    return Offer(choice.target, bool(choice.draft), len(choice.heads))


def missing(offer: Offer) -> dict[str, str]:
    """What the models lack for each strategy that they cannot run, in a sentence, by its name."""
    sentences = {}
    for name, kind in strategies(by_hand=False).items():
        if any(field.is_required() for field in kind.model_fields.values()):
            continue
        if sentence := kind().missing(offer):
            sentences[name] = sentence
    return sentences


def chats_with(choice: ModelChoice | None, given: ModelPair | None) -> bool:
    """Whether these models take messages, according to the preset or the pair's template."""
    if choice is None:
        return given is not None and given.chats
    return bool(choice.name) and PRESETS[choice.name].chat


# What a change of the form does


def with_models(config: LabConfig, value: Any, given: ModelPair | None) -> LabConfig:
    """The setup with other models: a choice of the page, or None for the given pair.

    Raises:
        SpeclabError: there is no such preset, or no target.
    """
    choice = None
    if value is not None:
        choice = adapter(ModelChoice).validate_python(value)
        if choice.name:
            find(choice.name)
        elif not choice.target:
            raise SettingsError("Name a target: a hub id or a folder.")
    prompt = config.prompt
    chats = chats_with(choice, given)
    if choice != config.models and is_conversation(prompt) != chats:
        text = prompt_text(prompt)
        prompt = as_messages(text) if chats else text
    return replace(config, models=choice, prompt=prompt)


def with_prompt(config: LabConfig, value: Any) -> LabConfig:
    """The setup with another text; of a conversation it replaces the last message."""
    text = str(value)
    refuse_empty(text)
    prompt = config.prompt
    if text == prompt_text(prompt):
        return config
    if is_conversation(prompt):
        return replace(config, prompt=tuple(prompt[:-1]) + as_messages(text))
    return replace(config, prompt=text)


def prompt_text(prompt: PromptInput) -> str:
    """The text of a prompt as a user would type it; the last one of several messages."""
    if isinstance(prompt, str):
        return prompt
    if is_conversation(prompt):
        return str(prompt[-1]["content"])
    return " ".join(map(str, prompt))


def refuse_empty(prompt: PromptInput) -> None:
    """Raises PromptError for a prompt without text."""
    if not prompt_text(prompt).strip():
        raise PromptError("The prompt is empty: write a text, or choose an example.")
