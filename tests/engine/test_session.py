"""Session: stepping, moving in time, records and figures."""

import numpy as np
import pytest
from support.every_strategy import DRAFTED, PROMPT, finished, own_text, pair_of, session_of
from support.records import assert_same_drafts
from support.refusals import refused

import speclab

STRATEGIES = {"plain": speclab.Autoregressive(), **DRAFTED}
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


def calls(session):
    return [runner.calls for runner in session.pair.runners.values()]


@every_strategy
def test_going_back_and_forth_costs_no_model_call_and_shows_the_same(strategy):
    session = finished(strategy)
    assert (session.prompt_ids, session.finished) == (PROMPT, "max_new_tokens")
    steps = list(session.steps)
    spent = calls(session)
    for index in (0, len(steps), len(steps) // 2, 1):
        shown = session.goto(index)
        assert shown is (steps[index - 1] if index else None)
        length = 1 + sum(len(step.committed) for step in steps[:index])
        assert session.token_ids == own_text()[:length]
        assert session.cursor == session.metrics.iterations == index
        assert session.done == (index == len(steps))
    assert session.back() is session.back() is None, (
        "before the first iteration there is nothing to go back to"
    )
    assert [session.step() for _ in steps] == steps
    assert session.back() is steps[-2]
    assert session.step() is steps[-1]
    assert (session.done, calls(session)) == (True, spent)


def test_run_stops_at_a_breakpoint_and_goes_on_from_there():
    session = session_of()
    step = session.run(until=lambda step: step.index == 2)
    assert (step.index, session.cursor, session.done) == (2, 3, False)
    session.goto(0)
    assert session.run(until="iteration == 3").index == 2
    assert session.cursor == 3
    session.run()
    assert session.token_ids == own_text()


def test_a_trace_names_what_ran_and_does_not_change_when_the_session_goes_on():
    session = session_of(STRATEGIES["chain"], temperature=0.7, seed=5, top_p=0.9)
    session.step()
    trace = session.trace
    session.run()
    assert len(trace.steps) == 1
    expected = {
        "draft_tokens": 4,
        "temperature": 0.7,
        "top_k": None,
        "strategy": "LinearSpeculation",
    }
    assert expected.items() <= trace.settings.items()
    assert {"target", "draft", "device", "threads", "torch", "transformers"} <= trace.models.keys()
    assert trace.prefill_seconds > 0
    assert {*trace.prompt_ids, *trace.token_ids} <= trace.texts.keys()


# Errors; Ctrl-C is sent in test_interrupts.py


@pytest.mark.parametrize(
    ("role", "name"),
    [*(("draft", name) for name in ("chain", "dynatree", "drafted root")), *(("target", name) for name in STRATEGIES)],
)  # fmt: skip
def test_cancel_ends_a_run_with_whole_iterations(role, name):
    """While drafting it stops before the target is asked; while verifying the iteration is finished."""
    session = session_of(STRATEGIES[name])
    session.step()
    before = session.trace
    asked = session.pair.target.calls
    runner = session.pair.runners[role]
    probs = runner.probs
    runner.probs = lambda path: session.cancel() or probs(path)
    session.run()
    if role == "draft":
        with refused(speclab.CancelledError, "step again"):
            session.step()
        assert session.trace == before
        assert session.pair.target.calls == asked
    assert len(session.steps) in {1, 2}
    whole = [*session.prompt_ids, *session.token_ids]
    for cached in session.pair.runners.values():
        assert cached.tokens == whole[: cached.length]
    assert session.pair.target.length in {len(whole) - 1, len(whole)}
    runner.probs = probs
    session.run()
    assert session.token_ids == own_text()


def test_cancel_while_nothing_runs_stops_nothing():
    """As a click on Stop after the end of a run: the next step decodes."""
    session = session_of()
    session.run(until=lambda step: True)
    session.cancel()
    assert session.step().index == 1


# Forks: the same text from anywhere on is what test_session_machine.py asks for


@every_strategy
def test_a_fork_runs_at_most_one_token_again_and_leaves_the_first_untouched(strategy):
    session = finished(strategy)
    before = session.trace
    spent = calls(session)
    for at in range(len(session.steps) + 1):
        twin = session.fork(at)
        assert (twin.pair.target.rows, twin.pair.draft.rows) <= (1, 0)
        assert all(mine is its for mine, its in zip(session.steps, twin.steps, strict=False))
        twin.run()
    assert session.trace == before
    assert calls(session) == spent


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


def test_a_fork_says_that_it_has_no_history_where_its_strategy_would_keep_one():
    session = session_of(speclab.FixedTree(depth=2, branching=2))
    session.step()
    keeps = speclab.DynaTree(history="iteration")
    for other, said in ((keeps, True), (speclab.FixedTree(depth=1, branching=2), False)):
        fork = session.fork(1, other)
        assert bool(fork.step().note) == said


def test_a_text_that_ended_at_eos_can_be_forked_to_go_on():
    eos = own_text()[9]
    session = session_of(pair=pair_of(eos=eos))
    session.run()
    assert session.token_ids[-1] == eos
    twin = session.fork(stop_at_eos=False)
    twin.run()
    assert twin.token_ids == own_text()


def test_a_fork_takes_what_its_own_strategy_had_learned_there():
    """Back in the iterations shared with the first session, its strategy goes on with what it had learned of them."""
    strategy = speclab.DynaTree(prune_probability=0.1, history="iteration")
    first = finished(strategy, max_new_tokens=60)
    fork = first.fork(8, speclab.TokenRecycling(node_budget=12))
    fork.run()
    back = fork.fork(7, strategy)
    back.run()
    assert_same_drafts(first, back)
    changed = first.fork(6, max_new_tokens=70, seed=9).fork(4, temperature=0.0)
    assert changed.settings.max_new_tokens == 70
    assert changed.step().settings == first.steps[4].settings


def test_text_and_anything_that_holds_its_ids_are_the_same_prompt_and_stay_as_they_are():
    by_text = speclab.generate(pair_of(), STRATEGIES["chain"], "w1 w2 w3", max_new_tokens=6)
    assert by_text.text == "".join(f" w{token}" for token in by_text.token_ids)
    for prompt in ([1, 2, 3], np.array([1, 2, 3]), (1, 2, 3), range(1, 4)):
        other = speclab.generate(pair_of(), STRATEGIES["chain"], prompt, max_new_tokens=6)
        assert other.token_ids == by_text.token_ids
        assert list(prompt) == [1, 2, 3]
