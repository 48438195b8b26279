"""The numbers of a record against the target's logits in float64."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType

import numpy as np
import pytest
import torch
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
