"""Session: stepping, moving in time, forking, stopping; nothing lost and nothing shared."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from records import assert_consistent, assert_same
from table_runner import mixed_law, random_law, table_pair
from tiny import tiny

import speclab
from speclab.drafters.base import Strategy

VOCAB = 8
PROMPT = [1, 2, 3]
TARGET = random_law(VOCAB, 11, low=0.5, high=2.5)
DRAFT = mixed_law(TARGET, random_law(VOCAB, 12), 0.15)
NEW = 30

STRATEGIES: dict[str, Strategy] = {
    "plain": speclab.Autoregressive(),
    "chain": speclab.LinearSpeculation(draft_tokens=4, confidence_stop=0.2),
    "tree": speclab.FixedTree(depth=3, branching=2),
    "dynatree": speclab.DynaTree(prune_probability=0.1, base_depth=3),
    "paper": speclab.DynaTree(root="drafted", commit="rebuild", drafting="node", base_depth=3),
    "drafted, gathered": speclab.DynaTree(root="drafted", base_depth=3),
}
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


def session_of(strategy: Strategy = STRATEGIES["dynatree"], **settings: object) -> speclab.Session:
    return speclab.Session(table_pair(TARGET, DRAFT, VOCAB), strategy, PROMPT, **({"max_new_tokens": NEW} | settings))


def finished(strategy: Strategy = STRATEGIES["dynatree"], **settings: object) -> speclab.Session:
    session = session_of(strategy, **settings)
    session.run()
    return session


def own_text(count: int = NEW) -> list[int]:
    text = list(PROMPT)
    for _ in range(count):
        text.append(int(np.argmax(TARGET(tuple(text)))))
    return text[len(PROMPT) :]


def calls(session: speclab.Session) -> list[int]:
    return [runner.calls for runner in session.pair.runners.values()]


def texts(session: speclab.Session) -> list[list[int]]:
    """What the caches hold."""
    return [runner.tokens for runner in session.pair.runners.values()]


def assert_caches_follow(session: speclab.Session) -> None:
    """Both caches hold a prefix of the whole decoded text, the target's all but at most the newest token."""
    whole = list(session.trace.prompt_ids + session.trace.token_ids())
    for held in texts(session):
        assert held == whole[: len(held)]
    assert len(whole) - 1 <= session.pair.target.length <= len(whole)


# Stepping


@every_strategy
def test_stepping_gives_the_targets_text_and_consistent_records(strategy):
    session = session_of(strategy)
    assert session.token_ids == own_text(1), "the prefill gave the first token"
    while not session.done:
        before = session.token_ids
        step = session.step()
        assert_consistent(step)
        assert step.index == session.cursor - 1 == len(session.steps) - 1
        assert session.token_ids == before + list(step.committed)
        assert_caches_follow(session)
    assert session.token_ids == own_text()
    assert session.finished == "max_new_tokens"
    assert session.prompt_ids == PROMPT


def test_the_text_without_a_tokenizer_shows_ids():
    session = finished()
    assert session.text.split() == [f"#{token}" for token in own_text()]


def test_a_finished_session_says_so_and_changes_nothing():
    session = finished()
    before, spent = session.trace, calls(session)
    with pytest.raises(speclab.FinishedError, match="max_new_tokens"):
        session.step()
    assert_same(session.trace, before)
    assert calls(session) == spent
    assert session.run() is session.steps[-1]


def test_the_pair_given_is_left_as_it_was():
    pair = table_pair(TARGET, DRAFT, VOCAB)
    one = speclab.Session(pair, STRATEGIES["dynatree"], PROMPT, max_new_tokens=NEW)
    two = speclab.Session(pair, STRATEGIES["chain"], [4], max_new_tokens=NEW)
    while not (one.done and two.done):
        for session in (one, two):
            if not session.done:
                session.step()
    assert one.token_ids == own_text()
    assert (pair.target.length, pair.target.calls, pair.draft.length) == (0, 0, 0)


# Moving in time


@every_strategy
def test_going_back_and_forth_costs_no_model_call_and_shows_the_same(strategy):
    session = finished(strategy)
    steps, spent = list(session.steps), calls(session)
    lengths = [1]
    for step in steps:
        lengths.append(lengths[-1] + len(step.committed))
    for index in (0, len(steps), len(steps) // 2, 1, len(steps) - 1):
        shown = session.goto(index)
        assert shown is (steps[index - 1] if index else None)
        assert session.cursor == index
        assert session.token_ids == own_text()[: lengths[index]]
        assert session.metrics.iterations == index
        assert session.done == (index == len(steps))
    session.goto(1)
    assert session.back() is None
    assert session.back() is None, "before the first iteration there is nothing to go back to"
    assert session.cursor == 0
    assert [session.step() for _ in steps] == steps
    assert session.done
    assert calls(session) == spent
    assert session.trace.token_ids() == tuple(own_text())


def test_stepping_on_after_going_back_goes_through_history_first():
    session = session_of()
    first, second = session.step(), session.step()
    session.goto(0)
    assert [session.step(), session.step()] == [first, second]
    third = session.step()
    assert (third.index, len(session.steps)) == (2, 3)
    session.run()
    assert session.token_ids == own_text()


@given(st.lists(st.sampled_from(["step", "back", "start", "end", "fork"]), max_size=25))
def test_any_walk_through_time_ends_in_the_same_text(moves):
    session = session_of(max_new_tokens=12)
    for move in moves:
        if move == "step" and not session.done:
            session.step()
        elif move == "back":
            session.back()
        elif move == "start":
            session.goto(0)
        elif move == "end":
            session.goto(len(session.steps))
        elif move == "fork":
            session = session.fork()
        assert session.token_ids == own_text(12)[: len(session.token_ids)]
        assert_caches_follow(session)
    session.run()
    assert session.token_ids == own_text(12)


def test_run_stops_at_a_breakpoint_and_goes_on_from_there():
    session = session_of()
    step = session.run(until=lambda step: step.index == 2)
    assert (step.index, session.cursor, session.done) == (2, 3, False)
    session.goto(0)
    assert session.run(until=lambda step: len(step.accepted) >= 0).index == 0
    session.run()
    assert session.token_ids == own_text()


# Forks


@every_strategy
def test_a_fork_anywhere_gives_the_same_text_and_leaves_the_first_untouched(strategy):
    session = finished(strategy)
    before, held, spent = session.trace, texts(session), calls(session)
    for at in range(len(session.steps) + 1):
        twin = session.fork(at)
        assert (twin.cursor, len(twin.steps)) == (at, at)
        assert twin.token_ids == own_text()[: len(twin.token_ids)]
        assert all(mine is its for mine, its in zip(session.steps, twin.steps, strict=False))
        twin.run()
        assert twin.token_ids == own_text()
        assert_caches_follow(twin)
    assert_same(session.trace, before)
    assert (texts(session), calls(session)) == (held, spent)


def test_a_fork_is_made_at_the_cursor():
    session = finished()
    session.goto(2)
    assert session.fork().cursor == 2
    assert session.fork(at=0).cursor == 0


@every_strategy
def test_a_fork_runs_no_more_than_one_token_again(strategy):
    session = finished(strategy)
    for at in range(len(session.steps) + 1):
        twin = session.fork(at)
        assert twin.pair.target.rows <= 1
        assert twin.pair.draft.rows == 0


@every_strategy
def test_a_fork_goes_on_with_what_the_drafter_had_learned(strategy):
    """Unchanged settings: iteration by iteration the same trees, the adapted thresholds too."""
    session = finished(strategy, max_new_tokens=60)
    for at in (0, 3, 7):
        twin = session.fork(at)
        twin.run()
        for mine, its in zip(session.steps, twin.steps, strict=True):
            assert_same(mine.tree, its.tree)
            assert mine.settings == its.settings
            assert mine.adaptation == its.adaptation
            assert mine.committed == its.committed


def test_history_is_exercised_by_the_fork_test():
    session = finished(max_new_tokens=60)
    assert any(step.adaptation.after for step in session.steps[:7])


@pytest.mark.parametrize("other", STRATEGIES.values(), ids=STRATEGIES)
@every_strategy
def test_a_fork_may_take_another_strategy(strategy, other):
    session = finished(strategy)
    for at in (0, 1, len(session.steps) // 2):
        twin = session.fork(at, other)
        twin.run()
        assert twin.token_ids == own_text()
        assert_caches_follow(twin)
        assert twin.trace.settings["strategy"] == type(other).__name__
    assert session.token_ids == own_text()


def test_a_fork_may_change_settings_of_the_session_and_of_the_strategy():
    session = finished()
    twin = session.fork(2, temperature=1.0, seed=7, node_budget=4)
    twin.run()
    shared = session.fork(2).token_ids
    assert twin.token_ids[: len(shared)] == shared
    assert twin.token_ids != session.token_ids
    assert all(len(step.tree) <= 4 for step in twin.steps[2:])
    assert (twin.settings.temperature, twin.settings.seed) == (1.0, 7)
    assert twin.strategy.node_budget == 4
    assert session.settings.temperature == 0.0
    plain = session.fork(0, speclab.Autoregressive(), temperature=1.0, seed=7)
    plain.run()
    assert len(plain.token_ids) == NEW


@every_strategy
def test_a_finished_text_can_be_forked_to_go_on(strategy):
    """The end may have cut a path in the middle; what was cut off is decoded again."""
    for count in range(1, 14):
        twin = finished(strategy, max_new_tokens=count).fork(max_new_tokens=NEW)
        assert not twin.done
        twin.run()
        assert twin.token_ids == own_text()
        assert_caches_follow(twin)


def test_a_text_that_ended_at_eos_can_be_forked_to_go_on():
    eos = own_text()[9]
    pair = table_pair(TARGET, DRAFT, VOCAB, eos=eos)
    session = speclab.Session(pair, STRATEGIES["dynatree"], PROMPT, max_new_tokens=NEW)
    session.run()
    assert session.token_ids[-1] == eos
    twin = session.fork(stop_at_eos=False)
    twin.run()
    assert twin.token_ids == own_text()


def test_a_session_without_a_draft_forks_too():
    session = speclab.Session(table_pair(TARGET, None, VOCAB), STRATEGIES["plain"], PROMPT, max_new_tokens=NEW)
    session.run()
    twin = session.fork(4)
    twin.run()
    assert twin.token_ids == session.token_ids == own_text()


def test_real_caches_are_copied_never_shared():
    """Destroy every entry of the fork's caches: the first session neither sees nor feels it."""
    pair = speclab.load_pair(target=tiny("gpt_neox"), draft=tiny("gpt_neox", seed=1))
    expected = speclab.generate(pair, STRATEGIES["tree"], [5, 6, 7], max_new_tokens=12).token_ids
    session = speclab.Session(pair, STRATEGIES["tree"], [5, 6, 7], max_new_tokens=12)
    session.step()
    twin = session.fork()
    for mine, its in zip(session.pair.runners.values(), twin.pair.runners.values(), strict=True):
        assert mine.model is its.model
        for layer, other in zip(mine.cache.layers, its.cache.layers, strict=True):
            with torch.inference_mode():
                other.keys.fill_(float("nan"))
                other.values.fill_(float("nan"))
            assert not layer.keys.isnan().any()
            assert not layer.values.isnan().any()
    session.run()
    assert session.token_ids == expected


# Interrupts: Ctrl-C anywhere in an iteration


@every_strategy
@pytest.mark.parametrize("role", ["target", "draft"])
def test_ctrl_c_at_any_moment_of_an_iteration_loses_nothing(strategy, role):
    """Before and after every pass, keep and crop: the session is as before, and goes on to the same text."""
    session = session_of(strategy)
    session.step()
    interrupted = 0
    for moment in range(60):
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
            patch.setattr("speclab.session.record", interrupt)
            with pytest.raises(KeyboardInterrupt):
                session.step()
        assert_same(session.trace, before)
        assert_caches_follow(session)
        session.step()
    assert any(step.adaptation.after for step in whole.steps)
    for mine, its in zip(whole.steps, session.steps, strict=True):
        assert_same(mine.tree, its.tree)
        assert (mine.settings, mine.adaptation) == (its.settings, its.adaptation)


def test_ctrl_c_in_a_run_keeps_every_whole_iteration():
    session = session_of()
    session.pair.target.fuse = 9
    with pytest.raises(KeyboardInterrupt):
        session.run()
    assert 0 < session.cursor == len(session.steps)
    assert session.token_ids == own_text()[: len(session.token_ids)]
    session.run()
    assert session.token_ids == own_text()


def test_an_error_in_the_model_loses_nothing():
    session = session_of()
    session.step()
    before = session.trace
    session.pair.target.law = lambda path: 1 / 0
    with pytest.raises(ZeroDivisionError):
        session.step()
    assert_same(session.trace, before)
    session.pair.target.law = TARGET
    session.run()
    assert session.token_ids == own_text()


def test_ctrl_c_in_generate_hands_over_what_was_decoded(monkeypatch):
    passes = 0

    def law(path):
        nonlocal passes
        passes += 1
        if passes == 60:
            raise KeyboardInterrupt
        return TARGET(path)

    with pytest.raises(KeyboardInterrupt) as caught:
        speclab.generate(table_pair(law, DRAFT, VOCAB), STRATEGIES["dynatree"], PROMPT, max_new_tokens=NEW)
    done = caught.value.result.token_ids
    assert 1 < len(done) < NEW
    assert done == own_text()[: len(done)]


# Cancel


def cancelling(law, session):
    """The same law, which cancels the session whenever it is asked."""

    def cancels(path):
        session.cancel()
        return law(path)

    return cancels


@pytest.mark.parametrize("name", [name for name, strategy in STRATEGIES.items() if strategy.needs_draft])
def test_cancel_while_drafting_stops_before_the_target_is_asked(name):
    session = session_of(STRATEGIES[name])
    session.step()
    before, asked = session.trace, session.pair.target.calls
    session.pair.draft.law = cancelling(DRAFT, session)
    assert session.run() is session.steps[-1]
    assert_same(session.trace, before)
    with pytest.raises(speclab.SpeclabError, match="step again"):
        session.step()
    assert_same(session.trace, before)
    assert session.pair.target.calls == asked
    assert_caches_follow(session)
    session.pair.draft.law = DRAFT
    session.run()
    assert session.token_ids == own_text()


@every_strategy
def test_cancel_while_verifying_ends_the_run_with_whole_iterations(strategy):
    session = session_of(strategy)
    session.step()
    session.pair.target.law = cancelling(TARGET, session)
    session.run()
    assert len(session.steps) in {1, 2}
    assert_caches_follow(session)
    session.pair.target.law = TARGET
    session.run()
    assert session.token_ids == own_text()


def test_cancel_from_another_thread_ends_a_run():
    """The run waits inside a pass until the other thread has cancelled."""
    inside, cancelled = threading.Event(), threading.Event()

    def law(path):
        if len(path) > 12:
            inside.set()
            assert cancelled.wait(10)
        return TARGET(path)

    session = speclab.Session(table_pair(law, DRAFT, VOCAB), STRATEGIES["dynatree"], PROMPT, max_new_tokens=NEW)
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


# Traces


@every_strategy
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.2, "top_k": 4, "seed": 3}], ids=["greedy", "sampled"])
def test_a_saved_run_is_the_run(tmp_path, strategy, sampling):
    session = finished(strategy, **sampling)
    trace = session.trace
    loaded = speclab.load_trace(trace.save(tmp_path / "run.json.gz"))
    assert_same(loaded, trace)
    assert list(loaded.token_ids()) == session.token_ids
    assert loaded.metrics == session.metrics
    for cursor in range(len(session.steps) + 1):
        session.goto(cursor)
        assert list(loaded.token_ids(cursor)) == session.token_ids
    for step in loaded.steps:
        assert_consistent(step)


def test_a_trace_names_what_ran():
    trace = finished(STRATEGIES["chain"], temperature=0.7, seed=5, top_p=0.9).trace
    assert trace.settings["strategy"] == "LinearSpeculation"
    expected = {"draft_tokens": 4, "temperature": 0.7, "top_p": 0.9, "top_k": None, "seed": 5, "max_new_tokens": NEW}
    assert expected.items() <= trace.settings.items()
    assert {"target", "draft", "device", "threads", "torch", "transformers"} <= trace.models.keys()
    assert trace.prefill_seconds > 0
    used = {*trace.prompt_ids, *trace.token_ids()}
    assert {token: f"#{token}" for token in used}.items() <= trace.texts.items()


def test_a_trace_does_not_change_when_the_session_goes_on():
    session = session_of()
    session.step()
    trace = session.trace
    session.run()
    assert len(trace.steps) == 1


def test_a_trace_does_not_depend_on_the_cursor():
    session = finished()
    trace = session.trace
    session.goto(1)
    assert_same(session.trace, trace)


# Figures


@every_strategy
def test_the_figures_are_those_of_the_steps_shown(strategy):
    session = finished(strategy)
    figures = session.metrics
    assert figures.iterations == len(session.steps)
    assert figures.tokens_per_iteration == pytest.approx((NEW - 1) / len(session.steps))
    assert figures.target_calls == session.pair.target.calls
    assert figures.draft_calls == session.pair.draft.calls
    assert figures.ttft > 0
    assert figures.throughput > 0


@every_strategy
@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0}], ids=["greedy", "sampled"])
def test_check_compares_every_commit_and_forks_stay_checked(strategy, settings):
    session = finished(strategy, check=True, **settings)
    assert session.ties == 0
    twin = session.fork(2)
    twin.run()
    assert twin.token_ids == session.token_ids
