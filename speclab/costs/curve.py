"""What a pass of a model costs by its rows: a measured curve as plain data, and pure functions of it.

A curve is the fastest of several passes of each size (`costs.measured`). Between measured sizes it is a straight
line, beyond the largest one the line goes on; a time below that of fewer rows is noise, and both become their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from speclab.tree import Floats


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
    spread: float = Field(default=1.0, ge=1)

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


def seconds_by_rows(curve: Curve, most: int) -> Floats:
    """`[most + 1]` seconds of a pass of 0, 1, … `most` rows; of none, 0. Read-only."""
    return _seconds(curve, max(2048, 1 << most.bit_length()))[: most + 1]


@lru_cache(maxsize=64)
def _seconds(curve: Curve, most: int) -> Floats:
    rows, sizes, smooth = np.arange(most + 1), np.asarray(curve.rows), never_falling(curve.seconds)
    seconds = np.interp(rows, sizes, smooth)
    if len(sizes) > 1:
        slope = (smooth[-1] - smooth[-2]) / (sizes[-1] - sizes[-2])
        seconds += np.maximum(rows - sizes[-1], 0) * slope
    seconds[0] = 0.0
    seconds.flags.writeable = False
    return seconds
