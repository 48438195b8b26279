"""The acceptance rules under every outcome of chance, in fractions: committed text has the target's exact distribution.

A rule on candidates that were not chosen its way must be found out, and so must small mistakes in a rule.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outcomes import Distribution, Script, distribution_of

from speclab.engine.acceptance import (
    Acceptance,
    draw_independent,
    draw_without_replacement,
    recursive_rejection,
    rejection_without_replacement,
    sample_and_match,
)
from speclab.tree import DraftTree

VOCAB = 3
ROOT = 9
Distributions = dict[tuple[int, ...], Distribution]
"""The distribution of the next token after each path of tokens below the root."""
Draws = Callable[[Distribution, int, Script], list[int]]
Rule = Callable[[DraftTree, Callable[[int], Distribution], Callable[[int], Distribution], Script], Acceptance]


def target_mass(tree: DraftTree, target, draft, script: Script) -> Acceptance:
    return sample_and_match(tree, cache(lambda node: script.draws(target(node))))


def independent(tree: DraftTree, target, draft, script: Script) -> Acceptance:
    return recursive_rejection(tree, target, draft, lambda _: script)


def without_replacement(tree: DraftTree, target, draft, script: Script) -> Acceptance:
    return rejection_without_replacement(tree, target, draft, lambda _: script)


def likeliest(probs: Distribution, count: int, script: Script) -> list[int]:
    """Top-k."""
    return sorted(range(VOCAB), key=lambda token: -probs[token])[:count]


EXACT: dict[str, tuple[Draws, Rule]] = {
    "top-k, target mass": (likeliest, target_mass),
    "independent draws": (draw_independent, independent),
    "draws without replacement": (draw_without_replacement, without_replacement),
    "drawn, target mass": (draw_without_replacement, target_mass),
}
WRONG: dict[str, tuple[Draws, Rule]] = {
    "without replacement on a top-k tree": (likeliest, without_replacement),
    "independent on a top-k tree": (likeliest, independent),
    "independent on draws without replacement": (draw_without_replacement, independent),
}


def _distribution(weights: tuple[int, ...]) -> Distribution:
    return np.array([Fraction(weight, sum(weights)) for weight in weights], dtype=object)


def _path(tree: DraftTree, node: int) -> tuple[int, ...]:
    return tuple(tree.token[list(tree.path(node))].tolist()[1:])


def drafted(shape: list[int], draft: Distributions, draws: Draws, script: Script) -> DraftTree:
    """A tree of this shape: a node with k children gets k samples of the draft's distribution, or all there are."""
    tree, at = DraftTree.root(ROOT), {0: 0}
    for parent in sorted(set(shape)):
        if parent not in at:
            continue
        tokens = draws(draft[_path(tree, at[parent])], shape.count(parent), script)
        for child, token in zip(
            [node + 1 for node, above in enumerate(shape) if above == parent], tokens, strict=False
        ):
            at[child] = len(tree)
            columns = [[*tree.token, token], [*tree.parent, at[parent]], [0.0] * (len(tree) + 1)]
            tree = DraftTree.of(*columns, "draft")
    return tree


def distribution_of_a_step(
    shape: list[int], target: Distributions, draft: Distributions, draws: Draws, rule: Rule
) -> dict[tuple, Fraction]:
    """The tokens that one iteration commits, over everything that drafting and acceptance can do."""

    def step(script: Script) -> tuple[int, ...]:
        tree = drafted(shape, draft, draws, script)
        taken = rule(tree, lambda node: target[_path(tree, node)], lambda node: draft[_path(tree, node)], script)
        return (*(int(tree.token[node]) for node in taken.accepted), taken.bonus)

    return distribution_of(step)


def assert_exact(committed: dict[tuple, Fraction], target: Distributions, length: int) -> None:
    """With the target's own tokens after them, the committed ones are distributed as its texts: equal fractions."""

    def own(text: tuple[int, ...]) -> Fraction:
        shares = [target[text[:place]][token] for place, token in enumerate(text)]
        return Fraction(np.prod(shares)) if shares else Fraction(1)

    for text in itertools.product(range(VOCAB), repeat=length):
        starts = [text[: place + 1] for place in range(length)]
        share = sum(
            (committed.get(start, 0) * own(text) / own(start) for start in starts if own(start)), start=Fraction(0)
        )
        assert share == own(text), f"{text}: {share} instead of {own(text)}"
    assert all(own(text) > 0 for text in committed)


distributions = st.tuples(*[st.integers(0, 4)] * VOCAB).filter(any).map(_distribution)


@st.composite
def worlds(draw: st.DrawFn, max_nodes: int = 4, max_depth: int = 2) -> tuple[list[int], Distributions, Distributions]:
    """A shape (parents of nodes 1 and on, breadth-first), a target and a draft."""
    shape: list[int] = []
    depth = [0]
    for node in range(1, draw(st.integers(1, max_nodes)) + 1):
        parent = draw(st.integers(shape[-1] if shape else 0, node - 1).filter(lambda above: depth[above] < max_depth))
        shape.append(parent)
        depth.append(depth[parent] + 1)
    paths = [path for length in range(max_depth + 1) for path in itertools.product(range(VOCAB), repeat=length)]
    target, draft = ({path: draw(distributions) for path in paths} for _ in range(2))
    return shape, target, draft


@pytest.mark.parametrize("way", EXACT.values(), ids=EXACT)
@settings(max_examples=15)
@given(worlds())
def test_a_rule_keeps_the_targets_distribution_to_the_last_digit(way, world):
    shape, target, draft = world
    assert_exact(distribution_of_a_step(shape, target, draft, *way), target, 3)


@settings(max_examples=15)
@given(worlds(), st.data())
def test_the_target_mass_rule_is_exact_on_any_tree_merged_ones_too(world, data):
    """Tokens from anywhere, also twice under one parent."""
    shape, target, draft = world

    def anything(probs: Distribution, count: int, script: Script) -> list[int]:
        return tokens[count]

    tokens = {
        count: data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=count, max_size=count)) for count in range(5)
    }
    assert_exact(distribution_of_a_step(shape, target, draft, anything, target_mass), target, 3)


FLAT, STEEP = _distribution((1, 1, 2)), _distribution((1, 3, 1))
TARGET = {path: FLAT for length in range(3) for path in itertools.product(range(VOCAB), repeat=length)}
DRAFT = dict.fromkeys(TARGET, STEEP)


@pytest.mark.parametrize("way", WRONG.values(), ids=WRONG)
def test_a_rule_on_candidates_not_chosen_its_way_is_found_out(way):
    for shape in ([0, 0], [0, 0, 1, 1]):
        with pytest.raises(AssertionError, match="instead of"):
            assert_exact(distribution_of_a_step(shape, TARGET, DRAFT, *way), TARGET, 3)


def test_dropping_a_drawn_candidate_by_its_own_probability_is_found_out():
    def thresholded(probs: Distribution, count: int, script: Script) -> list[int]:
        return [token for token in draw_independent(probs, count, script) if probs[token] >= Fraction(1, 2)]

    with pytest.raises(AssertionError, match="instead of"):
        assert_exact(distribution_of_a_step([0, 0], TARGET, DRAFT, thresholded, independent), TARGET, 3)


def test_not_expanding_a_drawn_candidate_by_its_own_probability_is_exact():
    """The second level hangs under likely tokens only: decided before its own draws."""

    def step(script: Script) -> tuple[int, ...]:
        first = draw_independent(STEEP, 2, script)
        tree = DraftTree.of([ROOT, *first], [-1, 0, 0], [0.0] * 3, "draft")
        for node in (1, 2):
            if STEEP[first[node - 1]] >= Fraction(1, 2):
                below = draw_independent(STEEP, 2, script)
                columns = [[*tree.token, *below], [*tree.parent, node, node], [0.0] * (len(tree) + 2)]
                tree = DraftTree.of(*columns, "draft")
        taken = independent(tree, lambda node: FLAT, lambda node: STEEP, script)
        return (*(int(tree.token[node]) for node in taken.accepted), taken.bonus)

    assert_exact(distribution_of(step), TARGET, 3)


# What a walk tells


def test_draws_without_replacement_are_different_tokens_and_no_more_than_there_are():
    probs = _distribution((1, 0, 2))
    assert {
        tuple(sorted(drawn)) for drawn in distribution_of(lambda s: tuple(draw_without_replacement(probs, 3, s)))
    } == {(0, 2)}
    assert distribution_of(lambda s: tuple(draw_independent(probs, 2, s)))[2, 2] == Fraction(4, 9)


def test_a_copy_of_a_rejected_sibling_never_stands():
    """So nothing need be drafted below it."""
    tree = DraftTree.of([ROOT, 1, 1], [-1, 0, 0], [0.0] * 3, "draft")
    ways = distribution_of(
        lambda s: tuple(t.accepted for t in independent(tree, lambda _: FLAT, lambda _: STEEP, s).trials)
    )
    assert ways == {(True,): Fraction(5, 12), (False, False): Fraction(7, 12)}


def test_a_walk_tells_every_trial_and_the_distribution_the_bonus_came_from():
    tree = DraftTree.of([ROOT, 1, 0, 2], [-1, 0, 0, 1], [0.0] * 4, "draft")
    taken = without_replacement(tree, lambda _: FLAT, lambda _: STEEP, Script((1,)))
    assert [(trial.node, trial.target, trial.against, trial.accepted) for trial in taken.trials] == [
        (1, Fraction(1, 4), Fraction(3, 5), False),
        (2, Fraction(1, 7), Fraction(1, 2), True),
    ]
    assert (taken.accepted, taken.bonus, taken.residual.tolist()) == ((2,), 0, FLAT.tolist())


class Never(Script):
    """Accepts nothing, where floats leave a chance of it."""

    def accepts(self, probability) -> bool:
        return False

    def draws(self, probs) -> int:
        return 0


def test_equal_distributions_never_leave_nothing_to_draw_from():
    tree, probs = DraftTree.of([ROOT, 1], [-1, 0], [0.0] * 2, "draft"), np.array([0.1, 0.9])
    for rule in (recursive_rejection, rejection_without_replacement):
        assert rule(tree, lambda _: probs, lambda _: probs, lambda _: Never(())).residual.tolist() == probs.tolist()
