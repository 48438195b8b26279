"""The transition table: the target's most probable next tokens, from every row that it verifies.

Token Recycling (Luo et al. 2025) stores them by the last token. GOOSE (section 4.1, appendix C.1)
also stores them by the last two, and reads every row: rejected branches and the prompt too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from speclab.drafters.base import Context, Drafter, Learned, Outcome, Strategy
from speclab.drafters.candidates import Candidates, Successors
from speclab.trace.records import Adaptation, Event, Value

if TYPE_CHECKING:
    from speclab.models.answer import Answer
    from speclab.models.source import Target
    from speclab.pair import ModelPair

Width = Annotated[int, Field(ge=1, le=16, title="k", description="successors kept of each token")]
MOST_PAIRS = 1 << 15  # pairs of tokens in a table; the oldest are dropped
PREFILL_ROWS = 512  # most rows of one chunk of a prompt
PREFILL_LOGITS = 1 << 24  # most logits of one
NO_TOKEN = -1  # before the first token of a text


class Rows(NamedTuple):
    """Rows of a pass: `tokens` and the token before each, `[n]`; the most probable next tokens `[n, k]`, -1 unknown."""

    previous: Sequence[int]
    tokens: Sequence[int]
    next_ids: NDArray[np.int64]
    next_log_probs: NDArray[np.float32]


class TransitionTable(Learned[Rows]):
    """The most probable successors of every verified token and pair of tokens; about 10 KiB per
    iteration of 60 nodes.

    Args:
        width: successors per token (GOOSE: K).
        pairs: also store successors of pairs of tokens.
    """

    def __init__(self, width: int, *, pairs: bool = False) -> None:
        self.width = width
        self._keeps_pairs = pairs
        super().__init__()

    def clear(self) -> None:
        self.after_token: dict[int, Successors] = {}
        self.after_pair: dict[tuple[int, int], Successors] = {}

    def read(self, batch: Rows) -> None:
        """The last of several rows for one token or pair wins."""
        probs = np.where(batch.next_ids < 0, 0.0, np.exp(batch.next_log_probs))
        pairs = map(Successors, batch.next_ids.tolist(), probs.tolist())
        counts = np.count_nonzero(probs, axis=1).tolist()  # the rest is unknown, or impossible
        rows = zip(batch.previous, batch.tokens, pairs, counts, strict=True)
        for previous, token, (ids, row_probs), count in rows:
            if count:
                successors = Successors(ids[:count], row_probs[:count])
                self.after_token[token] = successors
                if self._keeps_pairs:
                    self.after_pair[previous, token] = successors
        while len(self.after_pair) > MOST_PAIRS:
            del self.after_pair[next(iter(self.after_pair))]

    def successors(self, previous: int, token: int) -> Successors:
        """The successors of `token`: after `previous` if that pair is known, else after any token."""
        return self.after_pair.get((previous, token)) or self.after_token.get(token) or Successors()

    @property
    def sizes(self) -> dict[str, Value]:
        """Known tokens and pairs, for records."""
        return {"table_rows": len(self.after_token), "bigrams": len(self.after_pair)}


class TableDrafter(Drafter):
    """Keeps a transition table of the prompt and of every verified row; a subclass drafts from it."""

    state: ClassVar[tuple[str, ...]] = ("table",)

    def __init__(
        self, settings: Strategy, pair: ModelPair, width: int, *, pairs: bool = False
    ) -> None:
        super().__init__(settings)
        self.table = TransitionTable(min(width, pair.target.vocab_size), pairs=pairs)
        self._before_root = NO_TOKEN

    def prefill(self, target: Target, prompt_ids: Sequence[int]) -> Answer:
        """Runs the prompt and learns all its rows (GOOSE, appendix C.1), in one pass unless it is long."""
        most = max(1, min(PREFILL_ROWS, PREFILL_LOGITS // target.vocab_size))
        previous = NO_TOKEN
        for start in range(0, len(prompt_ids), most):
            chunk = prompt_ids[start : start + most]
            visible = np.tri(len(chunk), dtype=np.bool_)
            answer = target.logits(chunk, range(start, start + len(chunk)), visible)
            ids, log_probs = answer.topk(self.table.width)
            self.table.add(Rows([previous, *chunk[:-1]], chunk, ids, log_probs))
            previous = chunk[-1]
        return answer[-1:]

    def learn(self, outcome: Outcome) -> Adaptation:
        """Learns all rows of the tree, rejected ones too; the accepted path last, so that it wins."""
        before = self.table.sizes
        tree = outcome.tree
        previous = np.where(tree.parent < 0, self._before_root, tree.token[tree.parent])
        order = sorted(range(len(tree)), key=outcome.path.__contains__)
        ids, log_probs = outcome.answer.topk(self.table.width)
        tokens = tree.token[order].tolist()
        self.table.add(Rows(previous[order].tolist(), tokens, ids[order], log_probs[order]))
        return Adaptation("table", {"rows": len(tree)}, before, self.table.sizes)

    def rooted(self, context: Context) -> Candidates:
        self._before_root = NO_TOKEN
        if len(context.tokens) > 1:
            self._before_root = context.tokens[-2]
        return Candidates(context.tokens[-1])

    def successors(self, tree: Candidates, node: int, weight: float = 1.0) -> Successors:
        """The table's successors of a node, also stored in the tree; `weight`: the probability that
        copied children leave.
        """
        previous = self._before_root
        if node:
            previous = tree.token[tree.parent[node]]
        successors = self.table.successors(previous, tree.token[node])
        if weight < 1:
            successors = Successors(successors.tokens, [weight * prob for prob in successors.probs])
        tree.successors[node] = successors
        return successors

    def route(self, name: str, **values: Value) -> Event:
        return Event("route", None, {"route": name, **values, **self.table.sizes})
