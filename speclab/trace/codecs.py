"""What a trace file may hold: numbers within bounds, texts of some length, a tree by its columns, a mask by its bits.

Bounds are checked where a file is read, and not where a record is made: to the engine these are plain types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import (
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
)

from speclab.tree import Bools, CandidateSampling, DraftTree

NODES, NAMES, TEXTS = 2048, 1000, 1 << 17
"""Most nodes of a tree, entries of a table of named values, and entries of a table of tokens' texts."""

T = TypeVar("T")
Many = Annotated[tuple[T, ...], FailFast()]  # the first error is enough: a million of them would fill the memory
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Natural = Annotated[int, Field(ge=0, lt=2**63)]
Real = Annotated[float, Field(ge=-1e300, le=1e300)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Probability = Annotated[float, Field(ge=0, le=1 + 1e-5)]  # what float32 makes of a sum of probabilities
Text = Annotated[str, Field(max_length=4096)]


def _at_most(entries: int) -> BeforeValidator:
    def check(table: Any) -> Any:
        if isinstance(table, Mapping) and len(table) > entries:
            raise ValueError(f"holds more than {entries} entries")
        return table

    return BeforeValidator(check)


def adapter(kind: type[T]) -> TypeAdapter[T]:
    """Reads and writes values of a type, by the bounds in its annotations; made once."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


Named = Annotated[Mapping[Annotated[str, Field(max_length=100)], T], _at_most(NAMES)]
Texts = Annotated[Mapping[Natural, Annotated[str, Field(max_length=1024)]], _at_most(TEXTS)]


def _tree_columns(tree: DraftTree) -> dict[str, Any]:
    columns = {name: getattr(tree, name).tolist() for name in ("token", "parent")}
    # JSON has no infinity: the log-probability of a token that its source ruled out is written as text.
    log_prob = [value if isfinite(value) else str(value) for value in tree.log_prob.tolist()]
    return columns | {"log_prob": log_prob, "source": list(tree.source), "law": str(tree.candidate_sampling)}


@dataclass(frozen=True)
class _Columns:
    __pydantic_config__ = ConfigDict(extra="forbid")

    token: Many[Natural]
    parent: Many[Whole]
    log_prob: Many[Annotated[float, Field(le=1e-3)]]
    source: Many[Text]
    law: CandidateSampling  # the name of this column in files


def _tree(columns: Any) -> DraftTree:
    if isinstance(columns, DraftTree):
        return columns
    try:
        read = adapter(_Columns).validate_python(columns)
    except ValidationError as error:
        raise ValueError(first_error(error)) from None
    if len(read.token) > NODES:
        raise ValueError(f"has more than {NODES} nodes")
    return DraftTree(np.asarray(read.token), np.asarray(read.parent), np.asarray(read.log_prob), read.source, read.law)


def _bits(mask: Bools) -> list[str]:
    return [np.packbits(row).tobytes().hex() for row in mask]


def _mask(rows: Any) -> Bools:
    if isinstance(rows, np.ndarray):
        return rows
    n = len(rows) if isinstance(rows, list) else 0
    if not 0 < n <= NODES or not all(isinstance(row, str) and len(row) == 2 * -(-n // 8) for row in rows):
        raise ValueError(f"needs rows of as many bits as there are rows, 1 to {NODES}, in hexadecimal digits")
    packed = np.frombuffer(bytes.fromhex("".join(rows)), np.uint8).reshape(n, -1)
    return np.unpackbits(packed, axis=1, count=n).astype(np.bool_)


def first_error(error: ValidationError) -> str:
    """Where a file is wrong and what is wrong there: `steps.3.bonus: Input should be a valid integer`."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'the file'}: {first['msg']}"


TreeColumns = Annotated[DraftTree, PlainValidator(_tree), PlainSerializer(_tree_columns)]
MaskBits = Annotated[Bools, PlainValidator(_mask), PlainSerializer(_bits)]
