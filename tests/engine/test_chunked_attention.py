"""Llama 4's layers that attend within chunks: the target's own text across the borders of chunks."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from tiny import CHUNK, tiny
from variants import VARIANTS

import speclab

pytestmark = pytest.mark.model


@cache
def pair_of() -> speclab.ModelPair:
    return speclab.load_pair(target=tiny("llama4_text"), draft=tiny("llama4_text", seed=3))


@pytest.mark.parametrize("length", [CHUNK - 3, 2 * CHUNK])
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_the_text_is_the_librarys_across_chunks(variant, length):
    prompt = torch.randint(0, 64, (1, length), generator=torch.Generator().manual_seed(length))
    session = speclab.Session(pair_of(), variant, prompt[0], max_new_tokens=2 * CHUNK + 2, check=True)
    session.run()
    own = pair_of().target.model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=2 * CHUNK + 2, do_sample=False
    )
    assert session.token_ids == own[0, length:].tolist()
