"""Graphs that fail, at every place where they can: the text stays the CPU's, and who asks is told why."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import pytest
import torch
from heads import random_head
from tiny import tiny

import speclab
from double import device, graphs
from speclab.models.probe import measure
from speclab.models.runner import Runner

pytestmark = [pytest.mark.double, pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")]

PROMPT = [1, 2, 3, 1, 2, 3, 4]
FAULTS = {
    "warm-up": "launch failure",
    "begin": "initialization error",
    "middle": "error during capture",
    "end": "error during capture",
    "empty": "other numbers",
    "wrong": "other numbers",
    "replay": "illegal memory access",
    "replay oom": "no memory",
}


def text(pair, **settings):
    return speclab.generate(pair, speclab.DynaTree(), PROMPT, max_new_tokens=6, **settings).token_ids


def pair(family="llama", **where):
    return speclab.load_pair(target=tiny(family), draft=tiny(family, seed=1), **where)


@pytest.fixture(scope="module")
def wanted():
    with device():
        return text(pair(device="cpu"))


@pytest.mark.parametrize(
    ("fault", "when"), [*((fault, "later") for fault in FAULTS), *((fault, "at load") for fault in ("end", "replay"))]
)
def test_a_graph_that_fails_costs_its_speed_alone(fault, when, wanted):
    with device() as gpu:
        gpu.fault = fault if when == "at load" else ""
        own = pair(device="cuda")
        gpu.fault = fault
        assert text(own) == wanted
        for forward in (own.describe()["target_forward"], own.describe()["draft_forward"]):
            assert forward.startswith("lean, without CUDA graphs: ")
            assert FAULTS[fault] in forward
        assert torch.cuda.current_stream().is_default
        assert when == "later" or text(own) == wanted, "and stays right"


def test_what_a_failed_graph_held_is_free(wanted):
    with device() as gpu:
        made = weakref.WeakSet()
        own_init = graphs.CUDAGraph.__init__

        def init(graph):
            own_init(graph)
            made.add(graph)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(graphs.CUDAGraph, "__init__", init)
            own = pair(device="cuda")
            assert text(own) == wanted
            assert made
            gpu.fault = "replay"
            assert text(own) == wanted
        gc.collect()
        assert not made


def test_the_next_model_is_captured_again_after_one_failed(wanted):
    with device() as gpu:
        gpu.fault = "end"
        pair(device="cuda")
        gpu.fault = ""
        own = pair(device="cuda")
        assert text(own) == wanted
        assert own.describe()["target_forward"] == own.describe()["draft_forward"] == "lean, CUDA graphs"


def test_graphs_on_every_device_are_of_that_device_and_those_of_a_model_share_one_memory_pool(wanted):
    with device(2) as gpu:
        assert text(pair(device="cuda:0")) == wanted
        assert gpu.graphs["captures"] > 4
        assert len(gpu.pools) == 2, "the target's and the draft's"
        target, draft = tiny("llama").to("cuda:0"), tiny("llama", seed=1).to("cuda:1")
        for own in (speclab.load_pair(target=target, draft=draft), pair(device="cuda:1")):
            assert text(own) == wanted
            assert own.describe()["target_forward"] == own.describe()["draft_forward"] == "lean, CUDA graphs"
        assert not gpu.graphs["empty graphs"]


def test_a_family_is_not_blamed_for_its_graphs():
    """Graphs that answer wrong numbers behind the check's back: the probe steps down, and loading goes on."""
    with device(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("speclab.models.fast.graphs._check", lambda *_: None)
        replay = graphs.CUDAGraph.replay

        def wrong(graph):
            replay(graph)
            logits = [entry.answer for entry in graph.entries if "linear" in str(entry.run)][-1:]
            for answer in logits:
                answer.mul_(-1)

        patch.setattr(graphs.CUDAGraph, "replay", wrong)
        own = pair(device="cuda")
        assert own.describe()["target_forward"].startswith("lean, without CUDA graphs: logits over a tree differ")


def test_a_family_is_not_blamed_for_its_lean_forward():
    with device(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("speclab.models.fast.lean.Rotary.at", lambda *_: 1 / 0)
        own = pair(device="cuda")
        forward = own.describe()["target_forward"]
        assert forward.startswith("module, without CUDA graphs: ")
        assert "without lean forward: a pass failed (ZeroDivisionError" in forward


def test_passes_never_make_a_plan_of_cudnns_attention_and_leave_its_flag_as_it_was():
    for name in ("llama", "qwen3"):
        with device(cudnn=True) as gpu:
            measure(Runner(tiny(name).to("cuda", torch.float16)))
            target = tiny(name).to("cuda", torch.float16)
            headed = speclab.load_pair(target=target, heads=random_head(target))
            speclab.generate(headed, speclab.DraftHead(), PROMPT, max_new_tokens=4)
            assert not gpu.plans
            assert torch.backends.cuda.cudnn_sdp_enabled()


def _other_head(model):
    head = torch.nn.Linear(model.config.hidden_size, model.config.vocab_size, bias=False)
    with torch.no_grad():
        head.weight.copy_(model.lm_head.weight.flip(0))
    model.lm_head = head.to(model.device)


CHANGES = {
    "another head": _other_head,
    "another weight": lambda model: setattr(
        model.lm_head, "weight", torch.nn.Parameter(model.lm_head.weight.detach().flip(0))
    ),
    "data.neg_": lambda model: model.lm_head.weight.data.neg_(),
    "inv_freq": lambda model: model.model.rotary_emb.inv_freq.mul_(0.1),
    "fewer layers": lambda model: setattr(model.model, "layers", model.model.layers[:1]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_module_that_was_changed_is_captured_as_it_is(change):
    with device():
        texts = []
        for place in ("cpu", "cuda"):
            own = pair(device=place)
            before = text(own)
            change(own.target.model)
            texts.append(text(own, check=True))
            assert texts[-1] != before
        assert texts[0] == texts[1]


def test_texts_on_two_threads_do_not_take_each_others_answers(wanted):
    """Graphs of a model share memory: whoever replays one writes over what another has answered."""
    found, interval = [], sys.getswitchinterval()
    with device() as gpu:
        own = pair(device="cuda")
        threads = [threading.Thread(target=lambda: found.append(text(own))) for _ in range(2)]
        sys.setswitchinterval(1e-5)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        assert found == [wanted, wanted]
        assert gpu.graphs["replays"] > gpu.graphs["captures"]
        assert own.describe()["target_forward"] == "lean, CUDA graphs"
