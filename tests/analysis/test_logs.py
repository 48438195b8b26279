"""Replays of recorded answers without a model, against real runs of the same text."""

from __future__ import annotations

import json

import pytest
from support.every_strategy import PROMPT, pair_of
from support.words import word_tokenizer
from typer.testing import CliRunner

import speclab
from speclab import views
from speclab.analysis.logs import replay_texts
from speclab.cli import app
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
    log.write_text(json.dumps({"prompt": "Once upon a time", "answer": " there was a dog. " * 6}))
    to = tmp_path / "out.html"
    call = ["replay", str(log), "--strategy", "SuffixDecoding", "--to", str(to)]
    done = CliRunner().invoke(app, call, catch_exceptions=False)
    assert "SuffixDecoding(node_budget=16)" in done.output
    assert to.with_suffix(".csv").read_text().count("\n") == 2
