"""Looking up what a drafter has learned: now, and as it was."""

from __future__ import annotations

import pytest
from sessions import PROMPT, TARGET, VOCAB, own_text, session_of
from table_runner import table_pair

import speclab

STRATEGIES = {
    "goose": speclab.Goose(bypass="off", node_budget=12),
    "hashed": speclab.Goose(node_budget=12, table_megabytes=1, bigram_entries=4),
    "recycling": speclab.TokenRecycling(node_budget=12),
    "sequoia": speclab.SequoiaTree(source="transitions", node_budget=12, depth=3),
}
with_a_table = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


def everything(session, at=None):
    return [session.lookup(token, previous, at) for token in range(VOCAB) for previous in (None, *range(VOCAB))]


@with_a_table
def test_the_past_is_what_it_was_then(strategy):
    session = session_of(strategy)
    then = [everything(session)]
    while not session.done:
        session.step()
        then.append(everything(session))
    calls, carried = session.pair.target.calls, dict(session.pair.shared_state)
    assert then[0] != then[-1]
    for at, known in enumerate(then):
        session.goto(at)
        assert everything(session) == known
        assert {found.after for found in known} == {at}
    assert session.pair.target.calls == calls
    assert session.pair.shared_state == carried
    assert session.token_ids == own_text()


def test_the_newest_row_is_what_the_target_gave_last():
    """The last verified root's row: its successor is the token that the target chose after it."""
    session = session_of(speclab.Goose(node_budget=12), max_new_tokens=12)
    step = session.step()
    root, before = int(step.tree.token[0]), session.prompt_ids[-1]
    found = session.lookup(root, before)
    assert [row.key for row in found.rows] == [(before, root), (root,)]
    assert found.used is found.rows[0]
    assert found.used.successors[0][0] == step.nodes[0].target_choice
    assert sum(score for _, score in found.used.successors) <= 1 + 1e-5
    assert {root, before, step.nodes[0].target_choice} <= found.texts.keys()
    assert {"carry", "table", "table_rows", "table_bytes", "bigrams"} <= found.values.keys()


def test_a_row_that_was_never_seen_is_empty():
    session = session_of(speclab.TokenRecycling(node_budget=1), max_new_tokens=4)
    unseen = next(token for token in range(VOCAB) if token not in session.prompt_ids)
    found = session.lookup(unseen)
    assert (found.used, [row.successors for row in found.rows]) == (None, [()])
    assert found.values["table_rows"] == len(set(PROMPT))


def test_without_bigrams_there_is_one_row():
    assert len(session_of(speclab.TokenRecycling()).lookup(1, 2).rows) == 1
    assert len(session_of(speclab.Goose(bigram_entries=0)).lookup(1, 2).rows) == 1


def test_what_is_carried_over_stays_as_the_newest_iteration_left_it():
    pair = table_pair(TARGET, None, VOCAB)
    session = speclab.Session(pair, speclab.Goose(carry="carried"), PROMPT, max_new_tokens=20)
    session.run()
    known = everything(session)
    session.goto(0)
    assert everything(session) != known
    again = speclab.Session(pair, speclab.Goose(carry="carried"), PROMPT, max_new_tokens=20)
    assert again.lookup(PROMPT[-1]).values["table_rows"] == known[0].values["table_rows"]


@pytest.mark.parametrize("strategy", [speclab.Autoregressive(), speclab.DynaTree(), speclab.PromptLookup()])
def test_a_strategy_without_a_table_says_so(strategy):
    session = session_of(strategy)
    session.run()
    assert session.lookup(1) is None
    session.goto(0)
    assert session.lookup(1, 2) is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((VOCAB,), "outside the vocabulary"),
        ((1, -1), "outside the vocabulary"),
        ((1, None, 99), "iteration 99: 0 to 0"),
    ],
)
def test_what_cannot_be_looked_up(arguments, sentence):
    with pytest.raises(speclab.SpeclabError, match=sentence):
        session_of(speclab.Goose()).lookup(*arguments)


def test_baselines_draft_from_one_source_each():
    strategy = speclab.Goose(node_budget=20, max_spine=7, longest_ngram=4)
    sources = []
    for baseline in strategy.baselines():
        session = session_of(baseline)
        session.run()
        sources.append({source for step in session.steps for source in step.tree.source[1:]})
        assert max(len(step.tree) for step in session.steps) <= strategy.node_budget
    assert sources == [{"context"}, {"transition"}]
    assert speclab.Autoregressive().baselines() == ()
