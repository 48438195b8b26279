"""The training text and its tokenizer: nothing is lost or read twice, and what is missing is one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from speclab import SpeclabError
from training.data import Batches, Packed, corpus_folder, pack, read_documents, split


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
