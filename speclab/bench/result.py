"""One measured call as a record, the only form in which anything is measured, stored and reported; and its folder.

A folder of results holds `run.json` (a `RunInfo`: machine, versions, arguments), `results.jsonl` (a `Result` per line,
written call by call) and, at the end, `results.parquet`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from errno import ENOSPC
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from speclab.analysis.attribution import Attribution, SourceRate
from speclab.analysis.routing import Part
from speclab.errors import MeasurementError
from speclab.files import read_whole, reason_of, write_table, write_whole
from speclab.trace.codecs import first_error

SCHEMA_VERSION = 2
"""Grows when a field changes its meaning; one with a default may be added, or go, without that."""
RUN, RESULTS, PARQUET = "run.json", "results.jsonl", "results.parquet"

Group = Literal["speclab", "transformers"]
Key = tuple[str, float | None, float | None, str, str, str, int]


class _Record(BaseModel):
    """Frozen; a field that this version does not know is left out."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class VerifyCost(_Record):
    """Verification passes over so many rows: how many there were, and the median seconds of one."""

    nodes: int
    passes: int
    seconds: float


class Bound(_Record):
    """What Proposition 1 of GOOSE expects at least of the verified trees, beside what they gave.

    In tokens per iteration, over the same iterations: those that the end of the text did not cut. `expected`: with the
    sources' accepted / drafted; `by_rate`: with accepted / tried; `isotropic`: of the best tree of one width, from
    branches alone, with as many nodes as the largest verified.
    """

    iterations: int
    expected: float
    by_rate: float
    isotropic: float
    measured: float


class Result(_Record):
    """One call of one method on one prompt. Times are seconds; None is "not known of this method".

    `seconds` is the whole call, prefill included, the device waited for at both ends. transformers' own decoding has
    no phases and no drafted or accepted tokens; its passes are counted at the modules.
    """

    schema_version: int = SCHEMA_VERSION
    protocol: str
    method: str
    group: Group = "speclab"
    settings: dict[str, Any] = Field(default_factory=dict)
    """Of the strategy, with its name under "strategy"; of transformers, the arguments of its `generate`."""
    x: float | None = None
    """The swept value; `RunInfo.x_name` says of what. A method that does not depend on it has None."""
    x2: float | None = None
    """A second swept value, of `RunInfo.x2_name`."""

    workload: str
    kind: str
    prompt_id: str
    repeat: int
    """From 0; the warm-up before it is not kept."""
    order: int = 0
    """Which one of its round this call was, from 0."""
    prompt_tokens: int = 0
    max_new_tokens: int = 0
    new_tokens: int = 0
    finished: str = ""

    seconds: float = 0.0
    ttft: float | None = None
    """From the call to the first token at hand, prefill included."""
    target_seconds: float = 0.0
    draft_seconds: float = 0.0
    """Inside the passes of the target; of draft model and heads."""
    phases: dict[str, float] = Field(default_factory=dict)
    """Of all iterations together; the prefill is in none."""

    iterations: int = 0
    """Verification passes; of transformers, all target passes."""
    target_calls: int = 0
    """The prefill included."""
    draft_calls: int = 0
    committed: int = 0
    """New tokens of the iterations: all but the prefill's first; of transformers, all."""
    drafted: int | None = None
    accepted: int | None = None
    longest_path: int | None = None
    nodes: int | None = None
    """Rows verified, roots included."""
    depth_drafted: tuple[int, ...] = ()
    """For each depth from 1, the iterations whose tree went so deep; `depth_accepted`: whose accepted path did."""
    depth_accepted: tuple[int, ...] = ()
    verify_cost: tuple[VerifyCost, ...] = ()
    """By number of rows, ascending."""

    sources: dict[str, SourceRate] | None = None
    """By source, in protocols that decode with records; so `paths`, `bound` and `heads`."""
    paths: Attribution | None = None
    bound: Bound | None = None
    heads: tuple[Part, ...] | None = None

    equal: bool | None = None
    """Whether the text is the target's own greedy one; None where it was not compared."""
    first_difference: int | None = None
    """Index of the first new token that differs."""
    tie: bool | None = None
    """In half precision: whether that difference is one that rounding explains (`exactness.TOLERANCE`)."""
    looping: bool = False
    """More than half of the text's last 64 tokens end a 4-gram that it held before."""
    peak_memory_bytes: int | None = None
    memory_kind: Literal["cuda allocator", "rss"] | None = None
    failed: str | None = None
    """One sentence that says why there is no text; then every figure is its default."""

    @property
    def ok(self) -> bool:
        """Whether there is a text."""
        return self.failed is None

    @property
    def key(self) -> Key:
        """What makes a call the same call."""
        return (self.method, self.x, self.x2, self.workload, self.kind, self.prompt_id, self.repeat)

    @property
    def prompt(self) -> tuple[str, str]:
        """Workload and prompt."""
        return (self.workload, self.prompt_id)

    @property
    def throughput(self) -> float | None:
        """New tokens / seconds of the whole call (DynaTree, section 4.2)."""
        return self.new_tokens / self.seconds if self.seconds else None

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first one; None for a text of one token."""
        if self.ttft is None or self.new_tokens < 2:
            return None
        return (self.seconds - self.ttft) / (self.new_tokens - 1)

    @property
    def host_seconds(self) -> float:
        """Outside forward passes."""
        return self.seconds - self.target_seconds - self.draft_seconds

    @property
    def iteration_ms(self) -> float | None:
        """Milliseconds per iteration after the first token, everything included."""
        if self.ttft is None or not self.iterations:
            return None
        passes = self.iterations - (self.group == "transformers")  # there the first pass is the prefill
        return 1000 * (self.seconds - self.ttft) / passes if passes > 0 else None

    @property
    def tokens_per_iteration(self) -> float | None:
        """Committed tokens / verification passes (L̄, τ); of transformers, new tokens / target passes."""
        return self.committed / self.iterations if self.iterations else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted drafted tokens / drafted tokens, 0…1."""
        return None if self.accepted is None or not self.drafted else self.accepted / self.drafted

    @property
    def path_acceptance(self) -> float | None:
        """Accepted drafted tokens / tokens on the longest drafted path, 0…1."""
        return None if self.accepted is None or not self.longest_path else self.accepted / self.longest_path

    @property
    def paper_acceptance(self) -> float | None:
        """DynaTree's figure (Table 3): committed tokens, bonus included, / longest drafted path; may exceed 1."""
        return self.committed / self.longest_path if self.longest_path else None

    @property
    def path_length(self) -> float | None:
        """Accepted drafted tokens per iteration: the committed path before the bonus token (ℓ̄ of DynaTree)."""
        return None if self.accepted is None or not self.iterations else self.accepted / self.iterations


class RunInfo(_Record):
    """What a folder of results was measured on, and with which arguments."""

    schema_version: int = SCHEMA_VERSION
    protocol: str
    title: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """All that decides what is measured, workload and pair included; a run goes on only with the same."""
    command: str = ""
    """What measures the same again, less the folder; "" where no command did."""
    methods: tuple[str, ...] = ()
    baseline: str = "plain"
    """The method that speedups are ratios to."""
    x_name: str | None = None
    x2_name: str | None = None
    pair: dict[str, Any] = Field(default_factory=dict)
    """As `ModelPair.describe` tells it."""
    machine: dict[str, str] = Field(default_factory=dict)
    """Processor, cores, memory, device, system."""
    versions: dict[str, str] = Field(default_factory=dict)
    threads: int = 1
    started: datetime
    ended: datetime | None = None
    """None while it runs, and where it was cut short."""
    notes: tuple[str, ...] = ()
    """Sentences on what differs from what was asked: lengths cut, prompts left out."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a folder holds. `notes`: sentences on what could not be read, beside those of the run itself."""

    run: RunInfo
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()


def read_results(folder: str | os.PathLike[str]) -> Stored:
    """Reads a folder of results. A last line that was cut short is left out, and a note says so.

    Raises:
        MeasurementError: there are none, a file is damaged elsewhere, or another version of speclab wrote it.
    """
    place = Path(folder)
    run = _parsed(RunInfo, read_whole(place / RUN, MeasurementError), str(place / RUN))
    *lines, rest = (read_whole(place / RESULTS, MeasurementError) if (place / RESULTS).exists() else b"").split(b"\n")
    results = [_parsed(Result, line, f"{place / RESULTS}, line {number}") for number, line in enumerate(lines, 1)]
    cut = (f"{RESULTS}, line {len(lines) + 1}: cut short while it was written, and left out",) if rest else ()
    return Stored(run, tuple(results), (*run.notes, *cut))


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
    """Appends results to a folder, each as a whole line; one process at a time.

    Raises:
        MeasurementError: the file cannot be written; what was there before is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._lock = folder / RESULTS, FileLock(folder / ".lock")
        try:
            self._lock.acquire(timeout=0)
            self._file = self._path.open("ab", buffering=0)
            self._drop_partial_line()
        except Timeout:
            raise MeasurementError(
                f"{folder} is in use by another run: wait for it, or choose another folder."
            ) from None
        except OSError as error:
            raise self._unwritable(error) from None

    def add(self, result: Result) -> None:
        """Appends a result; it is on the disk when this returns.

        Raises:
            MeasurementError: the disk is full; what was there before is kept.
        """
        line = result.model_dump_json().encode() + b"\n"
        try:
            written = self._file.write(line)
            os.fsync(self._file.fileno())
            problem = None if written == len(line) else OSError(ENOSPC, os.strerror(ENOSPC))
        except OSError as error:
            problem = error
        if problem is not None:
            self._drop_partial_line()
            raise self._unwritable(problem)

    def _drop_partial_line(self) -> None:
        """So that the next line does not go on behind one that a kill or a full disk cut short."""
        data = self._path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(self._path, whole)

    def _unwritable(self, error: OSError) -> MeasurementError:
        return MeasurementError(
            f"{self._path} cannot be written ({error.strerror or error}): make room or choose another folder; "
            "what is done is kept, and --resume goes on."
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        self._lock.release()


DERIVED = (
    "throughput", "tpot", "host_seconds", "iteration_ms", "tokens_per_iteration",
    "acceptance_rate", "path_acceptance", "paper_acceptance", "path_length",
)  # fmt: skip
"""Figures of a `Result` that follow from its fields."""


def write_parquet(folder: Path, results: Iterable[Result]) -> Path:
    """Writes `results.parquet`: one column per field, derived figures after them, nested fields as JSON text.

    Raises:
        MeasurementError: pyarrow is not installed, or the folder cannot be written.
    """
    rows = []
    for result in results:
        fields = result.model_dump(mode="json")
        plain = {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in fields.items()}
        rows.append(plain | {name: getattr(result, name) for name in DERIVED})
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    return write_table(folder / PARQUET, columns, kind=MeasurementError)


_Kind = TypeVar("_Kind", Result, RunInfo)


def _parsed(kind: type[_Kind], text: bytes, where: str) -> _Kind:
    try:
        record = kind.model_validate_json(text)
    except ValidationError as error:
        raise MeasurementError(f"{where}: {first_error(error)}; take the damaged line out") from None
    if record.schema_version != SCHEMA_VERSION:
        raise MeasurementError(
            f"{where}: written with schema {record.schema_version}, and this speclab reads {SCHEMA_VERSION}: measure "
            "again, or read it with the speclab that wrote it."
        )
    return record
