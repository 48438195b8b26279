"""The law from which the target drew its own token, where a sampled walk stopped: what acceptance had left of it."""

from __future__ import annotations

import numpy as np

from speclab.acceptance import Probabilities, without
from speclab.decoding import Decoding, Iteration
from speclab.sampling import probabilities
from speclab.shares import Residual, Share, Try

TOP = 6
"""Tokens kept: so many of the likeliest for the target, before and after, and every candidate."""


def residual(decoding: Decoding, iteration: Iteration) -> Residual | None:
    """None at temperature 0, and where the text ended before the target drew."""
    outcome = iteration.outcome
    if decoding.settings.temperature == 0 or len(outcome.committed) == len(outcome.accepted):
        return None
    node = _stop(iteration)
    candidates = [0] if node is None else list(outcome.tree.children[node])
    tokens = [int(token) for token in outcome.tree.token[candidates]]
    logits = iteration.verification.root_logits if node is None else iteration.verification.logits[node]
    assert logits is not None
    before = probabilities(logits, decoding.settings)
    after = iteration.walk.residual
    if after is None:  # the target drew once, and no candidate carries what it drew
        after = before
        for token in tokens:
            after = without(after, token)
    draft = None if node is None else iteration.draft.laws.get(node)
    kept = {*_likeliest(before), *_likeliest(after), *tokens, outcome.committed[-1]}
    shares = (
        Share(token, float(after[token]), float(before[token]), None if draft is None else float(draft[token]))
        for token in sorted(kept, key=lambda token: (-before[token], token))
    )
    tries = (trial for trial in iteration.walk.trials if trial.node in candidates and not trial.accepted)
    return Residual(node, tuple(shares), tuple(Try(one.node, float(one.target), float(one.against)) for one in tries))


def _stop(iteration: Iteration) -> int | None:
    """The node after which the target drew; None before a drafted root."""
    if iteration.outcome.accepted:
        return iteration.outcome.accepted[-1]
    return 0 if iteration.verification.root_choice is None else None


def _likeliest(law: Probabilities) -> list[int]:
    least = np.partition(law, -min(TOP, len(law)))[-min(TOP, len(law))]
    best = np.flatnonzero((law >= least) & (law > 0))  # no sorting of a whole vocabulary
    return [int(token) for token in best[np.argsort(-law[best], kind="stable")][:TOP]]
