"""`check=True` in half precision: ties are counted, faults are found, greedy and sampled."""

from __future__ import annotations

import pytest
import torch
from pairs import PROMPT
from tiny import tiny

import speclab
from speclab.analysis import clinic
from speclab.engine.exactness import TOLERANCE

pytestmark = pytest.mark.model

STRATEGY = speclab.TokenRecycling(node_budget=12)
SAMPLINGS = {
    "greedy": {},
    "sampled": {"temperature": 1.0},
    "hot": {"temperature": 3.0},
    "top-k": {"temperature": 1.0, "top_k": 8},
    "top-p": {"temperature": 1.0, "top_p": 0.8},
}


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def pair(request):
    return speclab.load_pair(target=tiny("llama", seed=3).to(request.param), draft=tiny("llama").to(request.param))


def run(pair, seed, strategy=STRATEGY, **sampling) -> speclab.Session:
    session = speclab.Session(pair, strategy, PROMPT, max_new_tokens=30, seed=seed, check=True, **sampling)
    session.run()
    return session


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_healthy_target_raises_no_alarm_whatever_the_seed(pair, sampling):
    for seed in range(1 if not sampling else 20):
        assert run(pair, seed, **sampling).done


def test_drawn_candidates_raise_no_alarm(pair):
    drawn = speclab.LinearSpeculation(draft_tokens=3, candidates="independent")
    for seed in range(8):
        assert run(pair, seed, drawn, temperature=1.0, top_p=0.8).done


def test_some_sampled_commits_are_ties():
    """Or the test above would prove nothing."""
    pair = speclab.load_pair(target=tiny("llama", seed=3).to(torch.bfloat16))
    assert sum(run(pair, seed, temperature=1.0).ties for seed in range(20)) > 0


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 8}], ids=str)
def test_a_fault_is_found(pair, sampling):
    broken = clinic.broken(pair, "unverified first token")
    found = 0
    for seed in range(4):
        try:
            run(broken, seed, speclab.FixedTree(depth=3, branching=2), **sampling)
        except speclab.ExactnessError:
            found += 1
    assert found == 4


def test_float32_has_no_ties():
    assert TOLERANCE.get(torch.float32) is None
    pair = speclab.load_pair(target=tiny("llama", seed=3))
    assert sum(run(pair, seed, temperature=1.0).ties for seed in range(8)) == 0
