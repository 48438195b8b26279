"""What a drafter has learned of one token, as plain data. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from speclab.trace import Value


@dataclass(frozen=True, slots=True)
class Row:
    """Successors of the tokens `key`, oldest first: (token, score), best first; empty where none were learned yet."""

    key: tuple[int, ...]
    successors: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Lookup:
    """What was learned of a token by the end of iteration `after` (0: from the prompt alone).

    `rows`: those that the drafter keeps for it, of the longest key first; it drafts from the first that is not empty.
    `values`: the state of the table, e.g. rows filled, memory. `texts`: token id to its text.
    """

    rows: tuple[Row, ...]
    values: Mapping[str, Value]
    after: int = 0
    texts: Mapping[int, str] = field(default_factory=dict)

    @property
    def used(self) -> Row | None:
        """The row that a draft is made from; None where nothing was learned."""
        return next((row for row in self.rows if row.successors), None)
