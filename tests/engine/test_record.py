"""The numbers of a record against the target's logits in float64, and what a drafter had learned, now and as it was."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType

import numpy as np
import pytest
import torch
from sessions import PROMPT, TARGET, VOCAB, own_text, session_of
from table_runner import random_probs, table_pair
from tiny import tiny

import speclab
from speclab.engine import session as room
from speclab.engine.sampling import transform
from speclab.models.pair import load_pair
from speclab.models.runner import Runner
from speclab.settings import SessionSettings

SAMPLED = {"temperature": 0.7, "top_k": 9, "top_p": 0.9}


@pytest.fixture
def recorded(monkeypatch):
    """The logits that every step was recorded from."""
    seen, record = [], room.record

    def noted(decoding, iteration, *others):
        seen.append(iteration.verification.answer.rows.clone())
        return record(decoding, iteration, *others)

    monkeypatch.setattr(room, "record", noted)
    return seen


@pytest.mark.parametrize("ruled_out", [False, True])
@pytest.mark.parametrize("settings", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_probabilities_choices_and_entropies_are_those_of_the_logits(settings, ruled_out, recorded):
    whole = random_probs(12, 1)

    def probs(path):
        kept = whole(path) * (np.arange(12) != 3 if ruled_out else 1)
        return kept / kept.sum()

    session = speclab.Session(
        table_pair(probs, None, 12), speclab.Goose(), [1, 2, 4] * 4, max_new_tokens=24, **settings
    )
    session.run()
    chosen = SessionSettings(**settings)
    for step, logits in zip(session.steps, recorded, strict=True):
        for node in step.nodes:
            p = transform(logits[node.index], chosen).numpy()
            best = np.argsort(-p, kind="stable")[:5]
            assert [token for token, prob in node.target_top if prob > 0] == [int(i) for i in best if p[i] > 0]
            assert [prob for _, prob in node.target_top] == pytest.approx(p[best], abs=1e-6)
            assert node.entropy == pytest.approx(-sum(x * np.log(x) for x in p if x > 0), abs=1e-5)
            assert p[node.target_choice] > 0
            if node.target_prob is not None:
                before = transform(logits[step.tree.parent[node.index]], chosen)
                assert node.target_prob == pytest.approx(float(before[node.token]), abs=1e-6)


def test_what_is_certain_has_no_entropy():
    session = speclab.Session(
        table_pair(lambda path: np.eye(5)[(path[-1] + 1) % 5], None, 5),
        speclab.Goose(),
        [0, 1, 2],
        max_new_tokens=6,
    )
    session.run()
    entropies = [node.entropy for step in session.steps for node in step.nodes]
    assert entropies
    assert {f"{entropy:.2f}" for entropy in entropies} == {"0.00"}


def held(thing: object, seen: dict[int, object] | None = None) -> list[object]:
    """Everything that can be reached from a thing, but for modules, classes and code."""
    seen = {} if seen is None else seen
    if id(thing) not in seen and not isinstance(thing, type | ModuleType | FunctionType):
        seen[id(thing)] = thing
        for one in gc.get_referents(thing):
            held(one, seen)
    return list(seen.values())


@pytest.mark.model
@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0}], ids=["greedy", "sampled"])
def test_records_keep_no_tensor_and_no_model(settings):
    session = speclab.Session(
        load_pair(target=tiny("gpt_neox")),
        speclab.Goose(),
        [3, 1, 4, 1, 5, 9, 2, 6],
        max_new_tokens=16,
        **settings,
    )
    last = session.run()
    kept = held(session.steps)
    assert not [one for one in kept if isinstance(one, torch.Tensor | torch.nn.Module | Runner)]
    assert max(one.size for one in kept if isinstance(one, np.ndarray)) < 64 * len(last.tree)


STRATEGIES = {
    "goose": speclab.Goose(bypass="off", node_budget=12),
    "hashed": speclab.Goose(node_budget=12, table_megabytes=1, bigram_entries=4),
    "recycling": speclab.TokenRecycling(node_budget=12),
    "sequoia": speclab.SequoiaTree(source="transitions", node_budget=12, depth=3),
}
with_a_table = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


def everything(session, at=None):
    return [session.lookup(token, previous, at) for token in range(VOCAB) for previous in (None, *range(VOCAB))]


@with_a_table
def test_the_past_is_what_it_was_then(strategy):
    session = session_of(strategy)
    then = [everything(session)]
    while not session.done:
        session.step()
        then.append(everything(session))
    calls, carried = session.pair.target.calls, dict(session.pair.shared_state)
    assert then[0] != then[-1]
    for at, known in enumerate(then):
        session.goto(at)
        assert everything(session) == known
        assert {found.after for found in known} == {at}
    assert session.pair.target.calls == calls
    assert session.pair.shared_state == carried
    assert session.token_ids == own_text()


def test_the_newest_row_is_what_the_target_gave_last():
    """The last verified root's row: its successor is the token that the target chose after it."""
    session = session_of(speclab.Goose(node_budget=12), max_new_tokens=12)
    step = session.step()
    root, before = int(step.tree.token[0]), session.prompt_ids[-1]
    found = session.lookup(root, before)
    assert [row.key for row in found.rows] == [(before, root), (root,)]
    assert found.used is found.rows[0]
    assert found.used.successors[0][0] == step.nodes[0].target_choice
    assert sum(score for _, score in found.used.successors) <= 1 + 1e-5
    assert {root, before, step.nodes[0].target_choice} <= found.texts.keys()
    assert {"carry", "table", "table_rows", "table_bytes", "bigrams"} <= found.values.keys()


def test_a_row_that_was_never_seen_is_empty():
    session = session_of(speclab.TokenRecycling(node_budget=1), max_new_tokens=4)
    unseen = next(token for token in range(VOCAB) if token not in session.prompt_ids)
    found = session.lookup(unseen)
    assert (found.used, [row.successors for row in found.rows]) == (None, [()])
    assert found.values["table_rows"] == len(set(PROMPT))


def test_without_bigrams_there_is_one_row():
    assert len(session_of(speclab.TokenRecycling()).lookup(1, 2).rows) == 1
    assert len(session_of(speclab.Goose(bigram_entries=0)).lookup(1, 2).rows) == 1


def test_what_is_carried_over_stays_as_the_newest_iteration_left_it():
    pair = table_pair(TARGET, None, VOCAB)
    session = speclab.Session(pair, speclab.Goose(carry="carried"), PROMPT, max_new_tokens=20)
    session.run()
    known = everything(session)
    session.goto(0)
    assert everything(session) != known
    again = speclab.Session(pair, speclab.Goose(carry="carried"), PROMPT, max_new_tokens=20)
    assert again.lookup(PROMPT[-1]).values["table_rows"] == known[0].values["table_rows"]


@pytest.mark.parametrize("strategy", [speclab.Autoregressive(), speclab.DynaTree(), speclab.PromptLookup()])
def test_a_strategy_without_a_table_says_so(strategy):
    session = session_of(strategy)
    session.run()
    assert session.lookup(1) is None
    session.goto(0)
    assert session.lookup(1, 2) is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((VOCAB,), "outside the vocabulary"),
        ((1, -1), "outside the vocabulary"),
        ((1, None, 99), "iteration 99: 0 to 0"),
    ],
)
def test_what_cannot_be_looked_up(arguments, sentence):
    with pytest.raises(speclab.SpeclabError, match=sentence):
        session_of(speclab.Goose()).lookup(*arguments)


def test_baselines_draft_from_one_source_each():
    strategy = speclab.Goose(node_budget=20, max_spine=7, longest_ngram=4)
    sources = []
    for baseline in strategy.baselines():
        session = session_of(baseline)
        session.run()
        sources.append({source for step in session.steps for source in step.tree.source[1:]})
        assert max(len(step.tree) for step in session.steps) <= strategy.node_budget
    assert sources == [{"context"}, {"transition"}]
    assert speclab.Autoregressive().baselines() == ()
