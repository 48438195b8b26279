"""`speclab bench` as a person uses it: a protocol measured and gone on with, Ctrl-C, and what is refused."""

from __future__ import annotations

import html
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from table_runner import mixed_probs, random_probs, table_pair
from typer.testing import CliRunner
from words import word_tokenizer

import speclab
from speclab.bench import run as running
from speclab.bench.result import RUN, read_results
from speclab.cli import app

VOCAB = 8
LOADED = []
"""What was asked of `load_pair`, which the tables stand in for."""


@pytest.fixture
def pair(monkeypatch):
    """Tables in the place of models; transformers cannot decode them, so its rows say why."""
    probs = random_probs(VOCAB, 1, low=0.5, high=2.0)
    found = table_pair(probs, mixed_probs(probs, random_probs(VOCAB, 2), 0.3), VOCAB, context=64)
    heads = tuple(table_pair(mixed_probs(probs, random_probs(VOCAB, seed), 0.5), None, VOCAB).target for seed in (2, 3))
    found = replace(found, heads=heads, tokenizer=word_tokenizer(VOCAB))
    monkeypatch.setitem(vars(speclab), "load_pair", lambda *_, **asked: LOADED.append(asked) or found)
    return found


@pytest.fixture
def prompts(tmp_path) -> Path:
    file = tmp_path / "some.jsonl"
    lines = [{"id": f"{kind}-{i}", "dataset": kind, "prompt": f"w{i} w2"} for kind in ("prose", "code") for i in (1, 3)]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + "{broken\n")
    return file


def bench(*words: object):
    return CliRunner().invoke(app, ["bench", *map(str, words)])


def small(prompts: Path, out: Path, *words: object):
    return bench("--protocol", "procedure", "--workload", prompts, "--out", out, "--max-new-tokens", 6, *words)


def test_list_shows_protocols_and_workloads():
    done = bench("--list")
    assert done.exit_code == 0
    for name in ("main", "dynatree-main", "goose-code", "shipped-long", "shipped-chat"):
        assert name in done.stdout


def test_an_unknown_protocol_is_one_sentence_and_no_folder(pair, tmp_path):
    done = bench("--protocol", "dynatree", "--out", tmp_path / "run")
    assert done.exit_code == 1
    assert "There is no protocol 'dynatree': choose one of main" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_protocol_is_measured_kept_and_not_mixed(pair, prompts, tmp_path):
    out, words = tmp_path / "run", ("--repeats", 1, "--limit", 1)
    done = small(prompts, out, *words)
    assert done.exit_code == 0, done.output
    for said in ("line 5: no JSON; left out", "prose (procedure", "DynaTree, paper's procedure", "12 results"):
        assert said in done.stdout
    stored = read_results(out)
    assert len(stored.results) == 12
    assert all(result.equal for result in stored.results)
    assert (out / "report.html").exists()
    told = json.loads((out / RUN).read_text())
    asked = {"protocol", "workload", "prompts", "pair", "repeats", "limit", "threads", "dtype"}
    assert told["arguments"].keys() >= asked
    assert told["machine"].keys() >= {"processor", "cores", "memory", "system", "device"}
    assert told["versions"].keys() >= {"python", "speclab", "torch", "transformers"}
    assert told["methods"][0] == told["baseline"] == "plain"
    again = small(prompts, out, *words)
    assert again.exit_code == 1
    assert "holds 12 results of procedure: add --resume" in again.stderr
    other = small(prompts, out, "--repeats", 1, "--limit", 2, "--resume")
    assert "was measured with other arguments" in other.stderr
    assert other.stderr.count("\n") == 1


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(pair, prompts, tmp_path, monkeypatch):
    real, kept = running.run, 3

    def stopped(*args):
        for count, result in enumerate(real(*args)):
            if count == kept:
                raise KeyboardInterrupt
            yield result

    monkeypatch.setattr(running, "run", stopped)
    out = tmp_path / "a run"
    done = small(prompts, out, "--repeats", 1, "--no-chat", "--limit", 1)
    assert done.exit_code == 130
    said = done.stdout.splitlines()[-1]
    assert said.startswith("interrupted; 3 results are kept. To go on: speclab bench --protocol procedure")
    assert f"--out '{out}'" in said
    assert "--no-chat --limit 1 " in said
    assert said.endswith(" --resume")
    assert len(read_results(out).results) >= 3
    monkeypatch.setattr(running, "run", real)
    assert small(prompts, out, "--repeats", 1, "--limit", 1, "--resume").exit_code == 0
    assert len(read_results(out).results) == len({r.key for r in read_results(out).results}) == 12


@pytest.mark.parametrize("words", [(), ("--chat", "--no-bitwise", "--threads", 1), ("--target", "a b", "--draft", "c")])
def test_the_command_in_a_report_measures_the_same(pair, prompts, tmp_path, words):
    assert small(prompts, tmp_path / "one", "--repeats", 1, *words).exit_code == 0
    page = html.unescape((tmp_path / "one" / "report.html").read_text())
    (command,) = re.findall("<code>speclab (bench .*) --out FOLDER</code>", page)
    done = CliRunner().invoke(app, [*shlex.split(command), "--out", str(tmp_path / "two")])
    assert done.exit_code == 0, done.output
    one, two = (read_results(tmp_path / name).run for name in ("one", "two"))
    assert (one.arguments, one.command) == (two.arguments, two.command)
    asked, again = LOADED[-2:]
    assert all(again[name] == value for name, value in asked.items() if value is not None)


def test_without_a_folder_results_are_only_shown(pair, prompts, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    done = bench("--workload", prompts, "--max-new-tokens", 4, "--repeats", 1, "--limit", 1)
    assert done.exit_code == 0, done.output
    assert "all (main" in done.stdout
    assert "transformers, greedy failed: " in done.stdout
    assert "report" not in done.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_heads_alone_are_measured_on_what_users_ask(pair, tmp_path, monkeypatch):
    monkeypatch.setitem(vars(speclab), "load_pair", lambda *_, **__: replace(pair, draft=None))
    shown = bench("--max-new-tokens", 2, "--repeats", 1, "--limit", 1)
    assert shown.exit_code == 0, shown.output
    assert "word problem (chat" in shown.stdout


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "There is no workload"), ("[1]\n", "line 1: no object with a field prompt"), ("", "holds no prompt")],
)
def test_prompts_that_cannot_be_read_are_one_sentence(pair, tmp_path, content, sentence):
    file = tmp_path / "prompts.jsonl"
    if content is not None:
        file.write_text(content)
    done = bench("--workload", file)
    assert done.exit_code == 1
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
