"""Passes as graphs over lent buffers: padded, replayed, gathered in place, they answer what plain passes answer."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runners import CLOSE, run_tree, runner_of
from strategies import draft_trees, token_lists
from tiny import tiny
from torch.utils._python_dispatch import TorchDispatchMode

from speclab.models.changes import SharedForward
from speclab.models.fast import graphs, static_cache
from speclab.models.fast.graphs import GraphForward, Size
from speclab.models.forward import Batch, FallbackChain, ForwardOutput
from speclab.models.runner import Runner

pytestmark = pytest.mark.model

WAITS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal", "aten::masked_select"}
"""What brings a number to the host: no graph can hold it."""


class Ops(TorchDispatchMode):
    """Notes the name of every operator."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.names.append(operator.name().split(".")[0])
        return operator(*args, **(kwargs or {}))


class FakeGraph:
    """A graph without CUDA, which does a pass again on the same buffers; the first replay does not count.

    As a capture does, `capture` leaves nothing in the answer: the first replay does."""

    def __init__(self, counts: Counter[str]) -> None:
        self.counts, self.checked = counts, False

    def capture(self, run: Callable[[], ForwardOutput]) -> tuple[ForwardOutput, ForwardOutput]:
        self.counts["captured"] += 1
        first = run()
        with Ops() as ops:
            self.answer, self.run = run(), run
        assert not WAITS & set(ops.names)
        for tensor in _tensors(self.answer):
            tensor.fill_(torch.nan if tensor.is_floating_point() else -1)
        return first, self.answer

    def replay(self) -> None:
        if self.checked:
            self.counts["replayed"] += 1
        self.checked = True
        for mine, new in zip(_tensors(self.answer), _tensors(self.run()), strict=True):
            mine.copy_(new)


def _tensors(answer: ForwardOutput) -> list[torch.Tensor]:
    return [part for part in answer if isinstance(part, torch.Tensor)]


def over_graphs(runner: Runner, graph: Callable[[], Any]) -> FallbackChain:
    """The implementations of a runner on a CPU, with graphs before them."""
    lean, module = runner.implementation.implementations
    return FallbackChain(GraphForward(lean, runner.model, graph), lean, module)


def fast(runner: Runner, counts: Counter[str] | None = None) -> Runner:
    """A fresh runner of the same module whose passes go through fake graphs."""
    twin = runner.fork()
    counts = Counter() if counts is None else counts
    twin.implementation = over_graphs(runner, lambda: FakeGraph(counts))
    return twin


FAMILIES = ("gpt_neox", "llama")
every_family = pytest.mark.parametrize("family", FAMILIES)
ROUNDS = st.lists(st.tuples(draft_trees(max_nodes=9), st.none() | st.integers(1, 6), st.integers(0, 8)), max_size=4)


@pytest.fixture(autouse=True)
def small():
    """So that sizes change, and buffers are outgrown, within short tests."""
    with mock.patch.object(graphs, "FIRST_COLUMNS", 8), mock.patch.object(static_cache, "FIRST_SLOTS", 16):
        yield


@every_family
@given(prefix=token_lists(max_size=12), rounds=ROUNDS, fork=st.booleans())
@settings(max_examples=10)
def test_whatever_trees_come_it_answers_and_keeps_what_plain_passes_do(family, prefix, rounds, fork):
    plain, quick = runner_of(family).fork(), fast(runner_of(family))
    both = plain, quick
    for runner in both:
        runner.watch((0, -1))
    torch.testing.assert_close(*(runner.extend(prefix) for runner in both), **CLOSE)
    for tree, cut, deepest in rounds:
        start, path = plain.length, tree.path(min(deepest, len(tree) - 1))
        first = cut and min(cut, len(tree))
        torch.testing.assert_close(*(run_tree(runner, tree, first) for runner in both), **CLOSE)
        for runner in both:
            runner.keep(start, [start + node for node in path])
        torch.testing.assert_close(*(runner.extend([5]) for runner in both), **CLOSE)
        if fork:
            both = plain, quick = tuple(runner.fork(runner.length) for runner in both)
    _same_entries(plain, quick)


def _same_entries(plain: Runner, quick: Runner) -> None:
    assert plain.length == quick.length == quick.cache.length
    for mine, own in zip(quick.cache.layers, plain.cache.layers, strict=True):
        torch.testing.assert_close(mine.keys, own.keys, **CLOSE)
        torch.testing.assert_close(mine.values, own.values, **CLOSE)
    states = [runner.hidden.rows(0, runner.length, (0, -1)) for runner in (quick, plain)]
    torch.testing.assert_close(*states, **CLOSE)


@every_family
def test_a_graph_is_captured_once_a_size_and_every_small_pass_is_a_replay(family):
    counts: Counter[str] = Counter()
    runner = fast(runner_of(family), counts)
    runner.extend([1, 2, 3])
    assert not counts, "a prompt into an empty cache goes its own way"
    for token in range(4):
        runner.extend([token])
    assert counts == {"captured": 1, "replayed": 4}
    runner.extend([1])  # the eighth: seven columns and one row fill the smallest size
    runner.extend([1])
    assert counts == {"captured": 2, "replayed": 6}
    runner.crop(3)
    runner.extend([1, 2, 3])
    runner.crop(3)
    runner.extend([1, 2, 3, 4])
    assert counts == {"captured": 3, "replayed": 8}, "three rows are padded to four"


def test_buffers_and_graphs_go_to_the_next_cache_and_stay_where_they_are():
    counts: Counter[str] = Counter()
    first = fast(runner_of("llama"), counts)
    first.extend([1, 2])
    for token in range(5):
        first.extend([token])
    places = [layer.key_buffer.data_ptr() for layer in first.cache.layers]
    second = first.fork(4)
    second.extend([7])
    assert [layer.key_buffer.data_ptr() for layer in second.cache.layers] != places, "two caches at a time"
    captured = counts["captured"]
    del second.cache
    gc.collect()
    third = first.fork(3)
    third.extend([7])
    assert counts["captured"] == captured
    assert [layer.key_buffer.data_ptr() for layer in first.cache.layers] == places


def test_a_cache_that_outgrows_its_buffers_takes_its_entries_along_and_leaves_them_to_the_next():
    plain, quick = runner_of("gpt_neox").fork(), fast(runner_of("gpt_neox"))
    for token in range(1, 40):
        torch.testing.assert_close(plain.extend([token]), quick.extend([token]), **CLOSE)
        if token == 2:
            small = quick.cache.layers[0].key_buffer.data_ptr()
    assert quick.capacity == 64
    assert {layer.capacity for layer in quick.cache.layers} == {64}
    second = quick.fork(2)
    second.extend([3])
    assert second.cache.layers[0].key_buffer.data_ptr() == small


def test_what_a_failed_pass_left_behind_is_hidden_and_a_number():
    plain, quick = runner_of("llama").fork(), fast(runner_of("llama"))
    for runner in (plain, quick):
        runner.extend([1, 2, 3])
        runner.extend([4])
    with (
        mock.patch("speclab.models.runner.check_finite", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        quick.extend([9, 9, 9])
    assert quick.length == quick.cache.length == 4
    got = quick.extend([5])
    torch.testing.assert_close(plain.extend([5]), got, **CLOSE)
    kept = got.clone()
    quick.extend([6])
    assert torch.equal(got, kept), "the next pass writes over no logits that were given out"


def test_beyond_the_context_passes_go_the_plain_way():
    counts: Counter[str] = Counter()
    model = tiny("llama", max_position_embeddings=16)
    plain, quick = Runner(model), fast(Runner(model), counts)
    for token in range(1, 20):
        torch.testing.assert_close(plain.extend([token]), quick.extend([token]), **CLOSE)
    assert counts["replayed"] == 15
    quick.crop(10)
    plain.crop(10)
    torch.testing.assert_close(plain.extend([3]), quick.extend([3]), **CLOSE)


def test_sizes_are_powers_of_two_that_hold_the_padding_rows_too():
    def size(rows, start, layers=()):
        batch = Batch([0] * rows, range(rows), None, tuple, last=1, layers=layers, vocab_size=64, topk=8)
        return Size.of(batch, start)

    assert size(1, 0) == (1, 8, (), 64, 8)
    assert size(5, 3, (0, -1))[:3] == (8, 16, (0, -1))
    assert size(60, 100)[:2] == (64, 256)


def test_passes_are_captured_on_a_gpu_and_on_a_cpu_never():
    for family, here, there in (
        ("gpt_neox", "lean, packed", "lean, CUDA graphs"),
        ("llama", "lean, packed", "lean, CUDA graphs"),
        ("gpt2", "module", "module"),
    ):
        model = tiny(family)
        assert SharedForward(model).forward.name == here
        with mock.patch.object(type(model), "device", torch.device("cuda")):
            assert SharedForward(model).forward.name == there
            assert SharedForward(model, fast=False).forward.name == "module"


def test_a_pass_that_no_graph_takes_may_outgrow_the_buffers_and_the_next_is_a_replay_again():
    counts: Counter[str] = Counter()
    plain, quick = runner_of("llama").fork(), fast(runner_of("llama"), counts)
    for tokens in ([1, 2], [3], list(range(1, 60)) * 3, [4]):
        torch.testing.assert_close(plain.extend(tokens), quick.extend(tokens), **CLOSE)
    assert counts["replayed"] == 2
    for runner in (plain, quick):
        runner.keep(100, [101, 150])
    torch.testing.assert_close(plain.extend([5]), quick.extend([5]), **CLOSE)
    assert counts["replayed"] == 3
