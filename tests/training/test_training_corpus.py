from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from speclab import SpeclabError
from speclab.training.corpus import Batches, Packed, corpus_folder, pack, read_documents, split


@pytest.fixture
def packed(corpus: Path, mixture: dict[str, float], tokenizer_folder: Path, tmp_path: Path) -> list[Packed]:
    return pack(corpus, mixture, Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json")), tmp_path)


def test_documents_survive_reading_and_splitting(corpus: Path) -> None:
    documents = read_documents(corpus, "sums")
    assert len(documents) == 240
    assert documents[0] == "0 + 3 = 3\n#### 3"
    train, held = split(documents)
    assert len(held) == 4
    assert sorted(train + held) == sorted(documents)


def test_a_source_of_one_document_gives_its_end() -> None:
    text = "\n".join(f"line {i}" for i in range(1000))
    (train,), (held,) = split([text])
    assert train + held == text
    assert 0 < len(held) < 0.05 * len(text)


def test_packed_tokens_decode_to_the_documents(corpus: Path, packed: list[Packed], tokenizer_folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    sums = packed[1]
    texts = [d.encode() for d in split(read_documents(corpus, "sums"))[1]]
    pieces = tokenizer.decode(sums.held_out_tokens().tolist(), skip_special_tokens=False).split("<|endoftext|>")
    assert [p.encode() for p in pieces[:-1]] == texts
    assert sums.held_out_bytes == sum(map(len, texts))


def test_batches_hold_the_mixture_exactly(packed: list[Packed], mixture: dict[str, float]) -> None:
    batches = Batches(packed, mixture, seed=3)
    for _ in range(50):
        assert batches.next(4, 16).shape == (4, 17)
    total = sum(batches.tokens_of.values())
    for name, share in mixture.items():
        assert abs(batches.tokens_of[name] - share * total) <= 16


def test_one_pass_reads_every_window_once(tmp_path: Path) -> None:
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "train.bin")
    source = Packed(name="tales", train=tmp_path / "train.bin", held_out=tmp_path / "train.bin", held_out_bytes=1)
    rows = Batches([source], {"tales": 1.0}, seed=0).next(61, 16)
    starts = sorted(rows[:, 0].tolist())
    assert starts == list(range(starts[0], starts[0] + 61 * 16, 16))
    assert (rows == rows[:, :1] + np.arange(17)).all()


def test_batches_go_on_from_their_state(packed: list[Packed], mixture: dict[str, float]) -> None:
    first = Batches(packed, mixture, seed=5)
    first.next(40, 16)
    second = Batches(packed, mixture, seed=5)
    second.restore(first.state())
    assert np.array_equal(first.next(60, 16), second.next(60, 16))


def test_seeds_give_other_orders(packed: list[Packed], mixture: dict[str, float]) -> None:
    assert not np.array_equal(Batches(packed, mixture, 0).next(8, 16), Batches(packed, mixture, 1).next(8, 16))


def test_a_missing_corpus_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_too_little_text_for_a_window_is_said(packed: list[Packed], mixture: dict[str, float]) -> None:
    with pytest.raises(SpeclabError, match="fewer than"):
        Batches(packed, mixture, 0).next(1, 100_000)
