"""Which drafted tokens are accepted. How the candidates were chosen decides which rule keeps the target's distribution.

Candidates chosen beforehand (the most probable, n-grams, tables, merged trees): `sample_and_match` (Dual-Draft Routing,
section 6.2). Candidates drawn from the draft: `recursive_rejection` (SpecInfer, Algorithm 2; on a chain the rule of
Leviathan et al. 2023) and `rejection_without_replacement` (EAGLE-1, Sequoia). `typical_acceptance` (Medusa, section
2.3.1) changes the output distribution.

A distribution is an array `[V]` of probabilities: float64, or `fractions.Fraction` where a test wants equality.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cache
from math import exp, inf, log
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from speclab.trace.records import Trial
from speclab.tree import DraftTree

Choice = Callable[[int], int]
Probabilities = NDArray[Any]
LawAt = Callable[[int], Probabilities]


class Rule(StrEnum):
    """An acceptance rule, by the words that records have for it."""

    GREEDY = "greedy"
    SAMPLE_AND_MATCH = "sample and match"
    INDEPENDENT = "independent draws"
    WITHOUT_REPLACEMENT = "draws without replacement"
    TYPICAL = "typical acceptance"

    @property
    def lossless(self) -> bool:
        """Whether the output keeps the target's law."""
        return self is not Rule.TYPICAL

    @property
    def follows_the_target(self) -> bool:
        """Whether the text is the very one that the target alone decodes with this seed."""
        return self in {Rule.GREEDY, Rule.SAMPLE_AND_MATCH}


class Rng(Protocol):
    """The randomness of one place in the text, or one that goes through every outcome."""

    def accepts(self, probability: Any) -> bool:
        """True with this probability."""

    def draws(self, law: Probabilities) -> int:
        """A token with its probability."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """`accepted`: the drafted nodes of the path, top down. `bonus`: the target's choice after the last of them.

    Where children were tried one by one also `trials`, in order, and `residual`, the law the bonus was drawn from.
    """

    accepted: tuple[int, ...]
    bonus: int
    trials: tuple[Trial, ...] = field(default=(), repr=False)
    residual: Probabilities | None = field(default=None, repr=False)


def sample_and_match(tree: DraftTree, choose: Choice, root_choice: int | None = None) -> Acceptance:
    """Follows the target's choices through the tree as deep as they lead.

    At each node the target chooses its next token once, and the walk goes on to the child that carries it. The
    committed tokens are the target's own choices, so the output has exactly the target's law, whatever the tree; with
    argmax choices it is the greedy walk of DynaTree (section 3.5).

    Args:
        choose: the target's next token after a node; asked only for nodes that are reached.
        root_choice: the target's choice for the root's own place when the root is drafted; None when it is verified.
    """
    tokens, parents = tree.token.tolist(), tree.parent.tolist()
    reached = [root_choice is None or tokens[0] == root_choice] + [False] * (len(tree) - 1)
    for node in range(1, len(tree)):
        parent = parents[node]
        reached[node] = reached[parent] and tokens[node] == choose(parent)
    if not reached[0]:
        assert root_choice is not None
        return Acceptance((), root_choice)
    # Merged trees may hold a token twice under one parent: the copy that reaches deeper wins, then the first.
    last = max((node for node in range(len(tree)) if reached[node]), key=lambda node: (int(tree.depth[node]), -node))
    path = tree.path(last)
    return Acceptance(path if root_choice is not None else path[1:], choose(last))


def recursive_rejection(tree: DraftTree, target: LawAt, draft: LawAt, chance: Callable[[int], Rng]) -> Acceptance:
    """Exact where the children of every node are independent draws from the draft's law, in the order drawn.

    A child with token x stands with probability min(1, p(x) / q(x)); else p becomes norm(max(p - q, 0)), and the next
    one is tried. After the last the target draws from what p has become.

    Args:
        target: its law p after a node.
        draft: the law q that a node's children were drawn from; asked only for nodes that have some.
        chance: the randomness of the place after a node.
    """
    return _try_children(tree, target, draft, chance, lambda law, _: law)


def rejection_without_replacement(
    tree: DraftTree, target: LawAt, draft: LawAt, chance: Callable[[int], Rng]
) -> Acceptance:
    """Exact where no token was drawn twice: as `recursive_rejection`, and q loses each rejected token (`without`)."""
    return _try_children(tree, target, draft, chance, without)


def typical_acceptance(
    tree: DraftTree,
    target: LawAt,
    choose: Choice,
    floor: Callable[[Probabilities], float],
    root: tuple[Probabilities, int] | None = None,
) -> Acceptance:
    """Accepts what the target finds likely enough: lossy, the output no longer has the target's law.

    The deepest accepted path wins, of two as deep the one that the target finds likelier (Medusa, section 2.3.1).

    Args:
        floor: the least probability that is accepted under a law, such as `typical_floor`.
        root: the target's law and choice for a drafted root's own place; None when the root is verified.
    """
    laws, floors = cache(target), cache(lambda node: floor(target(node)))
    trials: list[Trial] = []
    score = [0.0] + [-inf] * (len(tree) - 1)
    if root is not None:
        trials.append(_typical(0, root[0][tree.token[0]], floor(root[0])))
        if not trials[0].accepted:
            return Acceptance((), root[1], tuple(trials), root[0])
    for node, parent in enumerate(tree.parent.tolist()):
        if parent >= 0 and score[parent] > -inf:
            trials.append(_typical(node, laws(parent)[tree.token[node]], floors(parent)))
            if trials[-1].accepted:
                score[node] = score[parent] + log(trials[-1].target)
    reached = [node for node in range(len(tree)) if score[node] > -inf]
    last = max(reached, key=lambda node: (int(tree.depth[node]), score[node], -node))
    path = tree.path(last)
    return Acceptance(path if root is not None else path[1:], choose(last), tuple(trials), laws(last))


def typical_floor(law: Probabilities, epsilon: float, delta: float) -> float:
    """min(epsilon, delta exp(-H)), H the entropy of `law` in nats (Medusa, section 2.3.1)."""
    likely = law[law > 0]
    return min(epsilon, delta * exp(float((likely * np.log(likely)).sum())))


def draw_independent(law: Probabilities, count: int, chance: Rng) -> list[int]:
    """`count` tokens for `recursive_rejection`; one may come twice."""
    return [chance.draws(law) for _ in range(count)]


def draw_without_replacement(law: Probabilities, count: int, chance: Rng) -> list[int]:
    """`count` different tokens for `rejection_without_replacement`, or as many as `law` has."""
    drawn: list[int] = []
    for _ in range(min(count, int(np.count_nonzero(law)))):
        drawn.append(chance.draws(law))
        law = without(law, drawn[-1])
    return drawn


def without(law: Probabilities, token: int) -> Probabilities:
    """`law` without `token`, renormalised."""
    rest = law.copy()
    rest[token] = 0 * rest[token]
    mass = rest.sum()
    return rest / mass if mass > 0 else rest


def _try_children(
    tree: DraftTree,
    target: LawAt,
    draft: LawAt,
    chance: Callable[[int], Rng],
    after: Callable[[Probabilities, int], Probabilities],
) -> Acceptance:
    node = 0
    accepted: list[int] = []
    trials: list[Trial] = []
    while True:
        p, here, children = target(node), chance(node), tree.children[node]
        q = draft(node) if children else p
        for child in children:
            token = int(tree.token[child])
            stands = here.accepts(min(1, p[token] / q[token]))
            trials.append(Trial(child, p[token], q[token], stands))
            if stands:
                break
            p, q = _rejected(p, q), after(q, token)
        else:
            return Acceptance(tuple(accepted), here.draws(p), tuple(trials), p)
        accepted.append(child)
        node = child


def _rejected(target: Probabilities, draft: Probabilities) -> Probabilities:
    left = np.maximum(target - draft, 0)
    mass = left.sum()
    # Equal laws reject nothing; in floats a quotient a rounding error below 1 may.
    return left / mass if mass > 0 else target


def _typical(node: int, probability: Any, floor: float) -> Trial:
    return Trial(node, probability, floor, bool(probability > floor))


def uniform(seed: int, position: int) -> float:
    """The noise in [0, 1) for the token at `position` of the text (prompt included)."""
    return float(np.random.Generator(np.random.Philox(key=seed, counter=position)).random())


class RngPurpose(IntEnum):
    """What a stream is for; streams of two uses have nothing in common, nor have they with `uniform`."""

    ACCEPTANCE = 1
    DRAFTING = 2


class PositionalRng:
    """An `acceptance.Rng`: as many numbers as wanted for one seed, one place in the text and one use.

    An acceptance stream belongs to the place it decides. A drafting stream belongs to the place of the tree's root:
    every place is a root at most once, so no iteration sees the noise of another, whatever the shapes of their trees.
    """

    def __init__(self, seed: int, place: int, use: RngPurpose) -> None:
        # Philox counts up its first word as it goes: the place lies in the second, so no stream runs into the next.
        self._random = np.random.Generator(np.random.Philox(key=seed + (use << 64), counter=place << 64))

    def accepts(self, probability: float) -> bool:
        """True with this probability."""
        return self._random.random() < probability

    def draws(self, law: Probabilities) -> int:
        """A token of `law`, `[V]` float64."""
        cumulative = law.cumsum()
        token = int(np.searchsorted(cumulative, cumulative[-1] * self._random.random(), side="right"))
        return min(token, int(law.nonzero()[0][-1]))
