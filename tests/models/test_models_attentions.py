"""Attention weights on demand: those of a plain eager pass over the node's path, and nothing else is touched."""

from __future__ import annotations

import numpy as np
import pytest
import sessions
import torch
from heads import random_head
from pairs import PROMPT, assert_cache_is_fresh, draft_of, pair_of, target_of
from tiny import tiny
from variants import VARIANTS

import speclab
from speclab import DynaTree, NotRecordedError, Session, SettingsError, UnsupportedModelError
from speclab.models import attentions
from speclab.models.runner import Runner

pytestmark = pytest.mark.model
FAMILIES = ("llama", "gpt_neox", "gpt2", "opt", "mistral", "gemma2", "gemma3_text", "phi3", "llama4_text")
"""Grouped heads, learned and rotary positions, sliding windows, layers of two kinds, chunks."""
CLOSE = {"rtol": 1e-4, "atol": 2e-5}


def plain(model: torch.nn.Module, tokens: list[int]) -> np.ndarray:
    """What the last of these tokens attends to, by the library alone: `[layers, heads, tokens]`."""
    with torch.inference_mode():
        given = model(torch.tensor([tokens]), use_cache=False, output_attentions=True).attentions
    return torch.stack([layer[0, :, -1] for layer in given]).numpy()


def eager(family: str) -> torch.nn.Module:
    """A model of the same weights, made anew."""
    twin = tiny(family)
    twin.load_state_dict(target_of(family).state_dict())
    twin.set_attn_implementation("eager")
    return twin


def expected(session: Session, at: int, node: int, model: torch.nn.Module) -> np.ndarray:
    step = session.steps[at - 1]
    text, path = list(session.trace.prompt_ids + session.trace.token_ids()), list(step.tree.path(node))
    given = plain(model, text[: step.prefix_length] + step.tree.token[path].tolist())
    prefix = step.prefix_length
    whole = np.zeros((*given.shape[:2], prefix + len(step.tree)), np.float32)
    whole[..., :prefix] = given[..., :prefix]
    whole[..., [prefix + place for place in path]] = given[..., prefix:]
    return whole


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_those_of_a_plain_eager_pass(family):
    session = Session(pair_of(family), VARIANTS["wide dynatree"], PROMPT, max_new_tokens=14)
    session.run()
    model, text = eager(family), session.token_ids
    calls, length = session.pair.target.calls, session.pair.target.length
    for at in (1, len(session.steps)):
        session.goto(at)
        nodes = len(session.steps[at - 1].tree)
        assert nodes > 3
        for node in {0, 1, nodes // 2, nodes - 1}:
            got = session.attentions(node)
            np.testing.assert_allclose(got, expected(session, at, node, model), **CLOSE)
            assert got.dtype == np.float32
    assert (session.pair.target.calls, session.pair.target.length) == (calls, length)
    assert_cache_is_fresh(session.pair.target, list(session.trace.prompt_ids) + text)


@pytest.mark.parametrize("name", ["dynatree as in the paper", "lookahead", "two trees as one", "plain"])
def test_every_way_through_the_engine(name):
    session = Session(pair_of("llama"), VARIANTS[name], PROMPT, max_new_tokens=10)
    model = eager("llama")
    for at in (1, 2):
        step = session.step()
        node = len(step.tree) - 1
        np.testing.assert_allclose(session.attentions(node), expected(session, at, node, model), **CLOSE)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_reading_changes_nothing_of_what_follows(family):
    """Between two iterations, back in time and in a fork; the module keeps its attention, its version and its hooks."""
    read, left = (
        Session(pair_of(family), DynaTree(), PROMPT, max_new_tokens=16, check=True) for _ in range(2)
    )
    left.run()
    before = state(left.pair.target)
    while not read.done:
        read.step()
        read.attentions(0)
        read.attentions(0, at=1)
        np.testing.assert_array_equal(read.fork(1).attentions(0), read.attentions(0, at=1))
    assert read.token_ids == left.token_ids
    assert read.steps[-1].caches == left.steps[-1].caches
    assert state(read.pair.target) == before


def state(runner: Runner) -> tuple[object, ...]:
    hooks = sum(len(part._forward_hooks) for part in runner.model.modules())
    return runner.fork(2).version, hooks, runner.model.config._attn_implementation


def test_a_masked_entry_that_is_attended_to_would_show(monkeypatch):
    session = Session(pair_of("llama"), VARIANTS["wide dynatree"], PROMPT, max_new_tokens=8)
    step = session.step()
    hidden = np.concatenate([np.zeros(step.prefix_length, bool), ~step.mask[2]])
    assert session.attentions(2)[..., hidden].max() == 0
    seen = np.ones_like(step.mask)
    rows = step.tree.token.tolist(), (step.prefix_length + step.tree.depth).tolist()
    found = attentions.attention_weights(session.pair.target, PROMPT, *rows, seen, 2)
    assert found[..., hidden].max() > 0.01
    np.testing.assert_allclose(found.sum(axis=-1), 1, rtol=1e-4)


def test_a_half_precision_target_and_heads():
    target = tiny("llama", seed=3).to(torch.bfloat16)
    pair = speclab.load_pair(target=target, heads=[random_head(target, 1, "prose")])
    session = Session(pair, VARIANTS["best first"], PROMPT, max_new_tokens=8)
    step = session.step()
    found = session.attentions(len(step.tree) - 1)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=0.02)


def test_what_cannot_be_read_is_one_sentence(monkeypatch):
    table = sessions.session_of()
    table.step()
    with pytest.raises(NotRecordedError, match="no model of transformers"):
        table.attentions(0)
    session = Session(pair_of("llama"), DynaTree(), PROMPT, max_new_tokens=8)
    with pytest.raises(SettingsError, match="iteration 0 has no node 0"):
        session.attentions(0)
    step = session.step()
    with pytest.raises(SettingsError, match=f"iteration 1 has no node {len(step.tree)}"):
        session.attentions(len(step.tree))
    with pytest.raises(SettingsError, match="iteration 2"):
        session.attentions(0, at=2)
    with monkeypatch.context() as patch:
        patch.setattr(attentions, "is_spread", lambda _: True)
        with pytest.raises(UnsupportedModelError, match="quantised"):
            session.attentions(0)
    for broken in (lambda model, _: None, lambda *_: 1 / 0):
        with monkeypatch.context() as patch:
            patch.setattr(type(session.pair.target.model), "set_attn_implementation", broken)
            with pytest.raises(UnsupportedModelError, match="no attention weights"):
                session.attentions(0)


def test_a_target_that_was_changed_meanwhile_is_read_as_it_is_now():
    target = tiny("llama")
    session = Session(
        speclab.load_pair(target=target, draft=draft_of("llama", None)),
        DynaTree(),
        PROMPT,
        max_new_tokens=8,
    )
    session.step()
    with torch.no_grad():
        for model in (target, changed := eager("llama")):
            model.model.layers[0].self_attn.q_proj.weight.mul_(2)
    np.testing.assert_allclose(session.attentions(1), expected(session, 1, 1, changed), **CLOSE)
