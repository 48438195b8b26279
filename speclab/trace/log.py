"""Logs of prompts and answers: JSON Lines, as a server writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from speclab.errors import TraceError
from speclab.files import read_whole

PROMPTS = "prompt messages request.prompt request.messages"
ANSWERS = (
    "answer response completion output choices.message.content choices.text "
    "response.choices.message.content response.choices.text"
)
KINDS = "kind category task"
"""Where a line may have its prompt, its answer (as servers of OpenAI's interface write them, too), and
what kind of prompt it is."""
MOST = 1 << 28
"""Most bytes of a log."""


class Logged(NamedTuple):
    """A line: prompt and answer, as texts, token ids or messages, and the kind of prompt."""

    prompt: Any
    answer: Any
    kind: str = ""


def read_log(path: Path) -> Iterator[Logged | str]:
    """Each line; or a sentence on what is wrong with it.

    Raises:
        TraceError: the file cannot be read or is too large.
    """
    lines = read_whole(path, TraceError, MOST).decode(errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line or "{}")
        except ValueError:
            yield f"Line {number} is not JSON: write an object a line, with prompt and answer."
            continue
        if line and isinstance(entry, dict):
            prompt = _first(entry, PROMPTS)
            answer = _first(entry, ANSWERS)
            if not prompt or not answer:
                yield f"Line {number} has no prompt or no answer: name them prompt and answer."
            else:
                yield Logged(prompt, answer, str(_first(entry, KINDS)))
        elif line:
            yield f"Line {number} is not an object: write one with prompt and answer."


def _first(entry: Any, paths: str) -> Any:
    """What the first of these dotted names holds, a text or a list, by way of first choices; "" if none
    does."""
    for path in paths.split():
        value = entry
        for name in path.split("."):
            value = value[0] if isinstance(value, list) and value else value
            value = value.get(name) if isinstance(value, dict) else None
        if value and isinstance(value, str | list):
            return value
    return ""
