"""A replay is the run that it stands for: the same iterations, with no pass of the target."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.decoding import next_logits
from support.pairs import PROMPT, SMALL, headed_pair, models_pair, noisy, pair_of
from support.records import ran
from support.refusals import refused
from support.variants import VARIANTS, dynatrees

import speclab
from speclab import clinic
from speclab.drafters import cost
from speclab.errors import NotRecordedError, PromptError, SettingsError
from speclab.features.replay.replayer import Replayer

COUNT = 24
TABLES = {
    "token recycling": speclab.TokenRecycling(node_budget=12),
    "goose": speclab.Goose(node_budget=16, bypass="off", shortest_ngram=1),
    "isotropic": speclab.IsotropicTree(),
    "lookahead": VARIANTS["lookahead"],
}
"""They learn from what the target makes of rejected tokens too."""
DRAFTED = {
    "plain": speclab.Autoregressive(),
    "chain with a stop": VARIANTS["chain with a stop"],
    "fixed tree": VARIANTS["fixed tree"],
    "best first": VARIANTS["best first"],
    "dynatree as in the paper": VARIANTS["dynatree as in the paper"],
    "sequoia": speclab.SequoiaTree(source="draft", node_budget=10),
    "prompt lookup": speclab.PromptLookup(shortest_ngram=1),
}
LLAMA = pair_of("llama")
DYNATREE = speclab.DynaTree()


def run(pair, strategy, **options):
    prompt = [token % pair.vocab_size for token in PROMPT]
    pair = replace(pair, shared_state={})
    return ran(pair, strategy, prompt, **{"max_new_tokens": COUNT, **options})


def assert_is_run(replay, session):
    assert replay.committed == tuple(step.committed for step in session.steps)
    assert replay.tokens_per_iteration == pytest.approx(session.metrics.tokens_per_iteration)
    assert [one.nodes for one in replay.passes] == [
        len(step.nodes) + len(step.extra) for step in session.steps
    ]
    assert [one.accepted for one in replay.passes] == [len(step.accepted) for step in session.steps]
    assert replay.draft_calls == session.metrics.draft_calls
    assert not replay.inexact


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_strategies_replay_as_they_run(family):
    pair = pair_of(family)
    replayer = Replayer(run(pair, speclab.LinearSpeculation(draft_tokens=3)))
    for strategy in DRAFTED.values():
        assert_is_run(replayer.replay(strategy), run(pair, strategy))


@given(
    strategy=dynatrees(),
    sampling=st.sampled_from([{}, {"temperature": 0.8, "top_k": 9, "seed": 3}]),
)
@settings(max_examples=8)
def test_any_tree_replays_greedy_or_sampled(strategy, sampling):
    base = run(LLAMA, speclab.Autoregressive(), **sampling)
    assert_is_run(Replayer(base).replay(strategy), run(LLAMA, strategy, **sampling))


@pytest.mark.parametrize("make", [headed_pair, models_pair])
def test_heads_replay_as_they_run_with_the_hidden_states_that_were_kept_or_one_pass_over_the_text(
    make,
):
    pair = make("llama")
    bare = Replayer(run(pair, speclab.Autoregressive()))
    for strategy in (
        speclab.DraftHead(node_budget=9, depth=3),
        speclab.DynaTree(),
        speclab.DualDraft(node_budget=8),
    ):
        assert_is_run(bare.replay(strategy), run(pair, strategy))


@pytest.mark.parametrize("name", TABLES)
def test_tables_replay_exactly_with_the_rows_that_were_kept_or_are_asked_for(name):
    strategy = TABLES[name]
    same = run(LLAMA, strategy)
    other = run(LLAMA, speclab.DynaTree())
    assert_is_run(Replayer(same).replay(strategy), same)
    asked = Replayer(other, ask_target=True)
    assert_is_run(asked.replay(strategy), same)


def test_a_table_without_its_rejected_rows_says_that_it_may_differ():
    replay = Replayer(run(LLAMA, speclab.Autoregressive())).replay(TABLES["token recycling"])
    assert "rejected" in replay.inexact
    assert sum(map(len, replay.committed)) == COUNT - 1


def test_a_replay_follows_a_text_that_goes_on_meanwhile_no_further():
    session = speclab.Session(LLAMA, speclab.DynaTree(), PROMPT, max_new_tokens=COUNT)
    session.step()
    replayer = Replayer(session)
    before = replayer.replay(speclab.LinearSpeculation())
    session.run()
    assert replayer.replay(speclab.LinearSpeculation()) == before


def test_seconds_are_those_of_the_measured_passes():
    session = run(LLAMA, speclab.LinearSpeculation(draft_tokens=3))
    replay = Replayer(session).replay(session.strategy)
    expected = 0
    for step in session.steps:
        expected += cost.seconds(LLAMA.target, len(step.tree))
        if calls := step.counts.draft_calls:
            rows = max(1, round(step.caches[1].written / calls))
            expected += calls * cost.seconds(LLAMA.draft, rows)
    assert replay.seconds == pytest.approx(expected)
    assert replay.tokens_per_second == pytest.approx((COUNT - 1) / replay.seconds)


@pytest.mark.parametrize("family", ["llama", "mamba2"])
@pytest.mark.parametrize(
    "strategy", [speclab.FixedTree(depth=3, branching=2), speclab.PromptLookup(shortest_ngram=1)]
)
def test_two_targets_read_one_text(family, strategy):
    """So a tuned target shows which tokens lost acceptance: each node by itself, on the first's text."""
    pair = pair_of(family)
    session = run(pair, speclab.Autoregressive())
    same = speclab.nodes(speclab.replay(session, strategy, pair=pair).traces)
    first, second = [
        rows.drop(columns="run").reset_index(drop=True) for _, rows in same.groupby("run")
    ]
    names = ["node", "token", "right", "tried", "accepted", "verdict", "source"]
    assert first[names].equals(second[names])
    assert (first.target_prob - second.target_prob).abs().max() < 1e-4
    tuned = noisy(pair.target.model, 0.03, seed=4)
    traces = speclab.replay(session, strategy, pair=speclab.load_pair(target=tuned)).traces
    assert [trace.token_ids for trace in traces] == [session.token_ids] * 2
    lost = 0
    for own, other in zip(traces[0].steps, traces[1].steps, strict=True):
        assert own.tree == other.tree
        prefix = [*session.prompt_ids, *session.token_ids][: own.prefix_length]
        for node in other.nodes:
            path = other.tree.token[list(other.tree.path(node.index))].tolist()
            assert node.target_choice == int(np.argmax(next_logits(tuned, [*prefix, *path])))
        lost += len(own.accepted) - len(other.accepted)
    assert lost or strategy.group == "training-free", "or the test would show nothing"
    assert speclab.replay(session, strategy).traces == ()


DRAFTED_ROOT = speclab.DynaTree(root="drafted")
DRAWING = speclab.LinearSpeculation(candidates="independent")
REFUSED = {
    "a drafted root": (
        SettingsError,
        ("root",),
        lambda: speclab.replay(run(LLAMA, DYNATREE), DRAFTED_ROOT, pair=LLAMA),
    ),
    "a smaller vocabulary": (
        PromptError,
        ("outside",),
        lambda: speclab.replay(run(LLAMA, DYNATREE), DYNATREE, pair=pair_of("llama", vocab=SMALL)),
    ),
    "a trace": (SettingsError, ("session",), lambda: speclab.replay(run(LLAMA, DYNATREE).trace, DYNATREE)),
    "nothing decoded": (
        NotRecordedError, ("decode",), lambda: Replayer(speclab.Session(LLAMA, DYNATREE, PROMPT, max_new_tokens=9)),
    ),
    "rows of a window": (
        NotRecordedError, ("not recorded",), lambda: Replayer(run(LLAMA, DYNATREE)).replay(speclab.Lookahead()),
    ),
    "a fault": (
        NotRecordedError, ("fault",), lambda: Replayer(run(clinic.broken(LLAMA, "sibling visible"), DYNATREE)),
    ),
    "drawn candidates": (
        NotRecordedError, ("candidates='top'",), lambda: Replayer(run(LLAMA, DRAWING, temperature=0.9)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_replayed(name):
    error, words, replay = REFUSED[name]
    with refused(error, *words):
        replay()


def test_it_can_be_cancelled_and_gone_on_with():
    replayer = Replayer(run(LLAMA, speclab.Autoregressive()))
    checks = iter([None, None])
    with pytest.raises(StopIteration):
        replayer.replay(speclab.DynaTree(), lambda: next(checks))
    assert_is_run(replayer.replay(speclab.DynaTree()), run(LLAMA, speclab.DynaTree()))
