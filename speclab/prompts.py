"""The example prompts shipped with speclab, all written for it: texts to continue, and what a user asks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from speclab.errors import SettingsError

_HERE = Path(__file__).parent
_CONTINUED, _ASKED = _HERE / "models" / "mini" / "prompts.json", _HERE / "chat_prompts.json"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One example: a short name, its kind (prose, code, …) and the text."""

    name: str
    kind: str
    text: str


@cache
def _read(file: Path) -> tuple[Prompt, ...]:
    return tuple(Prompt(**entry) for entry in json.loads(file.read_text(encoding="utf-8")))


def kinds(*, chat: bool = False) -> list[str]:
    """The kinds of prompts, in the order of the file."""
    return list(dict.fromkeys(prompt.kind for prompt in examples(chat=chat)))


def examples(kind: str | None = None, *, chat: bool = False) -> list[Prompt]:
    """All shipped prompts, or those of one kind; raises `SettingsError` for an unknown kind.

    `chat`: what a user asks a model that answers, in place of texts to continue.
    """
    found = _read(_ASKED if chat else _CONTINUED)
    known = dict.fromkeys(prompt.kind for prompt in found)
    if kind is not None and kind not in known:
        raise SettingsError(f"There are no prompts of the kind {kind!r}: choose one of {', '.join(known)}.")
    return [prompt for prompt in found if kind in (None, prompt.kind)]
