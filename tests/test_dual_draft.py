"""Two drafters: the text is the target's own, and both stand on it after every step, whichever was chosen."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from dual_pairs import MODES, PROMPT, SMALL, VOCAB, models_of, pair_of
from records import assert_consistent, assert_same
from table_runner import mixed_law, random_law, table_pair
from tiny import tiny

import speclab
from speclab.models.heads import HeadRunner
from speclab.models.runner import Runner

FAMILIES = ("gpt_neox", "llama", "gpt2", "opt", "mistral", "gemma3_text")


@cache
def own_text(family: str, count: int = 24) -> list[int]:
    plain = speclab.Autoregressive()
    return speclab.generate(
        speclab.load_pair(target=tiny(family, vocab=VOCAB)), plain, PROMPT, max_new_tokens=count
    ).token_ids


def assert_cache_is_fresh(runner, target, text: list[int]) -> None:
    """Keys and values as one pass over the committed text leaves them."""
    if isinstance(runner, HeadRunner):
        states = target(torch.tensor([text]), output_hidden_states=True).hidden_states
        fresh = HeadRunner(runner.model, Runner(target))
        seen = torch.cat([states[layer][0] for layer in runner.config.layers], dim=-1)[: runner.length].detach()
        fresh.extend(text[1 : runner.length + 1], seen)
    else:
        fresh = Runner(runner.model)
        fresh.extend(text[: runner.length])
    for layer, other in zip(runner.cache.layers, fresh.cache.layers, strict=True):
        torch.testing.assert_close(layer.keys, other.keys, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(layer.values, other.values, rtol=1e-3, atol=1e-3)


@pytest.mark.model
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pair_for", [pair_of, models_of], ids=["heads", "models"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_text_is_the_targets_own_and_both_parts_stand_on_it(family, pair_for, mode):
    """After every step each part's cache is a fresh pass over the committed text, whichever was chosen."""
    session = speclab.Session(pair_for(family), speclab.DualDraft(mode=mode, **SMALL), PROMPT, max_new_tokens=24)
    target = session.pair.target.model
    while not session.done:
        step = session.step()
        assert_consistent(step)
        text = session.prompt_ids + session.token_ids
        for place, runner in enumerate(session.pair.heads):
            if mode == ("first", "second")[1 - place]:
                assert runner.length == runner.calls == 0, "the other part is not run"
                continue
            assert runner.length >= step.prefix_length
            assert_cache_is_fresh(runner, target, text)
    assert session.token_ids == own_text(family)
    assert session.metrics.counts.accepted > 0


@pytest.mark.model
@pytest.mark.parametrize("pair_for", [pair_of, models_of], ids=["heads", "models"])
def test_a_part_that_did_not_run_for_long_proposes_as_if_it_had(pair_for):
    first = speclab.Session(pair_for("llama"), speclab.DualDraft(mode="first", **SMALL), PROMPT, max_new_tokens=24)
    for _ in range(5):
        first.step()
    late = first.fork(mode="second").step()
    text = first.prompt_ids + first.token_ids
    second = speclab.DualDraft(mode="second", **SMALL)
    fresh = speclab.Session(pair_for("llama"), second, text[:-1], max_new_tokens=9).step()
    assert late.prefix_length == fresh.prefix_length > len(PROMPT)
    assert_same(late.tree.token, fresh.tree.token)
    assert late.tree.log_prob == pytest.approx(fresh.tree.log_prob, abs=1e-3)


@pytest.mark.model
def test_an_iteration_is_one_target_pass_and_a_pass_a_level_for_each_part():
    session = speclab.Session(pair_of("llama"), speclab.DualDraft(**SMALL), PROMPT, max_new_tokens=24)
    session.run()
    assert session.metrics.target_calls == 1 + session.metrics.iterations
    for step in session.steps:
        deepest = sum(int(one.tree.depth.max()) for one in step.proposals)
        assert deepest <= step.counts.draft_calls <= 2 * SMALL["depth"]
        assert [cache.name for cache in step.caches] == ["target", "prose", "code"]


PARTS = {
    "model and copies": {"first": speclab.DynaTree(), "second": speclab.PromptLookup()},
    "tables": {"first": speclab.TokenRecycling(node_budget=13), "second": speclab.Goose(node_budget=20)},
    "with extra rows": {"first": speclab.Lookahead(), "second": speclab.Lookahead(window=4)},
    "best first and fixed": {"first": speclab.DraftHead(**SMALL), "second": speclab.TokenRecycling()},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_any_two_strategies(parts, mode):
    law = random_law(8, 1, low=0.5, high=2.0)
    pair = table_pair(law, mixed_law(law, random_law(8, 2), 0.2), 8)
    plain = speclab.generate(pair, speclab.Autoregressive(), [1, 2, 3], max_new_tokens=40)
    session = speclab.Session(pair, speclab.DualDraft(mode=mode, **parts), [1, 2, 3], max_new_tokens=40)
    while not session.done:
        assert_consistent(session.step())
        for runner in session.pair.runners.values():
            text = session.prompt_ids + session.token_ids
            assert runner.tokens == text[: runner.length]
    assert session.token_ids == plain.token_ids
    assert session.metrics.counts.accepted > 0


@pytest.mark.parametrize("mode", ["route", "merge"])
def test_what_the_parts_learned_comes_back_with_the_session(mode):
    """Going back and forking gives the same steps as never having gone on."""
    law = random_law(8, 1, low=0.5, high=2.0)
    strategy = speclab.DualDraft(mode=mode, first=speclab.TokenRecycling(), second=speclab.DynaTree(base_depth=2))
    session = speclab.Session(table_pair(law, law, 8), strategy, [1, 2, 3], max_new_tokens=40)
    session.run()
    fork = session.fork(at=3)
    fork.run()
    assert fork.token_ids == session.token_ids
    for one, other in zip(fork.steps, session.steps, strict=True):
        assert_same(one.tree, other.tree)
        assert one.settings == other.settings
    assert len({step.settings["second"] for step in session.steps}) > 1, "DynaTree adapted, and the record says so"
