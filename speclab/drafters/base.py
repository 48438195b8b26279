"""The contract between the decoding loop and the drafters, which propose candidates.

A `Strategy` is frozen settings; `strategy.drafter(pair)` builds the `Drafter`, which proposes a
tree each iteration and learns from the outcome. A new strategy is one new file beside this one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from operator import index
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator
from pydantic.fields import FieldInfo

from speclab.errors import NoDraftError, SettingsError, named
from speclab.settings import SessionSettings, Settings
from speclab.trace.records import Adaptation, Event, Proposal, Value
from speclab.tree import Bools, CandidateSampling, DraftTree, Floats

if TYPE_CHECKING:
    from speclab.loading.presets import Offer
    from speclab.models.answer import Answer
    from speclab.models.source import DraftSource, Target
    from speclab.pair import ModelPair

Root = Literal["verified", "drafted"]
Batch = TypeVar("Batch")
TopK = tuple[tuple[int, float], ...]
"""Tokens and their log-probabilities (nats), best first."""


def paired(tokens: NDArray[Any], numbers: NDArray[Any]) -> list[TopK]:
    """Rows of tokens, `[n, k]`, each token with its number."""
    rows: list[TopK] = []
    for ids, values in zip(tokens.tolist(), numbers.tolist(), strict=True):
        rows.append(tuple(zip(ids, values, strict=True)))
    return rows


DEFINED: dict[str, type[Strategy]] = {}
"""Every strategy class by name, wherever it is defined; running a notebook cell again replaces its class."""


class Strategy(Settings):
    """Settings of a drafting method; the base class of every strategy.

    `paths`: settings that name files; records leave out the folders. `by_hand`: a person builds
    each tree (`Session.verify`), so it is not compared. `from_block`: its trees are the best paths
    of one pass of a block head. `ascending`: groups of settings whose values must not decrease.
    `group`: where the lab's form lists it: "papers", "baselines", "training-free", or "yours".
    """

    paths: ClassVar[tuple[str, ...]] = ()
    by_hand: ClassVar[bool] = False
    from_block: ClassVar[bool] = False
    group: ClassVar[str] = "yours"
    ascending: ClassVar[tuple[tuple[str, ...], ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        DEFINED[cls.__name__] = cls

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for names in self.ascending:
            for small, large in pairwise(names):
                low = getattr(self, small)
                high = getattr(self, large)
                if low > high:
                    raise ValueError(
                        f"{type(self).__name__}: {small} ({low:g}) is above {large} ({high:g}); "
                        "lower the first or raise the second"
                    )
        return self

    @property
    def needs_draft(self) -> bool:
        """Whether it drafts with the draft head that its setting `head` numbers; without such a
        setting, with a draft model or any head.
        """
        return False

    def missing(self, offer: Offer) -> str:
        """What these models lack for this strategy, in a sentence; empty if nothing."""
        if not self.needs_draft:
            return ""
        return lacks_head(self, offer, getattr(self, "head", None))

    @property
    def is_auto(self) -> bool:
        """Whether its node budget is "auto", which a session replaces by a number."""
        return getattr(self, "node_budget", 1) == "auto"

    @property
    def number_of_nodes(self) -> int:
        """The node budget as a number.

        Raises:
            SettingsError: it is "auto".
        """
        if self.is_auto:
            raise SettingsError(
                f"{type(self).__name__} has no number of nodes yet: decode with a session, which "
                "measures it, or set node_budget to a number."
            )
        return int(getattr(self, "node_budget", 1))

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        """Named settings, including the paper's."""
        return {}

    @abstractmethod
    def drafter(self, pair: ModelPair) -> Drafter:
        """Builds the drafter on this pair's runners."""

    def describe(self) -> dict[str, Value]:
        """Name and values, for records; what is no number, text or truth is written as text."""
        described: dict[str, Value] = {"strategy": type(self).__name__}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if name in self.paths:
                value = PurePath(value).name
            if not isinstance(value, str | int | float | None):
                value = repr(value)
            described[name] = value
        return described


def checked(strategy: object) -> Strategy:
    """The strategy itself.

    Raises:
        SettingsError: it is not an instance of a strategy.
    """
    if isinstance(strategy, Strategy):
        return strategy
    raise SettingsError(
        f"Expected a strategy such as speclab.DynaTree(), got {named(strategy)}. See "
        "speclab.strategies()."
    )


def lacks(
    strategy: Strategy,
    offer: Offer,
    needs: str,
    way: str = "pass draft=… or heads=…, or choose PromptLookup()",
) -> str:
    """The sentence on what a strategy needs and these models lack."""
    return f"{type(strategy).__name__} needs {needs}, but {offer}: {way}."


def lacks_head(strategy: Strategy, offer: Offer, head: int | None) -> str:
    """As `missing`, for one draft head; None: the draft model, or head 0 if there is none."""
    if offer.heads > (head or 0) or (head is None and offer.draft):
        return ""
    if head is None:
        return lacks(strategy, offer, "a draft model or a draft head")
    if not offer.heads:
        return lacks(strategy, offer, f"draft head {head}")
    numbers = " or ".join(map(str, range(offer.heads)))
    return lacks(strategy, offer, f"draft head {head}", f"set head to {numbers}")


def require(strategy: Strategy, offer: Offer) -> None:
    """Raises:
    NoDraftError: these models lack what the strategy drafts with.
    """
    if sentence := strategy.missing(offer):
        raise NoDraftError(sentence)


@dataclass(frozen=True)
class Context:
    """What a drafter may read.

    `tokens`: every committed token, prompt included; the last is the root of a tree with a verified
    root. `max_depth`: the deepest node that fits the target's context. `check`: raises if the run
    was cancelled; call it often. `sampling`: how the session samples, for a drafter that samples
    its candidates.
    """

    tokens: Sequence[int]
    max_depth: int
    check: Callable[[], None]
    sampling: SessionSettings = field(default_factory=SessionSettings)


@dataclass(frozen=True)
class ExtraRows:
    """Rows of the verification pass that are not candidates: the target answers them, but none is
    committed.

    `token`: `m` ids. `depth`: `m` edges from node 0, at most `Context.max_depth`; the position is
    prefix length + depth. `visible`: `[m, m]` bool, which of these rows each sees, itself included;
    every row also sees the prefix and node 0, and no other node.
    """

    token: Sequence[int] = ()
    depth: Sequence[int] = ()
    visible: Bools = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))

    def below(self, nodes: Bools) -> Bools:
        """The mask of the whole pass, `[n + m, n + m]` bool: the tree's `nodes` `[n, n]`, then these rows."""
        n = len(nodes)
        mask = np.zeros((n + len(self.token),) * 2, dtype=np.bool_)
        mask[:n, :n] = nodes
        mask[n:, 0] = True
        mask[n:, n:] = self.visible
        return mask


@dataclass(frozen=True)
class Draft:
    """A proposed tree and how it came about.

    `events`: the decisions, in order. `topk`: for each expanded node its most probable next tokens,
    best first. `extra`: rows that the same pass answers for `Drafter.learn`. `draft_probs`: for
    sampled candidates (`tree.candidate_sampling`), the distribution `[V]` float64 that the children
    of a node were drawn from, for each node with children. `proposals`: the proposed trees, if
    there were several.
    """

    tree: DraftTree
    events: Sequence[Event] = ()
    topk: Mapping[int, TopK] = field(default_factory=dict)
    extra: ExtraRows = field(default_factory=ExtraRows)
    draft_probs: Mapping[int, Floats] = field(default_factory=dict)
    proposals: tuple[Proposal, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The `accepted` nodes and the `committed` tokens of a draft.

    `answer`: the target's answer for the `n` nodes; `extra`: for the `m` extra rows. `root`: as in
    `Drafter`.
    """

    tree: DraftTree
    accepted: tuple[int, ...]
    committed: tuple[int, ...]
    answer: Answer
    extra: Answer
    root: Root = "verified"

    @property
    def path(self) -> tuple[int, ...]:
        """The nodes whose cache rows stay: a verified root, then the accepted nodes.

        Where the text ended inside the path, the last of them is the next root, without a row.
        """
        if self.root == "drafted":
            return self.accepted
        return (0, *self.accepted)


class Drafter:
    """Proposes a tree each iteration. Subclasses implement `draft`, and what else they need.

    `root`: "verified" roots the tree in the target's newest token (the root token trick, Dual-Draft
    Routing section 2), "drafted" in a token of the drafter. `rebuild`: roll the caches back and run
    the committed tokens again, instead of keeping the accepted rows. `runners`: the draft models
    and heads whose caches it manages. `state`: names of the attributes that it learns, for time
    travel and forks: immutable values, or stores with `snapshot` and `restore`. An interrupt may
    stop it at any line: what it keeps is in `state`, or is rebuilt from the text after a read that
    failed.
    """

    root: Root = "verified"
    rebuild: bool = False
    state: ClassVar[tuple[str, ...]] = ()
    runners: tuple[DraftSource, ...] = ()

    def __init__(self, settings: Strategy) -> None:
        self.settings = settings

    def prefill(self, target: Target, prompt_ids: Sequence[int]) -> Answer:
        """Runs the prompt through the target; returns the row after it.

        A drafter may read more rows on the way.
        """
        return target.logits(prompt_ids)[-1:]

    def draft(self, context: Context) -> Draft:
        raise NotImplementedError

    def commit(self, outcome: Outcome) -> None:
        """Brings the drafter's own caches to the committed text."""

    def learn(self, outcome: Outcome) -> Adaptation:
        """Learns from the outcome; returns what changed and why."""
        return Adaptation()

    def snapshot(self) -> object:
        """The settings and the attributes in `state`, as an immutable value; cheap."""
        values = []
        for name in self.state:
            value = getattr(self, name)
            if hasattr(value, "snapshot"):
                value = value.snapshot()
            values.append(value)
        return self.settings, tuple(values)

    def restore(self, state: object) -> None:
        """Restores a `snapshot` of this drafter, or of one in another session with the same strategy."""
        assert isinstance(state, tuple)
        self.settings, values = state
        for name, value in zip(self.state, values, strict=True):
            store = getattr(self, name)
            if hasattr(store, "restore"):
                store.restore(value)
            else:
                setattr(self, name, value)


def checked_draft(draft: object, context: Context, name: str, vocabulary: int, root: Root) -> Draft:
    """The draft, checked: a pass can verify it, and it cannot change the target's text.

    Raises:
        SettingsError: it is not a `Draft`, or its tree does not fit the text or the models.
    """
    if not isinstance(draft, Draft) or not isinstance(draft.tree, DraftTree):
        raise SettingsError(
            f"{name} drafted {named(draft)}: return Draft(tree), with a DraftTree in it"
        )
    tree = draft.tree
    newest = context.tokens[-1]
    outside = tree.token[(tree.token < 0) | (tree.token >= vocabulary)]
    if root == "verified" and tree.token[0] != newest:
        raise SettingsError(
            f"The root that {name} drafted is token {tree.token[0]}, but the newest token of the "
            f"text is {newest}: begin the tree with that token."
        )
    if len(outside):
        raise SettingsError(
            f"{name} drafted token {outside[0]}, which is outside the vocabulary: use ids from 0 "
            f"to {vocabulary - 1}."
        )
    if (deepest := int(tree.depth[-1])) > context.max_depth:
        raise SettingsError(
            f"{name} drafted a tree {deepest} deep, but the target's context ends "
            f"{context.max_depth} tokens after "
            "the root: stop at context.max_depth, or prune the tree."
        )
    if not (tree.log_prob < 1e-3).all():  # a little above 0 is rounding
        raise SettingsError(
            f"A log-probability of {name} is above 0 or not a number: use 0 if it is unknown."
        )
    for part, way_out in _WAYS_OUT.items():
        fits = False
        with suppress(AttributeError, TypeError, ValueError):  # values of any type
            fits = _fits(draft, part, context.max_depth, vocabulary)
        if not fits:
            raise SettingsError(f"Draft.{part} of {name} does not fit its tree: give {way_out}.")
    _check_sampled(draft, context, name, vocabulary)
    return draft


_WAYS_OUT = {
    "extra": "ExtraRows(token, depth, visible) with m tokens of the vocabulary, m depths up to "
    "context.max_depth, and which rows each sees, itself included, as bool [m, m]",
    "events": "a list of Event(kind, node, values), whose node is in the tree or None",
    "topk": "a dict from nodes of the tree to their next tokens, ((token, log-probability), …)",
    "proposals": "a tuple of Proposal",
}


def _fits(draft: Draft, part: str, deepest: int, vocabulary: int) -> bool:
    """Whether a part of a draft beside its tree is what it should be."""
    value = getattr(draft, part)
    nodes = range(len(draft.tree))
    if part == "extra":
        if not isinstance(value, ExtraRows):
            return False
        rows = len(value.token)
        seen = value.visible
        return (
            len(value.depth) == rows
            and all(0 <= index(token) < vocabulary for token in value.token)
            and all(0 <= index(depth) <= deepest for depth in value.depth)
            and seen.dtype == np.bool_
            and seen.shape == (rows, rows)
            and bool(seen.diagonal().all())
        )
    if part == "topk":
        return isinstance(value, Mapping) and all(node in nodes for node in value)
    if not isinstance(value, Sequence):
        return False
    if part == "proposals":
        return all(isinstance(entry, Proposal) for entry in value)
    if not all(isinstance(entry, Event) for entry in value):
        return False
    return {event.node for event in value} <= {None, *nodes}


def _check_sampled(draft: Draft, context: Context, name: str, vocabulary: int) -> None:
    """Raises `SettingsError` if the acceptance of sampled candidates would not give the target's text."""
    tree = draft.tree
    if tree.candidate_sampling is CandidateSampling.BLOCK and tree.depth[-1] < len(tree) - 1:
        raise SettingsError(
            f"{name} drafted a tree to accept as a block, which must be a chain: draft one child per "
            "node, or choose other candidates."
        )
    sampled = tree.candidate_sampling is not CandidateSampling.DETERMINISTIC
    if sampled and context.sampling.temperature > 0:
        given: Any = draft.draft_probs
        if not isinstance(given, Mapping):
            given = {}
        for node, children in enumerate(tree.children):
            drawn = tree.token[list(children)]
            if children and not _could_draw(given.get(node), drawn, vocabulary):
                raise SettingsError(
                    f"{name} drew the children of node {node} from no distribution: give it as "
                    f"draft_probs[{node}], float64 [{vocabulary}] with the sum 1, nowhere below 0 "
                    "and above 0 at each child, or leave candidate_sampling out."
                )


def _could_draw(probs: object, tokens: NDArray[np.int64], vocabulary: int) -> bool:
    """Whether it is a distribution that gives these tokens; a NaN fails each comparison."""
    return (
        isinstance(probs, np.ndarray)
        and probs.shape == (vocabulary,)
        and probs.dtype.kind == "f"
        and bool(probs.min() >= 0 and abs(probs.sum() - 1) <= 1e-6 and (probs[tokens] > 0).all())
    )


# Stores that drafters learn into


class Learned(ABC, Generic[Batch]):
    """A store that is determined by the batches it was given, in order.

    A snapshot is the history of its batches, which takes no time; `restore` reads them again.
    """

    def __init__(self) -> None:
        # pairs (older history, newest batch): the states of one run share the older ones
        self._history: tuple[Any, ...] = ()
        self.clear()

    def add(self, batch: Batch) -> None:
        self.read(batch)
        self._history = (self._history, batch)

    def snapshot(self) -> tuple[Any, ...]:
        return self._history

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restores a snapshot of this store or of another."""
        self.clear()
        self._history = state
        batches = []
        while state:
            state, newest = state
            batches.append(newest)
        for batch in reversed(batches):
            self.read(batch)

    @abstractmethod
    def clear(self) -> None:
        """Forgets everything."""

    @abstractmethod
    def read(self, batch: Batch) -> None:
        """Updates the contents."""


# What settings are thresholds on


Confidence = Annotated[float, "confidence"]
PathProbability = Annotated[float, "path probability"]
TokenProbability = Annotated[float, "token probability"]
Depth = Annotated[int, "depth"]
NODES = "nodes"


def measure_of(field: FieldInfo) -> str | None:
    """What a field is a threshold on, or None."""
    return next((mark for mark in field.metadata if isinstance(mark, str)), None)


def small_matters(field: FieldInfo) -> bool:
    """Whether a slider needs resolution near 0: for path and token probabilities, and for a small default."""
    measure = measure_of(field)
    small = isinstance(field.default, float) and field.default <= 0.1
    return measure in {"path probability", "token probability"} or (measure is None and small)
