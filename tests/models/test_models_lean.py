"""The lean forwards: the module's own logits, hidden states and caches, on its own weights, or the module itself."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.head_folders import LLAMA3
from support.runners import CLOSE, run_tree
from support.strategies import draft_trees, token_lists
from support.tiny import FAMILIES, tiny

from speclab.models import products
from speclab.models.lean import lean_forward
from speclab.models.runner import Runner

VARIANTS = {
    "gpt_neox": ("gpt_neox", {}),
    "gpt_neox, one after the other": ("gpt_neox", {"use_parallel_residual": False}),
    "gpt_neox, no biases, tied": (
        "gpt_neox",
        {"attention_bias": False, "tie_word_embeddings": True},
    ),
    "gpt_neox, all turned, relu": ("gpt_neox", {"rotary_pct": 1.0, "hidden_act": "relu"}),
    "llama, shared keys": ("llama", {}),
    "llama, a key a head, biases": (
        "llama",
        {"num_key_value_heads": 4, "attention_bias": True, "mlp_bias": True},
    ),
    "llama 3.1 angles": (
        "llama",
        {"rope_parameters": LLAMA3 | {"rope_theta": 1e4}},
    ),
}


@cache
def _lean(variant: str, packing: bool) -> Runner:
    family, overrides = VARIANTS[variant]
    model = tiny(family, **overrides)
    # leaves the library's hooks in the module
    model(torch.tensor([[1]]), output_hidden_states=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "PACKING", packing)
        patch.setattr(products, "_ways", lambda _: (False, True, True, False))
        return Runner(model)


@pytest.mark.parametrize(
    ("variant", "packing"), [*((name, True) for name in VARIANTS), ("llama, shared keys", False)]
)
@given(
    prefix=token_lists(max_size=20),
    tree=draft_trees(max_nodes=12),
    cut=st.none() | st.integers(1, 6),
)
@settings(max_examples=6)
def test_logits_states_and_caches_are_the_modules(variant, packing, prefix, tree, cut):
    written = _lean(variant, packing).fork()
    module = _lean(variant, packing).fork(lean=False)
    assert (written.forward_name, module.forward_name) == (
        "lean, packed" if packing else "lean",
        "module",
    )
    for runner in (written, module):
        runner.watch((-1, 0, 1))
    torch.testing.assert_close(written.extend(prefix), module.extend(prefix), **CLOSE)
    cut = cut if cut is None else min(cut, len(tree))
    torch.testing.assert_close(run_tree(written, tree, cut), run_tree(module, tree, cut), **CLOSE)
    for mine, own in zip(written.cache.layers, module.cache.layers, strict=True):
        torch.testing.assert_close(mine.keys, own.keys, **CLOSE)
        torch.testing.assert_close(mine.values, own.values, **CLOSE)
    mine, own = (runner.hidden.rows(0, runner.length, (0, 1, -1)) for runner in (written, module))
    torch.testing.assert_close(mine, own, **CLOSE)


def test_families_without_one_go_through_their_module():
    for family in FAMILIES:
        assert (lean_forward(tiny(family)) is not None) == (family in {"gpt_neox", "llama"})


CHANGES = {
    "eager attention": lambda model: model.set_attn_implementation("eager"),
    "angles that depend on the length": lambda model: model.config.rope_parameters.update(
        rope_type="dynamic"
    ),
    "parted over devices": lambda model: setattr(model.lm_head, "_hf_hook", object()),
    "weights of two dtypes": lambda model: model.lm_head.double(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_not_the_familys_own_goes_through_the_module(change):
    model = tiny("llama")
    change(model)
    assert lean_forward(model) is None
