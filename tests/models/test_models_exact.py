"""Exact arithmetic: a row's bits are the same in a tree, a prompt, alone, and wherever its keys lie."""

from __future__ import annotations

from collections import Counter
from functools import cache, partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runners import run_tree
from strategies import draft_trees, token_lists
from test_models_graphs import FakeGraph
from tiny import tiny
from torch.utils._python_dispatch import TorchDispatchMode

import speclab
from speclab.errors import UnsupportedModelError
from speclab.models.attentions import attention_weights
from speclab.models.fast import exact, packed
from speclab.models.fast.graphs import GraphForward
from speclab.models.forward import FallbackChain
from speclab.models.probe import bits_apart
from speclab.models.runner import Runner

pytestmark = pytest.mark.model

VARIANTS = {
    "gpt_neox": ("gpt_neox", {}),
    "gpt_neox, odd sizes, tied": (
        "gpt_neox",
        {"hidden_size": 36, "intermediate_size": 50, "use_parallel_residual": False, "tie_word_embeddings": True},
    ),
    "llama, shared keys": ("llama", {}),
    "llama, biases, odd sizes": (
        "llama",
        {"num_key_value_heads": 1, "head_dim": 10, "intermediate_size": 75, "attention_bias": True, "mlp_bias": True},
    ),
}
DTYPES = (torch.float32, torch.bfloat16)
every_variant = pytest.mark.parametrize("variant", VARIANTS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@cache
def runner_of(variant: str, dtype: torch.dtype) -> Runner:
    family, overrides = VARIANTS[variant]
    return Runner(tiny(family, **overrides).to(dtype), bitwise=True)


def assert_same_bits(runner: Runner, other: Runner) -> None:
    for mine, its in zip(runner.cache.layers, other.cache.layers, strict=True):
        assert torch.equal(mine.keys, its.keys)
        assert torch.equal(mine.values, its.values)


@every_dtype
@every_variant
@given(
    prefix=token_lists(max_size=90), tree=draft_trees(max_nodes=30), cut=st.none() | st.integers(1, 6), data=st.data()
)
@settings(max_examples=12)
def test_a_path_in_a_tree_has_the_bits_of_one_token_at_a_time(variant, dtype, prefix, tree, cut, data):
    """And after the path is kept, caches have the bits of a fresh prefill."""
    runner, alone, fresh = (runner_of(variant, dtype).fork() for _ in range(3))
    for each in (runner, alone):
        each.extend(prefix)
    logits = run_tree(runner, tree, cut if cut is None else min(cut, len(tree)))
    path = list(tree.path(data.draw(st.integers(0, len(tree) - 1))))
    for node in path:
        assert torch.equal(alone.extend([int(tree.token[node])]), logits[node])
    runner.keep(len(prefix), [len(prefix) + node for node in path])
    last = fresh.extend([*prefix, *tree.token[path].tolist()])
    assert torch.equal(last, logits[path[-1]])
    assert_same_bits(runner, alone)
    assert_same_bits(runner, fresh)


STRATEGIES = (
    speclab.DynaTree(),
    speclab.LinearSpeculation(),
    speclab.FixedTree(),
    speclab.PromptLookup(),
    speclab.TokenRecycling(),
)


@pytest.mark.parametrize("family", ["gpt_neox", "llama"])
@pytest.mark.parametrize("sampled", [{}, {"temperature": 1.0, "seed": 3}], ids=["greedy", "sampled"])
def test_every_strategys_text_is_plain_decodings_in_half_precision(family, sampled):
    """Compared once more, token by token, by `check`, which knows no ties here."""
    target, draft = (tiny(family, seed=seed).to(torch.bfloat16) for seed in (0, 0))
    pair = speclab.load_pair(target=target, draft=draft)
    assert pair.describe()["target_forward"] == "lean, packed, bitwise"
    prompt = [5, 6, 7, 5, 6, 7, 5]
    plain = speclab.generate(pair, speclab.Autoregressive(), prompt, max_new_tokens=40, check=True, **sampled)
    for strategy in STRATEGIES:
        found = speclab.generate(pair, strategy, prompt, max_new_tokens=40, check=True, **sampled)
        assert found.token_ids == plain.token_ids


def _summed_in_float32(attention, query, keys, values, hidden):
    scores = query.float() @ keys.float().repeat_interleave(len(query) // len(keys), 0).mT
    weights = (scores if hidden is None else scores.masked_fill(hidden, -torch.inf)).softmax(-1)
    out = weights @ values.float().repeat_interleave(len(query) // len(values), 0)
    return out.to(attention.dtype).transpose(0, 1).reshape(query.shape[1], -1)


def _another_kernel_for_one_row(patch):
    """A processor whose products sum in another order for one row, as some do."""
    plain, with_other = packed._products()

    def halves(product, rows, *rest):
        if len(rows) != 1:
            return product(rows, *rest)
        noise = 1 + 2.0**-6 * torch.arange(rows.shape[1]).sin()
        return product((rows * noise).to(rows.dtype), *rest)

    ways = partial(halves, plain), partial(halves, with_other)
    patch.setattr(packed, "_products", lambda: ways)
    patch.setattr(exact, "_TRIED", {})


def test_sums_in_another_order_would_be_found_out(monkeypatch):
    model = tiny("llama", num_hidden_layers=6)
    runner = Runner(model, bitwise=True)
    assert bits_apart(runner) == 0.0
    assert bits_apart(Runner(model)) > 0.0
    monkeypatch.setattr(exact.ExactAttention, "_attend", _summed_in_float32)
    assert max(bits_apart(runner, seed) for seed in range(4)) > 0.0


def test_numbers_of_rows_with_a_kernel_of_their_own_are_not_used(monkeypatch):
    _another_kernel_for_one_row(monkeypatch)
    assert bits_apart(Runner(tiny("llama").to(torch.bfloat16), bitwise=True)) == 0.0
    monkeypatch.setattr(exact, "agreeing", lambda *_, **__: exact.COUNTS)
    assert bits_apart(Runner(tiny("llama").to(torch.bfloat16), bitwise=True)) > 0.0


def test_where_a_bit_differs_the_load_refuses_or_goes_on_in_ordinary_arithmetic(monkeypatch):
    monkeypatch.setattr("speclab.models.probe.bits_apart", lambda _: 0.5)
    model = tiny("llama").to(torch.bfloat16)
    pair = speclab.load_pair(target=model)
    assert "lean, packed, without exact arithmetic: " in pair.describe()["target_forward"]
    assert not pair.target.bitwise
    with pytest.raises(UnsupportedModelError, match="bitwise=False"):
        speclab.load_pair(target=model, bitwise=True)


def test_by_default_half_precision_is_exact_where_it_can_be_and_float32_as_ever():
    half = tiny("llama").to(torch.bfloat16)
    said: list[str] = []
    exact = speclab.load_pair(target=half, report=said.append)
    assert exact.target.bitwise
    assert "bitwise=False" in exact.describe()["arithmetic"]
    assert "bitwise=False" in said[-1], "what was not asked for is said, with the way out"
    ordinary = speclab.load_pair(target=half, bitwise=False, report=said.append)
    assert not ordinary.target.bitwise
    assert "arithmetic" not in ordinary.describe()
    assert "bitwise=False" not in said[-1]
    assert not speclab.load_pair(target=tiny("llama")).target.bitwise
    assert speclab.load_pair(target=tiny("llama"), bitwise=True).target.bitwise
    assert not speclab.load_pair(target=tiny("gpt2").to(torch.bfloat16)).target.bitwise


@pytest.mark.parametrize(
    ("model", "more"),
    [
        (lambda: tiny("gpt2"), {}),
        (lambda: tiny("llama").double(), {}),
        (lambda: tiny("llama"), {"fast": False}),
        (lambda: tiny("gpt_neox", hidden_act="mish"), {}),
    ],
    ids=["a family", "a dtype", "the module alone", "an activation"],
)
def test_what_cannot_be_exact_is_refused_with_the_way_out(model, more):
    with pytest.raises(UnsupportedModelError, match=r"bit for bit: .*bitwise=False"):
        speclab.load_pair(target=model(), bitwise=True, **more)


def test_a_hook_is_refused_not_passed_over():
    runner = Runner(tiny("llama"), bitwise=True)
    runner.extend([1])
    hook = runner.model.model.layers[0].register_forward_hook(lambda *_: None)
    with pytest.raises(UnsupportedModelError, match="hook"):
        runner.extend([2])
    hook.remove()
    assert torch.equal(Runner(runner.model, bitwise=True).extend([1, 2]), runner.extend([2]))


def test_the_module_reads_what_an_exact_forward_cached():
    runner = runner_of("llama, shared keys", torch.bfloat16).fork()
    runner.extend([1, 2, 3, 4])
    weights = attention_weights(runner, [1, 2, 3, 4], [5], [4], torch.ones(1, 1).bool().numpy(), 0)
    torch.testing.assert_close(torch.from_numpy(weights).sum(-1), torch.ones(2, 4), atol=0.02, rtol=0.0)


class Widened(TorchDispatchMode):
    """Counts numbers that become float64."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        out = operator(*args, **(kwargs or {}))
        narrow = any(isinstance(it, torch.Tensor) and it.dtype == torch.bfloat16 for it in args)
        if narrow and isinstance(out, torch.Tensor) and out.dtype == torch.float64:
            self.count += out.numel()
        return out


def test_a_pass_converts_its_own_rows_and_not_the_text_before():
    found = []
    for length in (20, 200):
        runner = runner_of("llama, shared keys", torch.bfloat16).fork()
        runner.extend([1] * length)
        with Widened() as widened:
            runner.extend([2])
        found.append(widened.count)
    assert found[0] == found[1] > 0


def test_graphs_of_one_size_serve_plain_decoding_and_trees():
    """On stand-ins: no graph was captured on a GPU here."""
    runner = runner_of("llama, shared keys", torch.bfloat16).fork()
    quick, counts = runner.fork(), Counter()
    (lean,) = runner.implementation.implementations
    quick.implementation = FallbackChain(GraphForward(lean, runner.model, lambda: FakeGraph(counts)), lean)
    for each in (runner, quick):
        each.extend([1, 2, 3])
    for tokens in ([4], [5, 6, 7], [8] * 40):
        assert torch.equal(runner.extend(tokens), quick.extend(tokens))
    assert counts["captured"] == 1
    assert counts["replayed"] == 3
    assert_same_bits(runner, quick)
