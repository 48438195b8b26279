"""The acceptance rules under every outcome of chance, in fractions: text has the target's exact distribution."""

import itertools
from collections import defaultdict
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclab.engine.acceptance import (
    block_verification,
    recursive_rejection,
    rejection_without_replacement,
    sample_and_match,
)
from speclab.sampling import draw_independent, draw_without_replacement
from speclab.tree import DraftTree

VOCAB = 3
ROOT = 9
Probs = np.ndarray
"""Of `Fraction`s, dtype object."""
Tables = dict[tuple[int, ...], Probs]
"""The distribution of the next token after each path of tokens below the root."""


class Script:
    """An rng that takes one given way, and notes where else it could have gone."""

    def __init__(self, way):
        self._way = way
        self._taken = ()
        self.weight = Fraction(1)
        self.others = []

    def accepts(self, probability):
        return self._go([Fraction(probability), 1 - Fraction(probability)]) == 0

    def draws(self, probs):
        assert sum(probs) == 1
        return self._go([Fraction(p) for p in probs])

    def _go(self, shares):
        assert min(shares) >= 0
        possible = [option for option, share in enumerate(shares) if share > 0]
        step = len(self._taken)
        option = self._way[step] if step < len(self._way) else possible[0]
        if step >= len(self._way):
            self.others += [(*self._taken, other) for other in possible[1:]]
        self._taken += (option,)
        self.weight *= shares[option]
        return option


def distribution_of(procedure):
    """What `procedure` returns, with the exact probability of each: it is run once for every way that it can go."""
    probs = defaultdict(Fraction)
    ways = [()]
    while ways:
        script = Script(ways.pop())
        probs[procedure(script)] += script.weight
        ways += script.others
    assert sum(probs.values()) == 1
    return dict(probs)


def match(tree, target, draft, script):
    return sample_and_match(tree, cache(lambda node: script.draws(target(node))))


def reject_independent(tree, target, draft, script):
    return recursive_rejection(tree, target, draft, lambda _: script)


def reject_without_replacement(tree, target, draft, script):
    return rejection_without_replacement(tree, target, draft, lambda _: script)


def merged(probs, count, script):
    """Any tokens, one of them twice."""
    return [1, 2, 1, 0][:count]


EXACT = {
    "merged, matched": (merged, match),
    "drawn, matched": (draw_without_replacement, match),
    "independent draws": (draw_independent, reject_independent),
    "draws without replacement": (draw_without_replacement, reject_without_replacement),
}


def drafted(shape, draft, draws, script):
    """A tree of this shape: a node with k children gets k samples of the draft's distribution, or all there are."""
    tree = DraftTree.root(ROOT)
    places = {0: 0}
    for parent in sorted(set(shape)):
        if parent not in places:
            continue
        children = [node + 1 for node, above in enumerate(shape) if above == parent]
        tokens = draws(draft[_path(tree, places[parent])], len(children), script)
        for child, token in zip(children, tokens, strict=False):
            places[child] = len(tree)
            columns = [
                [*tree.token, token],
                [*tree.parent, places[parent]],
                [0.0] * (len(tree) + 1),
            ]
            tree = DraftTree.of(*columns, "draft")
    return tree


def _path(tree, node):
    return tuple(tree.token[list(tree.path(node))].tolist()[1:])


def assert_exact(shape, target, draft, draws, rule, length=3):
    """With the target's own tokens after them, the committed tokens are distributed as its texts: equal fractions."""

    def step(script):
        tree = drafted(shape, draft, draws, script)
        taken = rule(
            tree,
            lambda node: target[_path(tree, node)],
            lambda node: draft[_path(tree, node)],
            script,
        )
        return (*tree.token[list(taken.accepted)].tolist(), taken.bonus)

    assert_text(distribution_of(step), target, length, VOCAB)


def assert_text(committed, target, length, vocab):
    def own(text):
        return Fraction(np.prod([target[text[:place]][token] for place, token in enumerate(text)]))

    for text in itertools.product(range(vocab), repeat=length):
        starts = [text[: place + 1] for place in range(length)]
        share = sum(
            (committed.get(start, 0) * own(text) / own(start) for start in starts if own(start)),
            Fraction(0),
        )
        assert share == own(text), f"{text}: {share} instead of {own(text)}"
    assert all(own(text) > 0 for text in committed)


@st.composite
def chains(draw):
    """A length of at most three, a token that ends a chain early (or none), a target and a draft."""
    probs = st.tuples(*[st.integers(0, 3)] * 2).filter(any).map(_probs)
    paths = [path for length in range(4) for path in itertools.product(range(2), repeat=length)]
    target, draft = ({path: draw(probs) for path in paths} for _ in range(2))
    return draw(st.integers(0, 3)), draw(st.integers(1, 2)), target, draft


@settings(max_examples=60)
@given(chains())
def test_a_block_is_exact_and_accepts_no_fewer_tokens_than_one_by_one(chain):
    """Every text of four tokens out of two, for chains that end anywhere by their own tokens."""
    length, ends, target, draft = chain
    accepted = {}
    for rule in (block_verification, recursive_rejection):

        def step(script, rule=rule):
            path = ()
            while len(path) < length and ends not in path:
                path += (script.draws(draft[path]),)
            n = len(path)
            tree = DraftTree.of([ROOT, *path], range(-1, n), [0.0] * (n + 1), "draft")
            taken = rule(
                tree,
                lambda node: target[path[:node]],
                lambda node: draft[path[:node]],
                lambda _: script,
            )
            return (*path[: len(taken.accepted)], taken.bonus)

        committed = distribution_of(step)
        assert_text(committed, target, 4, 2)
        accepted[rule] = sum(len(text) * share for text, share in committed.items())
    assert accepted[block_verification] >= accepted[recursive_rejection]


def _probs(weights):
    return np.array([Fraction(weight, sum(weights)) for weight in weights], dtype=object)


PATHS = [path for length in range(3) for path in itertools.product(range(VOCAB), repeat=length)]


@st.composite
def worlds(draw):
    """A shape (parents of nodes 1 and on, breadth-first, at most two deep), a target and a draft."""
    shape = []
    depth = [0]
    for node in range(1, draw(st.integers(1, 4)) + 1):
        parent = draw(
            st.integers(shape[-1] if shape else 0, node - 1).filter(lambda above: depth[above] < 2)
        )
        shape.append(parent)
        depth.append(depth[parent] + 1)
    probs = st.tuples(*[st.integers(0, 4)] * VOCAB).filter(any).map(_probs)
    target, draft = ({path: draw(probs) for path in PATHS} for _ in range(2))
    return shape, target, draft


@pytest.mark.parametrize("way", EXACT.values(), ids=EXACT)
@settings(max_examples=12)
@given(worlds())
def test_a_rule_keeps_the_targets_distribution_to_the_last_digit(way, world):
    assert_exact(*world, *way)


FLAT = _probs((1, 1, 2))
STEEP = _probs((1, 3, 1))


def test_a_walk_reports_every_trial_and_the_distribution_of_the_bonus():
    tree = DraftTree.of([ROOT, 1, 0, 2], [-1, 0, 0, 1], [0.0] * 4, "draft")
    taken = reject_without_replacement(tree, lambda _: FLAT, lambda _: STEEP, Script((1,)))
    assert [
        (trial.node, trial.target, trial.against, trial.accepted) for trial in taken.trials
    ] == [(1, 1 / 4, 3 / 5, False), (2, 1 / 7, 1 / 2, True)]
    assert (taken.accepted, taken.bonus, taken.residual.tolist()) == ((2,), 0, FLAT.tolist())


def test_a_block_takes_its_random_numbers_from_its_root_alone():
    """Those of a later position decide about that position again, if the block ends before it."""
    tree = DraftTree.of([ROOT, 2], [-1, 0], [0.0] * 2, "draft")
    streams = iter([Script((1, 0)), Script(()), Script((1,))])
    taken = block_verification(
        tree, lambda _: FLAT, lambda _: _probs((0, 0, 1)), lambda _: next(streams)
    )
    assert (taken.accepted, taken.bonus) == ((), 0)


@pytest.mark.parametrize("rule", [recursive_rejection, rejection_without_replacement])
def test_a_rejection_by_a_rounding_error_still_leaves_a_distribution(rule):
    class Never(Script):
        def accepts(self, probability):
            return False

        def draws(self, probs):
            return 0

    tree = DraftTree.of([ROOT, 1], [-1, 0], [0.0] * 2, "draft")
    probs = np.array([0.1, 0.9])
    assert (
        rule(tree, lambda _: probs, lambda _: probs, lambda _: Never(())).residual.tolist()
        == probs.tolist()
    )
