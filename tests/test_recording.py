"""The numbers of a record against the target's logits, in float64 and one row at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from counted import calls
from table_runner import random_law, table_pair
from tiny import tiny

import speclab
from speclab.engine import session as room
from speclab.engine.sampling import draw, draws, transform
from speclab.models.pair import load_pair
from speclab.settings import SessionSettings

SAMPLED = {"temperature": 0.7, "top_k": 9, "top_p": 0.9}


@pytest.fixture
def recorded(monkeypatch):
    """The logits that every step was recorded from."""
    seen, record = [], room.record

    def noted(decoding, iteration, *others):
        seen.append(iteration.verification.logits.clone())
        return record(decoding, iteration, *others)

    monkeypatch.setattr(room, "record", noted)
    return seen


@pytest.mark.parametrize("ruled_out", [False, True])
@pytest.mark.parametrize("settings", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_probabilities_choices_and_entropies_are_those_of_the_logits(settings, ruled_out, recorded):
    whole = random_law(12, 1)

    def law(path):
        kept = whole(path) * (np.arange(12) != 3 if ruled_out else 1)
        return kept / kept.sum()

    session = speclab.Session(table_pair(law, None, 12), speclab.Goose(), [1, 2, 4] * 4, max_new_tokens=24, **settings)
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
        table_pair(lambda path: np.eye(5)[(path[-1] + 1) % 5], None, 5), speclab.Goose(), [0, 1, 2], max_new_tokens=6
    )
    session.run()
    entropies = [node.entropy for step in session.steps for node in step.nodes]
    assert entropies
    assert {f"{entropy:.2f}" for entropy in entropies} == {"0.00"}


def test_a_choice_that_nobody_asked_for_is_the_one_that_a_draw_there_would_be():
    law = torch.rand(30, 40, generator=torch.Generator().manual_seed(0))
    law[law < 0.4] = 0
    law /= law.sum(-1, keepdim=True)
    noise = [*(place / 30 for place in range(29)), 1 - 2**-53]
    assert draws(law, noise) == [draw(row.double(), at) for row, at in zip(law, noise, strict=True)]


@pytest.mark.model
def test_recording_takes_as_many_calls_for_a_large_tree_as_for_a_small_one(monkeypatch):
    """But for the target's choice after each node, which is looked up: a record is columns, not one thing a node."""
    counted, record = [], room.record

    def noted(decoding, iteration, *others):
        held = []
        counted.append((len(iteration.draft.tree), calls(lambda: held.append(record(decoding, iteration, *others)))))
        return held[0]

    monkeypatch.setattr(room, "record", noted)
    pair = load_pair(target=tiny("gpt_neox"), draft=tiny("llama"))
    for strategy in (speclab.FixedTree(depth=1, branching=2), speclab.FixedTree(depth=4, branching=3)):
        speclab.Session(pair, strategy, [3, 1, 4], max_new_tokens=8).run()
    few, many = min(counted), max(counted)
    assert few[0] < 4 < 100 < many[0]
    assert abs((many[1] - many[0]) - (few[1] - few[0])) < 20
    assert few[1] < 250
