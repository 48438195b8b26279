"""Replays of recorded answers without a model, against real runs of the same text."""

from __future__ import annotations

import json

import pytest
from support.command import speclab_command
from support.every_strategy import PROMPT, pair_of
from support.words import word_tokenizer

import speclab
from speclab import views
from speclab.features.replay.logs import replay_texts
from speclab.trace.log import read_log

EXACT = [speclab.PromptLookup(), speclab.SuffixDecoding(node_budget=9, factor=3)]
LEARNS = [speclab.Goose(node_budget=9), speclab.TokenRecycling(node_budget=9)]


@pytest.mark.parametrize("strategy", EXACT)
def test_a_replay_without_a_model_accepts_what_the_real_run_accepted(strategy):
    run = speclab.generate(pair_of(), strategy, PROMPT, max_new_tokens=80)
    frame = replay_texts([(PROMPT, run.token_ids)], [strategy])
    counts = run.metrics.counts
    expected = [counts.committed, counts.iterations, counts.drafted, counts.accepted, "", ""]
    names = ["tokens", "iterations", "drafted", "accepted", "inexact", "refused"]
    assert frame[names].to_numpy().tolist() == [expected]


def test_what_learns_from_other_answers_is_inexact_and_knows_the_answers_own_tokens():
    text = [1, 2, 3, 4, 5, 6, 7, 1, 9, 3, 4, 5, 6, 7, 2, 1, 9, 3]
    frame = replay_texts([([8, 9], text), ([*text, 11, 3], [11, 11])], LEARNS)
    assert frame.inexact.astype(bool).all()
    assert frame.accepted[:2].gt(0).all()
    # a prompt is not what the target answered
    assert frame.drafted[3] == 0


ANSWER = [5, 9, 2, 7, 7, 1, 8, 3, 6, 4, 10, 11, 2, 9]


def test_suffix_decoding_drafts_from_earlier_answers_in_order_as_an_engine_does():
    """Alone the ranking of the two is upside down."""
    strategies = [speclab.PromptLookup(), speclab.SuffixDecoding(node_budget=16)]
    log = [([1, 2, number], [*ANSWER, number]) for number in (12, 13, 14, 15)]
    alone, learning = [
        replay_texts(log, strategies, learn=learn).pivot(
            index="strategy", columns="prompt", values="iterations"
        )
        for learn in (False, True)
    ]
    suffix, lookup = [repr(each) for each in reversed(strategies)]
    assert (alone.loc[suffix] == alone.loc[lookup]).all()
    assert (learning.loc[lookup] == alone.loc[lookup]).all(), "it keeps nothing between requests"
    assert learning.loc[suffix, 0] == alone.loc[suffix, 0], "nothing is known to the first"
    assert (learning.loc[suffix, 1:] < alone.loc[suffix, 1:] / 2).all()
    # as with the earlier answers as a text of its own
    files = replay_texts(log[::-1], strategies[1:]).iterations
    assert files.iloc[0] == alone.loc[suffix, 0]


def test_logs_of_servers_are_read_and_split_by_kind(tmp_path):
    chat = [{"role": "system", "content": "w3"}, {"role": "user", "content": "w1 w2 w1"}]
    given = {"choices": [{"message": {"role": "assistant", "content": "w2 w1 w2"}}]}
    lines = [
        {"request": {"messages": chat}, "response": given, "kind": "chat"},
        {"messages": chat, **given, "category": "chat"},
        {"prompt": "w3 w1 w2 w1", "choices": [{"text": "w2 w1 w2"}], "task": "text"},
        {"prompt": "w3 w1 w2 w1", "answer": "w2 w1 w2", "kind": "text"},
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"messages": chat}]))
    frame = replay_texts(read_log(log), EXACT[:1], word_tokenizer(12), learn=False)
    assert frame.kind.tolist() == ["chat", "chat", "text", "text", ""]
    assert (frame.refused[:4] == "").all()
    assert frame.iterations[:4].nunique() == 1, "messages without a template are their texts"
    assert "no answer" in frame.refused[4]


def test_auto_is_sixteen_nodes_and_a_picture_has_every_prompt_and_an_interval():
    frame = replay_texts([([1, 2] * 9, [1, 2] * 30), ([3], [3] * 9)], [speclab.SuffixDecoding()])
    assert frame.strategy.unique().tolist() == [repr(speclab.SuffixDecoding(node_budget=16))]
    points, whole = views.replays(frame).data
    assert sorted(points.x) == sorted(frame.tokens_per_iteration)
    assert whole.x[0] == pytest.approx(frame.tokens.sum() / frame.iterations.sum())


BAD = {
    "not json": "not JSON",
    "[1]": "not an object",
    json.dumps({"prompt": "w1"}): "no answer",
    json.dumps({"prompt": [1], "answer": [99]}): "Id 99",
    json.dumps({"prompt": "w1", "answer": [1.5]}): "token id",
}


def test_a_bad_line_is_one_sentence_and_the_others_go_on(tmp_path):
    log = tmp_path / "log.jsonl"
    good = json.dumps({"prompt": "w1 w2 w1", "response": "w2 w1 w2"})
    log.write_text("\n".join([*BAD, "", good]))
    frame = replay_texts(read_log(log), EXACT, word_tokenizer(12))
    for number, words in enumerate(BAD.values()):
        for sentence in frame[frame.prompt == number].refused:
            assert words in sentence
    assert (frame[frame.prompt == len(BAD)].refused == "").all()


def test_the_command_writes_a_table_and_a_picture(tmp_path):
    log = tmp_path / "log.jsonl"
    line = {"prompt": "Once upon a time", "answer": " there was a dog. " * 6}
    log.write_text(
        "\n".join([json.dumps(line | {"kind": kind}) for kind in ("story", "other story")])
    )
    to = tmp_path / "out.html"
    call = ["replay", log, "--strategy", "SuffixDecoding", "--to", to]
    done = speclab_command(*call)
    assert "SuffixDecoding(node_budget=16)" in done.output
    assert "earlier" in done.output
    alone = speclab_command(*call, "--alone")
    assert "alone" in alone.output
    assert '"showSendToCloud": false' in to.read_text("utf-8")
    assert to.with_suffix(".csv").read_text().count("\n") == 3
    assert "other story" in done.output
