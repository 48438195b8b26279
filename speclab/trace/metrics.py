"""Metrics with one meaning each, counted per iteration and added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from math import sqrt
from typing import Any, TypeVar

import numpy as np

from speclab.trace.codecs import Amount, Natural
from speclab.tree import DraftTree, Ints

Record = TypeVar("Record", bound=Any)
NGRAM = 4
DRAWS = 2000
INTERVAL = (0.025, 0.975)
"""The ends of a 95 % interval, as quantiles of what `drawn_again` gives."""
TAIL = 64
"""Tokens at the end of a text that show whether it loops."""


@dataclass(frozen=True)
class Counts:
    """What one iteration, or a sum of them, did.

    `committed`: tokens added, bonus included. `drafted`: drafted nodes verified (a verified root is
    not drafted). `accepted`: drafted nodes committed. `longest_path`: drafted nodes on the longest
    path. `looked`: positions with drafted candidates that the target came to: where it accepted
    one, and where it rejected all. `target_calls`: forward passes of the target. `draft_calls`:
    those of draft models and draft heads together.
    """

    iterations: Natural = 0
    committed: Natural = 0
    drafted: Natural = 0
    accepted: Natural = 0
    longest_path: Natural = 0
    target_calls: Natural = 0
    draft_calls: Natural = 0
    seconds: Amount = field(default=0.0, repr=False)
    looked: Natural = 0

    def __add__(self, other: Counts) -> Counts:
        return added(self, other)


def added(one: Record, other: Record) -> Record:
    """A record of sums, field by field."""
    pairs = zip(astuple(one), astuple(other), strict=True)
    total: Record = type(one)(*map(sum, pairs))
    return total


def looked(tree: DraftTree, accepted: Sequence[int], committed: int, drafted_root: bool) -> int:
    """`Counts.looked` of an iteration that committed so many tokens."""
    ended = committed == len(accepted)  # inside the path: nothing after it was judged
    if accepted:
        candidates = bool(tree.children[accepted[-1]])
    else:
        candidates = drafted_root or len(tree) > 1
    if not ended and candidates:
        return len(accepted) + 1
    return len(accepted)


def loops(tokens: Sequence[int]) -> bool:
    """Whether more than half of a text's last 64 tokens end a 4-gram that it already contained, so that
    any drafter can guess them.

    This counts exact loops of any period, loops that begin late, and near-loops that change a word
    each time. A text shorter than 64 tokens does not loop.
    """
    seen: set[tuple[int, ...]] = set()
    again: list[bool] = []
    for end in range(NGRAM, len(tokens) + 1):
        gram = tuple(tokens[end - NGRAM : end])
        again.append(gram in seen)
        seen.add(gram)
    return len(tokens) >= TAIL and sum(again[-TAIL:]) > TAIL / 2


@dataclass(frozen=True)
class Survival:
    """How a draft fares down to `depth`: of `looked` iterations in which the target looked there,
    `accepted` accepted a token. `survival`: the estimated share of drafts that are accepted down to
    here if they are this deep, with its 95 % interval from `low` to `high`.
    """

    depth: int
    looked: int
    accepted: int
    survival: float
    low: float
    high: float


def survival(counts: Sequence[Counts]) -> list[Survival]:
    """Survival by depth over iterations, from 1 to the deepest position that the target looked at.

    Drafts that ended before, and texts that ended inside a draft, count as far as they went (Kaplan
    and Meier); the interval is Wilson's with Greenwood's variance (Rothman).
    """
    rows: list[Survival] = []
    share = 1.0
    variance = 0.0  # of log(share)
    for depth in range(1, max([count.looked for count in counts], default=0) + 1):
        tried = len([count for count in counts if count.looked >= depth])
        accepted = len([count for count in counts if count.accepted >= depth])
        share *= accepted / tried
        size = float(tried)  # as many independent drafts would tell as much
        if accepted:
            variance += (tried - accepted) / (tried * accepted)
            if variance:
                size = (1 - share) / (share * variance)
        low, high = _wilson(share, size)
        rows.append(Survival(depth, tried, accepted, share, low, high))
    return rows


def _wilson(share: float, size: float) -> tuple[float, float]:
    """The 95 % interval of a share of so many."""
    z2 = 1.96**2
    middle = (share + z2 / (2 * size)) / (1 + z2 / size)
    half = sqrt(z2 * share * (1 - share) / size + (z2 / (2 * size)) ** 2) / (1 + z2 / size)
    return max(0.0, middle - half), min(1.0, middle + half)


def drawn_again(count: int) -> Ints:
    """`[DRAWS, count]`: the numbers of so many cases, drawn again with replacement (the bootstrap)."""
    return np.random.default_rng(0).integers(count, size=(DRAWS, count))


def ratio(part: float, whole: float) -> float:
    """A share; 0 of nothing."""
    if not whole:
        return 0.0
    return part / whole


@dataclass(frozen=True)
class Metrics:
    """The figures of a run: `counts` of the iterations; the prefill gave one token after `ttft` seconds."""

    counts: Counts
    ttft: float = field(default=0.0, repr=False)
    """Time from the call to the first token, prefill included, in seconds."""
    prefill_calls: int = 1
    """Target passes before the first iteration: the prefill, and one more if the root is drafted."""

    @property
    def iterations(self) -> int:
        return self.counts.iterations

    @property
    def tokens_per_iteration(self) -> float:
        """Committed tokens / verification passes (tau, block efficiency); plain decoding has 1."""
        return ratio(self.counts.committed, self.counts.iterations)

    @property
    def acceptance_rate(self) -> float:
        """Accepted drafted tokens / drafted tokens, 0…1."""
        return ratio(self.counts.accepted, self.counts.drafted)

    @property
    def acceptance_hazard(self) -> float:
        """Accepted drafted tokens / positions with candidates that the target looked at, 0…1.

        Unlike `acceptance_rate` it does not fall with the length of the draft, so it compares
        lengths, engines and requests.
        """
        return ratio(self.counts.accepted, self.counts.looked)

    @property
    def path_acceptance(self) -> float:
        """Accepted drafted tokens / tokens on the longest drafted path, 0…1."""
        return ratio(self.counts.accepted, self.counts.longest_path)

    @property
    def paper_acceptance(self) -> float:
        """DynaTree's own figure (Table 3): committed tokens, bonus included, / longest drafted path; may exceed 1."""
        return ratio(self.counts.committed, self.counts.longest_path)

    @property
    def target_calls(self) -> int:
        """Forward passes of the target, the prefill included."""
        return self.counts.target_calls + self.prefill_calls

    @property
    def draft_calls(self) -> int:
        return self.counts.draft_calls

    @property
    def throughput(self) -> float:
        """Tokens per second of decoding, prefill excluded."""
        return ratio(self.counts.committed, self.counts.seconds)

    @property
    def tpot(self) -> float:
        return ratio(self.counts.seconds, self.counts.committed)

    def as_dict(self) -> dict[str, int | float]:
        """Every figure by name, in display order."""
        names = (
            "tokens_per_iteration", "acceptance_rate", "acceptance_hazard", "path_acceptance", "paper_acceptance",
            "iterations", "target_calls", "draft_calls", "throughput", "ttft", "tpot",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}
