"""`check=True` in half precision: ties are counted, faults are found, greedy and sampled."""

import pytest
import torch
from support.pairs import PROMPT
from support.records import ran
from support.tiny import tiny

import speclab
from speclab import clinic

pytestmark = pytest.mark.model

DRAWN = speclab.LinearSpeculation(draft_tokens=3, candidates="independent")
RUNS = {
    "greedy": (speclab.TokenRecycling(node_budget=12), {}),
    "sampled": (speclab.TokenRecycling(node_budget=12), {"temperature": 1.0}),
    "hot": (speclab.TokenRecycling(node_budget=12), {"temperature": 3.0}),
    "top-k": (speclab.TokenRecycling(node_budget=12), {"temperature": 1.0, "top_k": 8}),
    "top-p": (speclab.TokenRecycling(node_budget=12), {"temperature": 1.0, "top_p": 0.8}),
    "drawn": (DRAWN, {"temperature": 1.0, "top_p": 0.8}),
}


def pair_of(dtype):
    target = tiny("llama", seed=3).to(dtype)
    return speclab.load_pair(target=target, draft=tiny("llama").to(dtype), exact="rounding")


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def pair(request):
    return pair_of(request.param)


def run(pair, seed, strategy, **sampling):
    return ran(pair, strategy, PROMPT, max_new_tokens=24, seed=seed, check=True, **sampling)


@pytest.mark.wide
@pytest.mark.parametrize(("strategy", "sampling"), RUNS.values(), ids=RUNS)
def test_a_healthy_target_raises_no_alarm_whatever_the_seed(pair, strategy, sampling):
    for seed in range(3 if sampling else 1):
        assert run(pair, seed, strategy, **sampling).done


def test_sampled_commits_tie_in_half_precision_and_never_in_float32():
    """Or the test above would test nothing."""
    strategy, sampling = RUNS["sampled"]
    half = pair_of(torch.bfloat16)
    whole = pair_of(torch.float32)
    assert any(run(half, seed, strategy, **sampling).ties for seed in range(20))
    assert not any(run(whole, seed, strategy, **sampling).ties for seed in range(4))


@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 8}], ids=str
)
def test_a_fault_is_found(pair, sampling):
    broken = clinic.broken(pair, "unverified first token")
    for seed in range(2):
        with pytest.raises(speclab.ExactnessError):
            run(broken, seed, speclab.FixedTree(depth=3, branching=2), **sampling)
