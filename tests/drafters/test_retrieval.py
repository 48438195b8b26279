"""Retrieval: the tree against direct construction, the texts that are searched, and those that cannot be read."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import assert_consistent, assert_same
from reference import retrieval as reference
from refusals import refused
from table_runner import random_probs, table_pair
from words import word_tokenizer

import speclab
from speclab.drafters.base import Context
from speclab.drafters.retrieval import BREAK, LARGEST, Corpus, RetrievalDrafter, corpus
from speclab.prompts import examples

VOCAB = 8
TEXTS = st.lists(st.integers(-1, 3), max_size=60)


@pytest.fixture
def pair():
    """Its tokenizer knows eight words; w1 is followed by w2, w2 by w3, and so on, most of the time."""
    noise = random_probs(VOCAB, 1)

    def probs(path):
        return 0.4 * np.asarray(noise(path)) + 0.6 * np.eye(VOCAB)[(path[-1] + 1) % VOCAB]

    return replace(table_pair(probs, None, VOCAB), tokenizer=word_tokenizer(VOCAB))


@pytest.fixture
def counting(tmp_path):
    """A text that counts from w0 to w7, three times."""
    file = tmp_path / "counting.txt"
    file.write_text(" ".join(f"w{i % VOCAB}" for i in range(3 * VOCAB)))
    return file


@given(TEXTS, st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 30), st.integers(0, 10), st.data())
def test_the_tree_is_the_one_of_direct_construction(text, context, budget, depth, data):
    short, long = sorted(data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5))))
    strategy = speclab.Retrieval(node_budget=budget, shortest_match=short, longest_match=long)
    draft = RetrievalDrafter(strategy, Corpus(text)).draft(Context(context, depth, lambda: None))
    tree = draft.tree
    expected = reference.retrieved(text, context, strategy.model_dump(), depth)
    got = {tuple(tree.token[list(tree.path(node))[1:]].tolist()): node for node in range(len(tree))}
    assert got.keys() == expected.keys()
    for path, node in got.items():
        if path:
            match = context[len(context) - draft.events[0].values["match"] :]
            before = len(reference.places(text, [*match, *path[:-1]]))
            assert np.exp(tree.log_prob[node]) == pytest.approx(expected[path] / before)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.9}])
def test_the_text_is_the_targets_own_and_forks_go_on_alike(pair, counting, sampling):
    strategy = speclab.Retrieval(text=str(counting), node_budget=9)
    plain = speclab.generate(pair, speclab.Autoregressive(), "w1 w2", max_new_tokens=40, **sampling)
    session = speclab.Session(pair, strategy, "w1 w2", max_new_tokens=40, **sampling)
    session.run()
    twin = session.fork(3)
    twin.run()
    assert session.token_ids == twin.token_ids == plain.token_ids
    assert sampling or session.metrics.tokens_per_iteration > 1.3
    for mine, its in zip(session.steps, twin.steps, strict=True):
        assert_same(mine.tree, its.tree)
        assert_consistent(its)
        assert (its.counts.target_calls, its.counts.draft_calls) == (1, 0)


def test_a_folder_is_all_its_texts_and_no_phrase_goes_over_the_end_of_one(pair, tmp_path):
    (tmp_path / "a.txt").write_text("w1 w2 w3")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.md").write_text("w4 w5")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    texts = corpus(pair, str(tmp_path))
    assert texts.tokens.tolist() == [1, 2, 3, BREAK, 4, 5, BREAK]
    assert texts.longest_match([3, 4])[0] == 1, "4 alone"
    assert texts.continuations(texts.longest_match([2, 3])[1]) == []


def test_a_text_is_indexed_once_and_anew_when_it_has_changed(pair, counting):
    first = corpus(pair, str(counting))
    assert corpus(pair.fresh(), str(counting)) is first
    counting.write_text("w1 w1 w1")
    os.utime(counting, ns=(1, 1))
    assert len(corpus(pair, str(counting)).tokens) == 4


def test_the_shipped_prompts_by_default(pair):
    words = sum(len(prompt.text.split()) for prompt in examples())
    assert len(corpus(pair, "").tokens) == words + len(examples())


def test_without_a_tokenizer_there_is_nothing_to_look_in_and_the_record_says_so():
    pair = table_pair(random_probs(VOCAB, 1), None, VOCAB)
    session = speclab.Session(pair, speclab.Retrieval(), [1, 2, 3], max_new_tokens=8)
    session.run()
    assert session.token_ids == speclab.generate(pair, speclab.Autoregressive(), [1, 2, 3], max_new_tokens=8).token_ids
    assert session.steps[0].events[0].values == {"route": "plain", "match": 0, "occurrences": 0, "text_tokens": 0}
    assert "no text" in session.steps[0].events[0].reason


@pytest.mark.parametrize("place", ["missing.txt", "empty", "bytes.txt", "\0", "huge.txt"])
def test_a_text_that_cannot_be_read(pair, tmp_path, place):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00\x01")
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(1 << 40)  # no byte of it is on the disk, and none is read
    with refused(speclab.SettingsError, "text"):
        speclab.generate(pair, speclab.Retrieval(text=str(tmp_path / place)), "w1", max_new_tokens=4)


def test_a_text_without_a_tokenizer(counting):
    pair = table_pair(random_probs(VOCAB, 1), None, VOCAB)
    with pytest.raises(speclab.SettingsError, match="tokenizer="):
        speclab.generate(pair, speclab.Retrieval(text=str(counting)), [1], max_new_tokens=4)


def test_a_text_that_is_too_long(pair, tmp_path):
    (tmp_path / "long.txt").write_text("w" * (LARGEST + 1))
    with pytest.raises(speclab.SettingsError, match="longer than"):
        speclab.generate(pair, speclab.Retrieval(text=str(tmp_path / "long.txt")), "w1", max_new_tokens=4)
