"""On a GPU: every strategy's text is its CPU text, and small passes run as graphs. Skipped where there is none."""

from __future__ import annotations

import pytest
import torch

import speclab
from speclab.prompts import examples

pytestmark = [pytest.mark.model, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


@pytest.fixture(scope="module")
def pairs():
    return [speclab.load_pair(device=device, dtype="float32") for device in ("cpu", "cuda")]


@pytest.mark.parametrize("name", speclab.strategies())
def test_the_text_of_every_strategy_is_its_text_on_the_cpu(name, pairs):
    strategy = speclab.strategies()[name]()
    for prompt in examples()[:3]:
        texts = [speclab.generate(pair, strategy, prompt.text, max_new_tokens=64).token_ids for pair in pairs]
        assert texts[0] == texts[1]


def test_passes_run_as_graphs_and_say_so(pairs):
    facts = pairs[1].describe()
    assert facts["target_forward"] == facts["draft_forward"] == "lean, CUDA graphs"


def test_a_session_forks_and_goes_back_as_on_the_cpu(pairs):
    texts = []
    for pair in pairs:
        session = speclab.Session(pair, speclab.DynaTree(), examples()[0].text, max_new_tokens=48)
        session.run()
        fork = session.fork(at=2, strategy=speclab.Goose())
        fork.run()
        texts.append((session.token_ids, fork.token_ids))
    assert texts[0] == texts[1]
    assert texts[0][0] == texts[0][1]
