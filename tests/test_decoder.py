"""Every strategy on random models of many families: the target's own text, and caches as sequential decoding leaves."""

from __future__ import annotations

import copy
import itertools
import math
from functools import cache

import pytest
import torch
from records import assert_consistent
from reference.decoding import argmax, next_logits, softmax
from table_runner import TableRunner, mixed_law, random_law, table_pair
from tiny import tiny

import speclab
from speclab.drafters.base import Strategy
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner

FAMILIES = ("gpt_neox", "llama", "qwen3", "gpt2", "opt", "mistral", "gemma3_text")
NOISE = 0.02
DRAFTS = {"stranger": None, "noisy copy": NOISE, "the target itself": 0.0}
SEEDS = {"gemma3_text": 2}
# With tied embeddings a loud random Gemma repeats one token for ever, and any mask gives that text.
OVERRIDES = {"gemma3_text": {"tie_word_embeddings": False}}
PROMPT = [5, 9, 2, 40, 33, 7, 7, 1, 60, 22, 13, 8, 51]
"""Longer than the windows of the families that have one."""

VARIANTS: dict[str, Strategy] = {
    "plain": speclab.Autoregressive(),
    "chain": speclab.LinearSpeculation(draft_tokens=4),
    "chain with a stop": speclab.LinearSpeculation(draft_tokens=8, confidence_stop=0.5),
    "fixed tree": speclab.FixedTree(depth=3, branching=2),
    "dynatree": speclab.DynaTree(),
    "wide dynatree": speclab.DynaTree(
        low_confidence=0.9, high_confidence=0.99, stop_probability=0.0, prune_probability=0.0, node_budget=24
    ),
    "pruned dynatree": speclab.DynaTree(low_confidence=0.9, high_confidence=0.99, prune_probability=0.15),
    "dynatree as in the paper": speclab.DynaTree(root="drafted", commit="rebuild", drafting="node"),
}


@cache
def target_of(family: str) -> torch.nn.Module:
    return tiny(family, seed=SEEDS.get(family, 0), **OVERRIDES.get(family, {}))


@cache
def draft_of(family: str, noise: float | None) -> torch.nn.Module:
    """Another model; or the target with this share of noise on every weight, which agrees now and then."""
    if noise is None:
        return tiny(family, seed=9, **OVERRIDES.get(family, {}))
    model = copy.deepcopy(target_of(family))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn(parameter.shape, generator=generator))
    return model


def pair_of(family: str, noise: float | None) -> ModelPair:
    return speclab.load_pair(target=target_of(family), draft=draft_of(family, noise))


@cache
def own_text(family: str, count: int) -> list[int]:
    """The library's own greedy decoding."""
    prompt = torch.tensor([PROMPT])
    model = target_of(family)
    ids = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, do_sample=False)
    return ids[0, len(PROMPT) :].tolist()


def assert_cache_is_fresh(runner: Runner, text: list[int]) -> None:
    """Length, and keys and values of every layer, as one causal pass over the committed text leaves them."""
    assert runner.length <= len(text)
    if runner.length == 0:
        return
    fresh = Runner(runner.model)
    fresh.extend(text[: runner.length])
    for layer, other in zip(runner.cache.layers, fresh.cache.layers, strict=True):
        torch.testing.assert_close(layer.keys, other.keys, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(layer.values, other.values, rtol=1e-3, atol=1e-3)


def run_and_check_caches(session: speclab.Session) -> speclab.Session:
    """Steps to the end; after every iteration the target's cache holds all it should, the draft's a prefix."""
    while not session.done:
        step = session.step()
        assert_consistent(step)
        text = session.prompt_ids + session.token_ids
        drafted_root = step.root_choice is not None
        assert session.pair.target.length == len(text) - (not drafted_root)
        for runner in session.pair.runners.values():
            assert_cache_is_fresh(runner, text)
    return session


# The text


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("noise", DRAFTS.values(), ids=DRAFTS)
@pytest.mark.parametrize("family", FAMILIES)
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


COMBINATIONS = list(
    itertools.product(("verified", "drafted"), ("gather", "rebuild"), ("level", "node"), ("iteration", "prompt", "off"))
)


@pytest.mark.parametrize(("root", "commit", "drafting", "history"), COMBINATIONS)
def test_all_combinations_of_dynatree_give_the_same_text(root, commit, drafting, history):
    strategy = speclab.DynaTree(root=root, commit=commit, drafting=drafting, history=history, base_depth=3)
    session = speclab.Session(pair_of("mistral", NOISE), strategy, PROMPT, max_new_tokens=24)
    assert run_and_check_caches(session).token_ids == own_text("mistral", 24)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_generate_is_the_session_without_records(variant):
    pair = pair_of("qwen3", NOISE)
    result = speclab.generate(pair, variant, PROMPT, max_new_tokens=16)
    session = speclab.Session(pair, variant, PROMPT, max_new_tokens=16)
    session.run()
    assert result.token_ids == session.token_ids == own_text("qwen3", 16)
    assert result.text == session.text
    for name in ("iterations", "target_calls", "draft_calls", "acceptance_rate", "tokens_per_iteration"):
        assert getattr(result.metrics, name) == getattr(session.metrics, name)


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
        for node in step.nodes:
            path = step.tree.token[list(step.tree.path(node.index))].tolist()[root == "verified" :]
            after = next_logits(target, text + path)
            assert node.target_choice == argmax(after)
            assert dict(node.target_top) == pytest.approx(_top(after, 5), abs=1e-4)
            if path:
                draft_law = softmax(next_logits(draft, text + path[:-1]))
                target_law = softmax(next_logits(target, text + path[:-1]))
                assert step.tree.log_prob[node.index] == pytest.approx(math.log(draft_law[path[-1]]), abs=1e-3)
                assert node.target_prob == pytest.approx(target_law[path[-1]], abs=1e-4)


def _top(logits: list[float], count: int) -> dict[int, float]:
    law = softmax(logits)
    return {token: law[token] for token in sorted(range(len(law)), key=lambda t: -law[t])[:count]}


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
def test_the_mask_that_the_model_was_given_shows_prefix_and_ancestors(family):
    session = speclab.Session(pair_of(family, NOISE), VARIANTS["wide dynatree"], PROMPT, max_new_tokens=20)
    for step in (session.step(), session.step()):
        assert (step.mask == step.tree.ancestor_mask()).all()
        assert step.prefix_seen == (step.prefix_length,) * len(step.tree)


# Counting: model calls and rows


VOCAB = 8
TABLE = random_law(VOCAB, 5, low=0.5, high=2.5)
TABLE_DRAFT = mixed_law(TABLE, random_law(VOCAB, 6), 0.2)


def _counted(strategy: Strategy) -> list[tuple]:
    """(step, target calls, target rows, draft calls, draft rows) of every iteration."""
    session = speclab.Session(table_pair(TABLE, TABLE_DRAFT, VOCAB), strategy, [1, 2, 3], max_new_tokens=60)
    runners = (session.pair.target, session.pair.draft)
    found = []
    while not session.done:
        before = [count for runner in runners for count in (runner.calls, runner.rows)]
        step = session.step()
        after = [count for runner in runners for count in (runner.calls, runner.rows)]
        spent = [b - a for a, b in zip(before, after, strict=True)]
        assert (step.counts.target_calls, step.counts.draft_calls) == (spent[0], spent[2])
        found.append((step, *spent))
    return found


def test_plain_decoding_is_one_call_a_token():
    for step, calls, rows, draft_calls, _ in _counted(speclab.Autoregressive()):
        assert (calls, rows, draft_calls, len(step.committed)) == (1, 1, 0, 1)


@pytest.mark.parametrize("k", [1, 4, 7])
def test_a_chain_of_k_is_k_draft_calls_and_one_target_call(k):
    for _, calls, rows, draft_calls, draft_rows in _counted(speclab.LinearSpeculation(draft_tokens=k))[1:]:
        assert (calls, rows, draft_calls) == (1, k + 1, k)
        assert draft_rows <= k + 1, "the root, k - 1 drafted tokens, and at most one token to catch up with"


@pytest.mark.parametrize("strategy", [speclab.FixedTree(depth=4, branching=2), speclab.DynaTree(node_budget=32)])
def test_a_tree_is_one_draft_call_a_level_and_one_target_call(strategy):
    for step, calls, rows, draft_calls, _ in _counted(strategy):
        levels = {step.tree.depth[event.node] for event in step.events if event.kind == "expand"}
        assert (calls, rows, draft_calls) == (1, len(step.tree), len(levels))


def test_node_by_node_is_one_draft_call_an_expanded_node():
    for step, calls, _, draft_calls, _ in _counted(speclab.DynaTree(drafting="node", node_budget=32)):
        assert (calls, draft_calls) == (1, sum(event.kind == "expand" for event in step.events))


def test_the_papers_way_is_two_target_calls_and_a_draft_prefill():
    strategy = speclab.DynaTree(root="drafted", commit="rebuild", drafting="node")
    for step, calls, rows, draft_calls, draft_rows in _counted(strategy):
        expanded = sum(event.kind == "expand" for event in step.events)
        assert (calls, rows) == (2, len(step.tree) + len(step.committed))
        assert draft_calls == expanded + 1
        assert draft_rows == step.prefix_length + expanded


def test_a_gathered_drafted_root_runs_the_bonus_token_alone():
    for step, calls, rows, *_ in _counted(speclab.DynaTree(root="drafted")):
        cut = step.bonus is None
        assert (calls, rows) == (2 - cut, len(step.tree) + 1 - cut)


# Where a text ends


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_eos_inside_an_accepted_path_ends_the_text_there(variant):
    """The draft is the target, so every path is accepted: wherever the text ends, it ends inside one."""
    whole = speclab.generate(table_pair(TABLE, TABLE, VOCAB), variant, [1, 2, 3], max_new_tokens=24).token_ids
    for eos in sorted(set(whole)):
        end = whole.index(eos) + 1
        session = speclab.Session(table_pair(TABLE, TABLE, VOCAB, eos=eos), variant, [1, 2, 3], max_new_tokens=24)
        session.run()
        assert session.token_ids == whole[:end]
        assert session.done
        assert session.trace.finished == "end of text"
        for step in session.steps:
            assert_consistent(step)
        going_on = speclab.generate(
            table_pair(TABLE, TABLE, VOCAB, eos=eos), variant, [1, 2, 3], max_new_tokens=24, stop_at_eos=False
        )
        assert going_on.token_ids == whole


def test_eos_that_cuts_a_path_leaves_no_bonus():
    whole = speclab.generate(table_pair(TABLE, TABLE, VOCAB), VARIANTS["chain"], [1, 2, 3], max_new_tokens=9).token_ids
    inside = next(i for i in range(1, 4) if whole[i] not in whole[:i])
    session = speclab.Session(
        table_pair(TABLE, TABLE, VOCAB, eos=whole[inside]), VARIANTS["chain"], [1, 2, 3], max_new_tokens=9
    )
    step = session.step()
    assert step.committed == tuple(whole[1 : inside + 1])
    assert (step.bonus, len(step.accepted)) == (None, inside)
    assert session.done


@pytest.mark.parametrize("family", ["gpt_neox", "gemma3_text"])
def test_eos_as_the_library_ends_a_text(family):
    """The end-of-text id of the model's own config."""
    text = own_text(family, 20)
    for eos in sorted(set(text))[:4]:
        model = copy.deepcopy(target_of(family))
        model.config.eos_token_id = model.generation_config.eos_token_id = eos
        prompt = torch.tensor([PROMPT])
        ids = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False, pad_token_id=0
        )
        pair = speclab.load_pair(target=model, draft=draft_of(family, NOISE))
        result = speclab.generate(pair, VARIANTS["dynatree"], PROMPT, max_new_tokens=20)
        assert result.token_ids == ids[0, len(PROMPT) :].tolist()
        assert result.finished == "end of text"


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_never_more_tokens_than_asked_for(variant):
    whole = speclab.generate(table_pair(TABLE, TABLE, VOCAB), variant, [1, 2, 3], max_new_tokens=16).token_ids
    for count in range(1, 16):
        session = speclab.Session(table_pair(TABLE, TABLE, VOCAB), variant, [1, 2, 3], max_new_tokens=count)
        session.run()
        assert session.token_ids == whole[:count]
        assert session.metrics.acceptance_rate <= 1.0


def test_one_new_token_needs_no_iteration():
    result = speclab.generate(pair_of("llama", None), VARIANTS["dynatree"], PROMPT, max_new_tokens=1)
    assert result.token_ids == own_text("llama", 1)
    assert (result.metrics.iterations, result.metrics.target_calls, result.metrics.draft_calls) == (0, 1, 0)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("family", ["gpt2", "mistral"])
def test_a_prompt_of_one_token(family, variant):
    pair = pair_of(family, NOISE)
    prompt = torch.tensor([[7]])
    ids = target_of(family).generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, do_sample=False)
    assert speclab.generate(pair, variant, [7], max_new_tokens=12).token_ids == ids[0, 1:].tolist()


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_text_up_to_the_very_end_of_the_context(variant):
    """GPT-2 has an embedding for each position and fails beyond the last: no draft may reach there."""
    target, draft = tiny("gpt2", n_positions=24), tiny("gpt2", n_positions=24)
    prompt = torch.tensor([PROMPT])
    ids = target.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=11, do_sample=False)
    pair = speclab.load_pair(target=target, draft=draft)
    result = speclab.generate(pair, variant, PROMPT, max_new_tokens=24 - len(PROMPT))
    assert result.token_ids == ids[0, len(PROMPT) :].tolist()


def test_a_draft_with_a_shorter_context_bounds_the_pair():
    pair = speclab.load_pair(target=tiny("gpt2"), draft=tiny("gpt2", n_positions=24))
    assert pair.context == 24
    with pytest.raises(speclab.ContextExceededError):
        speclab.generate(pair, VARIANTS["chain"], PROMPT, max_new_tokens=12)


# The engine's own check, and the tests' own teeth


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "top_p": 0.9}], ids=["greedy", "sampled"])
def test_check_is_content_with_what_is_right(variant, sampling):
    pair = pair_of("qwen3", NOISE)
    result = speclab.generate(pair, variant, PROMPT, max_new_tokens=16, check=True, **sampling)
    assert result.token_ids == speclab.generate(pair, variant, PROMPT, max_new_tokens=16, **sampling).token_ids


class LyingRunner(TableRunner):
    """Right on its own, wrong in a tree pass, as with a mask that shows too much."""

    def forward(self, *args):
        return super().forward(*args).roll(1, dims=-1)


def test_check_finds_a_target_that_is_wrong_in_trees():
    pair = ModelPair(LyingRunner(TABLE, VOCAB), TableRunner(TABLE_DRAFT, VOCAB), name="liar")
    assert speclab.generate(pair, VARIANTS["chain"], [1, 2, 3], max_new_tokens=12).token_ids
    with pytest.raises(speclab.ExactnessError) as caught:
        speclab.generate(pair, VARIANTS["chain"], [1, 2, 3], max_new_tokens=12, check=True)
    assert "token 1 " in str(caught.value)
