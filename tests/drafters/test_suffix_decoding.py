"""SuffixDecoding against counting, what the global tree holds and when, and texts that are the target's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import assert_consistent, assert_same
from reference import suffix_decoding as reference
from table_runner import random_probs, table_pair
from words import word_tokenizer

import speclab
from speclab.drafters.base import Context

VOCAB = 8
KEEPS = speclab.SuffixDecoding(max_cached_requests=100)
PLAIN = table_pair(random_probs(VOCAB, 1), None, VOCAB)


def pair_of(noise=1):
    """w1 is followed by w2, w2 by w3, and so on, most of the time; its tokenizer knows eight words."""
    other = random_probs(VOCAB, noise)

    def probs(path):
        return 0.4 * np.asarray(other(path)) + 0.6 * np.eye(VOCAB)[(path[-1] + 1) % VOCAB]

    return replace(table_pair(probs, None, VOCAB), tokenizer=word_tokenizer(VOCAB))


def drafted(strategy, request, earlier=(), max_depth=1 << 30):
    """The draft after a text, with these outputs in the global tree."""
    pair = replace(PLAIN, shared_state={})
    if earlier:
        strategy.learn(pair, earlier)
    return strategy.drafter(pair).draft(Context(request, max_depth, lambda: None))


TEXT = st.lists(st.integers(0, 2), min_size=1, max_size=24)
SETTINGS = st.builds(
    speclab.SuffixDecoding,
    max_spec_factor=st.sampled_from([0.5, 1.0, 1.5, 4.0]),
    min_token_prob=st.sampled_from([0.0, 0.1, 0.3, 1.0]),
    max_tree_depth=st.integers(2, 12),
    max_cached_requests=st.integers(1, 3),
    use_tree_spec=st.booleans(),
)


@given(SETTINGS, TEXT, st.lists(TEXT, max_size=4), st.integers(0, 6))
def test_the_tree_is_the_one_of_counting(strategy, request, earlier, depth):
    draft = drafted(strategy, request, earlier, depth)
    s, tree = strategy.model_dump(), draft.tree
    expected = reference.every(request, earlier[-s["max_cached_requests"] :], s, depth)
    scores = {(e.values["tree"], e.values["pattern"]): e.values["score"] for e in draft.events if e.kind == "score"}
    assert scores == pytest.approx({(one.source, one.pattern): one.score for one in expected})
    route = draft.events[0].values
    best = max((one.score for one in expected), default=0.0)
    assert route["score"] == pytest.approx(best)
    if not best:
        assert (route["route"], len(tree)) == ("plain", 1)
        return
    (chosen,) = (one for one in expected if (one.source, one.pattern) == (route["route"], route["match"]))
    assert chosen.score == pytest.approx(best)
    added = {e.values["order"]: e.node for e in draft.events if e.kind == "added"}
    paths = [tuple(tree.token[list(tree.path(added[order]))[1:]].tolist()) for order in range(1, len(tree))]
    assert paths == list(chosen.shares), "the same tokens, added in the same order"
    assert np.exp(tree.log_prob[list(added.values())]) == pytest.approx([chosen.shares[paths[i - 1]] for i in added])


def test_an_example_by_hand():
    """After 1 2 came 3 twice and 4 once; after 1 2 3 came 5 and 6: 3 (2/3), then 4, 5 and 6 with 1/3 each."""
    request = [1, 2, 3, 5, 0, 1, 2, 4, 0, 1, 2, 3, 6, 7, 7, 1, 2]
    draft = drafted(speclab.SuffixDecoding(max_spec_factor=2), request)
    assert draft.events[0].values["match"] == 2, "the longest pattern: α p = 4 tokens"
    assert draft.events[0].values["score"] == pytest.approx(2 / 3 + 1 / 3 + 1 / 3 + 1 / 3)
    assert [int(draft.tree.token[node]) for node in range(len(draft.tree))] == [2, 3, 4, 6, 5]
    assert dict(draft.topk[0]) == pytest.approx({3: np.log(2 / 3), 4: np.log(1 / 3)})
    path = drafted(speclab.SuffixDecoding(max_spec_factor=2, use_tree_spec=False), request)
    assert path.tree.token.tolist() == [2, 3, 6, 7, 7], "one path, of equals what came last"


def test_of_equal_scores_this_request_is_taken_and_the_longest_pattern():
    draft = drafted(KEEPS, [1, 2, 3, 1, 2], [[1, 2, 3, 1, 2, 3]])
    assert (draft.events[0].values["route"], draft.events[0].values["match"]) == ("per-request", 2)
    longer = drafted(KEEPS, [4, 1, 2, 3, 1, 2], [[3, 1, 2, 3, 1, 2]])
    assert (longer.events[0].values["route"], longer.events[0].values["match"]) == ("global", 3)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.9}])
@pytest.mark.parametrize("strategy", speclab.SuffixDecoding.presets().values(), ids=speclab.SuffixDecoding.presets())
def test_the_text_is_the_targets_own_and_forks_go_on_alike(strategy, sampling):
    strategy, pair = strategy.changed(budget="fixed"), pair_of()
    plain = speclab.generate(pair, speclab.Autoregressive(), "w1 w2", max_new_tokens=40, **sampling)
    speclab.generate(pair, strategy, "w3", max_new_tokens=40, **sampling)
    session = speclab.Session(pair, strategy, "w1 w2", max_new_tokens=40, **sampling)
    session.run()
    speclab.generate(pair, strategy, "w5 w5", max_new_tokens=40, **sampling)  # what comes later is not seen
    for at in (0, 1):
        twin = session.fork(at)
        twin.run()
        assert session.token_ids == twin.token_ids == plain.token_ids
        for mine, its in zip(session.steps, twin.steps, strict=True):
            assert_same(mine.tree, its.tree)
            assert_consistent(its)
            assert (its.counts.target_calls, its.counts.draft_calls) == (1, 0)


def test_outputs_of_earlier_prompts_are_in_the_tree_of_the_next_and_help():
    pair, cold = pair_of(), speclab.SuffixDecoding(budget="fixed")
    first = speclab.generate(pair, KEEPS, "w1", max_new_tokens=60)
    again = speclab.generate(pair, KEEPS, "w1", max_new_tokens=60)
    alone = speclab.generate(pair, cold, "w1", max_new_tokens=60)
    assert first.token_ids == again.token_ids == alone.token_ids
    assert first.metrics.iterations == alone.metrics.iterations > 2 * again.metrics.iterations
    assert KEEPS.learned(pair) == [first.token_ids, again.token_ids]


def test_no_prompt_is_among_the_outputs_and_an_undone_iteration_leaves_nothing():
    pair = pair_of()
    session = speclab.Session(pair, KEEPS, "w1 w2 w3", max_new_tokens=12)
    session.run()
    assert KEEPS.learned(pair) == [session.token_ids]
    fork = session.fork(1, speclab.Autoregressive()).fork(strategy=KEEPS)
    begun = len(fork.token_ids)
    fork.run()
    assert KEEPS.learned(pair)[1] == fork.token_ids[begun - 1 :], "from where this strategy took over"


def test_the_oldest_outputs_leave_and_all_can_be_saved_and_forgotten():
    pair = pair_of()
    few = speclab.SuffixDecoding(max_cached_requests=2)
    few.learn(pair, ["w1 w2", [3, 4, 5], [6]])
    assert few.learned(pair) == [[3, 4, 5], [6]]
    saved = KEEPS.learned(pair)
    assert saved == [[1, 2], [3, 4, 5], [6]], "the store holds more than this strategy reads"
    assert [e.values["earlier_tokens"] for e in few.drafter(pair).draft(Context([1], 9, lambda: None)).events][:1] == [
        6
    ]
    few.forget(pair)
    assert KEEPS.learned(pair) == []
    KEEPS.learn(pair, saved)
    assert KEEPS.learned(pair) == saved


def test_a_text_file_is_in_the_global_tree(tmp_path):
    (tmp_path / "counting.txt").write_text(" ".join(f"w{i % VOCAB}" for i in range(3 * VOCAB)))
    session = speclab.Session(pair_of(), speclab.SuffixDecoding(corpus=str(tmp_path)), "w1 w2", max_new_tokens=40)
    session.run()
    assert session.steps[0].tree.source[1] == "global"
    assert session.metrics.tokens_per_iteration > 1.3


@pytest.mark.parametrize(
    ("strategy", "outputs", "words"),
    [
        (speclab.SuffixDecoding(), ["w1"], ("max_cached_requests is 0", "set how many")),
        (KEEPS, "w1", ("several outputs", "give a list")),
        (KEEPS, [1, 2], ("several outputs", "[token_ids]")),
        (KEEPS, [["w1"]], ("w1",)),
        (KEEPS, [[1], [1, 99]], ("99", "vocabulary")),
    ],
    ids=["none are kept", "one text", "one output", "words", "no token"],
)
def test_outputs_that_cannot_be_learned(strategy, outputs, words):
    pair = pair_of()
    with pytest.raises(speclab.SpeclabError) as caught:
        strategy.learn(pair, outputs)
    assert all(word in str(caught.value) for word in words)
    assert KEEPS.learned(pair) == []


def test_text_without_a_tokenizer_cannot_be_learned():
    with pytest.raises(speclab.SettingsError, match="tokenizer="):
        KEEPS.learn(replace(PLAIN, shared_state={}), ["w1"])
