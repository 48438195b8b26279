"""What holds for every strategy that drafts without a model: one pass an iteration, no more work for a longer text."""

from __future__ import annotations

from functools import cache

import pytest
from counted import Counted
from records import assert_consistent
from table_runner import mixed_probs, random_probs, table_pair

import speclab
from speclab.drafters.base import Context, Strategy

FREE: dict[str, Strategy] = {
    "prompt lookup": speclab.PromptLookup(),
    "token recycling, carried": speclab.TokenRecycling(node_budget=13, carry="carried"),
    "isotropic": speclab.IsotropicTree(node_budget=13),
    "goose": speclab.Goose(node_budget=16, carry="carried"),
    "goose, paper's bypass": speclab.Goose(node_budget=16, bypass_acceptance=0),
    "goose, spine of transitions": speclab.Goose(node_budget=16, bypass="off", spine="transitions", bigrams=False),
    "lookahead": speclab.Lookahead(window=4, ngram=4, guesses=4),
    "sequoia": speclab.SequoiaTree(node_budget=13, depth=3),
}
every_strategy = pytest.mark.parametrize("strategy", FREE.values(), ids=FREE)

VOCAB = 12
PROBS = mixed_probs(random_probs(VOCAB, 3), lambda path: random_probs(VOCAB, 4)(path[-2:]), 0.8)
NEW = 40
PROMPT = [5, 9, 2, 4, 3, 7, 7, 1, 5, 9, 2, 4, 3]


def lone():
    return table_pair(PROBS, None, VOCAB)


@cache
def own_text() -> list[int]:
    return speclab.generate(lone(), speclab.Autoregressive(), PROMPT, max_new_tokens=NEW).token_ids


# Passes and reads


@every_strategy
def test_an_iteration_is_one_target_call_over_the_tree_and_its_extra_rows_and_no_draft_call(strategy):
    """Where drafts are often right; a draft model that is there is not asked."""
    pair = table_pair(PROBS, random_probs(VOCAB, 9), VOCAB)
    session = speclab.Session(pair, strategy, PROMPT, max_new_tokens=NEW)
    target = session.pair.target
    assert target.calls == 1
    while not session.done:
        calls, rows = target.calls, target.rows
        step = session.step()
        assert_consistent(step)
        assert (target.calls - calls, target.rows - rows) == (1, len(step.tree) + len(step.extra))
        assert (step.counts.target_calls, step.counts.draft_calls) == (1, 0)
    assert session.pair.draft.calls == session.metrics.draft_calls == 0
    assert session.token_ids == own_text()
    assert len({len(step.accepted) for step in session.steps}) >= 3
    assert session.metrics.tokens_per_iteration > 1.2


@every_strategy
def test_no_draft_reads_more_of_a_longer_text(strategy):
    drafter, text = strategy.drafter(lone()), Counted([1, 2, 3, 4, 5, 6, 7, 8] * 512)
    drafter.draft(Context(text, 1000, lambda: None))
    for token in (1, 2, 3):
        text.append(token)
        Counted.read = 0
        drafter.draft(Context(text, 1000, lambda: None))
        assert Counted.read <= 80
