"""Ctrl-C, cancel and errors at any moment: the iteration under way is undone, nothing else is lost."""

from __future__ import annotations

import threading

import pytest
from records import assert_same
from sessions import (
    DRAFT,
    NEW,
    PROMPT,
    STRATEGIES,
    TARGET,
    assert_caches_follow,
    every_strategy,
    finished,
    own_text,
    pair_of,
    session_of,
)

import speclab

# Interrupts: Ctrl-C anywhere in an iteration


@every_strategy
@pytest.mark.parametrize("role", ["target", "draft"])
def test_ctrl_c_at_any_moment_of_an_iteration_loses_nothing(strategy, role):
    """Before and after every pass, keep and crop: the session is as before, and goes on to the same text."""
    session = session_of(strategy)
    session.step()
    interrupted = 0
    for moment in range(24):
        if session.done:
            break
        runner = getattr(session.pair, role)
        before, learned = session.trace, session.token_ids
        runner.fuse = moment % 12
        try:
            session.step()
        except KeyboardInterrupt:
            interrupted += 1
            assert_same(session.trace, before)
            assert session.token_ids == learned
            assert_caches_follow(session)
        runner.fuse = None
    assert interrupted or (role == "draft" and not strategy.needs_draft)
    session.run()
    assert session.token_ids == own_text()
    assert_caches_follow(session)


def test_the_interrupted_iteration_is_done_again_just_the_same():
    """The same trees, the same adapted thresholds: history has not counted the interrupted one."""
    whole, session, interrupted = finished(max_new_tokens=60), session_of(max_new_tokens=60), 0
    for moment in range(40):
        for runner in session.pair.runners.values():
            runner.fuse = moment % 6
            try:
                session.run(until=lambda step: True)
            except KeyboardInterrupt:
                interrupted += 1
            runner.fuse = None
    session.run()
    assert interrupted > 20
    for mine, its in zip(whole.steps, session.steps, strict=True):
        assert_same(mine.tree, its.tree)
        assert mine.settings == its.settings


def test_ctrl_c_while_the_record_is_made_loses_nothing(monkeypatch):
    """The iteration is committed and learned from by then: all of it is undone, and done again just the same."""
    whole, session = finished(max_new_tokens=60), session_of(max_new_tokens=60)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    while not session.done:
        before = session.trace
        with monkeypatch.context() as patch:
            patch.setattr("speclab.engine.session.record", interrupt)
            with pytest.raises(KeyboardInterrupt):
                session.step()
        assert_same(session.trace, before)
        assert_caches_follow(session)
        session.step()
    assert any(step.adaptation.after for step in whole.steps)
    for mine, its in zip(whole.steps, session.steps, strict=True):
        assert_same(mine.tree, its.tree)
        assert (mine.settings, mine.adaptation) == (its.settings, its.adaptation)


def test_an_error_in_the_model_loses_nothing():
    session = session_of()
    session.step()
    before = session.trace
    session.pair.target.probs = lambda path: 1 / 0
    with pytest.raises(ZeroDivisionError):
        session.step()
    assert_same(session.trace, before)
    session.pair.target.probs = TARGET
    session.run()
    assert session.token_ids == own_text()


def test_ctrl_c_in_generate_hands_over_what_was_decoded(monkeypatch):
    passes = 0

    def probs(path):
        nonlocal passes
        passes += 1
        if passes == 60:
            raise KeyboardInterrupt
        return TARGET(path)

    with pytest.raises(KeyboardInterrupt) as caught:
        speclab.generate(pair_of(probs), STRATEGIES["dynatree"], PROMPT, max_new_tokens=NEW)
    done = caught.value.result.token_ids
    assert 1 < len(done) < NEW
    assert done == own_text()[: len(done)]


# Cancel


def cancelling(probs, session):
    """The same distribution, which cancels the session whenever it is asked."""

    def cancels(path):
        session.cancel()
        return probs(path)

    return cancels


@pytest.mark.parametrize("name", [name for name, strategy in STRATEGIES.items() if strategy.needs_draft])
def test_cancel_while_drafting_stops_before_the_target_is_asked(name):
    session = session_of(STRATEGIES[name])
    session.step()
    before, asked = session.trace, session.pair.target.calls
    session.pair.draft.probs = cancelling(DRAFT, session)
    assert session.run() is session.steps[-1]
    assert_same(session.trace, before)
    with pytest.raises(speclab.SpeclabError, match="step again"):
        session.step()
    assert_same(session.trace, before)
    assert session.pair.target.calls == asked
    assert_caches_follow(session)
    session.pair.draft.probs = DRAFT
    session.run()
    assert session.token_ids == own_text()


@every_strategy
def test_cancel_while_verifying_ends_the_run_with_whole_iterations(strategy):
    session = session_of(strategy)
    session.step()
    session.pair.target.probs = cancelling(TARGET, session)
    session.run()
    assert len(session.steps) in {1, 2}
    assert_caches_follow(session)
    session.pair.target.probs = TARGET
    session.run()
    assert session.token_ids == own_text()


def test_cancel_from_another_thread_ends_a_run():
    """The run waits inside a pass until the other thread has cancelled."""
    inside, cancelled = threading.Event(), threading.Event()

    def probs(path):
        if len(path) > 12:
            inside.set()
            assert cancelled.wait(10)
        return TARGET(path)

    session = session_of(pair=pair_of(probs))
    worker = threading.Thread(target=session.run)
    worker.start()
    assert inside.wait(10)
    session.cancel()
    cancelled.set()
    worker.join(10)
    assert not worker.is_alive()
    assert not session.done
    assert session.token_ids == own_text()[: len(session.token_ids)]
    session.run()
    assert session.token_ids == own_text()


def test_cancel_while_nothing_runs_stops_nothing():
    """A click on Stop after the end of a run: the next step decodes."""
    session = session_of()
    session.run(until=lambda step: True)
    session.cancel()
    assert session.step().index == 1
    session.run()
    assert session.token_ids == own_text()
