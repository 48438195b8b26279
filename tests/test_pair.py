"""Pairs: prompts, texts of tokens, the shipped family, modules in memory."""

import copy
import pickle
import re

import numpy as np
import pytest
import torch
from support.pairs import library_text
from support.refusals import refused
from support.tiny import tiny
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast

import speclab
from speclab.errors import ModelNotFoundError, PromptError, SettingsError, UnsupportedModelError
from speclab.loading import presets
from speclab.loading.tokens import compare
from speclab.pair import load_pair

pytestmark = pytest.mark.model
MINI_TOKENIZER = presets.MINI / "tokenizer"


@pytest.fixture(scope="module")
def mini():
    return load_pair()


@pytest.fixture(scope="module")
def bare():
    return load_pair(target=tiny("gpt_neox"), draft=tiny("gpt_neox", seed=1))


def test_texts_of_tokens_add_up_to_the_text(mini):
    def as_bytes(piece):
        if not piece.startswith("<0x"):
            return piece.encode()
        return bytes.fromhex("".join(re.findall("<0x(..)>", piece)))

    for text in ("the\n\tcat", " naïve – 日本 🦊", "x" * 40, "a  b<|endoftext|>"):
        ids = mini.encode(text)
        pieces = [mini.token_texts([token])[token] for token in ids]
        assert b"".join(map(as_bytes, pieces)).decode() == mini.decode(ids) == text
    ids = [mini.encode("a the")[-1], mini.tokenizer.eos_token_id, 4096, -1]
    assert [*mini.token_texts(ids).values()] == [" the", "<|endoftext|>", "#4096", "#-1"]


def test_modules_in_memory_work_on_ids_without_a_tokenizer(bare):
    assert (
        bare.encode((1, 2))
        == bare.encode(np.array([1, 2]))
        == bare.encode(torch.tensor([1, 2]))
        == [1, 2]
    )
    assert bare.decode([5, 6]) == "#5 #6"
    assert (bare.tokenizer, bare.eos_ids, bare.name) == (None, frozenset(), "gpt_neox + gpt_neox")


def test_eos_ids_are_those_of_the_generation_config_alone():
    module = tiny("llama", vocab=4096, eos_token_id=7)
    assert load_pair(target=module).eos_ids == {7}, (
        "a model without a file of its own derives one from its config"
    )
    module.generation_config.eos_token_id = [8, 9]
    assert load_pair(target=module, tokenizer=MINI_TOKENIZER).eos_ids == {8, 9}
    module.generation_config.eos_token_id = None
    assert load_pair(target=module, tokenizer=MINI_TOKENIZER).eos_ids == frozenset()


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
        ({"name": "nothing"}, ModelNotFoundError, "choose one of mini, smollm2"),
        ({"draft": "gpt2"}, SettingsError, "needs its target"),
        ({"dtype": "int8"}, SettingsError, 'use "float32"'),
        ({"device": "cuda:99"}, SettingsError, "cuda:99"),
        ({"tokenizer": presets.MINI / "target"}, ModelNotFoundError, "has no tokenizer"),
    ],
)
def test_bad_settings_are_one_sentence(given, error, reason):
    with refused(error, reason):
        load_pair(**given)


class Letters(PreTrainedTokenizer):
    """A tokenizer in Python of 26 ids, which raises its own errors."""

    def get_vocab(self):
        return {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}

    vocab_size = 26

    def _tokenize(self, text):
        return list(text)

    def _convert_token_to_id(self, token):
        return self.get_vocab()[token]

    def _convert_id_to_token(self, index):
        return "abcdefghijklmnopqrstuvwxyz"[index]


def test_what_a_tokenizer_raises_does_not_come_through():
    pair = load_pair(target=tiny("llama"), tokenizer=Letters())
    assert pair.decode([0, 40, 1, 2, 63]) == "a#40b c#63"
    assert pair.token_texts([0, 40]) == {0: "a", 40: "#40"}
    with refused(PromptError, "cannot encode", "'A ship'"):
        pair.encode("A ship")
    compare(Letters(), Letters())


def test_the_new_text_keeps_the_space_that_a_decoder_strips():
    core = Tokenizer(WordLevel({"▁the": 0, "▁sea": 1, "<unk>": 2}, unk_token="<unk>"))
    core.decoder = decoders.Metaspace()
    pair = load_pair(target=tiny("llama"), tokenizer=PreTrainedTokenizerFast(tokenizer_object=core))
    assert pair.decode([0, 1]) == "the sea"
    assert pair.continuation([0], [1, 0]) == " sea the"
    mini = load_pair()
    ids = mini.encode("a 🦊")
    assert mini.continuation(ids[:-1], ids[-1:]) == "🦊", "the character that it completes"


def test_a_pair_and_a_session_say_how_they_are_copied_and_a_callable_is(mini):
    session = speclab.Session(mini, speclab.PromptLookup(), [5, 6], max_new_tokens=4)
    for each in (mini, session):
        for way in (copy.deepcopy, pickle.dumps):
            with refused(SettingsError, "fork"):
                way(each)
    inside = pickle.loads(pickle.dumps(speclab.custom_generate(speclab.PromptLookup())))
    own = tiny("llama")
    text = library_text(own, [5, 6, 5], 8, custom_generate=inside)
    assert text == library_text(own, [5, 6, 5], 8)


def test_a_draft_that_is_wrong_is_called_the_draft():
    wrong = tiny("llama", seed=1)
    wrong.lm_head.weight.data.fill_(torch.nan)
    with refused(UnsupportedModelError, "the draft llama"):
        load_pair(target=tiny("llama"), draft=wrong)
