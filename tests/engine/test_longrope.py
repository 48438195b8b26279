"""Models that turn all positions by other angles once a text is long (longrope, Phi-3-128k): exact up to there."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from pairs import library_text
from tiny import BORDER, tiny
from variants import PATHS

import speclab
from speclab import ContextExceededError

pytestmark = pytest.mark.model


@cache
def pair_of() -> speclab.ModelPair:
    return speclab.load_pair(target=tiny("phi3"), draft=tiny("phi3", seed=3))


def prompt_of(length: int) -> list[int]:
    draw = torch.Generator().manual_seed(length)
    return torch.randint(0, 4, (length,), generator=draw).tolist()  # few tokens, so that n-grams match


@pytest.mark.parametrize("variant", PATHS.values(), ids=PATHS)
def test_a_text_up_to_the_border_is_the_targets_own(variant):
    prompt, count = prompt_of(20), BORDER - 20
    session = speclab.Session(pair_of(), variant, prompt, max_new_tokens=count, check=True)
    session.run()
    assert session.token_ids == library_text(pair_of().target.model, prompt, count)


def test_a_text_that_would_cross_is_refused_with_the_way_out():
    with pytest.raises(ContextExceededError, match="32 tokens: set max_new_tokens to 12 or less"):
        speclab.generate(pair_of(), speclab.Autoregressive(), prompt_of(20), max_new_tokens=13)
    session = speclab.Session(pair_of(), speclab.PromptLookup(), prompt_of(20), max_new_tokens=4)
    session.run()
    with pytest.raises(ContextExceededError):
        session.fork(max_new_tokens=40)
