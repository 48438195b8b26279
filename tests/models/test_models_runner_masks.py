"""The runner's masks: what each row was given to see, read back from the tensor that the model got."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runners import run_tree, runner_of
from strategies import draft_trees, token_lists
from tiny import FAMILIES, WINDOW, tiny

from speclab.models.runner import Runner

pytestmark = pytest.mark.model

CUT_BY_WINDOW = ("mistral",)  # one mask for every layer, cut to the window; hybrids show their full layers' mask


@pytest.mark.parametrize("family", FAMILIES)
@given(prefix=token_lists(max_size=20), tree=draft_trees(max_nodes=12), cut=st.none() | st.integers(1, 6))
@settings(max_examples=15)
def test_the_mask_given_is_the_ancestor_closure(family, prefix, tree, cut):
    runner = runner_of(family).fork()
    runner.extend(prefix)
    cut = (cut and min(cut, len(tree) - 1)) or None
    run_tree(runner, tree, cut)
    part, before = runner.mask_given()
    want = tree.attention_mask(len(prefix))
    if family in CUT_BY_WINDOW:
        columns = np.concatenate([np.arange(len(prefix)), len(prefix) + tree.depth])
        want = want & ((len(prefix) + tree.depth)[:, None] - columns[None] < WINDOW)
    want = want[cut:]
    assert np.array_equal(part, want[:, -len(want) :])
    assert before == want[:, : -len(want)].sum(axis=1).tolist()


@pytest.mark.parametrize("family", ["gpt_neox", "mistral", "gemma3_text"])
def test_the_mask_is_read_back_from_the_tensor_that_the_model_got(family):
    runner = Runner(tiny(family))
    runner.extend(list(range(5)))
    handed = []

    def spy(module, args, kwargs):
        mask = kwargs["attention_mask"]
        mask = mask["full_attention"] if isinstance(mask, dict) else mask
        mask[..., 2, 0] = torch.finfo(mask.dtype).min  # a wrong mask must show
        handed.append(mask)

    runner.model.register_forward_pre_hook(spy, with_kwargs=True)
    runner.forward([1, 2, 3], [5, 6, 6], np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=bool))
    assert runner.mask_given()[1] == [5, 5, 4]
    assert handed[0].shape == (1, 1, 3, 8)
    assert handed[0].is_floating_point()


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3_text"])
def test_one_token_needs_no_new_mask_until_the_window_hides_something(family):
    runner, handed = Runner(tiny(family)), []
    runner.extend([1, 2, 3])
    runner.model.register_forward_pre_hook(
        lambda module, args, kwargs: handed.append(kwargs["attention_mask"]), with_kwargs=True
    )
    for token in range(10):
        runner.extend([token])
    masks = [next(iter(mask.values())) if isinstance(mask, dict) else mask for mask in handed]
    made = [mask.data_ptr() != runner._zeros.data_ptr() for mask in masks]
    assert made == [family != "llama" and length > WINDOW for length in range(4, 14)]


def test_a_prompt_into_an_empty_cache_needs_no_mask():
    runner, handed = Runner(tiny("llama")), []
    runner.model.register_forward_pre_hook(
        lambda module, args, kwargs: handed.append(kwargs["attention_mask"]), with_kwargs=True
    )
    runner.extend(list(range(30)))
    assert handed == [None]
