"""The example prompts shipped with the mini family, written for this project."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from speclab.errors import SettingsError

_FILE = Path(__file__).parent / "models" / "mini" / "prompts.json"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One example: a short name, its kind (prose, code, …) and the text."""

    name: str
    kind: str
    text: str


@cache
def _all() -> tuple[Prompt, ...]:
    return tuple(Prompt(**entry) for entry in json.loads(_FILE.read_text(encoding="utf-8")))


def kinds() -> list[str]:
    """The kinds of prompts, in the order of the file."""
    return list(dict.fromkeys(prompt.kind for prompt in _all()))


def examples(kind: str | None = None) -> list[Prompt]:
    """All shipped prompts, or those of one kind; raises `SettingsError` for an unknown kind."""
    if kind is not None and kind not in kinds():
        raise SettingsError(f"There are no prompts of the kind {kind!r}: choose one of {', '.join(kinds())}.")
    return [prompt for prompt in _all() if kind in (None, prompt.kind)]
