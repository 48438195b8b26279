"""Retrieval: the tree against direct construction, the texts that are searched, and those that cannot be read."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace

import numpy as np
import pytest
from support.records import paths_of
from support.refusals import refused
from support.table_runner import random_probs, table_pair
from support.words import word_tokenizer

import speclab
from speclab.drafters import in_force
from speclab.drafters.base import Context
from speclab.drafters.retrieval import LARGEST, RetrievalDrafter, corpus
from speclab.drafters.suffix import BREAK, SuffixAutomaton
from speclab.errors import SettingsError
from speclab.prompts import examples

VOCAB = 8
TABLE = table_pair(random_probs(VOCAB, 1), None, VOCAB)


@pytest.fixture
def pair():
    """Its tokenizer knows eight words."""
    return replace(TABLE, tokenizer=word_tokenizer(VOCAB), shared_state={})


def test_the_tree_is_the_continuations_of_the_longest_match_the_most_and_the_oldest_first():
    texts = SuffixAutomaton.of([0, 1, 2, 3, BREAK, 0, 1, 2, BREAK, 0, 1, 4, BREAK])

    def drafted(budget, depth=9, context=(7, 0, 1), **settings):
        strategy = speclab.Retrieval(node_budget=budget, **settings)
        draft = RetrievalDrafter(strategy, texts).draft(Context(context, depth, lambda: None))
        nodes = paths_of(draft.tree)
        return {path: np.exp(draft.tree.log_prob[node]) for path, node in nodes.items() if path}

    # 2 follows "0 1" twice of three times; what is first in the text is older
    assert drafted(3) == pytest.approx({(2,): 2 / 3, (4,): 1 / 3})
    assert drafted(9) == pytest.approx({(2,): 2 / 3, (4,): 1 / 3, (2, 3): 1 / 2})
    assert drafted(9, depth=1).keys() == {(2,), (4,)}
    assert drafted(9, context=(7, 1)) == {}, "a match of one token"
    assert drafted(9, context=(7, 1), shortest_match=1).keys() == {(2,), (4,), (2, 3)}


def test_a_folder_is_all_its_texts_and_no_phrase_goes_over_the_end_of_one(pair, tmp_path):
    (tmp_path / "a.txt").write_text("w1 w2 w3")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.md").write_text("w4 w5")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    texts = corpus(pair, str(tmp_path))
    assert texts.tokens == [1, 2, 3, BREAK, 4, 5, BREAK]
    assert texts.match([3, 4])[1] == 1, "4 alone"
    assert [*texts.continuations(texts.match([2, 3])[0])] == []


def test_a_text_is_indexed_once_and_anew_when_it_has_changed(pair, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("w1 w2")
    first = corpus(pair, str(file))
    assert corpus(pair.fresh(), str(file)) is first
    file.write_text("w1 w1 w1")
    os.utime(file, ns=(1, 1))
    assert len(corpus(pair, str(file)).tokens) == 4


def test_the_shipped_prompts_are_searched_by_default_and_without_a_tokenizer_nothing_is(pair):
    words = sum(len(prompt.text.split()) for prompt in examples())
    assert len(corpus(pair, "").tokens) == words + len(examples())
    step = speclab.Session(TABLE, speclab.Retrieval(), [1, 2, 3], max_new_tokens=8).step()
    assert step.events[0].values == {
        "route": "plain",
        "match": 0,
        "occurrences": 0,
        "text_tokens": 0,
        "by": "no text",
    }


@pytest.mark.parametrize(
    "place", ["missing.txt", "empty", "bytes.txt", "\0", "huge.txt", "long.txt"]
)
def test_a_text_that_cannot_be_read(pair, tmp_path, place):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00\x01")
    (tmp_path / "long.txt").write_text("w" * (LARGEST + 1))
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(1 << 40)  # no byte of it is on the disk, and none is read
    for kind in (speclab.Retrieval, speclab.SuffixDecoding):
        with refused(speclab.SettingsError, "text"):
            speclab.generate(pair, kind(text=str(tmp_path / place)), [1], max_new_tokens=4)


@pytest.mark.parametrize("kind", [speclab.Retrieval, speclab.SuffixDecoding])
def test_records_have_a_texts_name_without_its_folder(pair, tmp_path, kind):
    """A fork of the session still reads it; a strategy that is made from a record needs its path."""
    (tmp_path / "diary.txt").write_text("w1 w2 w3")
    strategy = kind(text=str(tmp_path / "diary.txt"), node_budget=4)
    session = speclab.Session(pair, strategy, [1, 2], max_new_tokens=6)
    step = session.step()
    assert step.settings["text"] == session.trace.settings["text"] == "diary.txt"
    assert str(tmp_path).encode() not in gzip.decompress(
        session.trace.save(tmp_path / "trace").read_bytes()
    )
    session.run()
    fork = session.fork(at=0)
    fork.run()
    assert fork.token_ids == session.token_ids
    with refused(SettingsError, "diary.txt cannot be read"):
        session.fork(at=0, strategy=in_force(step))
