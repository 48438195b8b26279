"""A folder of results: `run.json`, `results.jsonl` written line by line, `results.parquet` at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from pydantic import ValidationError

from speclab.bench.result import SCHEMA_VERSION, Result, RunInfo
from speclab.errors import MeasurementError
from speclab.files import read_whole, reason_of, write_whole

RUN, RESULTS, PARQUET = "run.json", "results.jsonl", "results.parquet"


@dataclass(frozen=True, slots=True)
class Stored:
    """What a folder holds. `notes`: sentences on what could not be read, beside those of the run itself."""

    run: RunInfo
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()


def read_results(folder: str | os.PathLike[str]) -> Stored:
    """Reads a folder of results. A last line that was cut short is left out, and a note says so.

    Raises:
        MeasurementError: there are none, a file is damaged elsewhere, or a newer speclab wrote it.
    """
    place = Path(folder)
    run = _parsed(RunInfo, read_whole(place / RUN, MeasurementError), str(place / RUN))
    notes, results = list(run.notes), []
    *lines, rest = (read_whole(place / RESULTS, MeasurementError) if (place / RESULTS).exists() else b"").split(b"\n")
    for number, line in enumerate(lines, 1):
        results.append(_parsed(Result, line, f"{place / RESULTS}, line {number}"))
    if rest:
        notes.append(f"{RESULTS}, line {len(lines) + 1}: cut short while it was written, and left out")
    return Stored(run, tuple(results), tuple(notes))


def write_run(folder: Path, run: RunInfo) -> None:
    """Writes `run.json`, whole or not at all; makes the folder where there is none.

    Raises:
        MeasurementError: the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise MeasurementError(f"{folder} cannot be made ({reason_of(error)}): choose another folder.") from None
    write_whole(folder / RUN, run.model_dump_json(indent=1).encode())


class Writer:
    """Appends results to a folder, each as a whole line.

    Raises:
        MeasurementError: the file cannot be written; what was there before is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS
        try:
            self._file = self._path.open("ab", buffering=0)
            if not _held(self._file):
                self._file.close()
                raise MeasurementError(f"{folder} is in use by another run: wait for it, or choose another folder.")
            _drop_partial_line(self._path)
        except OSError as error:
            raise _unwritable(self._path, error) from None

    def add(self, result: Result) -> None:
        """Appends a result; it is on the disk when this returns.

        Raises:
            MeasurementError: the disk is full; what was there before is kept.
        """
        line = result.model_dump_json().encode() + b"\n"
        try:
            written = self._file.write(line)
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._undone(error) from None
        if written != len(line):
            raise self._undone(OSError(ENOSPC, os.strerror(ENOSPC)))

    def _undone(self, error: OSError) -> MeasurementError:
        _drop_partial_line(self._path)
        return _unwritable(self._path, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()


def write_parquet(folder: Path, results: Iterable[Result]) -> Path:
    """Writes `results.parquet`: a column a field, derived figures after them, nested fields as JSON text.

    Raises:
        MeasurementError: pyarrow is not installed, or the folder cannot be written.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MeasurementError("Parquet needs pyarrow, which is not installed: pip install 'speclab[bench]'.") from None
    rows = [flat(result) for result in results]
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist(rows), sink)
    return write_whole(folder / PARQUET, sink.getvalue().to_pybytes())


DERIVED = (
    "throughput", "decode_throughput", "tpot", "model_seconds", "host_seconds", "tokens_per_iteration",
    "acceptance_rate", "path_acceptance", "paper_acceptance", "path_length",
)  # fmt: skip
"""Figures of a `Result` that follow from its fields."""


def flat(result: Result) -> dict[str, Any]:
    """A result as one row of plain values; what is nested becomes JSON text."""
    fields = result.model_dump(mode="json")
    row = {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in fields.items()}
    return row | {name: getattr(result, name) for name in DERIVED}


_Kind = TypeVar("_Kind", Result, RunInfo)


def _parsed(kind: type[_Kind], text: bytes, where: str) -> _Kind:
    try:
        record = kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the line"
        raise MeasurementError(f"{where}: {field}: {first['msg']}; take the damaged line out") from None
    if record.schema_version > SCHEMA_VERSION:
        raise MeasurementError(
            f"{where}: written by a newer speclab (schema {record.schema_version}; this one reads {SCHEMA_VERSION}): "
            "upgrade"
        )
    return record


def _held(file: IO[bytes]) -> bool:
    """Takes the file for this run until it is closed, where the system has such locks; whether it was free."""
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:  # Windows
        return True
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _drop_partial_line(path: Path) -> None:
    """So that the next line does not go on behind one that a kill cut short."""
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)


def _unwritable(path: Path, error: OSError) -> MeasurementError:
    return MeasurementError(
        f"{path} cannot be written ({error.strerror or error}): make room or choose another folder; "
        "what is done is kept, and --resume goes on."
    )
