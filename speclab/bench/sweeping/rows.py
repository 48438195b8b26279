"""A trial as a row, and the rows as parquet: one part file a trial, so that a kill loses none that is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from speclab.errors import MeasurementError, TraceError
from speclab.files import write_whole

SCHEMA_VERSION = 1
PARTS = "trials.parquet"
"""A folder of part files, which readers of parquet open as one table."""

_ARROW = {
    "schema_version": "int64", "trial": "int64", "objective": "float64", "prompts": "int64", "seconds": "float64",
    "pruned": "bool",
}  # fmt: skip
_TYPES = {bool: "bool", int: "int64", float: "float64"}


@dataclass(frozen=True, slots=True)
class Measured:
    """What one strategy came to: figures by name, of so many prompts; `text` tells texts apart (a digest)."""

    figures: Mapping[str, float]
    prompts: int = 0
    text: str = ""


class Row(BaseModel):
    """One trial of a sweep. Trial 0 is the strategy with its defaults."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    schema_version: int = SCHEMA_VERSION
    trial: int
    strategy: str
    settings: dict[str, Any]
    """The values of the fields swept over."""
    code: str
    """The strategy as it is written in Python."""
    objective: float | None = None
    """None where it failed."""
    figures: dict[str, float] = {}
    prompts: int = 0
    text: str = ""
    """A digest of the tokens decoded: the same where the texts are."""
    seconds: float = 0.0
    """On the worker; its first trial loads the models as well."""
    worker: str = ""
    """Its machine and process."""
    failed: str | None = None
    """One sentence that says why there are no figures."""
    pruned: bool = False
    """Whether it was not measured because its settings contradict each other."""


def flat(row: Row) -> dict[str, Any]:
    """A row as plain values: `setting_*` and the figures get columns of their own; `settings` is JSON text as well."""
    plain = row.model_dump(exclude={"figures"})
    own = {f"setting_{name}": value for name, value in row.settings.items()}
    return {**plain, "settings": json.dumps(row.settings), **own, **row.figures}


def write_part(folder: Path, row: Row, types: Mapping[str, Any]) -> Path:
    """Writes the part file of a trial, whole or not at all.

    Args:
        folder: of the sweep.
        row: what to write.
        types: the Python type of each field swept over, so that every part has the same columns.

    Raises:
        MeasurementError: the folder is full or cannot be written; or there is no pyarrow.
    """
    pyarrow, parquet = _arrow()
    fixed = {name: _ARROW.get(name, "string") for name in Row.model_fields if name != "figures"}
    own = {f"setting_{name}": _TYPES.get(kind, "string") for name, kind in types.items()}
    columns = {**fixed, **own, **dict.fromkeys(row.figures, "float64")}
    schema = pyarrow.schema([(name, pyarrow.type_for_alias(alias)) for name, alias in columns.items()])
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist([flat(row)], schema=schema), sink)
    path = part_path(folder, row.trial)
    try:
        return write_whole(path, sink.getvalue().to_pybytes())
    except TraceError as error:
        cause = getattr(error.__context__, "strerror", None) or error
        raise MeasurementError(
            f"{path} cannot be written ({cause}): make room; what is done is kept, and --resume goes on"
        ) from None


def part_path(folder: Path, trial: int) -> Path:
    """Where the part file of a trial lies."""
    return folder / PARTS / f"trial-{trial:06d}.parquet"


def read_rows(folder: Path) -> Any:
    """The table of a sweep, a `pyarrow.Table` by trial; columns that a part lacks are empty there.

    Raises:
        MeasurementError: the folder holds none.
    """
    pyarrow, parquet = _arrow()
    tables = [parquet.read_table(path) for path in sorted((folder / PARTS).glob("*.parquet"))]
    if not tables:
        raise MeasurementError(f"{folder} holds no trials of a sweep: name the folder that was given as --out.")
    return pyarrow.concat_tables(tables, promote_options="permissive")


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MeasurementError("A sweep needs pyarrow, which is not installed: pip install 'speclab[bench]'.") from None
    return pyarrow, parquet
