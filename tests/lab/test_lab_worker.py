"""The worker behind the lab, and what comes of faults in it: one sentence, and a lab that goes on."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest
import torch
from lab_tools import PATIENCE
from tiny import tiny

from speclab.drafters.chain import Autoregressive, LinearSpeculation
from speclab.lab.worker import Worker
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner


@pytest.fixture
def interrupts():
    return []


@pytest.fixture
def worker(interrupts):
    made = Worker(lambda: interrupts.append(threading.current_thread()))
    yield made
    made.close()


def test_work_is_done_in_order_on_one_thread_that_is_not_the_callers_and_survives_a_failure(worker):
    done = []
    results = [worker.submit(lambda i=i: done.append((i, threading.current_thread()))) for i in range(5)]
    for result in results:
        result.result(PATIENCE)
    assert [i for i, _ in done] == list(range(5))
    assert {thread for _, thread in done} == {done[0][1]} != {threading.current_thread()}
    with pytest.raises(ZeroDivisionError):
        worker.submit(lambda: 1 / 0).result(PATIENCE)
    assert worker.submit(lambda: worker.submit(lambda: 7).result(PATIENCE)).result(PATIENCE) == 7, (
        "it does not wait for itself"
    )


def test_of_those_waiting_with_one_key_the_newest_is_done(worker):
    gate, done = threading.Event(), []
    worker.submit(lambda: gate.wait(PATIENCE))
    results = [worker.submit(lambda i=i: done.append(i), key="goto") for i in range(3)]
    other = worker.submit(lambda: done.append("other"))
    gate.set()
    other.result(PATIENCE)
    assert done == [2, "other"]
    with pytest.raises(CancelledError):
        results[0].result(PATIENCE)


def test_cancel_drops_what_waits_and_tells_what_runs(worker, interrupts):
    worker.cancel()
    assert interrupts == []
    started, gate = threading.Event(), threading.Event()
    first = worker.submit(lambda: (started.set(), gate.wait(PATIENCE), worker.cancelled.is_set())[-1])
    second = worker.submit(lambda: None)
    assert started.wait(PATIENCE)
    worker.cancel()
    gate.set()
    assert first.result(PATIENCE) is True
    assert second.cancelled() or isinstance(second.exception(PATIENCE), CancelledError)
    assert len(interrupts) == 1
    assert worker.submit(worker.cancelled.is_set).result(PATIENCE) is False


def test_work_that_yields_ends_when_anything_else_is_asked_for(worker, interrupts):
    started = threading.Event()
    run = worker.submit(lambda: (started.set(), worker.cancelled.wait(PATIENCE))[-1], yields=True)
    assert started.wait(PATIENCE)
    after = worker.submit(lambda: "after")
    assert run.result(PATIENCE) is True
    assert after.result(PATIENCE) == "after"
    assert len(interrupts) == 1


def test_a_closed_worker_lets_its_thread_go(worker):
    thread = worker.submit(threading.current_thread).result(PATIENCE)
    worker.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert isinstance(worker.submit(lambda: None).exception(PATIENCE), CancelledError)


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
