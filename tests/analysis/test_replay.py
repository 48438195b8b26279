"""A replay is the run that it stands for: the same iterations, with no pass of the target."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import PROMPT, SMALL, headed_pair, models_pair, pair_of
from refusals import refused
from variants import VARIANTS, dynatrees

import speclab
from speclab import clinic
from speclab.analysis.replay import Replay, Replayer
from speclab.drafters import cost
from speclab.errors import CancelledError, NotRecordedError, SettingsError

COUNT = 24
TABLES = {
    "token recycling": speclab.TokenRecycling(node_budget=12),
    "goose": speclab.Goose(node_budget=16),
    "goose without its bypass": speclab.Goose(node_budget=16, bypass="off", shortest_ngram=1),
    "isotropic": speclab.IsotropicTree(),
    "copies and transitions": VARIANTS["copies and transitions"],
    "lookahead": VARIANTS["lookahead"],
}
"""They learn from what the target makes of rejected tokens too."""
DRAFTED = {name: strategy for name, strategy in VARIANTS.items() if name not in TABLES} | {
    "sequoia": speclab.SequoiaTree(source="draft", node_budget=10),
    "prompt lookup": speclab.PromptLookup(shortest_ngram=1),
}


def run(pair, strategy, **options) -> speclab.Session:
    prompt = [token % pair.vocab_size for token in PROMPT]
    session = speclab.Session(pair, strategy, prompt, **{"max_new_tokens": COUNT, **options})
    session.run()
    return session


def assert_is_run(found: Replay, session: speclab.Session) -> None:
    assert found.committed == tuple(step.committed for step in session.steps)
    assert found.iterations == len(session.steps)
    assert found.tokens_per_iteration == pytest.approx(session.metrics.tokens_per_iteration)
    assert [one.nodes for one in found.passes] == [len(step.nodes) + len(step.extra) for step in session.steps]
    assert [one.accepted for one in found.passes] == [len(step.accepted) for step in session.steps]
    assert found.draft_calls == session.metrics.draft_calls


@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("name", DRAFTED)
def test_every_strategy_replays_as_it_runs(family, name):
    pair = pair_of(family)
    base = run(pair, speclab.LinearSpeculation(draft_tokens=3))
    found = Replayer(base).replay(DRAFTED[name])
    assert_is_run(found, run(pair, DRAFTED[name]))
    assert not found.inexact


@given(strategy=dynatrees(), sampling=st.sampled_from([{}, {"temperature": 0.8, "top_k": 9, "seed": 3}]))
@settings(max_examples=8)
def test_any_tree_replays_greedy_or_sampled(strategy, sampling):
    pair = pair_of("llama")
    base = run(pair, speclab.Autoregressive(), **sampling)
    assert_is_run(Replayer(base).replay(strategy), run(pair, strategy, **sampling))


@pytest.mark.parametrize(
    "make", [headed_pair, models_pair, lambda family: replace(pair_of(family, vocab=SMALL), draft=None)]
)
@pytest.mark.parametrize(
    "strategy",
    [
        speclab.DraftHead(node_budget=9, depth=3),
        speclab.DynaTree(),
        speclab.DualDraft(node_budget=8, depth=3),
    ],
    ids=["best first", "dynatree", "two heads"],
)
def test_heads_replay_as_they_run(make, strategy):
    pair = make("llama")
    others = Replayer(run(pair, speclab.Autoregressive()))
    for strategy_ in (strategy, strategy.changed(node_budget=5)):
        assert_is_run(others.replay(strategy_), run(pair, strategy_))


def test_hidden_states_that_were_kept_need_no_pass():
    pair = headed_pair("llama")
    assert Replayer(run(pair, speclab.DualDraft())).replay(speclab.DraftHead()).text_passes == 0
    bare = Replayer(run(pair, speclab.Autoregressive()))
    assert [bare.replay(speclab.DraftHead()).text_passes for _ in range(2)] == [1, 0]


@pytest.mark.parametrize("name", TABLES)
def test_tables_replay_exactly_with_the_rows_that_were_kept_or_are_asked_for(name):
    pair, strategy = pair_of("llama"), TABLES[name]
    same, other = run(pair, strategy), run(pair, speclab.DynaTree())
    kept = Replayer(same).replay(strategy)
    assert not kept.inexact
    assert_is_run(kept, same)
    asked = Replayer(other, ask_target=True)
    assert_is_run(asked.replay(strategy), same)
    assert asked.replay(strategy).text_passes == 0


def test_a_table_without_its_rejected_rows_says_that_it_may_differ():
    found = Replayer(run(pair_of("llama"), speclab.Autoregressive())).replay(TABLES["token recycling"])
    assert "not kept" in found.inexact
    assert sum(map(len, found.committed)) == COUNT - 1


def test_no_model_runs_for_what_was_asked_before(monkeypatch):
    pair = pair_of("llama")
    base = run(pair, speclab.Autoregressive())
    runners, calls = [pair.target, pair.draft, *pair.heads], []
    for kind in {type(runner) for runner in runners}:
        noted = lambda self, *args, _own=kind._pass, **more: calls.append(self.name) or _own(self, *args, **more)  # noqa: E731
        monkeypatch.setattr(kind, "_pass", noted)
    replayer = Replayer(base)
    first = replayer.replay(speclab.DynaTree())
    asked = len(calls)
    assert 0 < asked <= first.draft_calls + 2
    assert replayer.replay(speclab.DynaTree()) == first
    assert len(calls) == asked
    smaller = [replayer.replay(speclab.DynaTree(node_budget=5)) for _ in range(2)]
    assert len(calls) - asked < smaller[0].draft_calls / 2, "most paths were asked for before"
    asked = len(calls)
    assert replayer.replay(speclab.DynaTree(node_budget=5)) == smaller[1]
    assert len(calls) == asked


def test_a_part_of_a_text_and_a_fork_are_replayed_as_far_as_they_go():
    pair = pair_of("llama")
    session = speclab.Session(pair, speclab.LinearSpeculation(), PROMPT, max_new_tokens=COUNT)
    session.step(), session.step()
    length = len(session.token_ids)
    assert_is_run(
        Replayer(session).replay(speclab.DynaTree()),
        run(pair, speclab.DynaTree(), max_new_tokens=length),
    )
    fork = session.fork(strategy=TABLES["token recycling"])
    fork.run()
    assert_is_run(
        Replayer(fork, ask_target=True).replay(speclab.DynaTree()),
        run(pair, speclab.DynaTree()),
    )


def test_a_trace_is_replayed_on_the_pair_that_wrote_it(tmp_path):
    pair = pair_of("llama")
    for options in ({}, {"temperature": 0.7, "seed": 5}):
        trace = speclab.load_trace(run(pair, speclab.Autoregressive(), **options).trace.save(tmp_path / "run.json.gz"))
        found = speclab.replay(trace, speclab.DynaTree(), pair=pair)
        assert_is_run(found, run(pair, speclab.DynaTree(), **options))
        assert found.text_passes == 1
        with refused(NotRecordedError, "another target wrote this text"):
            speclab.replay(trace, speclab.DynaTree(), pair=pair_of("gpt2"))
        with refused(NotRecordedError, "pair="):
            speclab.replay(trace, speclab.DynaTree())


def test_a_replay_follows_a_text_that_goes_on_meanwhile_no_further():
    pair = pair_of("llama")
    session = speclab.Session(pair, speclab.DynaTree(), PROMPT, max_new_tokens=COUNT)
    session.step()
    replayer = Replayer(session)
    before = replayer.replay(speclab.LinearSpeculation())
    session.run()
    assert replayer.replay(speclab.LinearSpeculation()) == before


def test_seconds_are_those_of_the_measured_passes():
    pair = pair_of("llama")
    session = run(pair, speclab.LinearSpeculation(draft_tokens=3))
    found = Replayer(session).replay(session.strategy)
    expected = sum(cost.seconds(pair.target, len(step.tree)) for step in session.steps)
    calls = [(step.counts.draft_calls, step.caches[1].written) for step in session.steps]
    expected += sum(count * cost.seconds(pair.draft, max(1, round(rows / count))) for count, rows in calls if count)
    assert found.seconds == pytest.approx(expected)
    assert found.tokens_per_second == pytest.approx((COUNT - 1) / found.seconds)


def test_what_cannot_be_replayed():
    pair = pair_of("llama")
    session = speclab.Session(pair, speclab.DynaTree(), PROMPT, max_new_tokens=COUNT)
    with refused(NotRecordedError, "decode"):
        Replayer(session)
    session.step()
    replayer = Replayer(session)
    with refused(SettingsError):
        speclab.replay(session, speclab.DynaTree(), pair=pair)
    with refused(SettingsError):
        replayer.replay(speclab.DynaTree)
    with refused(NotRecordedError, "not kept"):
        replayer.replay(speclab.Lookahead())
    with refused(speclab.NoDraftError):
        Replayer(run(replace(pair, draft=None, heads=()), speclab.Autoregressive())).replay(speclab.DynaTree())
    with refused(NotRecordedError, "fault"):
        Replayer(run(clinic.broken(pair, "sibling visible"), speclab.DynaTree()))
    drawn = run(pair, speclab.LinearSpeculation(candidates="independent"), temperature=0.9)
    with refused(NotRecordedError, "candidates='top'"):
        Replayer(drawn)
    with refused(NotRecordedError, "candidates='top'"):
        Replayer(drawn.trace, pair)
    sampled = Replayer(run(pair, speclab.DynaTree(), temperature=0.9))
    with refused(NotRecordedError, "drawn at random"):
        sampled.replay(speclab.LinearSpeculation(candidates="independent"))


def test_it_can_be_cancelled_and_gone_on_with():
    replayer = Replayer(run(pair_of("llama"), speclab.Autoregressive()))
    checks = []

    def third() -> None:
        checks.append(1)
        if len(checks) == 3:
            raise CancelledError("enough")

    with pytest.raises(CancelledError):
        replayer.replay(speclab.DynaTree(), third)
    assert_is_run(replayer.replay(speclab.DynaTree()), run(pair_of("llama"), speclab.DynaTree()))
