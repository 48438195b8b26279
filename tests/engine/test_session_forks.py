"""Forks: the same text from anywhere on, and nothing shared with the first session."""

from __future__ import annotations

from support import sessions
from support.records import assert_same

import speclab


@sessions.every_strategy
def test_a_fork_anywhere_gives_the_same_text_and_leaves_the_first_untouched(strategy):
    session = sessions.finished(strategy)
    before = session.trace
    held = sessions.texts(session)
    spent = sessions.calls(session)
    for at in range(len(session.steps) + 1):
        twin = session.fork(at)
        assert (twin.cursor, len(twin.steps)) == (at, at)
        assert (twin.pair.target.rows, twin.pair.draft.rows) <= (1, 0), (
            "at most one token is run again"
        )
        assert twin.token_ids == sessions.own_text()[: len(twin.token_ids)]
        assert all(mine is its for mine, its in zip(session.steps, twin.steps, strict=False))
        twin.run()
        assert twin.token_ids == sessions.own_text()
        sessions.assert_caches_follow(twin)
    assert_same(session.trace, before)
    assert (sessions.texts(session), sessions.calls(session)) == (held, spent)
    session.goto(2)
    assert (session.fork().cursor, session.fork(at=0).cursor) == (2, 0), (
        "at the cursor, if nothing else is said"
    )


def test_a_fork_may_change_settings_of_the_session_and_of_the_strategy():
    session = sessions.finished()
    twin = session.fork(2, temperature=1.0, seed=7, node_budget=4)
    twin.run()
    shared = session.fork(2).token_ids
    assert twin.token_ids[: len(shared)] == shared
    assert twin.token_ids != session.token_ids
    assert all(len(step.tree) <= 4 for step in twin.steps[2:])
    assert (twin.settings.temperature, twin.settings.seed) == (1.0, 7)
    assert twin.strategy.node_budget == 4
    assert session.settings.temperature == 0.0


def test_a_text_that_ended_at_eos_can_be_forked_to_go_on():
    eos = sessions.own_text()[9]
    session = sessions.session_of(pair=sessions.pair_of(eos=eos))
    session.run()
    assert session.token_ids[-1] == eos
    twin = session.fork(stop_at_eos=False)
    twin.run()
    assert twin.token_ids == sessions.own_text()


def test_a_fork_takes_what_its_own_strategy_had_learned_there():
    """Back in the iterations shared with the first session, its strategy goes on with what it had learned of them."""
    strategy = speclab.DynaTree(prune_probability=0.1, history="iteration")
    first = sessions.finished(strategy, max_new_tokens=60)
    fork = first.fork(8, speclab.TokenRecycling(node_budget=12))
    fork.run()
    back = fork.fork(7, strategy)
    back.run()
    for mine, its in zip(first.steps, back.steps, strict=True):
        assert_same(mine.tree, its.tree)
        assert (mine.settings, mine.adaptation) == (its.settings, its.adaptation)
    changed = first.fork(6, max_new_tokens=70, seed=9).fork(4, temperature=0.0)
    assert changed.settings.max_new_tokens == 70
    assert changed.step().settings == first.steps[4].settings
