"""A model that fails in a run, a Stop in the first load: what was decoded is shown, and the lab lives on."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from tiny import tiny

from speclab.drafters.chain import Autoregressive, LinearSpeculation
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner


def failing_pair(spoil) -> ModelPair:
    """A target whose logits go through `spoil(calls, logits)` on their way out."""
    target, calls = tiny("gpt_neox"), [0]

    def hook(module, args, output):
        calls[0] += 1
        output.logits = spoil(calls[0], output.logits)
        return output

    runner = Runner(target, "target")
    target.register_forward_hook(hook)
    return ModelPair(runner, Runner(tiny("gpt_neox"), "draft"), name="failing")


def from_the_sixth(change):
    return lambda call, logits: change(logits) if call >= 6 else logits


def raises(logits):
    raise RuntimeError("a foreign module broke")


@pytest.mark.parametrize("strategy", [Autoregressive(), LinearSpeculation(draft_tokens=2)])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda logits: torch.full_like(logits, torch.nan), "NaN"),
        (raises, "RuntimeError"),
        (lambda logits: logits[..., :-1], "gave logits of shape"),
        (lambda logits: logits[:, :-1], "gave logits of shape"),
        (lambda logits: logits[0], "gave logits of shape"),
    ],
    ids=["nan", "raises", "a token too few", "a row too few", "no batch"],
)
def test_a_run_that_fails_shows_what_it_had_decoded(make, strategy, change, says):
    lab = make(failing_pair(from_the_sixth(change)), strategy)
    lab.run()
    assert says in lab.state.error
    assert len(lab.session.steps) >= 3
    assert lab.state.cursor == len(lab.state.trace.steps) == len(lab.session.steps)
    assert lab.state.frame.live
    assert lab.state.busy == ""
    assert f"Iteration {lab.state.cursor}:" in lab.state.status
    lab.status.dismiss()
    before = lab.session.token_ids
    assert lab.step() is None
    assert says in lab.state.error
    assert lab.session.token_ids == before
    lab.goto(1)
    assert lab.state.cursor == 1


FIRST_LOAD = """
import threading, time
import speclab
lab = speclab.Lab(prompt="Once")
step = lab._actions.ask(lab._controller.step)
while not lab.state.busy:
    time.sleep(0.001)
lab.stop()
assert step.result(60) is None
print(lab.state.status)
print([thread.name for thread in threading.enumerate() if thread.name == "speclab-loading"])
lab._worker.wait(60)
for thread in threading.enumerate():
    if thread.name == "speclab-loading":
        thread.join()
assert lab.session is None and lab._controller.models.pair is None
assert lab.step() is not None, lab.state.error
"""


@pytest.mark.model
def test_stop_is_heard_while_the_libraries_are_read_for_the_first_time():
    """In a process of its own, for here they are read already: the load is left behind while it is still at work."""
    done = subprocess.run([sys.executable, "-c", FIRST_LOAD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    status, loading = done.stdout.splitlines()
    assert status.startswith("Stopped loading mini")
    assert loading == "['speclab-loading']"
