"""Trees and masks as JSON: a tree by its columns, a mask by the bits of its rows."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any

import numpy as np
from pydantic import PlainSerializer, PlainValidator

from speclab.tree import Bools, DraftTree, Law


def _tree_columns(tree: DraftTree) -> dict[str, Any]:
    columns = {name: getattr(tree, name).tolist() for name in ("token", "parent")}
    # JSON has no infinity: the log-probability of a token that its source ruled out is written as text.
    log_prob = [value if isfinite(value) else str(value) for value in tree.log_prob.tolist()]
    return columns | {"log_prob": log_prob, "source": list(tree.source), "law": str(tree.law)}


def _tree(columns: Any) -> DraftTree:
    if isinstance(columns, DraftTree):
        return columns
    try:
        return DraftTree(**{**columns, "law": Law(columns["law"])})
    except (TypeError, KeyError, OverflowError) as error:
        raise ValueError(f"no draft tree ({error})") from None


def _bits(mask: Bools) -> list[str]:
    return [np.packbits(row).tobytes().hex() for row in mask]


def _mask(rows: Any) -> Bools:
    if isinstance(rows, np.ndarray):
        return rows
    try:
        bits = [np.unpackbits(np.frombuffer(bytes.fromhex(row), np.uint8))[: len(rows)] for row in rows]
        return np.array(bits, dtype=np.bool_).reshape(len(rows), len(rows))
    except TypeError as error:
        raise ValueError(f"no mask ({error})") from None


TreeColumns = Annotated[DraftTree, PlainValidator(_tree), PlainSerializer(_tree_columns)]
MaskBits = Annotated[Bools, PlainValidator(_mask), PlainSerializer(_bits)]
