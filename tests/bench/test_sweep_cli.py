"""`speclab sweep` as a person runs it: on the mini family, in this process; what it prints and what it refuses."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from pyarrow import parquet
from table_runner import random_probs, table_pair
from typer.testing import CliRunner

import speclab
from speclab import DynaTree, FixedTree, Goose, LinearSpeculation, MeasurementError, NoDraftError, PromptLookup
from speclab.bench import sweep as sweeping
from speclab.bench import sweep_cli, sweep_decode
from speclab.bench.sweep import Decode, Measured, sweep
from speclab.cli import app

VOCAB = 8
TEXTS = ["The river was high that spring, and", "def mean(values):\n"]


@pytest.fixture
def here(monkeypatch):
    """Trials run in this process, and models are let go of afterwards."""
    before = torch.get_num_threads()
    with ThreadPoolExecutor(1) as executor:
        monkeypatch.setattr(sweeping, "_workers", lambda *_: contextlib.nullcontext((executor, lambda: 1)))
        yield
    torch.set_num_threads(before)
    sweep_decode._KEPT.clear()


def run(*words: object):
    return CliRunner().invoke(app, ["sweep", *map(str, words)])


@pytest.mark.model
def test_a_sweep_on_the_mini_family_gives_what_decoding_with_each_setting_gives(here, tmp_path):
    file, out = tmp_path / "texts.jsonl", tmp_path / "out"
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in TEXTS))
    asked = (
        "LinearSpeculation", "--over", "draft_tokens=2,8", "--workload", file, "--max-new-tokens", 16, "--out", out,
    )  # fmt: skip
    done = run(*asked)
    assert done.exit_code == 0, done.output
    pair, want = speclab.load_pair(), {}
    for tokens, strategy in {5: LinearSpeculation(), **{k: LinearSpeculation(draft_tokens=k) for k in (2, 8)}}.items():
        counts = [speclab.generate(pair, strategy, text, max_new_tokens=16).metrics.counts for text in TEXTS]
        want[tokens] = sum(own.committed for own in counts) / sum(own.iterations for own in counts)
    table = parquet.read_table(out / "trials.parquet").sort_by("trial")
    assert table["setting_draft_tokens"].to_pylist() == list(want)
    assert table["tokens_per_iteration"].to_pylist() == pytest.approx(list(want.values()))
    assert table["prompts"].to_pylist() == [2, 2, 2]
    assert len(set(table["text"].to_pylist())) == 1, "greedy decoding: the same texts"
    best = max(want, key=want.get)
    code = "speclab.LinearSpeculation()" if best == 5 else f"speclab.LinearSpeculation(draft_tokens={best})"
    assert code in done.stdout.splitlines()
    assert f"{want[best]:.4g}" in done.stdout
    assert f"{want[5]:.4g}" in done.stdout
    again = run(*asked, "--resume")
    assert again.exit_code == 0, again.output
    assert code in again.stdout.splitlines()


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
    monkeypatch.setattr(Decode, "__call__", lambda *_: 1 / 0)
    done = run(*asked)
    assert done.exit_code == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_ctrl_c_says_what_is_kept(here, tmp_path, monkeypatch):
    def interrupted(self, strategy):
        if strategy.depth == 2:
            raise KeyboardInterrupt
        return Measured({"tokens_per_iteration": 1.0})

    monkeypatch.setattr(Decode, "__call__", interrupted)
    done = run("FixedTree", "--over", "depth=1:3", "--out", tmp_path / "out")
    assert done.exit_code == 130
    assert "interrupted: 2 of 4 trials are done, and kept in" in done.stdout
    assert "--resume" in done.stdout


@pytest.mark.parametrize(("words", "threads"), [((), 1), (("--workers", 1), 4), (("--workers", 2), 2)])
def test_workers_share_the_cores(tmp_path, monkeypatch, words, threads):
    given = []
    monkeypatch.setattr(sweeping, "_cores", lambda: 4)
    monkeypatch.setattr(sweep_cli, "sweep", lambda *_, measure, **__: given.append(measure) or 1 / 0)
    run("FixedTree", "--over", "depth=1:3", "--out", tmp_path, *words)
    assert [measure.threads for measure in given] == [threads]


# What is measured


@pytest.fixture
def pair():
    probs = random_probs(VOCAB, 1, low=0.5, high=2.0)
    return table_pair(probs, probs, VOCAB)


def test_figures_are_those_of_all_prompts_together_and_repeats_give_medians_and_their_spread(pair):
    prompts, tree = [[1, 2, 3], [4, 5]], FixedTree(budget="fixed")
    once, thrice = (Decode(pair, prompts, max_new_tokens=9, repeats=repeats)(tree) for repeats in (1, 3))
    single = [speclab.generate(pair, tree, prompt, max_new_tokens=9).metrics for prompt in prompts]
    counts = single[0].counts + single[1].counts
    assert once.figures["tokens_per_iteration"] == counts.committed / counts.iterations
    assert once.figures["target_calls"] == sum(own.target_calls for own in single)
    assert once.prompts == 2
    assert thrice.figures["iterations"] == once.figures["iterations"]
    assert thrice.figures["throughput_spread"] >= 0
    assert "throughput_spread" not in once.figures
    other = Decode(pair, prompts, max_new_tokens=9, settings={"temperature": 1.0, "seed": 5})
    same = Decode(pair, prompts, max_new_tokens=9)(PromptLookup(budget="fixed"))
    assert once.text == same.text != other(tree).text, "a text that differs is told"


def test_what_one_trial_learned_is_not_there_for_the_next(pair):
    warm = Goose(carry="carried")
    measure = Decode(pair, [[1, 2, 3], [1, 2, 3]], max_new_tokens=30)
    first, second = (measure(warm).figures["iterations"] for _ in range(2))
    assert first == second
    assert pair.shared_state == {}


def test_models_that_are_not_there_stop_the_sweep(tmp_path, pair):
    with ThreadPoolExecutor(1) as executor:
        asked = {"executor": executor, "objective": "tokens_per_iteration"}
        gone = Decode({"target": str(tmp_path / "gone")}, ["x"])
        with pytest.raises(MeasurementError, match="gone"):
            sweep(FixedTree, ["depth=2"], tmp_path / "a", measure=gone, **asked)
        lone = table_pair(random_probs(VOCAB, 1), None, VOCAB)
        with pytest.raises(MeasurementError, match="draft"):
            sweep(DynaTree, ["max_depth=9"], tmp_path / "b", measure=Decode(lone, [[1, 2]]), **asked)
    with pytest.raises(NoDraftError):
        speclab.generate(lone, DynaTree(budget="fixed"), [1, 2], max_new_tokens=2)
