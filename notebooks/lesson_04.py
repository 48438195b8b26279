"""Lesson 4: distributions, scripts that enumerate a rule, and the tests of its exercises."""

from fractions import Fraction
from itertools import pairwise
from math import prod

import numpy as np
import pandas as pd
import plotly.express as px
import torch

from speclab.course import check


def transformed(logits, temperature=1.0, top_k=None, top_p=1.0):
    """The distribution [V] to sample from, as float64."""
    probs = (logits.double() / temperature).softmax(-1)
    order = probs.argsort(descending=True)
    ahead = probs[order].cumsum(0) - probs[order]  # the mass of all tokens that are more probable
    late = torch.arange(len(order)) >= (top_k or len(order))
    probs[order[(ahead >= top_p) | late]] = 0
    return (probs / probs.sum()).numpy()


def bars(tokenizer, probs, tokens):
    """The probabilities of some tokens, by name of the distribution."""
    words = [repr(tokenizer.decode([token])) for token in tokens]
    columns = {name: each[tokens].astype(float) for name, each in probs.items()}
    labels = {"index": "token", "value": "probability", "variable": ""}
    return px.bar(pd.DataFrame(columns, index=words), barmode="group", labels=labels, height=300)


class Script:
    """An rng whose outcomes are known: a path through the tree of all outcomes.

    It follows its list of outcomes, then always takes the first possible one, and remembers each turn.
    """

    def __init__(self, outcomes):
        self.outcomes = list(outcomes)
        self.turns = []

    def draws(self, probs):
        """The next outcome, a token."""
        turn = len(self.turns)
        self.turns.append(probs)
        if turn == len(self.outcomes):
            self.outcomes.append(self._possible(turn, 0))
        return self.outcomes[turn]

    def accepts(self, probability):
        """Yes or no: outcome 1 or 0."""
        yes = min(1, probability)
        return self.draws([1 - yes, yes]) == 1

    def probability(self):
        """That of the path: the product along it."""
        return prod((probs[outcome] for probs, outcome in zip(self.turns, self.outcomes)), start=Fraction(1))

    def next(self):
        """The script of the next path; None after the last."""
        for turn in reversed(range(len(self.turns))):
            outcome = self._possible(turn, self.outcomes[turn] + 1)
            if outcome is not None:
                return Script([*self.outcomes[:turn], outcome])
        return None

    def _possible(self, turn, start):
        """The first outcome from `start` on that has a probability."""
        probs = self.turns[turn]
        for outcome in range(start, len(probs)):
            if probs[outcome] > 0:
                return outcome
        return None


def _tenths(parts):
    return np.array([Fraction(part) / 10 for part in parts])


def _parts(random, count):
    """A random distribution of whole tenths, often with zeros."""
    cuts = [0, *sorted(random.choices(range(11), k=count - 1)), 10]
    return [high - low for low, high in pairwise(cuts)]


def A(answer, seed=0):
    """The residual, as exact fractions."""

    def without_floats(answer, p, q):
        result = answer(p, q)
        assert not [x for x in result if isinstance(x, float)], f"expected exact fractions, got {result}"
        return result

    def world(random):
        count = random.randint(2, 6)
        p = _parts(random, count)
        q = _parts(random, count)
        lacking = [max(0, high - low) for high, low in zip(p, q)]
        total = sum(lacking)
        expected = [Fraction(part, total) for part in lacking] if total else _tenths(p)
        return _tenths(p), _tenths(q), expected

    tenths = [
        ((5, 3, 2), (2, 6, 2), (10, 0, 0)),
        ((1, 2, 3, 4), (4, 3, 2, 1), (0, 0, Fraction(5, 2), Fraction(15, 2))),
        ((4, 3, 3), (1, 2, 7), (Fraction(15, 2), Fraction(5, 2), 0)),
        ((2, 8), (8, 2), (0, 10)),
        ((10, 0), (0, 10), (10, 0)),
        ((7, 3), (7, 3), (7, 3)),
        ((1, 1, 1, 3, 4), (2, 1, 0, 3, 4), (0, 0, 10, 0, 0)),
    ]
    cases = [(_tenths(p), _tenths(q), _tenths(expected)) for p, q, expected in tenths]
    check("A", answer, cases, through=without_floats, worlds=world, seed=seed)


def _recursive(p, q, candidates, rng):
    for token in candidates:
        if rng.accepts(p[token] / q[token]):
            return token, True
        p = np.maximum(p - q, 0) if (p != q).any() else p
        p = p / p.sum()
    return rng.draws(p), False


def B(answer, distribution_of, seed=0):
    """Every script of the rule, with independent samples from q as candidates."""

    def outcomes(rule, p, q, count):
        def on_samples(rng):
            candidates = [rng.draws(q) for _ in range(count)]
            before = list(candidates)
            token, accepted = rule(p, q, candidates, rng)
            assert candidates == before, f"the rule changed its candidates {before}"
            return int(token), bool(accepted)

        found = distribution_of(on_samples)
        return {
            "distribution of the token": [found[token, True] + found[token, False] for token in range(len(p))],
            "how often a candidate is accepted": sum(prob for (_, accepted), prob in found.items() if accepted),
        }

    def case(p, q, count):
        """What comes out has the distribution p; candidates are accepted as often as by the course's rule."""
        p = _tenths(p)
        q = _tenths(q)
        expected = outcomes(_recursive, p, q, count)
        expected["distribution of the token"] = p
        return p, q, count, expected

    def world(random):
        size, count = random.choice(((2, 3), (2, 4), (3, 2), (3, 3), (4, 2)))
        return case(_parts(random, size), _parts(random, size), random.randint(0, count))

    cases = []
    for p, q in [((5, 3, 2), (2, 6, 2)), ((1, 2, 7), (6, 3, 1)), ((5, 5, 0), (2, 4, 4)), ((3, 7, 0), (3, 7, 0))]:
        for count in range(4):
            cases.append(case(p, q, count))
    cases += [case((1, 4, 3, 2), (4, 1, 2, 3), 2), case((4, 6), (7, 3), 5)]
    check("B", answer, cases, through=outcomes, worlds=world, seed=seed)


def C(answer, distribution_of, seed=0):
    """The total variation, counted over every script of the rule."""

    def case(p, q):
        def rule(rng):
            return _recursive(p, q, [int(q.argmax())], rng)[0]

        counted = distribution_of(rule)
        return p, q, sum(abs(counted[token] - p[token]) for token in range(len(p))) / 2

    def world(random):
        """The draft has one most probable token."""
        size = random.randint(2, 6)
        q = [0, 0]
        while sorted(q)[-1] == sorted(q)[-2]:
            q = _parts(random, size)
        return case(_tenths(_parts(random, size)), _tenths(q))

    cases = [case(_tenths((5, 3, 2)), _tenths((2, 6, 2))), case(_tenths((1, 2, 7)), _tenths((6, 3, 1)))]
    cases += [case(_tenths((0, 10)), _tenths((10, 0))), case(_tenths((2, 8)), _tenths((4, 6)))]
    cases.append(case(_tenths((1, 2, 3, 4)), _tenths((2, 5, 2, 1))))
    for p in ((3, 3, 2), (1, 5, 2), (3, 2, 3)):
        for q in ((2, 5, 1), (1, 2, 5), (5, 1, 2)):
            cases.append(case(np.array(p) * Fraction(1, 8), np.array(q) * Fraction(1, 8)))
    check("C", answer, cases, worlds=world, seed=seed)
