"""Sequoia: the best tree of a budget by dynamic programming, from the acceptance of each rank (Chen et al. 2024).

The child of rank r is the r-th candidate of its parent: of a table of transitions, or of the draft, one pass per level.
How often a child of each rank is accepted, once its parent is, is given or measured on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import exp
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from pydantic import Field, field_validator

from speclab.drafters.base import Context, Draft, Drafter, Outcome, Strategy
from speclab.drafters.candidates import Candidates, Successors
from speclab.drafters.cost import NodeBudget, with_node_budget
from speclab.drafters.draft_pass import DraftPassDrafter, Head
from speclab.drafters.measures import Depth
from speclab.drafters.transitions import TableDrafter
from speclab.errors import SettingsError
from speclab.theory import sequoia_shape
from speclab.trace.records import Adaptation, Event, Value

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

PRIOR, PRIOR_TRIES = 0.4, 8.0
"""Before anything was tried: the first child at this rate, the others in inverse proportion to the square of their
rank, as if after so many tries. Not in the paper."""
STEP = 0.05
"""Measured rates are rounded to this, so that the shape of the tree changes only when they do."""


class SequoiaTree(Strategy):
    """A tree whose shape is the best one for the acceptance of each rank, filled by the draft or by transitions."""

    node_budget: NodeBudget = "auto"
    depth: Depth = Field(default=6, ge=1, le=32, description="most levels below the root")
    source: Literal["transitions", "draft"] = Field(
        default="transitions",
        description="where candidates come from: a table of transitions, or the draft model or a head",
    )
    successors: int = Field(default=8, ge=1, le=16, description="most children of a node")
    rank_acceptance: str = Field(
        default="",
        description="acceptance by rank, such as 0.6, 0.2, 0.1; empty: measured while decoding, from a prior that is "
        "not in the paper",
    )
    head: Head = None

    @field_validator("rank_acceptance", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        if isinstance(text, str):
            _parsed(text)
        return text

    @property
    def needs_draft(self) -> bool:
        return self.source == "draft"

    def shape(self, measured: RankRates) -> tuple[int, ...]:
        """Parents of the tree's nodes, breadth-first, -1 for the root; siblings in order of rank."""
        assert self.node_budget != "auto"
        given = _parsed(self.rank_acceptance)[: self.successors]
        return _shape(given or measured.rounded, self.node_budget - 1, self.depth)

    def drafter(self, pair: ModelPair) -> Drafter:
        settings = with_node_budget(self, pair.target)
        return DraftSequoia(settings, pair) if self.source == "draft" else TableSequoia(settings, pair)


class TableSequoia(TableDrafter):
    """Fills the shape from the table of transitions."""

    settings: SequoiaTree
    state = ("table", "ranks")

    def __init__(self, settings: SequoiaTree, pair: ModelPair) -> None:
        super().__init__(settings, pair, settings.successors)
        self.ranks = RankRates.prior(settings.successors)

    def draft(self, context: Context) -> Draft:
        tree = self.rooted(context)

        def successors(nodes: Sequence[int]) -> list[Successors]:
            return [self.successors(tree, node) for node in nodes]

        fill(tree, self.settings.shape(self.ranks), successors, "transition", context)
        return tree.draft(self.route("transitions" if len(tree) > 1 else "plain"))

    def learn(self, outcome: Outcome) -> Adaptation:
        table, before = super().learn(outcome), self.ranks
        self.ranks = before.after(outcome)
        return Adaptation(table.reason, {**table.before, **before.describe()}, {**table.after, **self.ranks.describe()})


class DraftSequoia(DraftPassDrafter):
    """Fills the shape from the draft model or a head."""

    settings: SequoiaTree
    state = ("ranks",)

    def __init__(self, settings: SequoiaTree, pair: ModelPair) -> None:
        super().__init__(settings, pair, settings.head)
        self.ranks = RankRates.prior(settings.successors)

    def draft(self, context: Context) -> Draft:
        tree, next_tokens = Candidates(context.tokens[-1]), self.begin(context, self.settings.successors)

        def successors(nodes: Sequence[int]) -> list[Successors]:
            tops = next_tokens(tree, nodes)
            return [Successors([token for token, _ in top], [min(exp(log), 1.0) for _, log in top]) for top in tops]

        fill(tree, self.settings.shape(self.ranks), successors, self.source, context)
        return tree.draft(Event("route", None, "draft", {"route": "draft" if len(tree) > 1 else "plain"}))

    def learn(self, outcome: Outcome) -> Adaptation:
        before, self.ranks = self.ranks, self.ranks.after(outcome)
        return Adaptation("acceptance by rank", before.describe(), self.ranks.describe())


def fill(
    tree: Candidates,
    shape: Sequence[int],
    successors: Callable[[Sequence[int]], list[Successors]],
    source: str,
    context: Context,
) -> None:
    """Gives each node of the shape the candidate of its rank, one level after the other.

    Nodes whose parent has too few candidates, or reaches the end of the context, are left out.

    Args:
        tree: the root; nodes are added.
        shape: the parent of each node, breadth-first, -1 for the root.
        successors: what follows some nodes of one level, each.
    """
    children: dict[int, list[int]] = {}
    for index, parent in enumerate(shape):
        children.setdefault(parent, []).append(index)
    level = {0: 0}  # index in the shape: node of the tree
    for _ in range(context.max_depth):
        level = {index: node for index, node in level.items() if index in children}
        if not level:
            break
        context.check()
        answers = successors([*level.values()])
        below: dict[int, int] = {}
        for (index, node), known in zip(level.items(), answers, strict=True):
            tree.successors[node] = known
            for child, token, prob in zip(children[index], *known, strict=False):
                below[child] = tree.add(node, token, prob, source)
        level = below


class RankRates(NamedTuple):
    """`accepted` and `tried` children by rank: Sequoia's positional acceptance, measured."""

    accepted: tuple[float, ...]
    tried: tuple[float, ...]

    @classmethod
    def prior(cls, ranks: int) -> Self:
        """Rates before anything was tried."""
        return cls(tuple(PRIOR_TRIES * PRIOR / (rank + 1) ** 2 for rank in range(ranks)), (PRIOR_TRIES,) * ranks)

    def describe(self) -> dict[str, Value]:
        """The rates by name, for records."""
        rates = zip(self.accepted, self.tried, strict=True)
        return {f"rank_{rank}": accepted / tried for rank, (accepted, tried) in enumerate(rates, start=1)}

    def after(self, outcome: Outcome) -> RankRates:
        """With the children of every node on the accepted path counted; at most one of siblings is right."""
        accepted, tried = list(self.accepted), list(self.tried)
        for node, following in zip((0, *outcome.accepted), (*outcome.accepted, -1), strict=True):
            for rank, child in enumerate(outcome.tree.children[node]):
                tried[rank] += 1
                accepted[rank] += child == following
        return RankRates(tuple(accepted), tuple(tried))

    @property
    def rounded(self) -> tuple[float, ...]:
        """The rates, in steps, the smallest at half a step."""
        rates = (accepted / tried for accepted, tried in zip(self.accepted, self.tried, strict=True))
        return tuple(max(round(rate / STEP) * STEP, STEP / 2) for rate in rates)


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
        raise SettingsError(f"rank_acceptance is {text!r}: give rates between 0 and 1, such as 0.6, 0.2, 0.1.")
    return rates


@lru_cache(maxsize=64)
def _shape(rates: tuple[float, ...], nodes: int, depth: int) -> tuple[int, ...]:
    return sequoia_shape(rates, nodes, depth).parents
