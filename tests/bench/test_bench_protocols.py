"""The registry of protocols, and `speclab bench` as a person uses it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from table_runner import mixed_law, random_law, table_pair
from typer.testing import CliRunner
from words import word_tokenizer

from speclab.bench import cli
from speclab.bench.asked import ask
from speclab.bench.contenders import DRAFT, PLAIN
from speclab.bench.protocols import protocols
from speclab.bench.store import RESULTS, RUN, read_results
from speclab.bench.workloads import load, names
from speclab.cli import app

VOCAB = 8
PAPERS = {
    "dynatree-main", "dynatree-latency", "dynatree-verification", "dynatree-ablation", "dynatree-length",
    "dynatree-prompt-length", "dynatree-thresholds", "dynatree-breadth", "dynatree-depth", "dynatree-fixed-sweep",
    "dynatree-memory", "goose-main", "goose-topology", "goose-ablation", "goose-steps", "goose-allocation",
    "goose-tasks", "goose-decomposition", "goose-bound",
    "dual-draft-routing",
}  # fmt: skip


@pytest.fixture
def pair(monkeypatch):
    """Laws in the place of models; transformers cannot decode them, so its rows say why."""
    law = random_law(VOCAB, 1, low=0.5, high=2.0)
    found = table_pair(law, mixed_law(law, random_law(VOCAB, 2), 0.3), VOCAB, context=64)
    heads = tuple(table_pair(mixed_law(law, random_law(VOCAB, seed), 0.5), None, VOCAB).target for seed in (2, 3))
    found = replace(found, heads=heads, tokenizer=word_tokenizer(VOCAB))
    monkeypatch.setattr(cli, "load_pair", lambda *_, **__: found)
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


def test_the_papers_protocols_are_there():
    assert PAPERS | {"main", "procedure"} <= protocols().keys()


@pytest.mark.parametrize("protocol", protocols().values(), ids=list(protocols()))
def test_a_protocol_holds_together(protocol):
    cells = [(one.name, one.x, one.x2) for one in protocol.contenders]
    assert len(cells) == len(set(cells)), "no two contenders look the same in the results"
    assert protocol.baseline == PLAIN.name == protocol.contenders[0].name
    assert protocol.workload in names()
    assert protocol.title
    assert protocol.source
    assert (protocol.x_name is not None) == any(one.x is not None for one in protocol.contenders)
    assert (protocol.x2_name is not None) == any(one.x2 is not None for one in protocol.contenders)
    for one in protocol.contenders:
        assert one.settings["strategy"]
        json.dumps(one.settings)
        assert DRAFT not in one.settings.values() or one.group == "transformers"


def test_every_protocol_fits_the_shipped_prompts(pair):
    """On a context as long as the mini family's, some of every sweep is left."""
    longer = replace(pair, target=pair.target.fork())
    longer.target.context = 1024
    longer.heads[0].context = longer.heads[1].context = longer.draft.context = 1024
    for protocol in protocols().values():
        asked = ask(protocol, longer, load(protocol.workload, protocol.limit))
        assert asked.max_new_tokens >= min(100, protocol.max_new_tokens), protocol.name
        assert len(asked.contenders) >= len({one.name for one in protocol.contenders}), protocol.name


def test_a_workload_may_have_a_limit_of_its_own(pair):
    protocol, some = protocols()["goose-main"], load("shipped", 1)
    asked = [ask(protocol, pair, replace(some, name=name)) for name in ("gsm8k", "mbpp")]
    assert [one.arguments["max_new_tokens"] for one in asked] == [1024, 512]
    assert ask(protocol, pair, replace(some, name="gsm8k"), max_new_tokens=7).max_new_tokens == 7


def test_list_shows_protocols_and_workloads():
    done = bench("--list")
    assert done.exit_code == 0
    for name in (*PAPERS, "shipped-long", "openai_humaneval"):
        assert name in done.stdout


def test_an_unknown_protocol_lists_what_there_is(pair, tmp_path):
    done = bench("--protocol", "dynatree", "--out", tmp_path / "run")
    assert done.exit_code == 1
    assert "There is no protocol 'dynatree': choose one of main, procedure" in done.stderr
    assert "goose-bound" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_protocol_measured_and_gone_on_with(pair, prompts, tmp_path):
    out = tmp_path / "run"
    done = small(prompts, out, "--repeats", 2, "--limit", 1)
    assert done.exit_code == 0, done.output
    assert "some.jsonl, line 5: no JSON; left out" in done.stdout
    assert "prose (procedure" in done.stdout
    assert "DynaTree, paper's procedure" in done.stdout
    assert "24 results" in done.stdout
    stored = read_results(out)
    assert len(stored.results) == 24
    assert all(result.equal for result in stored.results)
    assert stored.run.arguments["max_new_tokens"] == 6
    again = small(prompts, out, "--repeats", 2, "--limit", 1)
    assert again.exit_code == 1
    assert "holds 24 results of procedure: add --resume" in again.stderr
    (out / RESULTS).write_text("".join((out / RESULTS).read_text().splitlines(keepends=True)[:7]))
    assert small(prompts, out, "--repeats", 2, "--limit", 1, "--resume").exit_code == 0
    assert {r.key for r in read_results(out).results} == {r.key for r in stored.results}
    other = small(prompts, out, "--repeats", 2, "--limit", 2, "--resume")
    assert "was measured otherwise" in other.stderr
    assert other.stderr.count("\n") == 1


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(pair, prompts, tmp_path, monkeypatch):
    real, kept = cli.run, 3

    def stopped(*args):
        for count, result in enumerate(real(*args)):
            if count == kept:
                raise KeyboardInterrupt
            yield result

    monkeypatch.setattr(cli, "run", stopped)
    out = tmp_path / "a run"
    done = small(prompts, out, "--repeats", 1)
    assert done.exit_code == 130
    said = done.stdout.splitlines()[-1]
    assert said.startswith("interrupted; 3 results are kept. To go on: speclab bench --protocol procedure")
    assert f"--out '{out}'" in said
    assert said.endswith("--repeats 1 --resume")
    assert len(read_results(out).results) >= 3
    monkeypatch.setattr(cli, "run", real)
    assert small(prompts, out, "--repeats", 1, "--resume").exit_code == 0
    assert len(read_results(out).results) == len({r.key for r in read_results(out).results}) == 24


def test_without_a_folder_results_are_only_shown(pair, prompts, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    done = bench("--workload", prompts, "--max-new-tokens", 4, "--repeats", 1, "--limit", 1)
    assert done.exit_code == 0, done.output
    assert "all (main" in done.stdout
    assert "transformers, greedy failed: " in done.stdout
    assert "report" not in done.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_what_a_run_is_asked_for_is_kept_beside_it(pair, prompts, tmp_path):
    assert small(prompts, tmp_path / "run", "--repeats", 1, "--limit", 1).exit_code == 0
    run = json.loads((tmp_path / "run" / RUN).read_text())
    assert run["arguments"].keys() >= {
        "protocol",
        "workload",
        "prompts",
        "pair",
        "repeats",
        "limit",
        "threads",
        "dtype",
    }
    assert run["machine"].keys() >= {"processor", "cores", "memory", "system", "device"}
    assert run["versions"].keys() >= {"python", "speclab", "torch", "transformers"}
    assert run["contenders"][0] == run["baseline"] == "plain"
