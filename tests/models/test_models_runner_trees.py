"""The runner: trees equal single paths, and the cache always equals a fresh prefill of what is committed."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runners import CLOSE, plain, run_tree, runner_of, small_buffers
from strategies import draft_trees, token_lists
from tiny import FAMILIES, WINDOW, tiny

from speclab.models.runner import Runner
from speclab.tree import DraftTree

pytestmark = pytest.mark.model


@pytest.mark.parametrize("family", FAMILIES)
@given(prefix=token_lists(max_size=3 * WINDOW), tree=draft_trees(max_nodes=12), cut=st.none() | st.integers(1, 6))
@settings(max_examples=20)
def test_a_tree_pass_equals_decoding_each_path(family, prefix, tree, cut):
    runner = runner_of(family).fork()
    runner.extend(prefix)
    got = run_tree(runner, tree, cut if cut is None else min(cut, len(tree)))
    for node in range(len(tree)):
        path = tree.token[list(tree.path(node))].tolist()
        torch.testing.assert_close(got[node], plain(runner, prefix + path)[-1], **CLOSE)


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gemma3_text"])
def test_a_tree_deeper_than_the_window_drafted_level_by_level_across_growth_and_fork(family):
    prefix, depth = [11, 12, 13], WINDOW + 3
    parents = [-1, *(max(0, node - 2) for node in range(1, 2 * depth + 1))]  # two chains from one root
    tree = DraftTree.of([(7 * node) % 64 for node in range(len(parents))], parents, [0.0] * len(parents), "test")
    mask, got = tree.ancestor_mask(), []
    with small_buffers():
        runner = Runner(tiny(family))
        runner.extend(prefix)
        for level in range(depth + 1):
            nodes = np.flatnonzero(tree.depth == level)
            positions = (len(prefix) + tree.depth[nodes]).tolist()
            got.append(runner.forward(tree.token[nodes].tolist(), positions, mask[nodes, : nodes[-1] + 1]))
            if level == depth // 2:
                other, runner = runner, runner.fork(runner.length)
                other.crop(len(prefix))
                other.extend(list(range(10)))  # other positions in the same slots, of another cache
    logits = torch.cat(got)
    for node in range(len(tree)):
        path = tree.token[list(tree.path(node))].tolist()
        torch.testing.assert_close(logits[node], plain(runner, prefix + path)[-1], **CLOSE)


@pytest.mark.parametrize("family", FAMILIES)
@given(tokens=token_lists(max_size=3 * WINDOW), cuts=st.lists(st.integers(1, 9), max_size=4))
@settings(max_examples=15)
def test_extending_in_any_pieces_equals_one_plain_pass(family, tokens, cuts):
    with small_buffers():
        runner, start = Runner(tiny(family)), 0
        for size in [*cuts, len(tokens)]:
            piece = tokens[start : start + size]
            if piece:
                got = runner.extend(piece)
                start += len(piece)
    assert runner.length == start == len(tokens)
    torch.testing.assert_close(got, plain(runner, tokens)[-1], **CLOSE)


ACTIONS = st.one_of(
    st.tuples(st.just("extend"), token_lists(max_size=7)),
    st.tuples(st.just("tree"), draft_trees(max_nodes=9), st.integers(0, 8), st.none() | st.integers(1, 8)),
    st.tuples(st.just("crop"), st.floats(0, 1)),
    st.tuples(st.just("fork"), st.floats(0, 1)),
    st.tuples(st.just("failure"), token_lists(max_size=3)),
)


class Interruption(BaseException):
    """Like Ctrl-C: not an Exception."""


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
            hook = runner.model.get_output_embeddings().register_forward_pre_hook(mock.Mock(side_effect=Interruption))
            with pytest.raises(Interruption):
                runner.extend(tokens)
            hook.remove()
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


@pytest.mark.parametrize("family", FAMILIES)
@given(actions=st.lists(ACTIONS, min_size=1, max_size=5))
@settings(max_examples=15)
def test_after_any_calls_the_cache_equals_a_fresh_prefill(family, actions):
    with small_buffers():
        runner, committed = Runner(tiny(family)), []
        for action in actions:
            runner, committed = act(runner, committed, action)
            assert_is_fresh_prefill(runner, committed)
