"""Decoding on a GPU, a real one or a double: the text is the CPU's text, and no pass fails."""

from functools import cache

import pytest
import torch
from support.heads import random_head
from support.tiny import tiny

import speclab
from double import on_gpu
from speclab.prompts import examples
from speclab.views import export_html

PROMPT = [1, 2, 3, 1, 2, 3, 4]
DRAWS = ["LinearSpeculation", "DynaTree", "Goose", "DualDraft"]
"""Strategies that are sampled too: a chain, a tree, one without a draft model, two trees."""


def text(pair, strategy, prompt=PROMPT, **settings):
    return speclab.generate(pair, strategy, prompt, max_new_tokens=8, **settings).token_ids


def pair(family, **where):
    target = tiny(family)
    head = random_head(target, layers=(0, 1))
    return speclab.load_pair(target=target, draft=tiny(family, seed=1), heads=head, **where)


@cache
def mini(where):
    return speclab.load_pair(device=where, dtype="float32")


@pytest.mark.parametrize(
    ("name", "temperature"),
    [*((name, 0.0) for name in speclab.strategies()), *((name, 0.8) for name in DRAWS)],
)
def test_every_strategy_decodes_the_text_of_the_cpu(name, temperature):
    strategy = speclab.strategies()[name]()
    prompt = examples()[0].text
    with on_gpu():
        texts = [
            text(mini(where), strategy, prompt, temperature=temperature)
            for where in ("cpu", "cuda")
        ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("family", "strategy"),
    [("llama", speclab.DraftHead(head=0)), ("gpt2", speclab.DynaTree()), ("gemma3_text", speclab.DynaTree())],
    ids=["llama, a head of two layers", "gpt2", "gemma3_text"],
)  # fmt: skip
def test_families_decode_the_text_of_the_cpu(family, strategy):
    """Llama's attention shares keys: its kernel answers transposed."""
    with on_gpu():
        texts = [text(pair(family, device=where), strategy) for where in ("cpu", "cuda")]
    assert texts[0] == texts[1]


def test_cudnn_is_off_while_a_pass_runs_and_as_it_was_after_it():
    during = []
    with on_gpu():
        target = tiny("llama")
        target.register_forward_hook(
            lambda *_: during.append(torch.backends.cuda.cudnn_sdp_enabled())
        )
        own = speclab.load_pair(target=target, device="cuda")
        before = torch.backends.cuda.cudnn_sdp_enabled()
        during.clear()  # the load compares passes of the module itself
        text(own, speclab.Autoregressive())
        assert torch.backends.cuda.cudnn_sdp_enabled() is before is True
    assert during
    assert not any(during)


@pytest.mark.parametrize(
    ("family", "strategy"),
    [("gpt_neox", speclab.DynaTree()), ("mistral", speclab.Goose())],
    ids=["gpt_neox", "mistral, goose"],
)
def test_a_model_over_two_devices(family, strategy):
    from accelerate import dispatch_model

    with on_gpu(2):
        target = tiny(family)
        base = target.base_model
        room = target.base_model_prefix
        places = {f"{room}.{name}": 0 for name, _ in base.named_children() if name != "layers"}
        target = dispatch_model(
            target, places | {f"{room}.layers.0": 0, f"{room}.layers.1": 1, "lm_head": 1}
        )
        assert {str(weight.device) for weight in target.parameters()} == {"cuda:0", "cuda:1"}
        # it agrees: paths are kept
        spread = speclab.load_pair(target=target, draft=tiny(family).to("cuda:1"))
        assert text(spread, strategy) == text(
            speclab.load_pair(target=tiny(family), draft=tiny(family)), strategy
        )


def test_a_session_forks_and_goes_back_as_on_the_cpu(tmp_path):
    with on_gpu():
        texts = []
        for where in ("cpu", "cuda"):
            session = speclab.Session(
                mini(where), speclab.DynaTree(), examples()[0].text, max_new_tokens=10, check=True
            )
            session.run()
            session.goto(1)
            fork = session.fork(at=1, strategy=speclab.Goose())
            fork.run()
            texts.append((session.trace.steps[-1].committed, fork.token_ids))
        assert texts[0] == texts[1]
        assert export_html(session.trace, tmp_path / "run.html").stat().st_size
        assert session.trace.models["target_forward"] == "lean"
