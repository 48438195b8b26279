"""Opens what engines wrote of acceptance: logs, counters, responses, and our own schema."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError
from pydantic_core import from_json

from speclab.errors import TraceError
from speclab.files import opened
from speclab.serving.accepted import SCHEMA, VERSION, AcceptanceLog, Logged, SavedLog
from speclab.serving.engine_logs import LONG, MARKS, Found, read_json
from speclab.trace.codecs import adapter, first_error

DOCUMENT, MAX_BYTES, LINE = 64 << 20, 1 << 30, 1 << 22
"""Most bytes of one JSON document, of a file that is read line by line unless told otherwise, and of a line of it."""
HEAD, CHARACTERS = 1 << 16, 1 << 13
_JSON = re.compile(rb"\s*(?:\{\s*[\"}]|\[\s*[\[{\]])")
"""How JSON begins, and no line of a log: SGLang's begin with a date in brackets."""
KNOWN = f"logs, responses and counters of vLLM, SGLang and llama.cpp are, and the schema {SCHEMA} (docs/engines.md)"


def load_acceptance(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> AcceptanceLog:
    """Opens a log of acceptance that vLLM, SGLang, llama.cpp or speclab wrote; its format is found out.

    Args:
        path: of a server's log, a saved /metrics page, responses as JSON, JSON lines or a stream, or a file of
            `AcceptanceLog.save`. docs/engines.md lists what is known of each.
        max_bytes: most bytes of a file that is read line by line; a single JSON document may have 64 MiB.

    Raises:
        TraceError: the file is missing, too large, no text, damaged, of a newer schema, contradicts itself, or holds
            nothing of acceptance that is known here.
    """
    with opened(path, TraceError, max_bytes) as file:
        head = file.read(HEAD)
        _check_text(head, path)
        size = os.fstat(file.fileno()).st_size
        file.seek(0)
        if _JSON.match(head.removeprefix(b"\xef\xbb\xbf")) and not _is_lines(head, size):
            if size > DOCUMENT:
                raise TraceError(f"{path} is one JSON document of {size:,} bytes, and {DOCUMENT:,} are read: split it")
            return _of_document(file.read(), path)
        found = _of_lines(file, path)
    return _log(found, path)


def _check_text(head: bytes, path: str | os.PathLike[str]) -> None:
    if not head.strip():
        raise TraceError(f"{path} is empty: give a log that an engine wrote")
    if head.startswith(b"\x1f\x8b"):
        raise TraceError(f"{path} is gzipped: unpack it first; a run saved by speclab opens with speclab.load_trace")
    if b"\0" in head:
        raise TraceError(f"{path} is no text but binary: give a log that an engine wrote, as text or JSON")


def _is_lines(head: bytes, size: int) -> bool:
    """Whether each line is JSON of its own: the first one is, and it is not all."""
    first, newline, _ = head.lstrip().partition(b"\n")
    if not newline or len(first) + len(newline) >= size:
        return False
    try:
        from_json(first)
    except ValueError:
        return False
    return head.lstrip()[len(first) :].strip() != b"" or size > len(head)


def _of_document(data: bytes, path: str | os.PathLike[str]) -> AcceptanceLog:
    try:
        value = from_json(data.removeprefix(b"\xef\xbb\xbf"))
    except ValueError as error:
        raise TraceError(
            f"{path} is cut short, or not one JSON document ({error}): write it again, whole, or one response per line"
        ) from None
    if isinstance(value, dict) and ("schema" in value or value.get("engine") == "speclab"):
        return _of_schema(value, path)
    found = Found()
    with _reading(str(path)):
        read_json(value, found)
        found.finish()
    return _log(found, path)


def _of_schema(value: dict[str, object], path: str | os.PathLike[str]) -> AcceptanceLog:
    schema, version = value.get("schema"), value.get("version")
    if schema != SCHEMA:
        raise TraceError(
            f"{path} has the schema {str(schema)[:60]!r}, and {SCHEMA!r} is read; docs/engines.md has its fields"
        )
    if isinstance(version, int) and version > VERSION:
        raise TraceError(
            f"{path} is of a newer {SCHEMA} (version {version}, this speclab reads {VERSION}): upgrade speclab"
        )
    try:
        saved = adapter(SavedLog).validate_python(value)
    except ValidationError as error:
        raise TraceError(f"{path} is not of the schema {SCHEMA}: {first_error(error)}; save it again") from None
    entries = []
    for number, one in enumerate(saved.requests, start=1):
        with _reading(f"request {number} of {path}"):
            entries.append(Logged.of_steps(one.steps, prompt=one.prompt, output=one.output, name=one.name))
    if not entries:
        raise TraceError(f"{path} holds no requests: save a run that decoded an iteration at least")
    return AcceptanceLog(saved.engine, tuple(entries), saved.source, saved.settings)


def _of_lines(file: BinaryIO, path: str | os.PathLike[str]) -> Found:
    found = Found()
    for number, line in _lines(file, path):
        read = next((read for mark, read in MARKS if mark in line), None)
        if read is not None:
            with _reading(f"line {number} of {path}"):
                read(line if read in LONG else line[:CHARACTERS], found)
    with _reading(str(path)):
        found.finish()
    return found


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Says of what contradicts itself where it stands."""
    try:
        yield
    except ValueError as error:
        raise TraceError(f"{what} cannot be right: {error}; write it again") from None


def _lines(file: BinaryIO, path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Numbered lines; what is no UTF-8 in them is replaced, since servers log what users send."""
    number = 0
    while raw := file.readline(LINE):
        number += 1
        if len(raw) == LINE and not raw.endswith(b"\n"):
            raise TraceError(f"{path} has a line of more than {LINE:,} bytes, line {number}: no log has one; split it")
        yield number, raw.decode("utf-8", "replace")


def _log(found: Found, path: str | os.PathLike[str]) -> AcceptanceLog:
    engines = list(dict.fromkeys([engine for engine, _ in found.entries]))
    if not engines:
        raise TraceError(f"{path} holds nothing of acceptance that is known: {KNOWN}")
    if len(engines) > 1:
        raise TraceError(f"{path} holds logs of {' and '.join(engines)}: give a file of one engine")
    entries = tuple([entry for _, entry in found.entries])
    notes = dict(found.notes)
    if any(entry.estimated for entry in entries):
        notes["Counts by depth are worked out from rounded rates."] = None
    if len(entries) > 1 and all(entry.iterations is None for entry in entries):
        notes["The log has no counts of iterations, so a mean over it weighs every entry alike."] = None
    return AcceptanceLog(engines[0], entries, Path(path).name, notes=tuple(notes))
