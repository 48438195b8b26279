"""The lean forwards: the module's own logits, hidden states and caches, on its own weights, or the module itself."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runners import CLOSE, plain, run_tree
from strategies import draft_trees, token_lists
from tiny import FAMILIES, tiny

from speclab import DynaTree, generate, load_pair
from speclab.models.changes import SharedForward
from speclab.models.fast import packed
from speclab.models.runner import Runner

pytestmark = pytest.mark.model

LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
VARIANTS = {
    "gpt_neox": ("gpt_neox", {}),
    "gpt_neox, one after the other": ("gpt_neox", {"use_parallel_residual": False}),
    "gpt_neox, no biases, tied": ("gpt_neox", {"attention_bias": False, "tie_word_embeddings": True}),
    "gpt_neox, all turned, relu": ("gpt_neox", {"rotary_pct": 1.0, "hidden_act": "relu"}),
    "llama, shared keys": ("llama", {}),
    "llama, a key a head, biases": ("llama", {"num_key_value_heads": 4, "attention_bias": True, "mlp_bias": True}),
    "llama 3.1 angles": ("llama", {"rope_parameters": LLAMA3 | {"original_max_position_embeddings": 64}}),
}
RUNNERS: dict[tuple[str, bool], Runner] = {}


def _lean(variant: str, pack: bool) -> Runner:
    if (variant, pack) not in RUNNERS:
        family, overrides = VARIANTS[variant]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(packed, "PAYS", pack)
            model = tiny(family, **overrides)
            model(torch.tensor([[1]]), output_hidden_states=True)  # changes the module the first time
            RUNNERS[variant, pack] = Runner(model)
    return RUNNERS[variant, pack]


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
@given(prefix=token_lists(max_size=20), tree=draft_trees(max_nodes=12), cut=st.none() | st.integers(1, 6))
@settings(max_examples=6)
def test_logits_states_and_caches_are_the_modules(variant, pack, prefix, tree, cut):
    lean, module = _lean(variant, pack).fork(), _lean(variant, pack).by_module()
    assert (lean.implementation.name, module.implementation.name) == ("lean, packed" if pack else "lean", "module")
    assert lean.implementation.implementations[0].head.pack is pack
    for runner in (lean, module):
        runner.watch((-1, 0, 1))
    torch.testing.assert_close(lean.extend(prefix), module.extend(prefix), **CLOSE)
    cut = cut if cut is None else min(cut, len(tree))
    torch.testing.assert_close(run_tree(lean, tree, cut), run_tree(module, tree, cut), **CLOSE)
    for mine, own in zip(lean.cache.layers, module.cache.layers, strict=True):
        torch.testing.assert_close(mine.keys, own.keys, **CLOSE)
        torch.testing.assert_close(mine.values, own.values, **CLOSE)
    mine, own = (runner.hidden.rows(0, runner.length, (0, 1, -1)) for runner in (lean, module))
    torch.testing.assert_close(mine, own, **CLOSE)


def test_families_without_one_go_through_their_module():
    for family in FAMILIES:
        name = SharedForward(tiny(family)).forward.name
        assert name == ("lean, packed" if family in {"gpt_neox", "llama"} else "module")


def _another_linear(model):
    class Adapted(torch.nn.Linear):
        pass

    model.lm_head.__class__ = Adapted


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda model: model.set_attn_implementation("eager"), "eager"),
        (lambda model: model.config.rope_parameters.update(rope_type="dynamic"), "dynamic"),
        (lambda model: setattr(model.lm_head, "_hf_hook", object()), "accelerate"),
        (_another_linear, "Adapted"),
    ],
    ids=["eager attention", "angles that depend on the length", "parted over devices", "an adapter"],
)
def test_what_is_not_the_familys_own_goes_through_the_module(change, reason):
    model = tiny("llama")
    change(model)
    assert re.match(f"module: .*{reason}", SharedForward(model).forward.name)


def test_a_hook_placed_later_is_called():
    runner, seen = Runner(tiny("gpt_neox")), []
    runner.extend([1, 2])
    hook = runner.model.gpt_neox.layers[0].mlp.register_forward_hook(lambda *_: seen.append(1))
    got = runner.extend([3])
    hook.remove()
    runner.extend([4])
    torch.testing.assert_close(got, Runner(runner.model).extend([1, 2, 3]), **CLOSE)
    assert seen == [1]


def _written(model):
    with torch.no_grad():
        model.gpt_neox.layers[1].mlp.dense_h_to_4h.bias.add_(1)


def _exchanged(model):
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight + 1)


@pytest.mark.parametrize("change", [_written, _exchanged])
def test_weights_that_change_are_seen_in_the_next_pass(change):
    runner = Runner(tiny("gpt_neox"))
    before = runner.extend([1, 2, 3])
    change(runner.model)
    runner.crop(0)
    after = runner.extend([1, 2, 3])
    assert not torch.allclose(before, after, **CLOSE)
    torch.testing.assert_close(after, runner.by_module().extend([1, 2, 3]), **CLOSE)


@pytest.mark.parametrize("faster", [True, False])
def test_the_faster_product_is_taken_and_said(monkeypatch, faster):
    """Measured on the model's own layers, once in a process for layers of the same shapes."""
    measured = []
    monkeypatch.setattr(packed, "PAYS", None)
    monkeypatch.setattr(packed, "_FOUND", {})
    monkeypatch.setattr(packed, "_ratio", lambda *_: (measured.append(1), 0.5 if faster else 2.0)[1])
    for seed in range(2):
        model = tiny("llama", seed=seed)
        assert SharedForward(model).forward.name == ("lean, packed" if faster else "lean")
    assert len(measured) == len(packed.ROWS)


def test_without_memory_for_a_second_copy_nothing_is_packed(monkeypatch):
    monkeypatch.setattr("speclab.models.memory.free", lambda _: 1000)
    assert SharedForward(tiny("llama")).forward.name == "lean"


def test_bfloat16_products_are_packed_and_the_modules_own():
    model = tiny("llama", mlp_bias=True).to(torch.bfloat16)
    runner = Runner(model)
    torch.testing.assert_close(runner.extend([1, 2, 3]), runner.by_module().extend([1, 2, 3]), atol=0.5, rtol=0.0)
    assert runner.implementation.name == "lean, packed"


def test_a_pass_that_fails_midway_leaves_no_rows_to_the_module_that_takes_over():
    def broken(*_):
        raise RuntimeError("broken kernel")

    runner = Runner(tiny("llama"))
    runner.extend([1, 2, 3])
    lean = runner.implementation.implementations[0]
    lean.layers = [lean.layers[0], broken]
    torch.testing.assert_close(runner.extend([4]), plain(runner, [1, 2, 3, 4])[-1], **CLOSE)
    assert runner.implementation.name == "module, without lean forward: a pass failed (RuntimeError: broken kernel)"


def test_with_the_door_shut_every_pass_is_the_modules_and_the_text_the_same():
    """`fast=False` is the one setting that turns off all that is in `speclab.models.fast`."""
    target, draft = tiny("gpt_neox"), tiny("llama", seed=1)
    quick, shut = (load_pair(target=target, draft=draft, fast=fast) for fast in (True, False))
    by_module = quick.by_module()
    assert quick.describe()["target_forward"] == quick.describe()["draft_forward"] == "lean, packed"
    for pair in (shut, shut.fresh(), by_module):
        assert pair.describe()["target_forward"] == pair.describe()["draft_forward"] == "module"
    texts = [
        generate(pair, DynaTree(), [1, 2, 3], max_new_tokens=24).token_ids
        for pair in (quick, shut, by_module)
    ]
    assert texts[0] == texts[1] == texts[2]
