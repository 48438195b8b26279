"""The numbers of a record against the target's logits in float64, and what a record must not keep."""

import gc
from types import FunctionType, ModuleType

import numpy as np
import pytest
import torch
from support.records import ran
from support.table_runner import random_probs, table_pair
from support.tiny import tiny

import speclab
from speclab.engine import session as room
from speclab.models.runner import Runner
from speclab.sampling import transform
from speclab.settings import SessionSettings


@pytest.fixture
def logits(monkeypatch):
    """Those that every step was recorded from."""
    rows = []
    record = room.record

    def noted(decoding, iteration, *others):
        rows.append(iteration.verification.answer.rows.clone())
        return record(decoding, iteration, *others)

    monkeypatch.setattr(room, "record", noted)
    return rows


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.7, "top_k": 9, "top_p": 0.9}], ids=["greedy", "sampled"]
)
def test_probabilities_choices_and_entropies_are_those_of_the_logits(settings, logits):
    whole = random_probs(12, 1)
    chosen = SessionSettings(**settings)

    def probs(path):
        """A token is always ruled out; after another one the next is certain."""
        p = whole(path) * (np.arange(12) != 3) if path[-1] != 4 else np.eye(12)[5]
        return p / p.sum()

    session = ran(
        table_pair(probs, None, 12), speclab.Goose(), [1, 2, 4] * 4, max_new_tokens=24, **settings
    )
    for step, rows in zip(session.steps, logits, strict=True):
        for node in step.nodes:
            p = transform(rows[node.index], chosen).numpy()
            best = np.argsort(-p, kind="stable")[:5]
            assert [token for token, prob in node.target_top if prob > 0] == [
                int(i) for i in best if p[i] > 0
            ]
            assert [prob for _, prob in node.target_top] == pytest.approx(p[best], abs=1e-6)
            assert node.entropy == pytest.approx(-sum(x * np.log(x) for x in p if x > 0), abs=1e-5)
            assert not f"{node.entropy:.2f}".startswith("-")
            assert p[node.target_choice] > 0
            if node.target_prob is not None:
                before = transform(rows[step.tree.parent[node.index]], chosen)
                assert node.target_prob == pytest.approx(float(before[node.token]), abs=1e-6)
    assert any(node.entropy < 1e-6 for step in session.steps for node in step.nodes)


def reachable(thing, seen):
    """Everything that can be reached from a thing, but for modules, classes and code."""
    if id(thing) not in seen and not isinstance(thing, type | ModuleType | FunctionType):
        seen[id(thing)] = thing
        for one in gc.get_referents(thing):
            reachable(one, seen)
    return list(seen.values())


@pytest.mark.model
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_records_keep_no_tensor_and_no_model(temperature):
    pair = speclab.load_pair(target=tiny("gpt_neox"))
    prompt = [3, 1, 4, 1, 5, 9, 2, 6]
    session = speclab.Session(
        pair, speclab.Goose(), prompt, max_new_tokens=16, temperature=temperature
    )
    last = session.run()
    kept = reachable(session.steps, {})
    assert not [one for one in kept if isinstance(one, torch.Tensor | torch.nn.Module | Runner)]
    assert max(one.size for one in kept if isinstance(one, np.ndarray)) < 64 * len(last.tree)
