"""The example prompts, all written for speclab: texts to continue, and questions for chat models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

from speclab.errors import PromptError, SettingsError

__all__ = ["Message", "Prompt", "as_messages", "examples", "kinds"]

_HERE = Path(__file__).parent
_CONTINUED = _HERE / "models" / "mini" / "prompts.json"
_ASKED = _HERE / "chat_prompts.json"

PromptInput = str | Sequence[int] | Sequence[Mapping[str, Any]]
"""Text, token ids, or messages with a role and a content, which the tokenizer's chat template formats."""


@dataclass(frozen=True)
class Message:
    """One message of a conversation; its content is tokens `start` to `stop` of the prompt, or None if unknown."""

    role: str
    content: str
    start: int = 0
    stop: int = 0


def as_messages(text: str) -> tuple[dict[str, str], ...]:
    """A conversation with one user message; the template may add a system message of its own."""
    return ({"role": "user", "content": text},)


def is_conversation(prompt: object) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    """Whether a prompt is a list of messages."""
    return isinstance(prompt, list | tuple) and any(
        isinstance(message, Mapping) for message in prompt
    )


def checked_messages(prompt: Iterable[object]) -> list[Message]:
    """Convert mappings with a role and a content to messages; the content may be a list.

    Raises:
        PromptError: a message has no role, or neither a content nor anything else.
    """
    messages = []
    for number, entry in enumerate(prompt, 1):
        message = entry if isinstance(entry, Mapping) else {}
        role = message.get("role")
        content = message.get("content")
        calls = content is None and message.keys() - {"role", "content"}  # of tools
        if not isinstance(role, str) or not (calls or isinstance(content, str | list)):
            raise PromptError(
                f"Message {number} of the prompt is not a role and a content: write "
                '{"role": "user", "content": "…"}.'
            )
        messages.append(Message(role, str(content or "")))
    return messages


@dataclass(frozen=True)
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

    `chat`: questions for a chat model instead of texts to continue.
    """
    prompts = _read(_ASKED if chat else _CONTINUED)
    known = dict.fromkeys(prompt.kind for prompt in prompts)
    if kind is not None and kind not in known:
        raise SettingsError(
            f"There are no prompts of the kind {kind!r}: choose one of {', '.join(known)}."
        )
    return [prompt for prompt in prompts if kind in (None, prompt.kind)]


def __dir__() -> list[str]:
    return __all__
