"""Sequoia: the best tree of a budget by dynamic programming, from the acceptance of each rank (Chen
et al. 2024).

The child of rank r is its parent's r-th candidate: from a transition table, or from the draft, one
pass per level. The acceptance of each rank, given that the parent is accepted, is a setting, or
measured while decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, field_validator

from speclab.drafters.base import Context, Depth, Draft, Drafter, Outcome, Strategy
from speclab.drafters.candidates import Candidates, Successors
from speclab.drafters.cost import NodeBudget
from speclab.drafters.draft_pass import DraftPassDrafter, Head
from speclab.drafters.transitions import TableDrafter
from speclab.errors import SettingsError
from speclab.theory import sequoia_shape
from speclab.trace.records import Adaptation, Event, Value

if TYPE_CHECKING:
    from speclab.pair import ModelPair

PRIOR = 0.4
PRIOR_TRIES = 8.0
"""Prior acceptance of the first child, divided by the squared rank for the others, and its weight
in tries. Not in the paper."""
_best_shape = lru_cache(maxsize=64)(sequoia_shape)
STEP = 0.05
"""Measured rates are rounded to this, so that the shape of the tree seldom changes."""


class SequoiaTree(Strategy):
    """A tree of the best shape for the measured acceptance of each rank, filled from the draft or from transitions."""

    group: ClassVar[str] = "baselines"

    node_budget: NodeBudget = "auto"
    depth: Depth = Field(6, ge=1, le=32, description="maximum levels below the root")
    source: Literal["transitions", "draft"] = Field(
        "transitions",
        description="candidates from a transition table, or from the draft model or a head",
    )
    successors: int = Field(8, ge=1, le=16, description="maximum children of a node")
    rank_acceptance: str = Field(
        "",
        description="acceptance by rank, such as 0.6, 0.2, 0.1; empty: measured (the prior is not in the paper)",
    )
    head: Head = None

    @field_validator("rank_acceptance", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            value = ", ".join(map(str, value))
        if isinstance(value, str):
            _parsed(value)
        return value

    @property
    def needs_draft(self) -> bool:
        return self.source == "draft"

    def shape(self, measured: RankRates) -> tuple[int, ...]:
        """Parents of the tree's nodes, breadth-first, -1 for the root; siblings in order of rank."""
        # rates of the user, else those measured so far; the root is not counted in the budget
        rates = _parsed(self.rank_acceptance)[: self.successors]
        return _best_shape(rates or measured.rounded, self.number_of_nodes - 1, self.depth).parents

    def drafter(self, pair: ModelPair) -> Drafter:
        if self.source == "draft":
            return DraftSequoia(self, pair, self.head)
        return TableSequoia(self, pair, self.successors)


class SequoiaDrafter(Drafter):
    """Fills the best shape, and measures the acceptance of each rank beside what it learns otherwise."""

    settings: SequoiaTree

    def __init__(self, settings: SequoiaTree, *given: Any) -> None:
        super().__init__(settings, *given)
        self.ranks = RankRates.prior(settings.successors)

    def fill(
        self,
        tree: Candidates,
        next_tokens: Callable[[Sequence[int]], list[Successors]],
        source: str,
        context: Context,
    ) -> None:
        """Gives each node of the shape the candidate of its rank, level by level.

        Nodes without a candidate, or beyond the context, are left out.

        Args:
            tree: the root; nodes are added to it.
            next_tokens: what follows each of some nodes of one level.
        """
        # the shape first, from rates alone: children of each of its places, in order of rank
        children: dict[int, list[int]] = {}
        for index, parent in enumerate(self.settings.shape(self.ranks)):
            children.setdefault(parent, []).append(index)
        level = {0: 0}  # index in the shape: node of the tree
        for _ in range(context.max_depth):
            # places without children need no next tokens
            level = {index: node for index, node in level.items() if index in children}
            if not level:
                break
            context.check()
            below: dict[int, int] = {}
            successors = next_tokens(list(level.values()))
            for (index, node), after in zip(level.items(), successors, strict=True):
                tree.successors[node] = after
                # the r-th child gets the r-th candidate; where there are fewer, its subtree is left out
                ranked = zip(children[index], after.tokens, after.probs, strict=False)
                for child, token, prob in ranked:
                    below[child] = tree.add(node, token, prob, source)
            level = below

    def learn(self, outcome: Outcome) -> Adaptation:
        other = super().learn(outcome)
        before = self.ranks
        self.ranks = before.after(outcome)  # a new value: forks and going back restore the old one
        return Adaptation(
            other.kind or "ranks",
            other.values,
            {**other.before, **before.describe()},
            {**other.after, **self.ranks.describe()},
        )


class TableSequoia(SequoiaDrafter, TableDrafter):
    state = ("table", "ranks")

    def draft(self, context: Context) -> Draft:
        tree = self.rooted(context)

        def next_tokens(nodes: Sequence[int]) -> list[Successors]:
            return [self.successors(tree, node) for node in nodes]

        self.fill(tree, next_tokens, "transition", context)
        return tree.draft([self.route(tree.way("transitions"))])


class DraftSequoia(SequoiaDrafter, DraftPassDrafter):
    state = ("ranks",)

    def draft(self, context: Context) -> Draft:
        tree = Candidates(context.tokens[-1])
        passes = self.begin(context, self.settings.successors)

        def next_tokens(nodes: Sequence[int]) -> list[Successors]:
            """One draft pass."""
            return [Successors.of(top) for top in passes(tree, nodes)]

        self.fill(tree, next_tokens, self.source, passes.context)
        return tree.draft([Event("route", None, {"route": tree.way("draft")})])


class RankRates(NamedTuple):
    """`accepted` and `tried` children by rank: Sequoia's positional acceptance, measured."""

    accepted: tuple[float, ...]
    tried: tuple[float, ...]

    @classmethod
    def prior(cls, ranks: int) -> Self:
        return cls(
            tuple(PRIOR_TRIES * PRIOR / (rank + 1) ** 2 for rank in range(ranks)),
            (PRIOR_TRIES,) * ranks,
        )

    @property
    def rates(self) -> list[float]:
        return [accepted / tried for accepted, tried in zip(self.accepted, self.tried, strict=True)]

    def describe(self) -> dict[str, Value]:
        return {f"rank_{rank}": rate for rank, rate in enumerate(self.rates, start=1)}

    def after(self, outcome: Outcome) -> RankRates:
        """Counts the children of every node on the accepted path; at most one sibling is right."""
        accepted = list(self.accepted)
        tried = list(self.tried)
        # each node of the path with the next one; after the last no child was right
        for node, following in zip(outcome.path, (*outcome.accepted, -1), strict=True):
            for rank, child in enumerate(outcome.tree.children[node]):
                tried[rank] += 1
                if child == following:
                    accepted[rank] += 1
        return RankRates(tuple(accepted), tuple(tried))

    @property
    def rounded(self) -> tuple[float, ...]:
        """The rates in steps, at least half a step."""
        # in steps, so that the tree changes seldom and its dynamic programme is remembered
        return tuple(max(round(rate / STEP) * STEP, STEP / 2) for rate in self.rates)


def _parsed(text: str) -> tuple[float, ...]:
    """`0.6, 0.2, 0.1` as rates.

    Raises:
        SettingsError: it is not a list of rates between 0 and 1.
    """
    try:
        rates = tuple(float(part) for part in text.replace(",", " ").split())
    except ValueError:
        rates = (-1.0,)
    if not all(0 <= rate <= 1 for rate in rates):
        raise SettingsError(
            f"Expected rank_acceptance between 0 and 1, such as 0.6, 0.2, 0.1, got {text!r}."
        )
    return rates
