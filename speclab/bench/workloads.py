"""Prompts to measure on: the shipped ones, JSONL files and folders of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from speclab.errors import MeasurementError
from speclab.files import read_whole
from speclab.prompts import Prompt, PromptInput, as_messages, examples, kinds


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts by one name; each has a name of its own in it. `notes`: sentences on what was left out.

    `chat`: each is what a user says, which a model with a chat template reads in it; else a text to continue.
    """

    name: str
    tasks: tuple[Prompt, ...]
    notes: tuple[str, ...] = ()
    chat: bool = False

    @property
    def kinds(self) -> dict[str, list[str]]:
        """Texts by kind, in the order of the prompts."""
        found: dict[str, list[str]] = {}
        for task in self.tasks:
            found.setdefault(task.kind, []).append(task.text)
        return found

    @property
    def inputs(self) -> list[PromptInput]:
        """Each prompt as a session takes it."""
        return [as_messages(task.text) if self.chat else task.text for task in self.tasks]

    @property
    def digest(self) -> str:
        """Of all names, kinds and texts: two workloads of the same digest are the same prompts."""
        parts = [[task.name, task.kind, task.text, *["chat"] * self.chat] for task in self.tasks]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def first(self, limit: int) -> Workload:
        """At most `limit` prompts of each kind."""
        kept = [task for kind in self.kinds for task in [t for t in self.tasks if t.kind == kind][:limit]]
        return replace(self, tasks=tuple(kept))


def load(name: str, limit: int | None = None, *, chat: bool | None = None) -> Workload:
    """A workload by name, or a JSONL file, or a folder of such files.

    A line holds an object with the fields `prompt`, and as far as they are there `id`, `category` and `dataset`. One
    that does not is left out, and a note names file and line.

    Args:
        name: of a workload in `WORKLOADS`, or a path.
        limit: prompts of each kind; None takes all.
        chat: whether each is what a user says; None: those are that were written so ("shipped-chat").

    Raises:
        MeasurementError: there is no such workload, or no prompt in it.
    """
    if name in WORKLOADS:
        found = Workload(name, tuple(WORKLOADS[name]()))
    elif _exists(name):
        found = _from_files(Path(name))
    else:
        raise MeasurementError(
            f"There is no workload {name!r}, and no such file or folder: choose one of {', '.join(WORKLOADS)}, or name "
            "a JSONL file."
        )
    if not found.tasks:
        why = f" ({found.notes[0]})" if found.notes else ""
        raise MeasurementError(f"{name} holds no prompt{why}: a line is an object with the field prompt.")
    found = replace(found, chat=name == _CHAT if chat is None else chat)
    return found if limit is None else found.first(limit)


def _shipped_long() -> Iterator[Prompt]:
    """The prompts of a kind joined, each once the last: long prompts for sweeps of their length."""
    for kind in kinds():
        prompts = examples(kind)
        for place, one in enumerate(prompts):
            turned = [*prompts[place + 1 :], *prompts[:place], one]
            yield Prompt(f"… {one.name}", kind, "\n\n".join(each.text for each in turned))


_CHAT = "shipped-chat"
WORKLOADS: dict[str, Callable[[], Iterable[Prompt]]] = {
    "shipped": examples, "shipped-long": _shipped_long, _CHAT: partial(examples, chat=True),
}  # fmt: skip


def _from_files(path: Path) -> Workload:
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise MeasurementError(f"The folder {path} holds no .jsonl file: name one that does.")
    tasks: dict[str, Prompt] = {}
    notes: list[str] = []
    for file in files:
        for number, line in enumerate(read_whole(file, MeasurementError).split(b"\n"), 1):
            if not line.strip():
                continue
            where = f"{file.name}, line {number}"
            try:
                task = _task(file, number, line)
            except ValueError as error:
                notes.append(f"{where}: {error}; left out")
                continue
            if task.name in tasks:
                notes.append(f"{where}: the id {task.name!r} is taken; left out")
            tasks.setdefault(task.name, task)
    return Workload(path.stem, tuple(tasks.values()), tuple(notes))


def _exists(name: str) -> bool:
    with suppress(OSError, ValueError):  # too long a name, a NUL
        return Path(name).exists()
    return False


def _task(file: Path, number: int, line: bytes) -> Prompt:
    """Raises ValueError, with a clause that says why, for a line that is no prompt."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None
    if not isinstance(record, dict) or not isinstance(record.get("prompt"), str) or not record["prompt"].strip():
        raise ValueError("no object with a field prompt that holds text")
    kind = record.get("dataset") or record.get("category") or file.stem
    return Prompt(str(record.get("id") or f"{file.stem}-{number}"), str(kind), record["prompt"])
