"""The training text and its tokenizer: nothing is lost or read twice, and what is missing is one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from speclab import SpeclabError
from training.data import Batches, Packed, corpus_folder, fix_mojibake, pack, read_documents, split


@pytest.fixture
def packed(
    corpus: Path, mixture: dict[str, float], tokenizer_folder: Path, tmp_path: Path
) -> list[Packed]:
    return pack(
        corpus, mixture, Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json")), tmp_path
    )


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder: Path):
    return AutoTokenizer.from_pretrained(tokenizer_folder)


def test_documents_survive_reading_and_splitting(corpus: Path):
    documents = read_documents(corpus, "sums")
    assert len(documents) == 240
    assert documents[0] == "0 + 3 = 3\n#### 3"
    train, held = split(documents)
    assert len(held) == 4
    assert sorted(train + held) == sorted(documents)
    text = "\n".join(f"line {i}" for i in range(1000))
    (train,), (held,) = split([text])
    assert train + held == text
    assert 0 < len(held) < 0.05 * len(text), "a source of one document gives its end"


def test_packed_tokens_decode_to_the_documents(corpus: Path, packed: list[Packed], tokenizer):
    sums = packed[1]
    texts = [d.encode() for d in split(read_documents(corpus, "sums"))[1]]
    pieces = tokenizer.decode(sums.held_out_tokens().tolist()).split("<|endoftext|>")
    assert [p.encode() for p in pieces[:-1]] == texts
    assert sums.held_out_bytes == sum(map(len, texts))


def test_batches_hold_the_mixture_exactly_and_go_on_from_their_state(packed, mixture):
    batches = Batches(packed, mixture, seed=3)
    for _ in range(50):
        assert batches.next(4, 16).shape == (4, 17)
    total = sum(batches.tokens_of.values())
    for name, share in mixture.items():
        assert abs(batches.tokens_of[name] - share * total) <= 16
    resumed = Batches(packed, mixture, seed=3)
    other = Batches(packed, mixture, seed=4)
    resumed.restore(batches.state())
    other.restore(batches.state())
    rows = batches.next(60, 16)
    assert np.array_equal(rows, resumed.next(60, 16))
    assert not np.array_equal(rows, other.next(60, 16))


def test_one_pass_reads_every_window_once(tmp_path: Path):
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "train.bin")
    source = Packed(
        name="tales",
        train=tmp_path / "train.bin",
        held_out=tmp_path / "train.bin",
        held_out_bytes=1,
    )
    rows = Batches([source], {"tales": 1.0}, seed=0).next(61, 16)
    starts = sorted(rows[:, 0].tolist())
    assert starts == list(range(starts[0], starts[0] + 61 * 16, 16))
    assert (rows == rows[:, :1] + np.arange(17)).all()


def test_missing_text_is_one_sentence(monkeypatch, tmp_path: Path, packed, mixture):
    monkeypatch.delenv("SPECLAB_CORPUS", raising=False)
    with pytest.raises(SpeclabError, match="SPECLAB_CORPUS"):
        corpus_folder(None)
    with pytest.raises(SpeclabError, match="does not exist"):
        corpus_folder(tmp_path / "none")
    monkeypatch.setenv("SPECLAB_CORPUS", str(tmp_path))
    assert corpus_folder(None) == tmp_path
    with pytest.raises(SpeclabError, match="missing"):
        read_documents(tmp_path, "books")
    (tmp_path / "books.txt.xz").write_bytes(b"no xz")
    with pytest.raises(SpeclabError, match="not readable"):
        read_documents(tmp_path, "books")
    with pytest.raises(SpeclabError, match="fewer than"):
        Batches(packed, mixture, 0).next(1, 100_000)


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        (
            "He said, â€œThatâ€™s wise.â€ Then â€œGo!â€, again.",
            "He said, “That’s wise.” Then “Go!”, again.",
        ),
        ("â€œOne.\nTwo.â€", "“One.\nTwo.â€"),
        *(
            (text, text)
            for text in (
                '"What we can find.â€',
                "„Spaß“",
                "naïvely, â la carte",
                "5 €, â",
                "日本 “ƒ”",
            )
        ),
    ],
)
def test_marks_that_were_encoded_twice_are_fixed_and_true_text_stays(
    broken, whole, tmp_path: Path, source
):
    assert fix_mojibake(broken) == whole
    source(tmp_path, "tales", [broken])
    assert read_documents(tmp_path, "tales") == [whole]


def test_any_unicode_round_trips_and_digits_stand_alone(tokenizer):
    @settings(max_examples=30)
    @given(st.text(max_size=40))
    @example(" two  spaces \ttab\r\n\n👩\u200d🚀\x00\x7f")
    def check(text: str) -> None:
        assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=False) == text

    check()
    assert len(tokenizer) == 300
    assert tokenizer.eos_token_id == tokenizer.convert_tokens_to_ids("<|endoftext|>") == 0
    assert tokenizer("<|endoftext|>").input_ids == [0]
    assert [tokenizer.decode([i]) for i in tokenizer("2048").input_ids] == ["2", "0", "4", "8"]
