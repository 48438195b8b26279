"""What the form offers: strategies with their settings, models and prompts, as data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import constants

from speclab.drafters import strategies
from speclab.errors import SettingsError
from speclab.lab.messages import Message
from speclab.lab.state import ModelChoice
from speclab.loading.presets import PRESETS, Offer, Preset, find
from speclab.prompts import examples
from speclab.settings import SessionSettings
from speclab.views.run_data import strategy_data

if TYPE_CHECKING:
    from speclab.pair import ModelPair

CURRENT = "current settings"
"""The name of the form's strategy in a comparison."""
_DEVICES = [
    {"label": "automatic", "value": None},
    {"label": "CPU", "value": "cpu"},
    {"label": "CUDA", "value": "cuda"},
    {"label": "Apple GPU", "value": "mps"},
]


def catalog(given: ModelPair | None) -> Message:
    """The fields of the message `catalog`. `given`: the pair that the lab was given."""
    kinds = strategies(by_hand=False)
    chats = {False: examples(), True: examples(chat=True)}
    return {
        "strategies": [strategy_data(kind) for kind in kinds.values()],
        "models": _models(given),
        "prompts": [
            {"name": prompt.name, "kind": prompt.kind, "text": prompt.text, "chat": chat}
            for chat, prompts in chats.items()
            for prompt in prompts
        ],
        "devices": _DEVICES,
        "session": SessionSettings.model_json_schema(),
        "current": CURRENT,
    }


def _models(given: ModelPair | None) -> list[Message]:
    models = []
    if given is not None:
        models.append(_model(None, given.name or "given in Python", "", given.chats))
    for name, preset in PRESETS.items():
        way = ""
        if preset.missing:
            way = f"speclab fetch {name}"
        elif not _here(preset):
            way = f"downloads {_size(preset)}"
        models.append(_model(name, f"{name} · {_size(preset)}", way, preset.chat))
    return [*models, _model("", "your own …", "", False)]


def _model(name: str | None, label: str, way: str, chat: bool) -> Message:
    return {"name": name, "label": label, "here": not way, "way": way, "chat": chat}


def _here(preset: Preset) -> bool:
    """Whether nothing needs to be downloaded; imports no model library, as a page waits for it."""
    cached = Path(constants.HF_HUB_CACHE)
    return all(
        Path(name).is_dir()
        or (cached / f"models--{name.replace('/', '--')}" / "snapshots").is_dir()
        for name in (preset.target, preset.draft)
        if name is not None
    )


def _size(preset: Preset) -> str:
    size = preset.weight_bytes(preset.dtype or "float16")
    return f"{size / 2**30:.1f} GiB" if size >= 2**29 else f"{size / 2**20:.0f} MiB"


def missing(choice: ModelChoice | None, given: ModelPair | None) -> dict[str, str]:
    """What the models lack for each strategy that they cannot run, in a sentence, by its name."""
    return {
        name: sentence
        for name, kind in strategies(by_hand=False).items()
        if not any(field.is_required() for field in kind.model_fields.values())
        and (sentence := kind().missing(offered(choice, given)))
    }


def offered(choice: ModelChoice | None, given: ModelPair | None) -> Offer:
    """What can draft in these models; loads nothing, so the kinds of heads by name are unknown."""
    if choice is None:
        return given.offer if given is not None else Offer("", draft=False, heads=0, blocks=())
    if choice.name:
        return PRESETS[choice.name].offer(choice.name)
    return Offer(choice.target, bool(choice.draft), len(choice.heads))


def chats_with(choice: ModelChoice | None, given: ModelPair | None) -> bool:
    """Whether these models take messages, according to the preset or the pair's template."""
    if choice is None:
        return given is not None and given.chats
    return bool(choice.name) and PRESETS[choice.name].chat


def chosen_models(data: Any) -> ModelChoice | None:
    """The models of the form; None for the given pair.

    Raises:
        SettingsError: there is no such preset, or no target.
    """
    if data is None:
        return None
    names = {name: str(data.get(name) or "").strip() for name in ("name", "target", "draft")}
    heads = tuple(filter(None, map(str.strip, data.get("heads") or ())))
    choice = ModelChoice(**names, heads=heads, device=data.get("device"))
    if choice.name:
        find(choice.name)
    elif not choice.target:
        raise SettingsError("Name a target: a hub id or a folder.")
    return choice
