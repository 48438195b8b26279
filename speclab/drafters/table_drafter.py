"""A drafter with a transition table: harvested from the prefill and every verified row, cold or carried over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, cast

import numpy as np
from pydantic import Field

from speclab.drafters.base import Context, Drafter, Outcome, Strategy
from speclab.sources.transitions import TableState, TransitionTable
from speclab.sources.trie import LookedUp, Trie
from speclab.trace.records import Adaptation, Event, Lookup, Value
from speclab.trace.records import Row as Learned

if TYPE_CHECKING:
    from torch import Tensor

    from speclab.models.pair import ModelPair
    from speclab.models.runner import Runner

Carry = Annotated[
    Literal["cold", "carried"],
    Field(description="the transition table at the start of a prompt: empty, or as the prompt before left it"),
]
Successors = Annotated[int, Field(ge=1, le=64, description="successors kept of each token, and of each pair of tokens")]
BigramEntries = Annotated[
    int,
    Field(ge=0, le=1 << 22, description="pairs of tokens with successors of their own; 0 for single tokens only"),
]
Megabytes = Annotated[
    int, Field(ge=1, le=4096, description="bound on the transition table's memory, in MiB; rows beyond it are hashed")
]

PREFILL_ROWS, PREFILL_LOGITS = 512, 1 << 24
"""A prompt is run in chunks of at most so many rows, and so many logits."""


class TableSettings(Protocol):
    """What every strategy with a table lets its user set."""

    @property
    def successors(self) -> int: ...

    @property
    def carry(self) -> Literal["cold", "carried"]: ...

    @property
    def table_megabytes(self) -> int: ...


class TableDrafter(Drafter):
    """Keeps a `table` of transitions; a subclass drafts from it and may add to what is learned."""

    def __init__(
        self,
        settings: TableSettings,
        pair: ModelPair,
        bigram_entries: int = 0,
    ) -> None:
        super().__init__(cast("Strategy", settings))
        most_bytes = settings.table_megabytes << 20
        self.table = TransitionTable(pair.target.vocab_size, settings.successors, bigram_entries, most_bytes)
        self._carry = settings.carry
        self._carried = pair.carried if settings.carry == "carried" else None
        self._carried_as = f"{type(settings).__name__}: {self.table.vocabulary} tokens, rows {self.table.ids.shape}"
        self._before_root = -1
        if self._carried is not None and self._carried_as in self._carried:
            self.table.restore(self._carried[self._carried_as])

    def prefill(self, target: Runner, prompt_ids: Sequence[int]) -> Tensor:
        """Runs the prompt and harvests all its rows (GOOSE, appendix C.1), in one pass unless it is long."""
        rows = max(1, min(PREFILL_ROWS, PREFILL_LOGITS // target.vocab_size))
        before = -1
        for start in range(0, len(prompt_ids), rows):
            chunk = prompt_ids[start : start + rows]
            visible = np.tri(len(chunk), dtype=np.bool_)
            logits = target.forward(chunk, range(start, start + len(chunk)), visible)
            self.table.harvest([before, *chunk[:-1]], chunk, logits)
            before = chunk[-1]
        self._hand_on()
        return logits[-1]

    def rooted(self, context: Context) -> Trie:
        """A tree of the root alone."""
        self._before_root = context.tokens[-2] if len(context.tokens) > 1 else -1
        return Trie(context.tokens[-1])

    def successors(self, trie: Trie, node: int, weight: float = 1.0) -> LookedUp:
        """What the table has after a node, looked up once; `weight`: what its scores are multiplied by."""
        known = trie.looked_up.get(node)
        if known is None:
            previous = trie.token[trie.parent[node]] if node else self._before_root
            known = trie.looked_up[node] = (*self.table.successors(previous, trie.token[node]), weight)
        return known

    def route(self, name: str, reason: str = "", **values: Value) -> Event:
        """Which way the draft went, with the state of the table."""
        return Event("route", None, reason or name, {"route": name, **values, **self._known(), **self._kind()})

    def lookup(self, token: int, previous: int | None = None) -> Lookup:
        """The table's rows for a token, and its state."""
        rows = (
            Learned(key, tuple((after, score) for after, score in zip(*row, strict=True) if score > 0))
            for key, row in self.table.rows(token, previous).items()
        )
        return Lookup(tuple(rows), {**self._known(), **self._kind()})

    def update(self, outcome: Outcome) -> Adaptation:
        """Harvests all rows of the tree, rejected ones too; the accepted path last, so that it counts."""
        tokens, parents = outcome.tree.token.tolist(), outcome.tree.parent.tolist()
        before = [self._before_root, *(tokens[parent] for parent in parents[1:])]
        order = sorted(range(len(tokens)), key=(0, *outcome.accepted).__contains__)
        known = self._known()
        self.table.harvest(before, tokens, outcome.logits, order)
        self._hand_on()
        now = self._known()
        filled, refreshed = (now[name] - known[name] for name in ("table_rows", "rows_refreshed"))
        return Adaptation(f"{filled} table rows filled, {refreshed} refreshed", known, now)

    def snapshot(self) -> object:
        return self.settings, self.table.snapshot()

    def restore(self, state: object) -> None:
        self.settings, table = cast("tuple[Strategy, TableState]", state)
        self.table.restore(table)
        self._hand_on()

    def _hand_on(self) -> None:
        if self._carried is not None:
            self._carried[self._carried_as] = self.table.snapshot()

    def _kind(self) -> dict[str, Value]:
        kind = "dense" if self.table.dense else "hashed"
        return {"carry": self._carry, "table": kind, "table_bytes": self.table.bytes}

    def _known(self) -> dict[str, int]:
        table = self.table
        return {"table_rows": table.filled, "rows_refreshed": table.refreshed, "bigrams": table.bigrams}
