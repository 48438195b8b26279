"""Hypothesis strategies that several tests share."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from speclab.tree import DraftTree


@st.composite
def draft_trees(draw, max_nodes=12, vocab=64):
    """Any breadth-first tree of 1 to `max_nodes` nodes: chain, star or bush; siblings carry
    different tokens.

    Log-probs are those of a random distribution over each node's children: their probabilities sum
    to less than one.
    """
    n = draw(st.integers(1, max_nodes))
    parents = [-1]
    for node in range(1, n):
        # In breadth-first order parents never go back, and a token has room for at most `vocab`
        # siblings.
        low = max(parents[-1], 0)
        low += parents.count(low) >= vocab
        parents.append(draw(st.integers(low, node - 1)))
    tokens = _tokens(parents, draw(st.randoms(use_true_random=False)), vocab)
    weights = draw(st.lists(st.floats(0.01, 1.0), min_size=n, max_size=n))
    return DraftTree.of(tokens, parents, _log_probs(parents, weights), "random")


def token_lists(min_size=1, max_size=24, vocab=64):
    """Random prompts as token ids."""
    return st.lists(st.integers(0, vocab - 1), min_size=min_size, max_size=max_size)


def _tokens(parents, random, vocab):
    tokens: list[int] = []
    for node, parent in enumerate(parents):
        taken = {tokens[other] for other in range(node) if parents[other] == parent}
        tokens.append(random.choice([token for token in range(vocab) if token not in taken]))  # type: ignore[attr-defined]
    return tokens


def _log_probs(parents, weights):
    share = np.array(weights)
    for parent in set(parents):
        siblings = np.flatnonzero(np.array(parents) == parent)
        share[siblings] /= share[siblings].sum() * 1.05
    share[0] = 1.0
    return [float(value) for value in np.log(share)]
