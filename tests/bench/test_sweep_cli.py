"""`speclab sweep` as a person runs it: on the mini family, in this process; what it prints and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pairs import pair_of
from pyarrow import parquet
from typer.testing import CliRunner

import speclab
from speclab import DynaTree, FixedTree, Goose, LinearSpeculation, MeasurementError, NoDraftError, PromptLookup
from speclab.bench.sweep import sweep
from speclab.bench.sweep_texts import Measured, Texts
from speclab.cli import app

TEXTS = ["The river was high that spring, and", "def mean(values):\n"]


def run(*words: object):
    return CliRunner().invoke(app, ["sweep", *map(str, words)])


@pytest.mark.model
def test_a_sweep_on_the_mini_family_gives_what_decoding_with_each_setting_gives(tmp_path):
    file, out = tmp_path / "texts.jsonl", tmp_path / "out"
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in TEXTS))
    asked = (
        "LinearSpeculation", "--over", "draft_tokens=2,8", "--workload", file, "--max-new-tokens", 16, "--out", out,
    )  # fmt: skip
    done = run(*asked, "--check", 0)
    assert done.exit_code == 0, done.output
    pair, want = speclab.load_pair(), {}
    for tokens, strategy in {5: LinearSpeculation(), **{k: LinearSpeculation(draft_tokens=k) for k in (2, 8)}}.items():
        counts = [speclab.generate(pair, strategy, text, max_new_tokens=16).metrics.counts for text in TEXTS]
        want[tokens] = sum(own.committed for own in counts) / sum(own.iterations for own in counts)
    table = parquet.read_table(out / "trials.parquet").sort_by("trial")
    assert table["setting_draft_tokens"].to_pylist() == list(want)
    assert table["tokens_per_iteration"].to_pylist() == pytest.approx(list(want.values()))
    assert table["texts"].to_pylist() == [2, 2, 2]
    best = max(want, key=want.get)
    code = "speclab.LinearSpeculation()" if best == 5 else f"speclab.LinearSpeculation(draft_tokens={best})"
    assert code in done.stdout.splitlines()
    assert f"{want[best]:.4g}" in done.stdout
    assert f"{want[5]:.4g}" in done.stdout
    again = run(*asked, "--resume", "--check", 1)
    assert again.exit_code == 0, again.output
    assert code in again.stdout.splitlines()
    (checked,) = out.glob("check*/results.parquet")
    decoded = parquet.read_table(checked).to_pylist()
    assert {row["method"] for row in decoded} == {"plain", "trial 0", f"trial {list(want).index(best)}"}
    assert all(row["equal"] for row in decoded)
    assert {row["method"]: row["settings"] for row in decoded}["plain"].startswith('{"strategy": "Autoregressive"')
    assert " plain: speclab." in again.stdout


@pytest.mark.model
def test_two_processes_count_what_one_counts(tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text(json.dumps({"prompt": TEXTS[0]}))
    asked = ("--over", "draft_tokens=2,8", "--workload", file, "--max-new-tokens", 12, "--out", tmp_path / "out")
    done = run("LinearSpeculation", *asked, "--check", 0, "--workers", 2)
    assert done.exit_code == 0, done.output
    settings = [LinearSpeculation(draft_tokens=tokens) for tokens in (2, 8)]
    pair = speclab.load_pair()
    want = [speclab.generate(pair, each, TEXTS[0], max_new_tokens=12).metrics.iterations for each in settings]
    table = parquet.read_table(tmp_path / "out" / "trials.parquet").sort_by("trial")
    assert table["iterations"].to_pylist()[1:] == want  # the default's number of tokens follows from each one's costs


def test_without_a_setting_it_lists_those_of_the_strategy_with_their_ranges():
    done = run("Goose")
    assert done.exit_code == 0, done.output
    assert all(name in done.stdout for name in Goose.model_fields)
    assert "1 to 512" in done.stdout


REFUSED = [
    (("Nonsense",), "There is no strategy 'Nonsense': choose one of Autoregressive"),
    (("FixedTree", "--over", "depth=1"), "--out DIR"),
    (("FixedTree", "--over", "width=1", "--out", "x"), "has no setting 'width'; its settings are: depth"),
    (("FixedTree", "--over", "depth=1", "--workload", "nowhere", "--out", "x"), "There is no workload 'nowhere'"),
    (("FixedTree", "--over", "depth=1", "--objective", "speed", "--out", "x"), "There is no figure 'speed': choose"),
]


@pytest.mark.parametrize(("asked", "said"), REFUSED, ids=[asked[-1][:20] for asked, _ in REFUSED])
def test_what_cannot_be_run_is_one_sentence_before_anything_is_measured(asked, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Texts, "__call__", lambda *_: 1 / 0)
    done = run(*asked)
    assert done.exit_code == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_ctrl_c_says_what_is_kept(tmp_path, monkeypatch):
    def interrupted(self, strategy):
        if strategy.depth == 2:
            raise KeyboardInterrupt
        return Measured({"tokens_per_iteration": 1.0})

    monkeypatch.setattr(Texts, "__call__", interrupted)
    done = run("FixedTree", "--over", "depth=1:3", "--out", tmp_path / "out")
    assert done.exit_code == 130
    assert "interrupted: 2 of 4 trials are done, and kept in" in done.stdout
    assert "--resume" in done.stdout


# What is measured


@pytest.fixture
def pair():
    return pair_of("llama")


@pytest.mark.model
@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0, "seed": 5}], ids=["greedy", "sampled"])
def test_figures_are_those_of_all_texts_together_as_decoding_gives_them(pair, settings):
    prompts, tree = [[1, 2, 3], [4, 5]], FixedTree(budget="fixed")
    found = Texts(pair, prompts, max_new_tokens=9, settings=settings)(tree)
    single = [speclab.generate(pair, tree, prompt, max_new_tokens=9, **settings).metrics for prompt in prompts]
    counts = single[0].counts + single[1].counts
    assert found.figures["tokens_per_iteration"] == counts.committed / counts.iterations
    assert found.figures["iterations"] == counts.iterations
    assert found.figures["draft_calls"] == counts.draft_calls
    assert found.figures["throughput"] == pytest.approx(1 / found.figures["tpot"])
    assert found.texts == 2


@pytest.mark.model
def test_what_one_trial_learned_is_not_there_for_the_next(pair):
    measure = Texts(pair, [[1, 2, 3], [1, 2, 3]], max_new_tokens=30)
    first, second = (measure(Goose(carry="carried")) for _ in range(2))
    assert first.figures["iterations"] == second.figures["iterations"]
    assert "carried over" in first.inexact
    assert pair.shared_state == {}


@pytest.mark.model
def test_a_text_is_decoded_once_however_many_settings(pair, monkeypatch):
    measure = Texts(pair, [[1, 2, 3]], max_new_tokens=20)
    measure(PromptLookup())
    monkeypatch.setattr(speclab.Session, "run", lambda self: 1 / 0)
    assert measure(PromptLookup(draft_tokens=2)).figures["iterations"] > 0


@pytest.mark.model
def test_models_that_are_not_there_stop_the_sweep(tmp_path, pair):
    gone = Texts({"target": str(tmp_path / "gone")}, ["x"])
    with pytest.raises(MeasurementError, match="gone"):
        sweep(FixedTree, ["depth=2"], tmp_path / "a", measure=gone)
    lone = replace(pair, draft=None, heads=())
    with pytest.raises(MeasurementError, match="draft"):
        sweep(DynaTree, ["max_depth=9"], tmp_path / "b", measure=Texts(lone, [[1, 2]]))
    with pytest.raises(NoDraftError):
        speclab.generate(lone, DynaTree(budget="fixed"), [1, 2], max_new_tokens=2)
