"""Every strategy on random models of many families: the target's own text, and caches as plain decoding leaves them."""

from __future__ import annotations

import itertools
import math

import pytest
from pairs import NOISE, PROMPT, draft_of, library_text, own_text, pair_of, run_and_check_caches, target_of
from reference.decoding import argmax, next_logits, softmax
from tiny import tiny
from variants import PATHS, VARIANTS

import speclab
from speclab.drafters.base import Strategy

pytestmark = pytest.mark.model

FAMILIES = ("gpt_neox", "llama", "qwen3", "gpt2", "opt", "mistral", "gemma3_text", "llama4_text")
PAIRS = [(family, NOISE) for family in FAMILIES] + [(f, noise) for f in ("llama", "mistral") for noise in (None, 0.0)]
"""Every family with a draft that agrees now and then; two also with a stranger (None) and with the target itself."""


# The text


@pytest.mark.parametrize("variant", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize(("family", "noise"), PAIRS)
def test_the_text_is_the_targets_own_and_the_caches_are_fresh(family, noise, variant):
    session = speclab.Session(pair_of(family, noise), variant, PROMPT, max_new_tokens=16)
    assert run_and_check_caches(session).token_ids == own_text(family, 16)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_pairs_exercise_acceptance_and_rejection(family):
    """Else the tests above would never move a cache row, or never reject one, or decode one token for ever."""
    pair, accepted, moved = pair_of(family, NOISE), [], set()
    for name in ("chain", "fixed tree", "pruned dynatree"):
        session = speclab.Session(pair, VARIANTS[name], PROMPT, max_new_tokens=16)
        session.run()
        accepted += [len(step.accepted) for step in session.steps]
        moved |= {cache.name for step in session.steps for cache in step.caches if cache.moved}
    assert {0, 1, 2} < set(accepted)
    assert moved == {"target", "draft"}
    assert len(set(own_text(family, 24))) > 8


def test_the_target_as_its_own_draft_is_always_right():
    session = speclab.Session(pair_of("llama", 0.0), VARIANTS["chain"], PROMPT, max_new_tokens=16)
    session.run()
    assert [len(step.committed) for step in session.steps] == [5, 5, 5]
    assert session.metrics.acceptance_rate == 1.0


def _registered() -> list[tuple[str, Strategy]]:
    found = []
    for name, kind in speclab.strategies().items():
        found.append((name, kind()))
        found += [(f"{name}: {preset}", strategy) for preset, strategy in kind.presets().items()]
    return found


@pytest.mark.parametrize(("name", "strategy"), _registered(), ids=[name for name, _ in _registered()])
def test_every_registered_strategy_and_preset_gives_the_targets_text(name, strategy):
    session = speclab.Session(pair_of("gpt_neox", NOISE), strategy, PROMPT, max_new_tokens=12)
    assert run_and_check_caches(session).token_ids == own_text("gpt_neox", 12)


COMBINATIONS = [
    (way, ("iteration", "prompt", "off")[place % 3])
    for place, way in enumerate(itertools.product(("verified", "drafted"), ("gather", "rebuild")))
]


@pytest.mark.parametrize(("way", "history"), COMBINATIONS)
def test_combinations_of_dynatree_give_the_same_text(way, history):
    root, commit = way
    strategy = speclab.DynaTree(root=root, commit=commit, history=history, base_depth=3)
    session = speclab.Session(pair_of("mistral", NOISE), strategy, PROMPT, max_new_tokens=16)
    assert run_and_check_caches(session).token_ids == own_text("mistral", 16)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_generate_is_the_session_without_records_and_a_check_is_content(variant):
    pair = pair_of("qwen3", NOISE)
    session = speclab.Session(pair, variant, PROMPT, max_new_tokens=16)
    assert run_and_check_caches(session).token_ids == own_text("qwen3", 16)
    for check in (False, True):
        result = speclab.generate(pair, variant, PROMPT, max_new_tokens=16, check=check)
        assert (result.token_ids, result.text) == (session.token_ids, session.text)
        for name in ("iterations", "target_calls", "draft_calls", "acceptance_rate", "tokens_per_iteration"):
            assert getattr(result.metrics, name) == getattr(session.metrics, name)
    sampled = {"max_new_tokens": 16, "temperature": 1.0, "top_p": 0.9}
    texts = [speclab.generate(pair, variant, PROMPT, check=check, **sampled).token_ids for check in (False, True)]
    assert texts[0] == texts[1]


# Every node against a fresh pass over its own path


@pytest.mark.parametrize("root", ["verified", "drafted"])
@pytest.mark.parametrize("family", ["gpt_neox", "gpt2", "mistral", "gemma3_text"])
def test_each_node_is_what_a_fresh_pass_over_its_path_gives(family, root):
    """Draft log-prob, target probability and target choice: nothing leaks between siblings, positions are right."""
    target, draft = target_of(family), draft_of(family, NOISE)
    strategy = VARIANTS["wide dynatree"].changed(root=root)
    session = speclab.Session(pair_of(family, NOISE), strategy, PROMPT, max_new_tokens=40)
    for _ in range(3):
        text = session.prompt_ids + session.token_ids
        step = session.step()
        assert len(step.tree) == 24
        assert family in {"mistral", "gemma3_text"} or set(step.prefix_seen) == {step.prefix_length}
        for node in step.nodes:
            path = step.tree.token[list(step.tree.path(node.index))].tolist()[root == "verified" :]
            after = next_logits(target, text + path)
            assert node.target_choice == argmax(after)
            assert dict(node.target_top) == pytest.approx(_top(after, 5), abs=1e-4)
            if path:
                draft_probs = softmax(next_logits(draft, text + path[:-1]))
                target_probs = softmax(next_logits(target, text + path[:-1]))
                assert step.tree.log_prob[node.index] == pytest.approx(math.log(draft_probs[path[-1]]), abs=1e-3)
                assert node.target_prob == pytest.approx(target_probs[path[-1]], abs=1e-4)


def _top(logits: list[float], count: int) -> dict[int, float]:
    probs = softmax(logits)
    return {token: probs[token] for token in sorted(range(len(probs)), key=lambda t: -probs[t])[:count]}


# Where a text ends


def test_one_new_token_needs_no_iteration():
    result = speclab.generate(pair_of("llama", None), VARIANTS["dynatree"], PROMPT, max_new_tokens=1)
    assert result.token_ids == own_text("llama", 1)
    assert (result.metrics.iterations, result.metrics.target_calls, result.metrics.draft_calls) == (0, 1, 0)


@pytest.mark.parametrize("variant", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("family", ["gpt2", "mistral"])
def test_a_prompt_of_one_token(family, variant):
    pair = pair_of(family, NOISE)
    own = library_text(target_of(family), [7], 12)
    assert speclab.generate(pair, variant, [7], max_new_tokens=12).token_ids == own


@pytest.mark.parametrize("variant", PATHS.values(), ids=PATHS)
def test_text_up_to_the_very_end_of_the_context(variant):
    """GPT-2 has an embedding for each position and fails beyond the last: no draft may reach there."""
    target, draft = tiny("gpt2", n_positions=24), tiny("gpt2", n_positions=24)
    pair = speclab.load_pair(target=target, draft=draft)
    result = speclab.generate(pair, variant, PROMPT, max_new_tokens=24 - len(PROMPT))
    assert result.token_ids == library_text(target, PROMPT, 24 - len(PROMPT))
