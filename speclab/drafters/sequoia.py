"""Sequoia: the best tree of a budget by dynamic programming, from the acceptance of each rank (Chen et al. 2024).

The child of rank r is the r-th candidate of its parent: of a table of transitions, or of the draft model, a level per
pass. How often a child of each rank is accepted, once its parent is, is given or measured on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import exp, log, prod
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from pydantic import Field, field_validator

from speclab.drafters.base import Context, Draft, Drafter, Outcome, Strategy, TopK
from speclab.drafters.draft_forward import DraftForward, ForwardDrafter, Row
from speclab.drafters.growth import HeadChoice, stop_event
from speclab.drafters.measures import Depth, Nodes
from speclab.drafters.policies import BLANK_GATE, Candidate, Gate, depth_gate
from speclab.drafters.training_free import Carry, Megabytes, TableDrafter, draft_of
from speclab.errors import SettingsError
from speclab.sources.trie import Trie
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

    node_budget: Nodes = Field(default=60, ge=1, le=512, description="most nodes a tree may have, root included")
    depth: Depth = Field(default=6, ge=1, le=32, description="most levels below the root")
    source: Literal["transitions", "draft"] = Field(
        default="transitions",
        description="where candidates come from: a table of transitions, or the draft model or a head",
    )
    successors: int = Field(default=8, ge=1, le=64, description="children that a node may have")
    rank_acceptance: str = Field(
        default="",
        description="acceptance by rank, such as 0.6, 0.2, 0.1; empty: measured while decoding, from a prior that is "
        "not in the paper",
    )
    carry: Carry = "cold"
    table_megabytes: Megabytes = 64
    head: HeadChoice = None

    @field_validator("rank_acceptance", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        if isinstance(text, str):
            _parsed(text)
        return text

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {"from transitions": cls(), "from transitions, carried over": cls(carry="carried")}

    def shape(self, measured: RankRates) -> tuple[int, ...]:
        """Parents of the tree's nodes, breadth-first, -1 for the root; siblings in order of rank."""
        given = _parsed(self.rank_acceptance)[: self.successors]
        return _shape(given or measured.rounded, self.node_budget - 1, self.depth)

    @property
    def needs_draft(self) -> bool:
        return self.source == "draft"

    def drafter(self, pair: ModelPair) -> Drafter:
        return _FromDraft(self, pair) if self.source == "draft" else _FromTransitions(self, pair)


class _FromTransitions(TableDrafter):
    settings: SequoiaTree
    state = ("table", "_ranks")

    def __init__(self, settings: SequoiaTree, pair: ModelPair) -> None:
        super().__init__(settings, pair)
        self._ranks = RankRates.prior(settings.successors)

    def draft(self, context: Context) -> Draft:
        table = _TableForward(self, self.rooted(context))
        return filled(self.settings, self._ranks, table, context, self.route("transitions"), table.trie)

    def learn(self, outcome: Outcome) -> Adaptation:
        harvest = super().learn(outcome)
        ranks, self._ranks = self._ranks, self._ranks.after(outcome)
        before, after = {**harvest.before, **ranks.describe()}, {**harvest.after, **self._ranks.describe()}
        return Adaptation(harvest.reason, before, after)


class _FromDraft(ForwardDrafter):
    settings: SequoiaTree
    state = ("_ranks",)

    def __init__(self, settings: SequoiaTree, pair: ModelPair) -> None:
        super().__init__(settings, pair, settings.head, otherwise="set source='transitions'")
        self._ranks = RankRates.prior(settings.successors)

    def draft(self, context: Context) -> Draft:
        return filled(self.settings, self._ranks, self.forward(self.settings.successors), context)

    def learn(self, outcome: Outcome) -> Adaptation:
        ranks, self._ranks = self._ranks, self._ranks.after(outcome)
        return Adaptation("acceptance by rank", ranks.describe(), self._ranks.describe())


class _TableForward(DraftForward):
    """A table's rows, whole, as next tokens."""

    source = "transition"

    def __init__(self, drafter: TableDrafter, trie: Trie) -> None:
        self.trie, self._drafter = trie, drafter

    def after_root(self, tokens: Sequence[int]) -> TopK:
        return self._row(0)

    def after(self, rows: Sequence[Row]) -> list[TopK]:
        return [self._row(row.node) for row in rows]

    def _row(self, node: int) -> TopK:
        tokens, scores, _ = self._drafter.successors(self.trie, node)
        return tuple((token, log(score)) for token, score in zip(tokens, scores, strict=True) if score > 0)


def filled(
    settings: SequoiaTree,
    measured: RankRates,
    forward: DraftForward,
    context: Context,
    route: Event | None = None,
    trie: Trie | None = None,
) -> Draft:
    """The tree of these settings: each node of the shape gets the candidate of its rank, a level per pass.

    Nodes whose parent has too few candidates, or lies too deep, are left out; "stop" events say so.

    Args:
        measured: the acceptance by rank, where none is given.
        forward: what the candidates come from.
        route: what the record says of a table of transitions; None for a draft model.
        trie: the tree to fill, of the root alone.
    """
    trie = Trie(context.tokens[-1]) if trie is None else trie
    children: dict[int, list[int]] = {}
    for place, parent in enumerate(settings.shape(measured)[1:], start=1):
        children.setdefault(parent, []).append(place)
    node, level, stops = {0: 0}, [0], list[Event]()
    while asked := [place for place in level if place in children]:
        rows = [Row(node[place], trie.parent[node[place]], trie.token[node[place]]) for place in asked]
        if trie.depth[rows[0].node] >= context.max_depth:
            gate = depth_gate("the context", context.max_depth)
            stops += [_stopped(trie, row.node, gate) for row in rows]
            break
        context.check()
        tops = forward.after(rows) if rows[0].node else [forward.after_root(context.tokens)]
        level = []
        for parent, top in zip(asked, tops, strict=True):
            tokens, probs = [token for token, _ in top], [min(exp(log_prob), 1.0) for _, log_prob in top]
            trie.looked_up[node[parent]] = tokens, probs, 1.0
            best = zip(children[parent], top[: len(children[parent])], probs, strict=False)
            for place, (token, _), prob in best:
                if prob > 0:
                    node[place] = trie.add(node[parent], token, prob, forward.source)
                    level.append(place)
            if not top:
                stops.append(_stopped(trie, node[parent], BLANK_GATE))
    name, values = ("draft", {}) if route is None else ("transitions", route.values)
    name = name if len(trie) > 1 else "plain"
    reason = "draft" if route is None else name
    return draft_of(trie, [Event("route", None, reason, {**values, "route": name}), *stops])


def _stopped(trie: Trie, node: int, gate: Gate) -> Event:
    path = [node]
    while trie.parent[path[-1]] >= 0:
        path.append(trie.parent[path[-1]])
    return stop_event(node, gate, Candidate(trie.depth[node], trie.prob[node], prod(trie.prob[each] for each in path)))


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
        path = (0, *outcome.accepted)
        for node, following in zip(path, (*outcome.accepted, -1), strict=True):
            for rank, child in enumerate(outcome.tree.children[node]):
                tried[rank] += 1
                accepted[rank] += child == following
        return RankRates(tuple(accepted), tuple(tried))

    @property
    def rounded(self) -> tuple[float, ...]:
        """The rates, in steps, the smallest at half a step."""
        rates = (a / t for a, t in zip(self.accepted, self.tried, strict=True))
        return tuple(max(round(rate / STEP) * STEP, STEP / 2) for rate in rates)


def _parsed(text: str) -> tuple[float, ...]:
    """`0.6, 0.2, 0.1` as rates.

    Raises:
        SettingsError: it is no list of rates between 0 and 1.
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
