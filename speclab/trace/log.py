"""Logs of prompts and answers: JSON Lines, as a server writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from speclab.errors import TraceError
from speclab.files import read_whole

ANSWERS = ("answer", "response", "completion", "output")
MOST = 1 << 28
"""Most bytes of a log."""


def read_log(path: Path) -> Iterator[tuple[Any, Any] | str]:
    """For each line its prompt and its answer, texts or token ids; or a sentence on what is wrong with it.

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
            answer = next((entry[name] for name in ANSWERS if entry.get(name)), None)
            if answer is None or not entry.get("prompt"):
                yield f"Line {number} has no prompt or no answer: name them prompt and answer."
            else:
                yield entry["prompt"], answer
        elif line:
            yield f"Line {number} is not an object: write one with prompt and answer."
