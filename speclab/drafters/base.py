"""The contract between the decoding loop and what proposes candidates.

A `Strategy` is frozen settings; `strategy.drafter(pair)` builds the `Drafter` that proposes a tree each iteration and
learns from the outcome. A new strategy is one new file beside this one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Never, Self, get_args, overload

import numpy as np
from pydantic import Field, model_validator

from speclab.errors import SettingsError, named
from speclab.settings import SessionSettings, Settings
from speclab.trace.records import Adaptation, BudgetRecord, Event, Lookup, Proposal, Step
from speclab.tree import Bools, DraftTree, Floats

if TYPE_CHECKING:
    from speclab.drafters.draft_forward import DraftForward
    from speclab.drafters.policies import Gate
    from speclab.models.heads import HeadRunner
    from speclab.models.pair import ModelPair
    from speclab.models.runner import Runner
    from speclab.models.transfers import Logits

Root = Literal["verified", "drafted"]
Commit = Literal["gather", "rebuild"]
TopK = tuple[tuple[int, float], ...]
"""Tokens and their log-probabilities (nats), best first."""
LevelGate = Callable[[Sequence[int], Sequence[float], Sequence[int], str], "Gate | None"]
"""Called with the parents and log-probabilities of a tree so far, the nodes that would be expanded, and its source."""
Budget = Annotated[
    Literal["fixed", "auto"],
    Field(
        description="verify the whole tree; or (not in the paper) draft and verify what gives the most tokens per "
        "second by the costs measured here: the default where no setting at all is given"
    ),
]


@dataclass(frozen=True, slots=True)
class Outline:
    """What a strategy is to a serving engine, which knows none of ours; `serving.settings` translates it.

    `kind`: "chain" and "best" (EAGLE-2's dynamic tree) of the draft model, or of the head that `values["head"]` counts;
    "lookup" (prompt lookup), "suffix" (suffix decoding), "plain" (no drafting); or what no engine has as a setting:
    "tree", another tree of a draft model, and "own", anything else, of which `why` says what is missing. `instead`:
    strategies near it that may go where it does not, as `from_str` reads them, the nearest first.
    """

    kind: Literal["chain", "best", "lookup", "suffix", "plain", "tree", "own"] = "own"
    values: Mapping[str, Any] = field(default_factory=dict)
    why: str = "no engine has it as a setting"
    instead: tuple[str, ...] = ()


DEFINED: dict[str, type[Strategy]] = {}
"""Every strategy class by name, wherever it is defined; a cell that is run again replaces its class."""


class Strategy(Settings):
    """Settings of a way to draft; the base of every strategy.

    `by_hand`: whether a person hands over each tree (`Session.verify`): nothing to compare or sweep. `ascending`: names
    of settings of which none may be above the next.
    """

    by_hand: ClassVar[bool] = False
    ascending: ClassVar[tuple[tuple[str, ...], ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        DEFINED[cls.__name__] = cls

    @model_validator(mode="before")
    @classmethod
    def _by_cost_where_nothing_is_set(cls, values: Any) -> Any:
        """Who sets nothing gets what decodes fastest here; who sets anything gets the tree as it is set."""
        field = cls.model_fields.get("budget")
        by_cost = field is not None and get_args(field.annotation) == ("fixed", "auto")
        return {"budget": "auto"} if by_cost and values == {} else values

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for small, large in chain.from_iterable(map(pairwise, self.ascending)):
            low, high = getattr(self, small), getattr(self, large)
            if low > high:
                raise ValueError(
                    f"{type(self).__name__}: {small} ({low:g}) is above {large} ({high:g}); "
                    "lower the first or raise the second"
                )
        return self

    @model_validator(mode="after")
    def _no_sample_is_dropped(self) -> Self:
        if self.chooses_budget and getattr(self, "candidates", "top") != "top":
            raise ValueError(
                f"{type(self).__name__}: budget='auto' drops nodes by their probability, which would change the "
                "distribution of sampled candidates: set candidates='top' or budget='fixed'"
            )
        return self

    def __call__(self, *_: object, **__: object) -> Never:
        """Refuses: `generate(custom_generate=…)` of transformers calls what it is given, and ignores what it cannot."""
        raise SettingsError(
            f"{type(self).__name__} says how to draft and does not generate: for model.generate, pass "
            f"custom_generate=speclab.custom_generate({type(self).__name__}(…), draft=…)."
        )

    @property
    def needs_draft(self) -> bool:
        """Whether it drafts with a draft model or a draft head, of which a pair must have one."""
        return False

    @property
    def heads_needed(self) -> int:
        """How many draft heads a pair must have, whether or not it has a draft model."""
        return 0

    @property
    def chooses_budget(self) -> bool:
        """Whether what is verified follows from the costs measured on this machine (`costs.drafter`)."""
        return getattr(self, "budget", "fixed") == "auto"

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        """Named settings, the paper's among them."""
        return {}

    @abstractmethod
    def drafter(self, pair: ModelPair) -> Drafter:
        """Builds the drafter on this pair's runners."""

    def grow(self, forward: DraftForward, context: Context) -> Draft | None:
        """The tree that these settings make of what a draft answers; None where more than that shapes it."""
        return None

    def regrow(self, record: AskedAgain) -> Draft | None:
        """The tree that these settings would have made in place of a recorded one of this strategy; None: no telling.

        Raises:
            NotRecordedError: it would follow from what is not in the record; it says from what.
        """
        return self.grow(record.forward, record.context)

    def restrict(self, tree: DraftTree, was: Self) -> DraftTree | None:
        """What these settings leave of a tree of `was`, the same strategy; None where the tree alone does not tell."""
        return tree if self == was else None

    @property
    def draft_source(self) -> object:
        """What drafts, where it may be one of several of the pair: answers of one are no answers of another."""
        return None

    def outline(self) -> Outline:
        """What of it a serving engine could take."""
        return Outline()

    def baselines(self) -> tuple[Strategy, ...]:
        """Simpler strategies that this one is made of: what it should beat on the same text."""
        return ()

    def describe(self) -> dict[str, float | int | str | bool | None]:
        """Name and values, for records; read off and not serialized, inside which Ctrl-C becomes another error."""
        return {"strategy": type(self).__name__, **{name: getattr(self, name) for name in type(self).model_fields}}


def checked(strategy: object) -> Strategy:
    """The strategy itself, if it is one.

    Raises:
        SettingsError: it is a class, a name, or anything else.
    """
    if isinstance(strategy, Strategy):
        return strategy
    raise SettingsError(
        f"{named(strategy)} is no strategy: give an instance such as speclab.DynaTree(); "
        "speclab.strategies() lists them"
    )


@dataclass(frozen=True, slots=True)
class Context:
    """What a drafter may look at.

    `tokens`: every committed token, prompt included; the last is the root of a tree with a verified root. `max_depth`:
    the deepest node that still fits the models' context. `check`: raises where the run was cancelled; call it often.
    `sampling`: how the session samples, for a drafter that samples its candidates. `level_gate`: where the budget
    follows from costs, says whether another level of a tree can raise the tokens per second.
    """

    tokens: Sequence[int]
    max_depth: int
    check: Callable[[], None]
    sampling: SessionSettings = field(default_factory=SessionSettings)
    level_gate: LevelGate | None = None


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """What a strategy has of a step when its tree is grown again, without a model.

    `forward`: answers as the draft did, as far as the step holds it. `was`: the settings in force, of the same
    strategy.
    """

    step: Step
    forward: DraftForward
    context: Context
    was: Strategy


@dataclass(frozen=True, slots=True)
class ExtraRows:
    """Rows of the verification pass that are no candidates: the target answers them, and none of them is committed.

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
        mask[:n, :n], mask[n:, 0], mask[n:, n:] = nodes, True, self.visible
        return mask


class LazyEvents(Sequence[Event]):
    """Events that are made when they are first read: `generate` keeps no records."""

    def __init__(self, make: Callable[[], Iterator[Event]]) -> None:
        self._make = make

    @cached_property
    def _events(self) -> tuple[Event, ...]:
        return tuple(self._make())

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Event, ...]: ...
    def __getitem__(self, place: int | slice) -> Event | tuple[Event, ...]:
        return self._events[place]

    def __len__(self) -> int:
        return len(self._events)


@dataclass(frozen=True, slots=True)
class Draft:
    """A proposed tree and how it came about. `topk`: for each expanded node its most probable next tokens, best first.

    `extra`: rows that the same pass is to answer for `Drafter.update`. `draft_probs`: where candidates are sampled
    (`tree.candidate_sampling`) the distribution `[V]` float64 that the children of a node were sampled
    from, for each node that has some. `proposals`: the proposed trees, where there were several. `budget`:
    makes the record of how the number of nodes was chosen, where it was. `mask`: `[n, n]` bool, which nodes each row
    sees, where that is not its ancestors; what the target answers need not be its own then, and its rows are not kept.
    """

    tree: DraftTree
    events: Sequence[Event] = ()
    topk: Mapping[int, TopK] = field(default_factory=dict)
    extra: ExtraRows = field(default_factory=ExtraRows)
    draft_probs: Mapping[int, Floats] = field(default_factory=dict)
    proposals: tuple[Proposal, ...] = ()
    budget: Callable[[], BudgetRecord] | None = None
    mask: Bools | None = None

    def paths(self) -> list[tuple[int, ...]]:
        """For each row of the verification pass its tokens from node 0 on, its own included: nodes, then `extra`."""
        paths: list[tuple[int, ...]] = []
        for token, parent in zip(self.tree.token.tolist(), self.tree.parent.tolist(), strict=True):
            paths.append((*(paths[parent] if parent >= 0 else ()), token))
        rows = self.extra
        for seen in rows.visible:
            above = sorted(np.flatnonzero(seen).tolist(), key=rows.depth.__getitem__)
            paths.append((*paths[0], *(rows.token[row] for row in above)))
        return paths


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a draft: `accepted` drafted nodes, `committed` tokens, and the target's `logits` of the `n` nodes.

    `extra`: its logits after the draft's `m` extra rows.
    """

    tree: DraftTree
    accepted: tuple[int, ...]
    committed: tuple[int, ...]
    logits: Logits
    extra: Logits


class Drafter:
    """Proposes a tree each iteration. Subclasses implement `draft`, and what else they need.

    `root`: "verified" roots the tree in the target's newest token (the root token trick, Dual-Draft Routing section
    2), "drafted" in a token of the drafter's own. `commit`: "gather" keeps the accepted rows of the caches, "rebuild"
    rolls back and runs the committed tokens again. `runners`: the draft models and heads whose caches it keeps.
    `state`: names of the attributes that hold what it learns: immutable values, or stores with a `snapshot` and a
    `restore` of their own. Time travel and forks take them back. `host_seconds`: of an iteration's work on the host,
    roughly, where that is much beside a pass of a small target.
    """

    root: Root = "verified"
    commit: Commit = "gather"
    state: ClassVar[tuple[str, ...]] = ()
    runners: tuple[Runner | HeadRunner, ...] = ()
    host_seconds: ClassVar[float] = 0.0

    def __init__(self, settings: Strategy) -> None:
        self.settings = settings

    def prefill(self, target: Runner, prompt_ids: Sequence[int]) -> Logits:
        """Runs the prompt through the target: one row, after it; a drafter may look at more of them on the way."""
        return target.logits(prompt_ids).part(slice(-1, None))

    def draft(self, context: Context) -> Draft:
        """The candidates of this iteration."""
        raise NotImplementedError

    def skip(self, context: Context) -> None:
        """Takes note of an iteration in which it does not draft: the root alone is verified and committed."""

    def on_pruned(self, new_index: Mapping[int, int]) -> None:
        """Takes over the numbers of the tree that is verified: of the one just drafted, only these nodes are left."""

    def commit_cache(self, outcome: Outcome) -> None:
        """Brings the drafter's own cache to the committed text."""

    def update(self, outcome: Outcome) -> Adaptation:
        """Adapts to the outcome; says what changed and why."""
        return Adaptation("nothing to adapt")

    def lookup(self, token: int, previous: int | None = None) -> Lookup | None:
        """What it has learned of `token`, after `previous`; None where it keeps nothing that can be looked up."""
        return None

    def snapshot(self) -> object:
        """What the drafter has learned, as an immutable value: its settings and what `state` names; cheap."""
        held = [getattr(self, name) for name in ("settings", *self.state)]
        return tuple([value.snapshot() if hasattr(value, "snapshot") else value for value in held])

    def restore(self, state: object) -> None:
        """Takes back a `snapshot`, from this drafter or from one of another session with the same strategy."""
        assert isinstance(state, tuple)
        for name, value in zip(("settings", *self.state), state, strict=True):
            held = getattr(self, name)
            if hasattr(held, "restore"):
                held.restore(value)
            else:
                setattr(self, name, value)


def checked_draft(draft: object, context: Context, name: str, vocabulary: int, root: Root) -> Draft:
    """What a drafter proposed, if a pass can verify it and the text stays the target's own whatever it holds.

    Raises:
        SettingsError: it is no `Draft`, or its tree does not fit the text or the models; the sentence says why.
    """
    if not isinstance(draft, Draft) or not isinstance(draft.tree, DraftTree):
        got = "None" if draft is None else f"a {type(draft).__name__}"
        raise SettingsError(f"{name} drafted {got}: return Draft(tree), with a DraftTree in it")
    tree, newest = draft.tree, context.tokens[-1]
    outside = tree.token[(tree.token < 0) | (tree.token >= vocabulary)]
    if root == "verified" and tree.token[0] != newest:
        raise SettingsError(
            f"the root that {name} drafted is token {tree.token[0]}, and the newest token of the text is {newest}: "
            "begin the tree with that one (fork(token=…) forces another)"
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
        raise SettingsError(f"a log-probability of {name} is above 0 or no number: 0 says that nothing is known")
    return draft
