"""The training text and its tokenizer: nothing is lost or read twice, and what is missing is one sentence."""

import numpy as np
import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from training.data import Batches, pack, read_documents, split

MIXTURE = {"tales": 0.75, "sums": 0.25}


@pytest.fixture
def packed(corpus, tokenizer_folder, tmp_path):
    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    return pack(corpus, MIXTURE, tokenizer, tmp_path)


def test_packed_tokens_decode_to_the_documents(corpus, packed, tokenizer_folder):
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    sums = packed[1]
    texts = [d.encode() for d in split(read_documents(corpus, "sums"))[1]]
    pieces = tokenizer.decode(sums.held_out_tokens().tolist()).split("<|endoftext|>")
    assert [p.encode() for p in pieces[:-1]] == texts
    assert sums.held_out_bytes == sum(map(len, texts))


def test_batches_hold_the_mixture_exactly_and_go_on_from_their_state(packed):
    batches, resumed, other = (Batches(packed, MIXTURE, seed=seed) for seed in (3, 3, 4))
    for _ in range(50):
        assert batches.next(4, 16).shape == (4, 17)
    total = sum(batches.tokens_of.values())
    for name, share in MIXTURE.items():
        assert abs(batches.tokens_of[name] - share * total) <= 16
    resumed.restore(batches.state())
    other.restore(batches.state())
    rows = batches.next(60, 16)
    assert np.array_equal(rows, resumed.next(60, 16))
    assert not np.array_equal(rows, other.next(60, 16))
