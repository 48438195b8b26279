"""How values are written: finite numbers, a tree by its columns, a mask by its bits.

Reading a file checks bounds; making a record does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import isfinite, nan
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import ConfigDict, FailFast, Field, PlainSerializer, PlainValidator, TypeAdapter

from speclab.tree import Bools, CandidateSampling, DraftTree

T = TypeVar("T")
# the first error is enough: a million of them would fill the memory
Many = Annotated[tuple[T, ...], FailFast()]
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Natural = Annotated[int, Field(ge=0, lt=2**63)]
Real = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1.001)]
"""Rounding may leave it slightly above 1."""
MOST_LOG_PROB = 1e-3
Length = Annotated[int, Field(ge=0, le=2**24)]
"""Tokens of a text, or slots of a cache: pictures draw them one by one."""


def _not_a_number(value: Any) -> float:
    if isinstance(value, float) and not isfinite(value) and not value < 0:
        return nan
    raise ValueError("is a number")


NotANumber = Annotated[float, PlainValidator(_not_a_number)]
"""NaN or infinity, which becomes NaN: what a broken pass computes."""


@cache
def adapter(kind: type[T]) -> TypeAdapter[T]:
    """Reads and writes values of a type, within the bounds of its annotations."""
    return TypeAdapter(kind)


def _log_prob(value: float) -> float | str:
    """JSON has no infinity: a token that its source rules out has "-inf"."""
    return value if isfinite(value) else str(value)


LogProb = Annotated[float, PlainSerializer(_log_prob)]


@dataclass(frozen=True)
class Columns:
    """A tree as a trace writes it: a value for each node."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    token: Many[Natural]
    parent: Many[Whole]
    log_prob: Many[LogProb]
    source: Many[str]
    candidate_sampling: CandidateSampling = CandidateSampling.DETERMINISTIC


def _columns(tree: DraftTree) -> Columns:
    return Columns(
        tuple(tree.token.tolist()),
        tuple(tree.parent.tolist()),
        tuple(tree.log_prob.tolist()),
        tree.source,
        tree.candidate_sampling,
    )


def _tree(value: Any) -> DraftTree:
    columns = adapter(Columns).validate_python(value)
    if not all(value <= MOST_LOG_PROB for value in columns.log_prob):  # NaN too
        raise ValueError("has a log-probability that is above 0 or not a number")
    return DraftTree.of(
        columns.token,
        columns.parent,
        columns.log_prob,
        columns.source,
        columns.candidate_sampling,
    )


def _bits(mask: Bools) -> list[str]:
    return [np.packbits(row).tobytes().hex() for row in mask]


def _mask(rows: Any) -> Bools:
    n = len(rows) if isinstance(rows, list) else 0
    if not n or not all(isinstance(row, str) and len(row) == 2 * -(-n // 8) for row in rows):
        raise ValueError("must be square: one hexadecimal text per row, one bit per column")
    packed = np.frombuffer(bytes.fromhex("".join(rows)), np.uint8).reshape(n, -1)
    return np.unpackbits(packed, axis=1, count=n).astype(np.bool_)


TreeColumns = Annotated[DraftTree, PlainValidator(_tree), PlainSerializer(_columns)]
MaskBits = Annotated[Bools, PlainValidator(_mask), PlainSerializer(_bits)]
