"""The contract between the decoding loop and what proposes candidates.

A `Strategy` is frozen settings; `strategy.drafter(pair)` builds the `Drafter` that proposes a tree each iteration and
learns from the outcome. A new strategy is one new file beside this one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Literal, Never, Self

import numpy as np
from pydantic import model_validator

from speclab.errors import SettingsError, named
from speclab.settings import SessionSettings, Settings
from speclab.trace.records import Adaptation, Event, Proposal, Value
from speclab.tree import Bools, DraftTree, Floats

if TYPE_CHECKING:
    from speclab.models.answer import Answer
    from speclab.models.heads import HeadRunner
    from speclab.models.pair import ModelPair
    from speclab.models.runner import Runner

Root = Literal["verified", "drafted"]
TopK = tuple[tuple[int, float], ...]
"""Tokens and their log-probabilities (nats), best first."""

DEFINED: dict[str, type[Strategy]] = {}
"""Every strategy class by name, wherever it is defined; a cell that is run again replaces its class."""


class Strategy(Settings):
    """Settings of a way to draft; the base of every strategy.

    `by_hand`: whether a person hands over each tree (`Session.verify`): nothing to compare. `ascending`: names of
    settings of which none may be above the next.
    """

    by_hand: ClassVar[bool] = False
    ascending: ClassVar[tuple[tuple[str, ...], ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        DEFINED[cls.__name__] = cls

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for names in self.ascending:
            for small, large in pairwise(names):
                low, high = getattr(self, small), getattr(self, large)
                if low > high:
                    raise ValueError(
                        f"{type(self).__name__}: {small} ({low:g}) is above {large} ({high:g}); "
                        "lower the first or raise the second"
                    )
        return self

    def __call__(self, *_: object, **__: object) -> Never:
        """Refuses: transformers calls what `model.generate(custom_generate=…)` is given."""
        raise SettingsError(
            f"{type(self).__name__} says how to draft and does not generate: for model.generate, pass "
            f"custom_generate=speclab.custom_generate({type(self).__name__}(…), draft=…)."
        )

    @property
    def needs_draft(self) -> bool:
        """Whether a pair must have a draft model or a draft head."""
        return False

    @property
    def heads_needed(self) -> int:
        """How many draft heads a pair must have, whether or not it has a draft model."""
        return 0

    @property
    def needs_block(self) -> bool:
        """Whether one of these heads must draft a whole block in one pass."""
        return False

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        """Named settings, the paper's among them."""
        return {}

    @abstractmethod
    def drafter(self, pair: ModelPair) -> Drafter:
        """Builds the drafter on this pair's runners."""

    def describe(self) -> dict[str, Value]:
        """Name and values, for records."""
        return {"strategy": type(self).__name__, **{name: getattr(self, name) for name in type(self).model_fields}}


def checked(strategy: object) -> Strategy:
    """The strategy itself.

    Raises:
        SettingsError: it is a class, a name, or anything else.
    """
    if isinstance(strategy, Strategy):
        return strategy
    raise SettingsError(
        f"Expected a strategy such as speclab.DynaTree(), got {named(strategy)}. See speclab.strategies()."
    )


@dataclass(frozen=True, slots=True)
class Context:
    """What a drafter may look at.

    `tokens`: every committed token, prompt included; the last is the root of a tree with a verified root. `max_depth`:
    the deepest node that still fits the models' context. `check`: raises where the run was cancelled; call it often.
    `sampling`: how the session samples, for a drafter that samples its candidates.
    """

    tokens: Sequence[int]
    max_depth: int
    check: Callable[[], None]
    sampling: SessionSettings = field(default_factory=SessionSettings)


@dataclass(frozen=True, slots=True)
class ExtraRows:
    """Rows of the verification pass that are not candidates: the target answers them and none is committed.

    `token`: `m` ids. `depth`: `m` edges from node 0; as for nodes, the position is prefix length + depth, and no depth
    exceeds `Context.max_depth`. `visible`: `[m, m]` bool, which of these rows each sees, itself included; all of them
    see the prefix and node 0, and no other node.
    """

    token: Sequence[int] = ()
    depth: Sequence[int] = ()
    visible: Bools = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))

    def below(self, nodes: Bools) -> Bools:
        """The mask of the whole pass, `[n + m, n + m]` bool: the tree's own `nodes` `[n, n]`, then these rows."""
        n = len(nodes)
        mask = np.zeros((n + len(self.token),) * 2, dtype=np.bool_)
        mask[:n, :n] = nodes
        mask[n:, 0] = True
        mask[n:, n:] = self.visible
        return mask


@dataclass(frozen=True, slots=True)
class Draft:
    """A proposed tree and how it came about.

    `events`: the decisions, in order. `topk`: for each expanded node its most probable next tokens, best first.
    `extra`: rows that the same pass answers for `Drafter.learn`. `draft_probs`: where candidates are sampled
    (`tree.candidate_sampling`), the distribution `[V]` float64 that the children of a node were sampled from, for each
    node that has some. `proposals`: the proposed trees, where there were several. `mask`: `[n, n]` bool, which nodes
    each row sees, where these are not its ancestors; the text need not be the target's own then, and no row is kept.
    """

    tree: DraftTree
    events: Sequence[Event] = ()
    topk: Mapping[int, TopK] = field(default_factory=dict)
    extra: ExtraRows = field(default_factory=ExtraRows)
    draft_probs: Mapping[int, Floats] = field(default_factory=dict)
    proposals: tuple[Proposal, ...] = ()
    mask: Bools | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a draft: the `accepted` nodes, the `committed` tokens.

    `answer`: what the target answered for the `n` nodes of the tree; `extra`: for the draft's `m` extra rows.
    """

    tree: DraftTree
    accepted: tuple[int, ...]
    committed: tuple[int, ...]
    answer: Answer
    extra: Answer


class Drafter:
    """Proposes a tree each iteration. Subclasses implement `draft`, and what else they need.

    `root`: "verified" roots the tree in the target's newest token (the root token trick, Dual-Draft Routing section
    2), "drafted" in a token of the drafter's own. `rebuild`: roll the caches back and run the committed tokens again,
    instead of keeping the accepted rows. `runners`: the draft models and heads whose caches it keeps. `state`: names
    of the attributes that hold what it learns: immutable values, or stores with a `snapshot` and a `restore` of their
    own. Time travel and forks restore them.
    """

    root: Root = "verified"
    rebuild: bool = False
    state: ClassVar[tuple[str, ...]] = ()
    runners: tuple[Runner | HeadRunner, ...] = ()

    def __init__(self, settings: Strategy) -> None:
        self.settings = settings

    def prefill(self, target: Runner, prompt_ids: Sequence[int]) -> Answer:
        """Runs the prompt through the target: the row after it. A drafter may look at more rows on the way."""
        return target.logits(prompt_ids)[-1:]

    def draft(self, context: Context) -> Draft:
        """The candidates of this iteration."""
        raise NotImplementedError

    def commit(self, outcome: Outcome) -> None:
        """Brings the drafter's own caches to the committed text."""

    def learn(self, outcome: Outcome) -> Adaptation:
        """Learns from the outcome; says what changed and why."""
        return Adaptation("nothing to adapt")

    def snapshot(self) -> object:
        """Its settings and what `state` names, as an immutable value; cheap."""
        values = [getattr(self, name) for name in ("settings", *self.state)]
        return tuple([value.snapshot() if hasattr(value, "snapshot") else value for value in values])

    def restore(self, state: object) -> None:
        """Restores a `snapshot` of this drafter, or of one of another session with the same strategy."""
        assert isinstance(state, tuple)
        for name, value in zip(("settings", *self.state), state, strict=True):
            store = getattr(self, name)
            if hasattr(store, "restore"):
                store.restore(value)
            else:
                setattr(self, name, value)


def checked_draft(draft: object, context: Context, name: str, vocabulary: int, root: Root) -> Draft:
    """A draft that a pass can verify and that cannot change the target's text.

    Raises:
        SettingsError: it is not a `Draft`, or its tree does not fit the text or the models; the sentence says why.
    """
    if not isinstance(draft, Draft) or not isinstance(draft.tree, DraftTree):
        got = "None" if draft is None else f"a {type(draft).__name__}"
        raise SettingsError(f"{name} drafted {got}: return Draft(tree), with a DraftTree in it")
    tree, newest = draft.tree, context.tokens[-1]
    outside = tree.token[(tree.token < 0) | (tree.token >= vocabulary)]
    if root == "verified" and tree.token[0] != newest:
        raise SettingsError(
            f"the root that {name} drafted is token {tree.token[0]}, and the newest token of the text is {newest}: "
            "begin the tree with that one"
        )
    if len(outside):
        raise SettingsError(
            f"token {outside[0]}, which {name} drafted, is outside the vocabulary: ids go from 0 to {vocabulary - 1}"
        )
    if (deepest := int(tree.depth[-1])) > context.max_depth:
        raise SettingsError(
            f"the tree that {name} drafted is {deepest} deep, and the models' context ends {context.max_depth} after "
            "the root: go no deeper than context.max_depth, or prune it"
        )
    if not (tree.log_prob < 1e-3).all():  # a little above 0 is rounding
        raise SettingsError(f"a log-probability of {name} is above 0 or not a number: 0 means that nothing is known")
    return draft
