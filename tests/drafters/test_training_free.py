"""What holds for every strategy that drafts without a model: on a target loaded alone, the target's own text."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from counted import Counted
from pairs import library_text
from records import assert_consistent, assert_same
from table_runner import TableRunner, mixed_probs, random_probs, table_pair
from tiny import tiny

import speclab
from speclab.drafters.base import Context, Strategy

FREE: dict[str, Strategy] = {
    "prompt lookup": speclab.PromptLookup(budget="fixed"),
    "token recycling, carried": speclab.TokenRecycling(node_budget=13, carry="carried"),
    "isotropic": speclab.IsotropicTree(node_budget=13),
    "goose": speclab.Goose(node_budget=16, carry="carried", bigram_entries=7),
    "goose, paper's bypass": speclab.Goose(node_budget=16, bypass_acceptance=0),
    "goose, no bypass": speclab.Goose(node_budget=16, bypass="off", schedule="optimal"),
    "goose, authors' code": speclab.Goose.of_authors_code().changed(node_budget=24),
    "goose, by levels": speclab.Goose(node_budget=16, filling="breadth", scores="kept", depth_from="root"),
    "goose, by degrees": speclab.Goose(node_budget=24, bypass="gradual", reserved_share=0.4, extended_spine=20),
    "goose, sure occurrences": speclab.Goose(
        node_budget=16, consensus="occurrences", statistic="spine", pick="first", extended_spine=12
    ),
    "isotropic, from the table": speclab.IsotropicTree(node_budget=14, copies=False),
    "goose, spine of transitions": speclab.Goose(node_budget=16, bypass="off", spine="transitions"),
    "lookahead": speclab.Lookahead(window=4, ngram=4, guesses=4),
}
every_strategy = pytest.mark.parametrize("strategy", FREE.values(), ids=FREE)

VOCAB = 12
PROBS = mixed_probs(random_probs(VOCAB, 3), lambda path: random_probs(VOCAB, 4)(path[-2:]), 0.8)
NEW = 40
PROMPT = [5, 9, 2, 4, 3, 7, 7, 1, 5, 9, 2, 4, 3]


def lone(probs=PROBS):
    return table_pair(probs, None, VOCAB)


def session_of(strategy: Strategy, **settings) -> speclab.Session:
    return speclab.Session(lone(), strategy, PROMPT, **({"max_new_tokens": NEW} | settings))


@cache
def own_text(**settings) -> list[int]:
    return speclab.generate(lone(), speclab.Autoregressive(), PROMPT, max_new_tokens=NEW, **settings).token_ids


# Exact


@pytest.mark.model
@every_strategy
@pytest.mark.parametrize("family", ["gpt_neox", "mistral"])
def test_a_target_alone_gives_its_own_text(family, strategy):
    """On random models that were loaded without a draft, over a prompt with repeats; the library's own greedy text."""
    pair, prompt = alone(family), [5, 9, 2, 40, 33, 7, 7, 1, 60, 22] * 2
    assert pair.draft is None
    session = speclab.Session(pair, strategy, prompt, max_new_tokens=24)
    session.run()
    assert session.token_ids == library_text(pair.target.model, prompt, 24)


@cache
def alone(family: str) -> speclab.ModelPair:
    return speclab.load_pair(target=tiny(family, seed=2))


@every_strategy
@pytest.mark.parametrize("sampling", [{"temperature": 1.5, "top_p": 0.8}, {"temperature": 1, "top_k": 3}])
def test_a_sampled_text_is_that_of_plain_sampling(strategy, sampling):
    for seed in range(2):
        assert speclab.generate(lone(), strategy, PROMPT, max_new_tokens=40, seed=seed, **sampling).token_ids == (
            speclab.generate(
                lone(), speclab.Autoregressive(), PROMPT, max_new_tokens=40, seed=seed, **sampling
            ).token_ids
        )


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
        assert Counted.read <= 6


# What is learned, in time


@every_strategy
@pytest.mark.parametrize("where", ["verify", "update", "record"])
def test_an_iteration_that_fails_is_done_again_just_the_same(strategy, where, monkeypatch):
    """In the pass, in the midst of the harvest, after it: tables, rates and index are as they were before it."""
    whole, session = session_of(strategy), session_of(strategy)
    whole.run()
    failed = 0
    while not session.done:
        before = session.trace
        with monkeypatch.context() as patch:
            if where == "verify":
                session.pair.target.fuse = 1
            elif where == "update":
                patch.setattr("speclab.sources.transitions.TransitionTable._count", _interrupt)
                patch.setattr("speclab.drafters.lookahead.Adaptation", _interrupt)
            else:
                patch.setattr("speclab.engine.session.record", _interrupt)
            try:
                session.step()
            except KeyboardInterrupt:
                failed += 1
                assert_same(session.trace, before)
            session.pair.target.fuse = None
        if not session.done:
            session.step()
    assert failed > 5 or (where == "update" and isinstance(strategy, speclab.PromptLookup))
    for mine, its in zip(whole.steps, session.steps, strict=True):
        assert_same(mine.tree, its.tree)
        assert mine.adaptation == its.adaptation


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_table_that_is_too_large_is_hashed_and_the_record_says_so():
    """A vocabulary of 150,000 under a bound of 1 MiB: the same text, and a table within its bound."""
    wide = 150_000
    runner = TableRunner(lambda path: _padded(PROBS(path), wide), wide)
    pair = speclab.models.pair.ModelPair(runner, name="wide")
    for megabytes, kind in ((1, "hashed"), (64, "dense")):
        strategy = speclab.Goose(node_budget=8, table_megabytes=megabytes)
        session = speclab.Session(pair, strategy, PROMPT, max_new_tokens=8)
        session.run()
        values = next(event for event in session.steps[-1].events if event.kind == "route").values
        assert session.token_ids == own_text()[:8]
        assert values["table"] == kind
        assert values["table_bytes"] <= megabytes << 20
        assert values["table_rows"] > 5


def _padded(probs, wide):
    padded = torch.zeros(wide, dtype=torch.float64)
    padded[: len(probs)] = torch.as_tensor(probs)
    return padded.numpy()
