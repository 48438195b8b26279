"""Decoding on a GPU, as far as a device double can tell: the text is the CPU's text, and no pass fails."""

from __future__ import annotations

import pytest
from tiny import tiny

import speclab
from double import device
from speclab.prompts import examples

pytestmark = pytest.mark.double

PROMPT = [1, 2, 3, 1, 2, 3, 4]
SETTINGS = {"greedy": {}, "sampled": {"temperature": 0.8}}


def text(pair, strategy, prompt=PROMPT, **settings):
    return speclab.generate(pair, strategy, prompt, max_new_tokens=10, **settings).token_ids


def pair(family, **where):
    return speclab.load_pair(target=tiny(family), draft=tiny(family, seed=1), **where)


@pytest.fixture(scope="module")
def mini():
    with device():
        return [speclab.load_pair(device=name, dtype="float32") for name in ("cpu", "cuda")]


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("name", speclab.strategies())
def test_every_strategy_decodes_the_text_of_the_cpu(name, settings, mini):
    with device():
        texts = [text(each, speclab.strategies()[name](), examples()[0].text, **settings) for each in mini]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("family", ["gpt_neox", "gpt2", "qwen3", "gemma3_text", "mistral"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_families_decode_in_every_dtype(family, dtype):
    with device():
        got = text(pair(family, device="cuda", dtype=dtype), speclab.DynaTree())
        if dtype == "float32":
            assert got == text(pair(family, device="cpu"), speclab.DynaTree())
