"""`speclab bench yields | host | routing`: what the options change, what is shown and what is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from table_runner import mixed_law, random_law, table_pair
from typer.testing import CliRunner
from words import word_tokenizer

from speclab.bench import cli_counts
from speclab.bench.host_work import CONTEXTS, STRATEGIES
from speclab.cli import app
from speclab.models.pair import ModelPair

VOCAB = 8


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """The names that a pair was asked for by; what is loaded is a table pair with two drafts in the place of heads."""
    law = random_law(VOCAB, 1, low=0.5, high=2.0)
    heads = tuple(table_pair(mixed_law(law, random_law(VOCAB, seed), 0.5), None, VOCAB).target for seed in (2, 3))
    pair = replace(table_pair(law, None, VOCAB), heads=heads, tokenizer=word_tokenizer(VOCAB))
    names: list[str] = []

    def load(name: str) -> ModelPair:
        names.append(name)
        return pair

    monkeypatch.setattr(cli_counts, "load_pair", load)
    return names


@pytest.fixture
def prompts(tmp_path) -> Path:
    """Two of prose, one of code."""
    lines = [("prose", "w1 w2"), ("code", "w3"), ("prose", "w4 w5 w6")]
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"dataset": kind, "prompt": text}) + "\n" for kind, text in lines))
    return file


def bench(*words: object):
    return CliRunner().invoke(app, ["bench", *map(str, words)])


def written(out: Path) -> list[dict]:
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_yields_of_a_file_of_prompts(asked, prompts, tmp_path):
    out = tmp_path / "rows.jsonl"
    done = bench("yields", "--pair", "two", "--prompts", prompts, "--max-new-tokens", 12, "--out", out)
    assert done.exit_code == 0, done.output
    assert asked == ["two"]
    assert "12 new tokens" in done.stdout
    rows = written(out)
    assert [(row["kind"], row["prompts"]) for row in rows] == [("prose", 2), ("code", 1)]
    assert all(row["tokens_per_iteration"].keys() == STRATEGIES.keys() for row in rows)
    for row in rows:
        for rate in row["tokens_per_iteration"].values():
            assert f"{rate:.3f}" in done.stdout


def test_routing_decodes_a_text_that_changes_where_there_are_prose_and_code(asked, prompts, tmp_path):
    out = tmp_path / "rows.jsonl"
    words = ("routing", "--prompts", prompts, "--max-new-tokens", 10, "--node-budget", 5, "--out", out)
    done = bench(*words)
    assert done.exit_code == 0, done.output
    assert asked == ["mini"]
    assert "10 new tokens, 5 nodes a tree" in done.stdout
    rows = written(out)
    assert [(row["kind"], row["prompts"]) for row in rows] == [("prose", 2), ("code", 1), ("prose, then code", 1)]
    assert all(row["equal"] == row["prompts"] for row in rows)
    prompts.write_text('{"prompt": "w1"}\n')
    assert bench(*words).exit_code == 0
    assert [row["kind"] for row in written(out)] == ["prompts"], "the file's name, where no kind is given"


def test_the_node_budget_bounds_each_tree(asked, prompts, monkeypatch):
    given = {}
    monkeypatch.setattr(cli_counts, "routing", lambda pair, texts, ways, **settings: given.update(ways) or [])
    bench("routing", "--prompts", prompts, "--node-budget", 5)
    assert {strategy.node_budget for strategy in given.values()} == {5}
    assert given.keys() == {"first", "second", "route", "route, recent", "merge"}


def test_host_work_of_a_made_vocabulary(tmp_path):
    out, threads = tmp_path / "rows.jsonl", torch.get_num_threads()
    done = bench("host", "--vocabulary", 64, "--rounds", 1, "--out", out)
    assert done.exit_code == 0, done.output
    assert f"vocabulary 64, {threads} threads" in done.stdout
    rows = written(out)
    timed = [(row["way"], row["context"]) for row in rows if "context" in row]
    assert timed == [(name, context) for name in STRATEGIES for context in CONTEXTS]
    assert [row["way"] for row in rows if "megabytes" in row] == ["Goose", "IsotropicTree", "TokenRecycling"]


def test_threads_are_set_where_they_are_given(asked, prompts, monkeypatch):
    counts = []
    monkeypatch.setattr(torch, "set_num_threads", counts.append)
    for words in ((), ("--threads", 3)):
        assert bench("yields", "--prompts", prompts, "--max-new-tokens", 2, *words).exit_code == 0
    assert counts == [3]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "There is no workload"), ("[1]\n", "line 1: no object with a field prompt"), ("", "holds no prompt")],
)
def test_prompts_that_cannot_be_read_are_one_sentence(asked, tmp_path, content, sentence):
    file = tmp_path / "prompts.jsonl"
    if content is not None:
        file.write_text(content)
    done = bench("routing", "--prompts", file)
    assert done.exit_code == 1
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert asked == [], "nothing is loaded for prompts that are not there"
