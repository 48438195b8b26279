"""Anything that may be done with sessions, in any order, on small random models: always the target's own text."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule
from support.every_strategy import ALONE, DRAFTED
from support.pairs import assert_cache_is_fresh, library_text, pair_of
from support.records import assert_consistent
from support.refusals import refused

import speclab
from speclab.drafters.base import Strategy
from speclab.drafters.cost import with_node_budget

PROMPT = [5, 9, 2, 4, 3, 7, 7, 1, 5, 9]
VOCAB = 16
MOST = 24
STRATEGIES = {
    **ALONE,
    **DRAFTED,
    "plain": speclab.Autoregressive(),
    "one row": speclab.DynaTree(node_budget=1, root="drafted"),
    "shallow": speclab.DynaTree(base_depth=1, max_depth=1, history="off"),
    "dynatree of a head": speclab.DynaTree(head=1, base_depth=3),
    "paper, of a head": speclab.DynaTree(root="drafted", commit="rebuild", base_depth=2, head=0),
    "heads routed": speclab.DualDraft(node_budget=10, depth=3, children=3),
}


def pair():
    """A target, a draft that often agrees with it, and two heads."""
    return pair_of("llama", 0.05, VOCAB)


@cache
def own_text():
    return library_text(pair().target.model, PROMPT, MOST)


def assert_caches_are_those_of_a_fresh_prefill(session):
    """Keys and values of all that drafts or is drafted for, row by row, against one pass over the same tokens."""
    whole = [*session.trace.prompt_ids, *session.trace.token_ids]
    assert len(whole) - 1 <= session.pair.target.length
    for runner in (*session.pair.runners.values(), *session.pair.heads):
        assert_cache_is_fresh(runner, whole, session.pair.target.model)


class Sessions(RuleBasedStateMachine):
    """Every session, and beside it the strategy that each of its steps was decoded with."""

    sessions = Bundle("sessions")
    names = st.sampled_from(sorted(STRATEGIES))
    places = st.integers(0, 30)

    def __init__(self):
        super().__init__()
        self.known: dict[int, tuple[speclab.Session, list[Strategy]]] = {}

    @initialize(target=sessions, name=names, steps=st.integers(0, 4))
    def begin(self, name, steps):
        session = speclab.Session(
            pair(), STRATEGIES[name], PROMPT, max_new_tokens=MOST, check=name == "dynatree"
        )
        return self._keep(session, [], steps)

    @rule(session=sessions)
    def step(self, session):
        before = session.cursor
        decoded = len(session.steps)
        if session.done:
            before = session.trace
            with refused(speclab.FinishedError, "max_new_tokens", "fork"):
                session.step()
            assert session.trace == before
            return
        step = session.step()
        assert step is session.steps[before]
        assert session.cursor == before + 1
        self._note(session)
        if before == decoded:
            assert_consistent(step)

    @rule(session=sessions, place=places)
    def goto(self, session, place):
        session.goto(place % (len(session.steps) + 1))

    @rule(session=sessions, until=st.sampled_from(["accepted >= 1", "committed >= 3", None]))
    def run(self, session, until):
        session.run(until=until)
        self._note(session)
        assert session.done or until is not None

    @rule(
        target=sessions,
        session=sessions,
        place=places,
        name=st.none() | names,
        steps=st.integers(0, 2),
    )
    def fork(self, session, place, name, steps):
        at = place % (len(session.steps) + 1)
        spent = session.pair.target.calls
        wanted = session.strategy if name is None else STRATEGIES[name]
        twin = session.fork(at, wanted)
        assert (twin.strategy, twin.cursor, session.pair.target.calls) == (wanted, at, spent)
        return self._keep(twin, self.known[id(session)][1][:at], steps)

    @rule(target=sessions, session=sessions, place=places, seed=st.integers(0, 3))
    def fork_and_sample(self, session, place, seed):
        """A fork that samples has another text from there on; forked once more before that, it is greedy again."""
        at = place % (len(session.steps) + 1)
        drawn = session.fork(at, temperature=1.0, seed=seed, check=False)
        drawn.run()
        assert drawn.token_ids[: len(session.trace.tokens_at(at))] == list(
            session.trace.tokens_at(at)
        )
        assert len(drawn.token_ids) == drawn.settings.max_new_tokens
        assert_caches_are_those_of_a_fresh_prefill(drawn)
        return multiple(
            self._keep(drawn.fork(at, temperature=0.0), self.known[id(session)][1][:at])
        )

    @rule(target=sessions, session=sessions, most=st.integers(1, MOST))
    def fork_to_another_length(self, session, most):
        generated = len(session.token_ids)
        if most < generated:
            with pytest.raises(speclab.SettingsError, match="raise max_new_tokens or fork earlier"):
                session.fork(max_new_tokens=most)
            return multiple()
        twin = session.fork(max_new_tokens=most)
        return multiple(self._keep(twin, self.known[id(session)][1][: session.cursor]))

    @invariant()
    def every_session_has_the_targets_own_text(self):
        for session, used in self.known.values():
            text = list(session.trace.token_ids)
            assert text == own_text()[: len(text)]
            assert session.token_ids == text[: len(session.token_ids)]
            assert len(session.token_ids) == 1 + sum(
                len(step.committed) for step in session.steps[: session.cursor]
            )
            assert session.metrics.iterations == session.cursor
            assert bool(session.finished) == (len(text) == session.settings.max_new_tokens)
            for step, strategy in zip(session.steps, used, strict=True):
                # a step records the number
                set_up = with_node_budget(strategy, session.pair)
                assert _fixed(step.settings) == _fixed(set_up.describe())
            assert [step.index for step in session.steps] == list(range(len(session.steps)))
            assert session.ties == 0

    def teardown(self):
        for session, _ in self.known.values():
            assert_caches_are_those_of_a_fresh_prefill(session)

    def _keep(self, session, used, steps=0):
        self.known[id(session)] = session, list(used)
        for _ in range(steps):
            if not session.done:
                session.step()
        self._note(session)
        return session

    def _note(self, session):
        """Steps that came newly are of the session's own strategy."""
        used = self.known[id(session)][1]
        used += [session.strategy] * (len(session.steps) - len(used))


def _fixed(values):
    """What no history moves: all but the thresholds and one depth."""
    return {
        name: value
        for name, value in values.items()
        if not isinstance(value, float) and name != "base_depth"
    }


Sessions.TestCase.settings = settings(max_examples=14, stateful_step_count=12)
TestSessions = pytest.mark.model(Sessions.TestCase)
