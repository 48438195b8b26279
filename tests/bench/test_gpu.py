"""Random weights of given shapes: what is modelled comes out as modelled, what is refused is refused in a sentence."""

from __future__ import annotations

import json
import re

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import speclab
from speclab.bench.cli import app
from speclab.bench.gpu import Bench, calls_by_kind, the_device
from speclab.bench.gpu_shapes import SHAPES, modelled, random_pair
from speclab.errors import OutOfMemoryError, SettingsError

pytestmark = pytest.mark.model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pair():
    return random_pair(SHAPES["tiny"], CPU)


def counted(shape, part):
    """Parameters, without making them."""
    with torch.device("meta"):
        from transformers import CONFIG_MAPPING, AutoModelForCausalLM

        return AutoModelForCausalLM.from_config(CONFIG_MAPPING[shape.family](**getattr(shape, part))).num_parameters()


@pytest.mark.parametrize(
    ("name", "part", "millions"),
    [("pythia", "target", 2775), ("pythia", "draft", 70), ("llama", "target", 8030), ("llama", "draft", 1236)],
)
def test_shapes_have_as_many_parameters_as_the_models_they_are_named_after(name, part, millions):
    assert round(counted(SHAPES[name], part) / 1e6) == millions


def test_the_first_guess_is_right_as_often_as_modelled(pair):
    """A chain of one token is a coin that falls so: the draft proposes its first guess, the target takes it or not."""
    twin = modelled(pair, 0.7)
    found = speclab.generate(twin, speclab.LinearSpeculation(draft_tokens=1), [3, 1, 4], max_new_tokens=400)
    assert found.metrics.acceptance_rate == pytest.approx(0.7, abs=0.06)
    assert twin.target.through.name == "lean, modelled logits"
    assert pair.target.through.name == "lean"


def test_every_way_decodes_the_same_modelled_text(pair):
    twin = modelled(pair, 0.6)
    ways = [speclab.Autoregressive(), speclab.LinearSpeculation(), speclab.DynaTree()]
    texts = [speclab.generate(twin, way, [3, 1, 4], max_new_tokens=40, stop_at_eos=False).token_ids for way in ways]
    assert texts[0] == texts[1] == texts[2]


def test_the_floor_counts_every_weight_that_a_pass_reads(pair):
    bench = Bench(pair, "tiny", prefix=8, rounds=2)
    bench.bandwidth = lambda: 1e9
    row = bench.floor()
    model = pair.target.model
    weights = sum(weight.nbytes for weight in model.parameters()) - model.gpt_neox.embed_in.weight.nbytes
    assert row.gigabytes == (weights + 8 * 2 * 2 * 64 * 4) / 1e9, "two layers of keys and values, 64 wide, float32"
    assert row.floor_ms == pytest.approx(row.gigabytes * 1000)
    assert row.reached == pytest.approx(row.floor_ms / row.token_ms)


def test_a_small_shape_runs_on_a_cpu_and_writes_its_rows(tmp_path):
    out = tmp_path / "rows.jsonl"
    asked = ["gpu", "--shape", "tiny", "--device", "cpu", "--prefix", "8", "--tokens", "12", "--rounds", "1"]
    done = CliRunner().invoke(app, [*asked, "--acceptance", "0.7", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "Modelled acceptance, measured time" in done.output
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["rows"] for row in rows[1:9]] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert [row["way"] for row in rows[9:]] == ["plain", "LinearSpeculation", "DynaTree"]
    assert rows[9]["speedup"] == rows[9]["tokens_per_iteration"] == 1
    assert {row["forward"] for row in rows} == {"lean"}


def test_what_an_iteration_asks_for_is_counted_from_the_names_of_cudas_calls(pair):
    names = ["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernelEx", "cudaGraphLaunch", "cudaMemcpyAsync"]
    names += ["cudaStreamSynchronize", "cudaEventSynchronize", "cudaStreamIsCapturing", "aten::copy_", "cudaGraphExec"]
    assert calls_by_kind(names) == {"kernels": 3, "replays": 1, "copies": 1, "waits": 2}
    rows = list(Bench(pair, "tiny", prefix=8, rounds=1).work(0.7, tokens=6))
    assert [row.way for row in rows] == ["plain", "LinearSpeculation", "DynaTree"]
    assert rows[0].iterations == 5
    assert {(row.kernels, row.waits, row.device_ms) for row in rows} == {(0, 0, 0)}, "on a CPU CUDA is not called"
    assert all(row.iteration_ms > 0 for row in rows)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_cuda_it_says_where_to_run_it():
    with pytest.raises(
        SettingsError, match=re.escape("no CUDA device here: run it where there is one, or try --shape")
    ):
        the_device("cuda")


@pytest.mark.parametrize("asked", ["--shape huge", "--device mps", "--acceptance 1", "--prefix 500"])
def test_what_cannot_be_measured_is_one_sentence(asked):
    done = CliRunner().invoke(app, ["gpu", "--shape", "tiny", "--device", "cpu", *asked.split()])
    assert isinstance(done.exception, SettingsError)
    assert str(done.exception).count(".") <= 2


def test_models_that_do_not_fit_are_named(monkeypatch):
    def refuse(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(nn.Linear, "__init__", refuse)
    with pytest.raises(OutOfMemoryError, match="choose a smaller shape"):
        random_pair(SHAPES["tiny"], CPU)
