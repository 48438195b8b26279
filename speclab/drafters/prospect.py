"""Whether another level of a draft can pay: what it may bring against the passes that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from speclab.budgets import rates, sibling_ranks
from speclab.drafters.policies import Gate
from speclab.drafters.reach import Columns, Reach
from speclab.tree import Floats


@dataclass(frozen=True, slots=True)
class Worth:
    """What a node and a pass are worth in one iteration; times are seconds, measured on this machine.

    `verify`: of a target pass over so many nodes, from 0. `next_pass`: of a draft pass over so many rows. `spent`: of
    the draft passes of this iteration so far.
    """

    verify: Callable[[int], Floats]
    next_pass: Callable[[int], float]
    spent: Callable[[], float]
    reach: Reach


class Grown(Protocol):
    """The columns of a tree under construction; children of a node stand together, behind their parent."""

    @property
    def parent(self) -> Sequence[int]: ...

    @property
    def log_prob(self) -> Sequence[float]: ...


class Prospect:
    """Follows one tree while it grows.

    Args:
        source: what its nodes will be said to come from.
        verified_root: whether node 0 is the target's own token.
    """

    def __init__(self, worth: Worth, source: str, *, verified_root: bool = True) -> None:
        self._worth, self._source, self._verified_root = worth, source, verified_root
        self._reach: list[float] = []

    def gate(self, tree: Grown, nodes: Sequence[int]) -> Gate | None:
        """A gate that is closed to all of `nodes` where asking for their children cannot raise tokens a second.

        It looks one level ahead: each node is taken to go on as often as nodes did so far. The first level is always
        drafted, or nothing would be learned.
        """
        if len(tree.parent) == 1:
            return None
        self._follow(tree)
        worth, reach = self._worth, np.asarray(self._reach)
        likely = reach.copy()
        likely[0] = np.inf
        further = np.concatenate([likely, reach[list(nodes)] * worth.reach.onward])
        spent, asked = worth.spent(), worth.next_pass(len(nodes))
        now, then = self._best(likely, spent), self._best(further, spent + asked)
        return None if then[0] > now[0] else _cost_gate(now, then)

    def _best(self, likely: Floats, spent: float) -> tuple[float, float]:
        """The highest rate, and its expected tokens."""
        seconds = self._worth.verify(len(likely))[1 : len(likely) + 1]
        ordered = np.sort(likely)[::-1]
        ordered[0] = 0.0 if self._verified_root else self._reach[0]
        by_size = rates(ordered, seconds, spent)
        count = int(by_size.argmax())
        return float(by_size[count]), float(by_size[count] * (spent + seconds[count]))

    def _follow(self, tree: Grown) -> None:
        """Takes over the nodes that came since."""
        start = len(self._reach)
        parent = np.asarray(tree.parent[start:])
        log_prob = np.asarray(tree.log_prob[start:], dtype=np.float64)
        nodes = Columns(sibling_ranks(parent), log_prob, self._source)
        for above, rate in zip(parent.tolist(), self._worth.reach.rates(nodes).tolist(), strict=True):
            root = above < 0
            self._reach.append((1.0 if self._verified_root else rate) if root else rate * self._reach[above])


def _cost_gate(now: tuple[float, float], then: tuple[float, float]) -> Gate:
    tokens = max(then[1] - now[1], 0.0)
    cost = then[1] / then[0] - now[1] / now[0]
    reason = (
        f"another level may bring {tokens:.2f} tokens for {1000 * cost:.2f} ms, and at {now[0]:.0f} tokens/s it would "
        f"have to bring {now[0] * cost:.2f}"
    )
    values = {"level_tokens": tokens, "level_seconds": cost, "tokens_per_second": now[0]}
    return Gate("cost", lambda _: True, lambda _: reason, dict(values))
