"""One thread, in order, newest request first among equals, and a Stop that is heard."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest

from speclab.lab.worker import Worker


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
        result.result(30)
    assert [i for i, _ in done] == list(range(5))
    assert {thread for _, thread in done} == {done[0][1]} != {threading.current_thread()}
    with pytest.raises(ZeroDivisionError):
        worker.submit(lambda: 1 / 0).result(30)
    assert worker.submit(lambda: worker.submit(lambda: 7).result(30)).result(30) == 7, "it does not wait for itself"


def test_of_those_waiting_with_one_key_the_newest_is_done(worker):
    gate, done = threading.Event(), []
    worker.submit(lambda: gate.wait(30))
    results = [worker.submit(lambda i=i: done.append(i), key="goto") for i in range(3)]
    other = worker.submit(lambda: done.append("other"))
    gate.set()
    other.result(30)
    assert done == [2, "other"]
    with pytest.raises(CancelledError):
        results[0].result(30)


def test_cancel_drops_what_waits_and_tells_what_runs(worker, interrupts):
    worker.cancel()
    assert interrupts == []
    started, gate = threading.Event(), threading.Event()
    first = worker.submit(lambda: (started.set(), gate.wait(30), worker.cancelled.is_set())[-1])
    second = worker.submit(lambda: None)
    assert started.wait(30)
    worker.cancel()
    gate.set()
    assert first.result(30) is True
    assert second.cancelled() or isinstance(second.exception(30), CancelledError)
    assert len(interrupts) == 1
    assert worker.submit(worker.cancelled.is_set).result(30) is False


def test_work_that_yields_ends_when_anything_else_is_asked_for(worker, interrupts):
    started = threading.Event()
    run = worker.submit(lambda: (started.set(), worker.cancelled.wait(30))[-1], yields=True)
    assert started.wait(30)
    after = worker.submit(lambda: "after")
    assert run.result(30) is True
    assert after.result(30) == "after"
    assert len(interrupts) == 1


def test_a_closed_worker_lets_its_thread_go(worker):
    thread = worker.submit(threading.current_thread).result(30)
    worker.close()
    thread.join(30)
    assert not thread.is_alive()
    assert isinstance(worker.submit(lambda: None).exception(30), CancelledError)
