"""Verification by paths: texts, caches, forks, sampling and heads of families without a tree mask."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from support.heads import random_head
from support.pairs import PROMPT, library_text, noisy
from support.records import assert_consistent, ran
from support.refusals import refused
from support.tiny import BY_PATHS, tiny

import speclab
from speclab.errors import UnsupportedModelError
from speclab.models.runner import Runner
from speclab.pair import ModelPair

TEXT = [token % 64 for token in PROMPT]
STRATEGIES = (
    speclab.DynaTree(node_budget=8, stop_probability=0.0, prune_probability=0.0),
    speclab.LinearSpeculation(draft_tokens=3),
    speclab.Goose(node_budget=8),
    speclab.Lookahead(window=4, ngram=3, guesses=4),
    speclab.SequoiaTree(node_budget=6),
    speclab.DraftHead(node_budget=6, head=0),
)
every_family = pytest.mark.parametrize("family", BY_PATHS)


@cache
def pair_of(family: str, vocab: int = 64) -> ModelPair:
    target = tiny(family, vocab=vocab)
    heads = random_head(target) if hasattr(target, "lm_head") else None
    return speclab.load_pair(target=target, draft=noisy(target, 0.02), heads=heads)


def assert_holds(runner: Runner, text: list[int]) -> None:
    """The cache predicts what one pass over the text from an empty cache does, and stays as it is."""
    fresh = runner.fork()
    torch.testing.assert_close(
        runner.fork(runner.length).extend(text[runner.length : runner.length + 1]),
        fresh.extend(text[: runner.length + 1]),
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.wide
@every_family
@pytest.mark.parametrize("turn", range(2))
def test_texts_caches_and_forks_of_every_family(family, turn):
    """The draft head reads the states of a hybrid."""
    strategy = STRATEGIES[(BY_PATHS.index(family) + 4 + turn) % len(STRATEGIES)]
    pair = pair_of(family)
    session = speclab.Session(pair, strategy, TEXT, max_new_tokens=16)
    while not session.done:
        step = session.step()
        assert_consistent(step)
        assert sorted({row for path in step.paths for row in path}) == [
            *range(len(step.nodes) + len(step.extra))
        ]
        assert_holds(session.pair.target, session.prompt_ids + session.token_ids)
    text = library_text(pair.target.model, TEXT, 16)
    assert session.token_ids == text
    for at in (1, len(session.steps) - 1):
        fork = session.fork(at=at)
        fork.step()
        assert_holds(fork.pair.target, fork.prompt_ids + fork.token_ids)
        fork.run()
        assert fork.token_ids == text


def test_a_pass_costs_rows_of_paths_and_one_more_for_what_is_kept():
    runner = pair_of("mamba2").target.fork()
    runner.extend(TEXT)
    rows, calls = runner.rows, runner.calls
    seen = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], dtype=bool)
    start = len(TEXT)
    runner.logits([3, 4, 5, 6], [start, start + 1, start + 1, start + 2], seen)
    assert runner.paths == ((0, 2), (0, 1, 3))
    assert (runner.rows - rows, runner.calls - calls) == (6, 1)  # two paths of three, padded
    runner.keep(start, [start, start + 2])
    assert (runner.rows - rows, runner.calls - calls) == (8, 2)
    assert_holds(runner, [*TEXT, 3, 5, 9])


def test_rows_that_see_no_path_are_refused_and_the_cache_stays():
    runner = pair_of("mamba2").target.fork()
    runner.extend(TEXT)
    seen = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=bool)
    with refused(UnsupportedModelError, "path"):
        runner.logits([3, 4, 5], [len(TEXT), len(TEXT) + 1, len(TEXT) + 1], seen)
    assert runner.length == len(TEXT)
    assert_holds(runner, [*TEXT, 9])


@pytest.mark.parametrize("family", ["falcon_h1", "mamba"])
def test_a_hybrid_drafts_for_another_target(family):
    target = tiny("llama")
    pair = speclab.load_pair(target=target, draft=tiny(family, seed=2))
    for strategy in STRATEGIES[:2]:
        drafted = speclab.generate(pair, strategy, TEXT, max_new_tokens=10, check=True)
        assert drafted.token_ids == library_text(target, TEXT, 10)


def test_what_if_and_the_clinic_read_a_hybrids_steps():
    pair = pair_of("falcon_h1")
    session = ran(pair, STRATEGIES[0], TEXT, max_new_tokens=12)
    assert speclab.clinic.check(session) == ()
    replayed = speclab.replay(session, speclab.LinearSpeculation(draft_tokens=2))
    assert replayed.passes
