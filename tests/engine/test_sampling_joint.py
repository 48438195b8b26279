"""Whole texts of four tokens out of three, 81 outcomes, under every strategy: their joint
distribution is the target's.

A distribution of single tokens would not show random numbers that are used again in the next step;
the joint one does.
"""

from collections import Counter

import numpy as np
import pytest
from support.distributions import assert_drawn_from, logits_of, text_distribution
from support.table_runner import mixed_probs, random_probs, table_pair
from support.variants import DRAWN, VARIANTS

import speclab
from speclab.engine.acceptance import block_verification, recursive_rejection
from speclab.tree import DraftTree

VOCAB = 3
LENGTH = 4
PROMPT = [1, 0, 2]
TARGET = random_probs(VOCAB, 1, low=0.3, high=0.8)
PAIR = table_pair(
    TARGET, mixed_probs(TARGET, random_probs(VOCAB, 2, low=0.5, high=1.5), 0.7), VOCAB
)
WARM = {"temperature": 1.2}
CUT = {"temperature": 1.5, "top_k": 2, "top_p": 0.8}
PROBS = text_distribution(logits_of(TARGET, PROMPT), LENGTH, **WARM)
NEED_HEADS = {"DDTree", "DraftHead", "DualDraft"}
"""Tables have no heads; the trees of heads are sampled in test_drafting_heads.py."""
BEFOREHAND = VARIANTS | {
    name: kind() for name, kind in speclab.strategies().items() if name not in NEED_HEADS
}
"""Strategies whose candidates are chosen before the target draws."""


def texts(strategy, runs, settings=WARM):
    return [
        tuple(
            speclab.generate(
                PAIR, strategy, PROMPT, max_new_tokens=LENGTH, seed=seed, **settings
            ).token_ids
        )
        for seed in range(runs)
    ]


PLAIN = {
    name: texts(speclab.Autoregressive(), 12, settings)
    for name, settings in (("warm", WARM), ("cut", CUT))
}


@pytest.mark.parametrize("strategy", BEFOREHAND.values(), ids=BEFOREHAND)
def test_candidates_chosen_beforehand_change_no_token_of_any_text(strategy):
    """Then their joint distribution is plain sampling's, too; cut by top-k and top-p as well."""
    assert texts(strategy, 12) == PLAIN["warm"]
    assert texts(strategy, 12, CUT) == PLAIN["cut"]


SAMPLED = {
    "one drawn token": speclab.LinearSpeculation(draft_tokens=1, candidates="independent"),
    **{
        name: DRAWN[name]
        for name in ("drawn chain", "drawn block", "independent tree", "tree without replacement")
    },
}


@pytest.mark.parametrize("strategy", SAMPLED.values(), ids=SAMPLED)
def test_sampling_has_the_joint_distribution(strategy):
    assert_drawn_from(Counter(texts(strategy, 400)), PROBS)


class Numbers:
    """The random numbers of one position, always the same ones, as of `PositionalRng`."""

    def __init__(self, numbers):
        self._numbers = iter(numbers)

    def accepts(self, probability):
        return next(self._numbers) < probability

    def draws(self, probs):
        return int(np.searchsorted(np.cumsum(probs), next(self._numbers), side="right"))


@pytest.mark.parametrize("rule", [block_verification, recursive_rejection])
def test_many_texts_of_short_chains_have_the_joint_distribution(rule):
    """Four tokens of two, in chains of two: a number that decides twice shows in what follows it."""
    target = np.array([[0.4, 0.6], [0.6, 0.4]])  # after each token
    draft = np.array([[0.9, 0.1], [0.1, 0.9]])
    runs = 12_000
    numbers = np.random.default_rng(0).random((2, runs, LENGTH + 2, 4))  # of drafts, of acceptance
    counts = Counter()
    for run in range(runs):
        text = [0]
        while len(text) <= LENGTH:
            root = len(text) - 1
            drawn = Numbers(numbers[0, run, root])
            path = [text[-1]]
            for _ in range(2):
                path.append(drawn.draws(draft[path[-1]]))
            taken = rule(
                DraftTree.of(path, range(-1, 2), [0.0] * 3, "draft"),
                lambda node, path=path: target[path[node]],
                lambda node, path=path: draft[path[node]],
                lambda node, run=run, root=root: Numbers(numbers[1, run, root + node]),
            )
            text += [*path[1 : len(taken.accepted) + 1], taken.bonus]
        counts[tuple(text[1 : LENGTH + 1])] += 1
    probs = text_distribution(
        lambda text: np.log(target[(0, *text)[-1]]).tolist(), LENGTH, temperature=1
    )
    assert_drawn_from(counts, probs)
