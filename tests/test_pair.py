"""Pairs: prompts, texts of tokens, the shipped family, modules in memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from support.refusals import refused
from support.tiny import tiny

from speclab.errors import (
    ModelNotFoundError,
    SettingsError,
    UnsupportedModelError,
)
from speclab.loading import presets
from speclab.pair import load_pair

pytestmark = pytest.mark.model
MINI_TOKENIZER = presets.MINI / "tokenizer"


@pytest.fixture(scope="module")
def mini():
    return load_pair()


@pytest.fixture(scope="module")
def bare():
    return load_pair(target=tiny("gpt_neox"), draft=tiny("gpt_neox", seed=1))


def test_the_shipped_pair_continues_text(mini):
    one = mini.fresh()
    ids = one.encode("Once upon a time")
    logits = one.target.extend(ids)
    for _ in range(8):
        ids.append(int(logits.argmax()))
        logits = one.target.extend(ids[-1:])
    with torch.inference_mode():
        theirs = one.target.model.generate(
            torch.tensor([ids[:-8]]), max_new_tokens=8, do_sample=False
        )[0].tolist()
    assert ids == theirs
    assert one.decode(ids).startswith("Once upon a time")


def test_texts_of_tokens_add_up_to_the_text(mini):
    for text in ("the\n\tcat", " naïve – 日本 🦊", "x" * 40, "a  b<|endoftext|>"):
        ids = mini.encode(text)
        joined = b"".join(
            bytes(int(part[3:5], 16) for part in piece.replace("><", ">|<").split("|"))
            if piece.startswith("<0x")
            else piece.encode()
            for piece in map(mini.token_text, ids)
        )
        assert joined.decode() == mini.decode(ids) == text
    assert mini.token_text(mini.encode("a the")[-1]) == " the"
    assert mini.token_text(mini.encode("\n")[0]) == "\n"
    assert mini.token_text(mini.tokenizer.eos_token_id) == "<|endoftext|>"
    assert mini.token_text(4096) == "#4096"
    assert mini.token_text(-1) == "#-1"
    assert {mini.token_text(token) for token in mini.encode("🦊")} & {"<0xF0>", "<0xF0><0x9F>"}


def test_modules_in_memory_work_on_ids_without_a_tokenizer(bare):
    assert (
        bare.encode((1, 2))
        == bare.encode(np.array([1, 2]))
        == bare.encode(torch.tensor([1, 2]))
        == [1, 2]
    )
    assert bare.decode([5, 6]) == "#5 #6"
    assert (bare.tokenizer, bare.eos_ids, bare.name) == (None, frozenset(), "gpt_neox + gpt_neox")
    assert bare.describe()["draft_parameters"] == bare.draft.model.num_parameters()


def test_a_pair_may_have_no_draft():
    alone = load_pair(target=tiny("llama")).fresh()
    assert (alone.draft, list(alone.runners)) == (None, ["target"])


def test_eos_ids_are_those_of_the_generation_config_alone():
    module = tiny("llama", vocab=4096, eos_token_id=7)
    assert load_pair(target=module).eos_ids == {7}, (
        "a model without a file of its own derives one from its config"
    )
    module.generation_config.eos_token_id = [8, 9]
    assert load_pair(target=module, tokenizer=MINI_TOKENIZER).eos_ids == {8, 9}
    module.generation_config.eos_token_id = None
    assert load_pair(target=module, tokenizer=MINI_TOKENIZER).eos_ids == frozenset()


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_family_that_cannot_verify_trees_is_refused_in_either_role(role):
    with pytest.raises(UnsupportedModelError, match="gpt_neo"):
        load_pair(
            **{"target": tiny("gpt2"), "draft": tiny("gpt2", seed=1)} | {role: tiny("gpt_neo")}
        )


def test_an_attention_without_masks_is_replaced():
    module = tiny("llama")
    module.config._attn_implementation = "flex_attention"
    assert load_pair(target=module).describe()["target_attention"] == "sdpa"
    module = tiny("gemma2")  # has no sdpa
    module.config._attn_implementation = "flex_attention"
    assert load_pair(target=module).describe()["target_attention"] == "eager"


def test_dtype_and_device_given_move_the_module_and_nothing_else_does(tmp_path):
    module = tiny("llama").to(torch.bfloat16)
    module.save_pretrained(tmp_path)
    assert load_pair(target=tmp_path).target.dtype == torch.float32, "a file on a CPU"
    assert load_pair(target=tmp_path, dtype="bfloat16").target.dtype == torch.bfloat16
    assert load_pair(target=module).target.dtype == torch.bfloat16
    assert load_pair(target=module, dtype="float32", device="cpu").target.dtype == torch.float32


@pytest.mark.parametrize(
    ("given", "error", "reason"),
    [
        ({"name": torch.nn.Linear(2, 2)}, SettingsError, "got a Linear: pass a model as target="),
        (
            {"name": "nothing"},
            ModelNotFoundError,
            "no pair named 'nothing': choose one of mini, smollm2",
        ),
        ({"draft": "gpt2"}, SettingsError, "needs its target"),
        ({"dtype": "int8"}, SettingsError, 'use "float32"'),
        ({"device": "cuda:99"}, SettingsError, 'no cuda:99: use device="cpu"'),
        ({"tokenizer": presets.MINI / "target"}, ModelNotFoundError, "has no tokenizer"),
    ],
)
def test_bad_settings_are_one_sentence(given, error, reason):
    with refused(error, reason):
        load_pair(**given)


def test_two_threads_may_load_at_once():
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: load_pair(), range(2))
    assert torch.equal(first.target.extend([5, 6]), second.target.extend([5, 6]))
