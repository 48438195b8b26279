from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

TEXTS = [
    "",
    " two  spaces ",
    "tab\tand\r\nnewlines\n\n",
    "naïve café",
    "日本語 🌞 👩‍🚀",
    "1234.5 + 67",
    "\x00\x7f",
]


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder: Path):
    return AutoTokenizer.from_pretrained(tokenizer_folder)


@pytest.mark.parametrize("text", TEXTS)
def test_text_round_trips(tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_any_unicode_round_trips(tokenizer) -> None:
    @given(st.text(max_size=40))
    def check(text: str) -> None:
        assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=False) == text

    check()


def test_specials_and_size(tokenizer) -> None:
    assert len(tokenizer) == 300
    assert tokenizer.eos_token_id == tokenizer.convert_tokens_to_ids("<|endoftext|>") == 0
    assert tokenizer("<|endoftext|>").input_ids == [0]


def test_digits_are_single_tokens(tokenizer) -> None:
    assert [tokenizer.decode([i]) for i in tokenizer("2048").input_ids] == ["2", "0", "4", "8"]
