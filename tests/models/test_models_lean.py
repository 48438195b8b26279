"""The lean forwards: the module's own logits, hidden states and caches, on its own weights, or the module itself."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runners import CLOSE, run_tree
from strategies import draft_trees, token_lists
from tiny import FAMILIES, tiny

from speclab.drafters.dynatree import DynaTree
from speclab.engine.generate import generate
from speclab.models.changes import SharedForward
from speclab.models.fast import packed
from speclab.models.fast.packed import Linear
from speclab.models.pair import ModelPair
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
MODELS = {name: tiny(family, **overrides) for name, (family, overrides) in VARIANTS.items()}


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
@given(prefix=token_lists(max_size=20), tree=draft_trees(max_nodes=12), cut=st.none() | st.integers(1, 6))
@settings(max_examples=10)
def test_logits_states_and_caches_are_the_modules(variant, pack, prefix, tree, cut):
    lean, module = _both(variant, pack)
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


def _both(variant: str, pack: bool) -> tuple[Runner, Runner]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "PACKED_BYTES", packed.PACKED_BYTES if pack else 0)
        lean = Runner(MODELS[variant])
    assert lean.implementation.name == "lean"
    assert lean.implementation.implementations[0].head.pack is pack
    module = lean.by_module()
    assert module.implementation.name == "module"
    return lean, module


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_without_one_goes_through_its_module(family):
    assert Runner(tiny(family)).implementation.name == ("lean" if family in {"gpt_neox", "llama"} else "module")


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
    fresh = Runner(runner.model)
    torch.testing.assert_close(got, fresh.extend([1, 2, 3]), **CLOSE)
    assert seen == [1]


def _written(model):
    with torch.no_grad():
        model.gpt_neox.layers[1].mlp.dense_h_to_4h.bias.add_(1)


def _exchanged(model):
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight + 1)


@pytest.mark.parametrize("change", [_written, _exchanged])
def test_weights_that_change_are_seen(change):
    runner = Runner(tiny("gpt_neox"))
    before = runner.extend([1, 2, 3])
    change(runner.model)
    runner.crop(0)
    after = runner.extend([1, 2, 3])
    assert not torch.allclose(before, after, **CLOSE)
    torch.testing.assert_close(after, runner.by_module().extend([1, 2, 3]), **CLOSE)


def test_weights_are_laid_out_anew_only_when_they_changed(monkeypatch):
    laid_out = []
    monkeypatch.setattr(Linear, "repack", lambda self, own=Linear.repack: (laid_out.append(self), own(self)))
    runner = Runner(tiny("llama"))
    for token in range(4):
        runner.extend([token])
    assert len(laid_out) == len(set(map(id, laid_out))) == 2 * 4 + 1
    runner.fork(2).extend([1])
    assert len(laid_out) == 2 * 4 + 1


def test_half_precision_and_large_models_keep_to_one_copy_of_their_weights():
    assert packed.worth_packing(tiny("llama"))
    assert not packed.worth_packing(tiny("llama").to(torch.bfloat16))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "PACKED_BYTES", 1000)
        assert not packed.worth_packing(tiny("llama"))


def test_a_pair_can_keep_to_its_modules_and_decodes_the_same():
    pair = ModelPair(Runner(tiny("gpt_neox")), Runner(tiny("llama", seed=1)))
    by_module = pair.by_module()
    assert by_module.describe()["target_forward"] == by_module.describe()["draft_forward"] == "module"
    assert pair.describe()["target_forward"] == pair.describe()["draft_forward"] == "lean"
    texts = [generate(models, DynaTree(), [1, 2, 3], max_new_tokens=24).token_ids for models in (pair, by_module)]
    assert texts[0] == texts[1]
