"""The scripts of `benchmarks/` run: each once, as small as it can be asked for."""

from __future__ import annotations

import json
import sys

import clicks
import gpu
import host
import inside_generate
import pytest
import torch
from gpu_models import SHAPES, modelled, random_pair
from typer.testing import CliRunner

import speclab
from speclab.errors import SettingsError, SpeclabError
from speclab.lab.lab import recorded


def written(out):
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_host_work_of_a_small_vocabulary(tmp_path):
    out, threads = tmp_path / "rows.jsonl", torch.get_num_threads()
    done = CliRunner().invoke(host.app, ["--vocabulary", "64", "--rounds", "1", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert f"vocabulary 64, {threads} threads" in done.stdout
    rows = written(out)
    timed = [(row["strategy"], row["context"]) for row in rows if "context" in row]
    assert timed == [(name, context) for name in host.TRAINING_FREE for context in host.CONTEXTS]
    tables = [row for row in rows if "MiB" in row]
    assert [row["table"] for row in tables] == ["Goose", "IsotropicTree", "TokenRecycling"]
    assert all(0 < row["MiB"] <= row["bound, MiB"] for row in tables)


@pytest.mark.model
def test_a_small_shape_runs_on_a_cpu(tmp_path):
    out = tmp_path / "rows.jsonl"
    asked = ["--shape", "tiny", "--device", "cpu", "--prefix", "8", "--tokens", "8", "--rounds", "1"]
    done = CliRunner().invoke(gpu.app, [*asked, "--acceptance", "0.7", "--out", str(out)])
    assert done.exit_code == 0, done.output
    floor, *rows = written(out)
    assert floor["reached"] == pytest.approx(floor["floor ms"] / floor["token ms"])
    assert [row["rows"] for row in rows[:8]] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert [row["strategy"] for row in rows[8:]] == list(gpu.STRATEGIES)
    assert rows[8]["× plain"] == rows[8]["tok/pass"] == 1
    for wrong in ("--shape huge", "--device mps", "--acceptance 1", "--prefix 500"):
        done = CliRunner().invoke(gpu.app, [*asked, *wrong.split()])
        assert isinstance(done.exception, SettingsError), wrong


@pytest.mark.model
def test_ours_beside_theirs_inside_generate(tmp_path, monkeypatch):
    """One strategy that drafts with the draft model, one with heads, one with neither."""
    some = {name: speclab.strategies()[name] for name in ("FixedTree", "DualDraft", "Lookahead")}
    monkeypatch.setattr(speclab, "strategies", lambda: some)
    out = tmp_path / "rows.jsonl"
    asked = ["--tokens", "8", "--rounds", "1", "--limit", "1", "--out", str(out)]
    done = CliRunner().invoke(inside_generate.app, asked)
    assert done.exit_code == 0, done.output
    plain, assisted, lookup, *ours = written(out)
    assert plain["× generate"] == 1
    assert "assistant_model" in assisted["method"]
    assert [row["equal texts"] for row in (lookup, *ours)] == ["1 of 1"] * 4
    assert [row["method"].partition("(")[0] for row in ours] == [f"speclab.{name}" for name in some]


@pytest.mark.model
def test_what_is_modelled_comes_out_as_modelled():
    """A chain of one token is a coin that falls so: the draft proposes its first guess, the target takes it or not."""
    pair = random_pair(SHAPES["tiny"], torch.device("cpu"))
    twin = modelled(pair, 0.7)
    found = speclab.generate(twin, speclab.LinearSpeculation(draft_tokens=1), [3, 1, 4], max_new_tokens=400)
    assert found.metrics.acceptance_rate == pytest.approx(0.7, abs=0.06)
    texts = {tuple(speclab.generate(twin, own, [3, 1], max_new_tokens=20).token_ids) for own in gpu.STRATEGIES.values()}
    assert len(texts) == 1
    names = ["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernelEx", "cudaGraphLaunch", "cudaMemcpyAsync"]
    names += ["cudaStreamSynchronize", "cudaEventSynchronize", "cudaStreamIsCapturing", "aten::copy_", "cudaGraphExec"]
    assert gpu.calls_by_kind(names) == {"kernels": 3, "replays": 1, "copies": 1, "waits": 2}
    rows = gpu.Bench(pair, "tiny", prefix=8, rounds=1).work(0.7, tokens=6)
    assert {(row["kernels"], row["waits"], row["device ms"]) for row in rows} == {(0, 0, 0)}, "on a CPU none is seen"


def test_clicks_without_a_browser(monkeypatch):
    """What is made of the clock's readings and of a history, and what is said where there is no browser."""
    row = clicks.row("Step", [110.0, 120.0, 230.0], [100.0, 100.0, 200.0], 150)
    assert (row["clicks"], row["median ms"], row["model ms, apart"]) == (3, 20.0, 100.0)
    assert 20 < row["p95 ms"] <= 30
    half, whole = clicks.kept(recorded())
    assert 0 < half["MiB in memory"] < whole["MiB in memory"]
    assert 0 < half["MiB on disk"] < whole["MiB on disk"]
    monkeypatch.setattr(clicks.shutil, "which", lambda _: None)
    with pytest.raises(SpeclabError, match=r"Chromium|Playwright"), clicks.notebook("1"):
        pass
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with pytest.raises(SpeclabError, match="Playwright"), clicks.notebook("1"):
        pass
