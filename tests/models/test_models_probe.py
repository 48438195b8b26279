"""The probe at load: what verifies trees passes, what does not is refused with its family and the reason."""

from __future__ import annotations

import pytest
import torch
from support.tiny import BY_PATHS, FAMILIES, WINDOW, make_loud, tiny
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from speclab.errors import UnsupportedModelError
from speclab.models.masks import MaskPlan
from speclab.models.paths import PathRunner
from speclab.models.probe import check_trees, measure
from speclab.models.runner import Runner
from speclab.tree import DraftTree


@pytest.mark.parametrize("family", FAMILIES)
def test_families_that_verify_trees_pass_far_below_the_bound(family):
    runner = Runner(tiny(family))
    assert check_trees(runner) is runner
    assert measure(runner.fork())[0] < 1e-4


@pytest.mark.parametrize("family", BY_PATHS)
def test_families_without_a_tree_mask_verify_by_paths(family):
    checked = check_trees(Runner(tiny(family)))
    assert isinstance(checked, PathRunner)
    assert checked.by_level == (family == "mamba")
    assert measure(checked.fork())[0] < 1e-4


def test_a_family_whose_kept_cache_is_wrong_is_refused_with_what_was_measured():
    with pytest.raises(UnsupportedModelError, match=r"family bamba\) .*differ by \d"):
        check_trees(Runner(tiny("bamba")))


def test_a_silently_wrong_family_is_measured_without_knowing_its_name():
    for window in (WINDOW, 100):
        difference, bound = measure(Runner(tiny("gpt_neo", window_size=window)))
        assert difference > 100 * bound


@pytest.mark.parametrize(
    ("family", "plan"),
    [
        ("mistral", MaskPlan()),  # the window forgotten
        ("mistral", MaskPlan(WINDOW + 1)),  # off by one
        ("gemma3_text", MaskPlan(WINDOW)),  # one mask for layers of two kinds
        ("gemma2", MaskPlan(None, ("full_attention", "sliding_attention"))),
    ],
)
def test_wrong_masks_are_measured(family, plan):
    difference, bound = measure(Runner(tiny(family), plan=plan))
    assert difference > 10 * bound


@pytest.mark.parametrize(
    ("family", "dtype"),
    [("llama", torch.float32), ("gpt2", torch.float16), ("llama", torch.bfloat16)],
)
def test_a_causal_mask_instead_of_the_trees_exceeds_the_bound(family, dtype, monkeypatch):
    monkeypatch.setattr(
        DraftTree,
        "ancestor_mask",
        lambda tree: torch.ones(len(tree), len(tree)).tril().bool().numpy(),
    )
    difference, bound = measure(Runner(tiny(family).to(dtype)))
    assert difference > bound


@pytest.mark.parametrize("family", ["mistral", "gemma3_text"])
def test_a_window_longer_than_the_probe_is_crossed_by_a_short_one(family):
    model = tiny(family, sliding_window=200)
    runner = Runner(model)
    lengths = []
    seen = set()

    def note(module, args):
        lengths.append(args[0].shape[1])
        if lengths[-1] > 1:
            seen.add(module.config.sliding_window)

    model.register_forward_pre_hook(note)
    check_trees(runner)
    assert 0 < max(lengths) < 20
    assert seen == {8}
    assert model.config.sliding_window == runner.plan.window == 200


def test_a_mask_that_is_wrong_beyond_a_long_window_is_found():
    model = tiny("gemma3_text", sliding_window=200)
    assert isinstance(check_trees(Runner(model, plan=MaskPlan(200))), PathRunner)


def test_an_encoder_is_refused():
    shape = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    encoder = AutoModelForCausalLM.from_config(
        CONFIG_MAPPING["bert"](**shape, intermediate_size=48)
    )
    make_loud(encoder.eval())
    with pytest.raises(UnsupportedModelError, match="family bert"):
        check_trees(Runner(encoder))


def test_a_lean_pass_that_differs_is_dropped_for_the_module():
    model = tiny("llama")
    model.model.layers[0].self_attn.scaling *= 2  # the lean pass computes it from the width
    runner = Runner(model)
    assert runner.lean is not None
    assert check_trees(runner) is runner
    assert runner.lean is None
