"""Models that turn all positions by other angles once a text is long (longrope, Phi-3-128k): exact on either side."""

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


def own_text(prompt: list[int], count: int) -> list[int]:
    return library_text(pair_of().target.model, prompt, count)


@pytest.mark.parametrize("variant", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize(("prompt", "count"), [(20, 12), (BORDER + 1, 8)])
def test_a_text_on_one_side_is_the_targets_own(variant, prompt, count):
    session = speclab.Session(pair_of(), variant, prompt_of(prompt), max_new_tokens=count, check=True)
    session.run()
    assert session.token_ids == own_text(prompt_of(prompt), count)


def test_a_text_that_would_cross_is_refused_with_the_way_out():
    with pytest.raises(
        ContextExceededError, match="set max_new_tokens to 12 or less, or give a prompt of more than 32"
    ):
        speclab.generate(pair_of(), speclab.Autoregressive(), prompt_of(20), max_new_tokens=13)
    session = speclab.Session(pair_of(), speclab.PromptLookup(), prompt_of(20), max_new_tokens=4)
    session.run()
    with pytest.raises(ContextExceededError, match="longrope"):
        session.fork(max_new_tokens=40)


def test_texts_on_both_sides_take_turns():
    """The angles lie in the module, which the texts share."""
    sessions = [
        speclab.Session(pair_of(), speclab.PromptLookup(), prompt_of(length), max_new_tokens=8)
        for length in (20, BORDER + 1)
    ]
    while not all(session.done for session in sessions):
        for session in sessions:
            if not session.done:
                session.step()
    assert [session.token_ids for session in sessions] == [own_text(session.prompt_ids, 8) for session in sessions]
