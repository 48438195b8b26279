"""Acceptance rules. How the candidates were chosen decides which rule keeps the target's
distribution.

Candidates chosen beforehand (the most probable, n-grams, tables, merged trees): `sample_and_match`
(Dual-Draft Routing, section 6.2). Candidates drawn from the draft: `recursive_rejection`
(SpecInfer, Algorithm 2; on a chain the rule of Leviathan et al. 2023),
`rejection_without_replacement` (EAGLE-1, Sequoia) and, on a chain, `block_verification` (Sun et al.
2024).

A distribution is an array `[V]` of probabilities: float64, or `fractions.Fraction` in tests of
equality.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np

from speclab.sampling import Probabilities, Rng, without
from speclab.trace.records import Trial
from speclab.tree import DraftTree

Choice = Callable[[int], int]
"""The target's next token after a node."""
DistributionFn = Callable[[int], Probabilities]
"""A distribution `[V]` of the token after a node."""


class Rule(StrEnum):
    """An acceptance rule, by its name in records."""

    GREEDY = "greedy"
    SAMPLE_AND_MATCH = "sample and match"
    INDEPENDENT = "independent draws"
    WITHOUT_REPLACEMENT = "draws without replacement"
    BLOCK = "a block of draws"

    @property
    def follows_the_target(self) -> bool:
        """Whether the text equals what the target alone decodes with this seed, token for token."""
        return self in {Rule.GREEDY, Rule.SAMPLE_AND_MATCH}


@dataclass(frozen=True)
class Acceptance:
    """The accept path: `accepted` drafted nodes, top down, and `bonus`, the target's token after
    the last of them.

    A rule that tries children one by one also gives `trials`, in order, and `residual` `[V]`, which
    the bonus was drawn from.
    """

    accepted: tuple[int, ...]
    bonus: int
    trials: tuple[Trial, ...] = field(default=(), repr=False)
    residual: Probabilities | None = field(default=None, repr=False)


def sample_and_match(tree: DraftTree, choose: Choice, root_choice: int | None = None) -> Acceptance:
    """Exact for every tree: the target chooses a token at each node, and the child with that token
    is accepted.

    All committed tokens are the target's own choices. With argmax choices this is DynaTree's greedy
    rule (section 3.5, SELECTCOMMIT).

    Args:
        choose: the target's next token after a node; called only for nodes that are reached.
        root_choice: the target's choice at the position of a drafted root; None if the root is
            verified.
    """
    tokens = tree.token.tolist()
    parents = tree.parent.tolist()
    reached = [root_choice is None or tokens[0] == root_choice] + [False] * (len(tree) - 1)
    for node in range(1, len(tree)):
        # A node is reached if its parent is, and the target's choice there is its token.
        reached[node] = reached[parents[node]] and tokens[node] == choose(parents[node])
    if not reached[0]:
        assert root_choice is not None
        return Acceptance((), root_choice)
    # A merged tree may have a token twice under one parent: the copy that reaches deeper wins, then
    # the first.
    last = max(
        (node for node in range(len(tree)) if reached[node]),
        key=lambda node: (int(tree.depth[node]), -node),
    )
    path = tree.path(last)
    if root_choice is None:  # a verified root is no candidate
        path = path[1:]
    return Acceptance(path, choose(last))


def _rejection(
    tree: DraftTree,
    target: DistributionFn,
    draft: DistributionFn,
    rng: Callable[[int], Rng],
    *,
    after_rejection: Callable[[Probabilities, int], Probabilities],
) -> Acceptance:
    """Exact if the children of every node were drawn from the draft's distribution, in their order.

    Args:
        target: its distribution p after a node.
        draft: the distribution q that a node's children were drawn from; called only for nodes with
            children.
        rng: the random numbers of the position after a node.
        after_rejection: what q is for the next child once a token was rejected.
    """
    node = 0
    accepted: list[int] = []
    trials: list[Trial] = []
    while True:
        p = target(node)  # [V]
        random = rng(node)
        children = tree.children[node]
        q = draft(node) if children else p  # [V]
        for child in children:
            x = int(tree.token[child])
            # q(x) <= p(x): always accept; q(x) > p(x): accept with probability p(x) / q(x)
            passes = random.accepts(min(1, p[x] / q[x]))
            trials.append(Trial(child, float(p[x]), float(q[x]), accepted=passes))
            if passes:
                accepted.append(child)
                node = child
                break
            p = residual(p, q)
            q = after_rejection(q, x)
        else:  # no child, or none accepted: draw the bonus token from what is left of p
            return Acceptance(tuple(accepted), random.draws(p), tuple(trials), p)


recursive_rejection = partial(_rejection, after_rejection=lambda q, _: q)
"""For independent draws."""
rejection_without_replacement = partial(_rejection, after_rejection=without)
"""For draws of which no token comes twice: q loses each rejected token."""


def block_verification(
    tree: DraftTree, target: DistributionFn, draft: DistributionFn, rng: Callable[[int], Rng]
) -> Acceptance:
    """Exact if the tree is a chain of draws from the draft (Sun et al. 2024, arXiv 2403.10444, Algorithm 2).

    It accepts the longest prefix that passes as a whole, so a token may be accepted that would not
    be alone; in expectation never fewer tokens than `recursive_rejection`. The chain may end
    anywhere, if its tokens alone decide where. Arguments as there.
    """
    joint: Any = 1  # p_i: the share of the prefix's draft probability that the target has, too
    last = 0  # the last node that passed
    p = target(0)  # [V]
    left = residual(p, draft(0)) if len(tree) > 1 else p  # what the bonus is drawn from
    # All numbers come from the root's position: those of later positions decide again later.
    random = rng(0)
    trials: list[Trial] = []
    for node in range(1, len(tree)):
        q = draft(node - 1)  # [V]
        x = int(tree.token[node])
        own = p[x]
        joint = min(joint * own / q[x], 1)
        p = target(node)
        if tree.children[node]:
            rest = np.maximum(joint * p - draft(node), 0)  # what a later rejection would leave
            mass = rest.sum()
            # h_i; equal distributions leave 0 of 0, and nothing to reject
            passes = mass / (mass + (1 - joint)) if mass > 0 or joint < 1 else 1
            rest = rest / mass if mass > 0 else p
        else:
            passes = joint
            rest = p
        if random.accepts(passes):
            last = node
            left = rest
        trials.append(Trial(node, float(own), float(q[x]), block=float(passes)))
    trials = [replace(trial, accepted=trial.node <= last) for trial in trials]
    return Acceptance(tuple(range(1, last + 1)), random.draws(left), tuple(trials), left)


def residual(p: Probabilities, q: Probabilities) -> Probabilities:
    """What a rejection leaves of p: norm(max(p - q, 0)), `[V]`."""
    left = np.maximum(p - q, 0)
    mass = left.sum()
    # Equal distributions reject nothing, except when rounding makes p / q smaller than 1.
    return left / mass if mass > 0 else p
