"""What a pass of a model costs by its rows: a measured curve as plain data, and pure functions of it.

A curve is the fastest of several passes of each size (`models.cost_curves`). Between measured sizes it is a straight
line, beyond the largest one the line goes on; a time below that of fewer rows is noise, and both become their mean.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from speclab.files import read_whole, write_whole
from speclab.tree import Floats

MODELLED = {
    "wide GPU": (0.001, 0),
    "memory-bound": (0.02, 64),
    "slow CPU": (0.25, 1),
}
"""Other machines, modelled: what a further row costs, as a share of a pass of one row, and rows that are free."""


class Curve(BaseModel):
    """Seconds of a pass of one model by rows, behind a prefix.

    `rows`: sizes, increasing from 1; `seconds`: the fastest of `rounds` passes of each; `prefix`: entries in the cache.
    `spread`: how much longer passes took than undisturbed, near 1 on a machine that did nothing else: the median pass
    over the fastest, or on a CPU time over processor time, if that is more.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    rows: tuple[int, ...] = Field(min_length=1)
    seconds: tuple[float, ...]
    prefix: int = Field(ge=0)
    rounds: int = Field(ge=1)
    spread: float = Field(1.0, ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        increasing = all(low < high for low, high in zip(self.rows, self.rows[1:], strict=False))
        if len(self.rows) != len(self.seconds) or self.rows[0] != 1 or not increasing or min(self.seconds) <= 0:
            raise ValueError("a cost curve needs sizes increasing from 1, and a positive time for each")
        return self


def never_falling(values: Sequence[float]) -> Floats:
    """The nearest sequence, by squares, that never falls: neighbours out of order take their common mean."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        total, count = float(value), 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before, many = blocks.pop()
            total, count = total + before, count + many
        blocks.append((total, count))
    return np.concatenate([np.full(count, total / count) for total, count in blocks])


@lru_cache(maxsize=64)
def seconds_by_rows(curve: Curve, most: int) -> Floats:
    """`[most + 1]` seconds of a pass of 0, 1, … `most` rows; of none, 0. Read-only."""
    known, smooth = np.asarray(curve.rows, dtype=np.float64), never_falling(curve.seconds)
    rows = np.arange(most + 1)
    seconds = np.interp(rows, known, smooth)
    if len(known) > 1:
        slope = (smooth[-1] - smooth[-2]) / (known[-1] - known[-2])
        seconds += np.maximum(rows - known[-1], 0) * slope
    seconds[0] = 0.0
    seconds.flags.writeable = False
    return seconds


def modelled(name: str, one_row: float, most: int) -> Floats:
    """As `seconds_by_rows`, of a machine of `MODELLED` on which a pass of one row costs `one_row` seconds."""
    share, free = MODELLED[name]
    rows = np.arange(most + 1)
    seconds = one_row * (1.0 + share * np.maximum(rows - max(free, 1), 0))
    seconds[0] = 0.0
    return seconds


FORMAT = "1"
"""Changes with what is measured and with our own passes, so that older files are not read."""


def folder() -> Path:
    """Where curves are kept: `SPECLAB_CACHE`, or the platform's directory for caches."""
    given = os.environ.get("SPECLAB_CACHE")
    if given:
        return Path(given) / "costs"
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "speclab" / "costs"


def key(facts: Mapping[str, str]) -> str:
    """The name of the file for a model on a machine, by all that its time depends on."""
    return sha256(json.dumps([FORMAT, sorted(facts.items())]).encode()).hexdigest()[:24]


def read(name: str) -> Curve | None:
    """The curve of that name; None where there is none, or what is there is no curve."""
    try:
        kept = json.loads(read_whole(folder() / f"{name}.json", max_bytes=1 << 20))
        return Curve.model_validate(kept["curve"])
    except (RuntimeError, ValueError, KeyError, TypeError):  # no home directory, no file, no curve
        return None


def write(name: str, curve: Curve, facts: Mapping[str, str]) -> None:
    """Keeps a curve, whole or not at all; where the directory cannot be written it is not kept."""
    told = {fact: value for fact, value in facts.items() if fact != "shape"}
    text = json.dumps({"curve": curve.model_dump(), "measured": told}, indent=1)
    with suppress(RuntimeError, OSError, ValueError):  # no home directory, or none that may be written
        place = folder() / f"{name}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, text.encode())
