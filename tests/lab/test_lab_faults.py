"""A model that fails in a run: what was decoded is shown, and the lab lives on."""

from __future__ import annotations

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


PLAIN, LINEAR = Autoregressive(), LinearSpeculation(draft_tokens=2)


@pytest.mark.parametrize(
    ("strategy", "change", "says"),
    [
        (PLAIN, lambda logits: torch.full_like(logits, torch.nan), "NaN"),
        (LINEAR, lambda logits: torch.full_like(logits, torch.nan), "NaN"),
        (PLAIN, raises, "RuntimeError"),
        (LINEAR, raises, "RuntimeError"),
        (LINEAR, lambda logits: logits[..., :-1], "gave logits of shape"),
        (LINEAR, lambda logits: logits[:, :-1], "gave logits of shape"),
        (PLAIN, lambda logits: logits[0], "gave logits of shape"),
    ],
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
