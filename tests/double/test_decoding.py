"""Decoding on a GPU, a real one or a double: the text is the CPU's text, no pass fails, and small passes are graphs."""

from __future__ import annotations

import pytest
import torch
from heads import random_head
from tiny import tiny
from typer.testing import CliRunner

import speclab
from double import device, on_gpu
from speclab.cli import app
from speclab.models import memory
from speclab.prompts import examples
from speclab.views.export import export_html

pytestmark = pytest.mark.double

PROMPT = [1, 2, 3, 1, 2, 3, 4]
SETTINGS = {"greedy": {}, "sampled": {"temperature": 0.8}}


def text(pair, strategy, prompt=PROMPT, **settings):
    found = speclab.generate(pair, strategy, prompt, max_new_tokens=10, **settings).token_ids
    assert not any(runner.implementation.dropped for runner in pair.runners.values()), (
        "a faster way that fails is no way"
    )
    return found


def pair(family, **where):
    return speclab.load_pair(target=tiny(family), draft=tiny(family, seed=1), **where)


@pytest.fixture(scope="module")
def mini():
    with on_gpu():
        return [speclab.load_pair(device=name, dtype="float32") for name in ("cpu", "cuda")]


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("name", speclab.strategies())
def test_every_strategy_decodes_the_text_of_the_cpu(name, settings, mini):
    with on_gpu():
        texts = [text(each, speclab.strategies()[name](), examples()[0].text, **settings) for each in mini]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("family", ["gpt_neox", "gpt2", "qwen3", "gemma3_text", "mistral"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_families_decode_in_every_dtype(family, dtype):
    with on_gpu():
        got = text(pair(family, device="cuda", dtype=dtype), speclab.DynaTree())
        if dtype == "float32":
            assert got == text(pair(family, device="cpu"), speclab.DynaTree())


def test_heads_that_share_keys_decode_under_a_kernel_that_answers_transposed():
    with on_gpu():
        assert text(pair("llama", device="cuda"), speclab.DynaTree()) == text(
            pair("llama", device="cpu"), speclab.DynaTree()
        )


@pytest.mark.parametrize("family", ["gpt_neox", "llama", "mistral"])
@pytest.mark.parametrize(
    "strategy",
    [speclab.DynaTree(), speclab.Goose(), speclab.DynaTree(commit="rebuild")],
    ids=["DynaTree", "Goose", "rebuild"],
)
def test_a_model_over_two_devices(family, strategy):
    from accelerate import dispatch_model

    with on_gpu(2):
        target = tiny(family)
        base, room = target.base_model, target.base_model_prefix
        places = {f"{room}.{name}": 0 for name, _ in base.named_children() if name != "layers"}
        target = dispatch_model(target, places | {f"{room}.layers.0": 0, f"{room}.layers.1": 1, "lm_head": 1})
        assert {str(weight.device) for weight in target.parameters()} == {"cuda:0", "cuda:1"}
        spread = speclab.load_pair(target=target, draft=tiny(family).to("cuda:1"))  # it agrees: paths are kept
        assert text(spread, strategy) == text(speclab.load_pair(target=tiny(family), draft=tiny(family)), strategy)


def test_a_second_load_may_take_what_torch_keeps_for_later():
    with device() as gpu:
        gpu.free, gpu.reserved, gpu.allocated = 1 << 20, 60 << 30, 10 << 30
        assert memory.free(torch.device("cuda")) == (50 << 30) + (1 << 20)
        assert memory.usage(torch.device("cuda")) == "cuda: 30.0 GiB of 80.0 GiB in use"
        speclab.load_pair(device="cuda", dtype="float32")


def test_passes_run_as_graphs_and_say_so(mini):
    with on_gpu():
        facts = mini[1].describe()
        assert facts["target_forward"] == facts["draft_forward"] == "lean, CUDA graphs"


def test_a_session_forks_and_goes_back_as_on_the_cpu(mini, tmp_path):
    with on_gpu():
        texts = []
        for each in mini:
            session = speclab.Session(each, speclab.DynaTree(), examples()[0].text, max_new_tokens=24, check=True)
            session.run()
            session.goto(1)
            fork = session.fork(at=1, strategy=speclab.Goose())
            fork.run()
            texts.append((session.trace.steps[-1].committed, fork.token_ids))
            assert export_html(session.trace, tmp_path / "run.html").stat().st_size
        assert texts[0] == texts[1]


def test_weights_that_are_exchanged_are_those_of_the_next_text():
    """A graph reads addresses: one that was captured before would go on with the weights that were taken away."""
    with on_gpu():
        texts = []
        for place in ("cpu", "cuda"):
            own, other = pair("llama", device=place), tiny("llama", seed=2).to(place)
            before = text(own, speclab.DynaTree())
            own.target.model.load_state_dict(other.state_dict(), assign=True)
            texts.append((before, text(own, speclab.DynaTree())))
        assert texts[0] == texts[1]
        assert texts[0][0] != texts[0][1]


@pytest.mark.parametrize("fault", ["", "replay"])
def test_the_doctor_says_which_way_passes_go_and_why(fault):
    with device() as gpu:
        gpu.fault = fault
        done = CliRunner().invoke(app, ["doctor", "--device", "cuda"])
        assert done.exit_code == 0, done.output
        said = " ".join(done.stdout.split())
        assert ("lean, without CUDA graphs: a pass failed" if fault else "lean, CUDA graphs") in said


@pytest.mark.parametrize("shape", [{}, {"layers": (0, 1)}], ids=["EAGLE", "two layers"])
def test_draft_heads_on_the_gpu(shape):
    with on_gpu():
        texts = []
        for place in ("cpu", "cuda"):
            target = tiny("llama")
            head = random_head(target, **shape)
            own = speclab.load_pair(target=target, heads=head, device=place)
            texts.append(text(own, speclab.DraftHead()))
        assert texts[0] == texts[1]
