"""The runner: trees equal single paths, the cache equals a fresh prefill, masks are right, failures lose nothing."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.head_folders import LLAMA3
from support.pairs import library_text
from support.runners import CLOSE, plain, run_tree, runner_of, small_buffers
from support.strategies import draft_trees, token_lists
from support.tiny import FAMILIES, WINDOW, tiny

import speclab
from speclab.errors import OutOfMemoryError
from speclab.models.runner import Runner
from speclab.tree import DraftTree

every_family = pytest.mark.parametrize("family", FAMILIES)
VOCABULARY = 64


def failing(error):
    """After every pass through the model."""
    return patch("speclab.models.runner.check_finite", side_effect=error)


@pytest.mark.wide
@every_family
@given(
    prefix=token_lists(max_size=3 * WINDOW),
    tree=draft_trees(max_nodes=12),
    cut=st.none() | st.integers(1, 6),
)
@settings(max_examples=10)
def test_a_tree_pass_equals_decoding_each_path(family, prefix, tree, cut):
    runner = runner_of(family).fork()
    runner.extend(prefix)
    got = run_tree(runner, tree, cut if cut is None else min(cut, len(tree)))
    for node in range(len(tree)):
        path = tree.token[list(tree.path(node))].tolist()
        torch.testing.assert_close(got[node], plain(runner, prefix + path)[-1], **CLOSE)


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gemma3_text"])
def test_a_tree_deeper_than_the_window_drafted_level_by_level_across_growth_and_fork(family):
    prefix = [11, 12, 13]
    depth = WINDOW + 3
    # two chains from one root
    parents = [-1, *(max(0, node - 2) for node in range(1, 2 * depth + 1))]
    tree = DraftTree.of(
        [(7 * node) % 64 for node in range(len(parents))], parents, [0.0] * len(parents), "test"
    )
    mask = tree.ancestor_mask()
    got = []
    with small_buffers():
        runner = Runner(tiny(family))
        runner.extend(prefix)
        for level in range(depth + 1):
            nodes = np.flatnonzero(tree.depth == level)
            positions = (len(prefix) + tree.depth[nodes]).tolist()
            got.append(
                runner.logits(
                    tree.token[nodes].tolist(), positions, mask[nodes, : nodes[-1] + 1]
                ).logits
            )
            if level == depth // 2:
                other = runner
                runner = runner.fork(runner.length)
                other.crop(len(prefix))
                other.extend(list(range(10)))  # other positions in the same slots, of another cache
    logits = torch.cat(got)
    for leaf in (len(tree) - 2, len(tree) - 1):
        path = list(tree.path(leaf))
        want = plain(runner, prefix + tree.token[path].tolist())[len(prefix) :]
        torch.testing.assert_close(logits[path], want, **CLOSE)


ACTIONS = st.one_of(
    st.tuples(st.just("extend"), token_lists(max_size=7)),
    st.tuples(
        st.just("tree"), draft_trees(max_nodes=9), st.integers(0, 8), st.none() | st.integers(1, 8)
    ),
    st.tuples(st.just("crop"), st.floats(0, 1)),
    st.tuples(st.just("fork"), st.floats(0, 1)),
    st.tuples(st.just("failure"), token_lists(max_size=3)),
)


def act(runner: Runner, committed: list[int], action) -> tuple[Runner, list[int]]:
    match action:
        case ("extend", tokens):
            runner.extend(tokens)
            return runner, committed + tokens
        case ("tree", tree, node, cut):
            run_tree(runner, tree, cut and min(cut, len(tree)))
            path = list(tree.path(node % len(tree)))
            runner.keep(len(committed), [len(committed) + row for row in path])
            return runner, committed + tree.token[path].tolist()
        case ("crop", share):
            runner.crop(int(share * len(committed)))
            return runner, committed[: runner.length]
        case ("fork", share):
            twin = runner.fork(int(share * len(committed)))
            runner.extend([3, 1, 4])  # what happens to the original must not reach its fork
            return twin, committed[: twin.length]
        case ("failure", tokens):
            with failing(KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
                runner.extend(tokens)
            return runner, committed
    raise AssertionError(action)


def assert_is_fresh_prefill(runner: Runner, committed: list[int]) -> None:
    fresh = runner_of(runner.family).fork()
    if committed:
        fresh.extend(committed)
    assert runner.length == runner.cache.length == len(committed)
    for ours, theirs in zip(runner.cache.layers, fresh.cache.layers, strict=len(committed) > 0):
        torch.testing.assert_close(ours.keys, theirs.keys, **CLOSE)
        torch.testing.assert_close(ours.values, theirs.values, **CLOSE)
    torch.testing.assert_close(runner.extend([7]), plain(fresh, [*committed, 7])[-1], **CLOSE)
    runner.crop(len(committed))


@pytest.mark.wide
@every_family
@given(prefix=token_lists(max_size=12), actions=st.lists(ACTIONS, min_size=1, max_size=4))
@settings(max_examples=10)
def test_after_any_calls_the_cache_equals_a_fresh_prefill(family, prefix, actions):
    with small_buffers():
        runner = runner_of(family).fork()
        committed = []
        for action in [("extend", prefix), *actions]:
            runner, committed = act(runner, committed, action)
            assert_is_fresh_prefill(runner, committed)


# Masks: what each row was given to see, read back from the tensor that the model got


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3_text"])
@given(
    prefix=token_lists(max_size=20),
    tree=draft_trees(max_nodes=12),
    cut=st.none() | st.integers(1, 6),
)
@settings(max_examples=15)
def test_the_mask_given_is_the_ancestor_closure(family, prefix, tree, cut):
    runner = runner_of(family).fork()
    runner.extend(prefix)
    cut = (cut and min(cut, len(tree) - 1)) or None
    run_tree(runner, tree, cut)
    part, before = runner.mask_given()
    want = tree.attention_mask(len(prefix))
    # one mask for every layer, cut to the window; hybrids show their full layers' mask
    if family == "mistral":
        columns = np.concatenate([np.arange(len(prefix)), len(prefix) + tree.depth])
        want = want & ((len(prefix) + tree.depth)[:, None] - columns[None] < WINDOW)
    want = want[cut:]
    assert np.array_equal(part, want[:, -len(want) :])
    assert before == want[:, : -len(want)].sum(axis=1).tolist()


# What a pass computes and counts, what it refuses, what a failure leaves


def test_running_out_of_memory_is_one_sentence_and_loses_nothing():
    runner = Runner(tiny("gpt_neox"), name="small")
    runner.extend([1, 2, 3])
    for error in (
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ):
        with failing(error):
            with pytest.raises(
                OutOfMemoryError,
                match="small ran out of memory on cpu at 5 tokens: use a shorter prompt",
            ):
                runner.extend([4, 5])
            with pytest.raises(OutOfMemoryError):
                runner.logits([4, 5], [3, 4], np.tri(2, dtype=bool))
    with pytest.raises(IndexError):  # another error is passed on
        runner.extend([VOCABULARY])
    assert (runner.length, runner.cache.length, runner.calls) == (3, 3, 1)
    torch.testing.assert_close(runner.extend([4, 5]), plain(runner, [1, 2, 3, 4, 5])[-1], **CLOSE)


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        ({"rope_type": "default"}, 64),
        ({"rope_type": "yarn", "factor": 4.0}, 256),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}, 64),
        ({"rope_type": "linear", "factor": 2.0}, 128),
        ({"rope_type": "dynamic", "factor": 2.0}, 64),
        (LLAMA3 | {"original_max_position_embeddings": 16}, 64),
    ],
)
def test_the_context_is_what_the_config_means(rope, context):
    """GPT-2 and longrope: test_equality.py."""
    model = tiny("llama", max_position_embeddings=64, rope_parameters=rope | {"rope_theta": 1e4})
    pair = speclab.load_pair(target=model, draft=model)
    assert pair.target.context == context
    text = speclab.generate(pair, speclab.DynaTree(), [5] * 20, max_new_tokens=context - 20)
    assert text.token_ids == library_text(model, [5] * 20, context - 20)
