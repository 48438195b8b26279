"""Logits that are no numbers: one sentence, and nothing decoded is lost."""

from __future__ import annotations

import pytest
import torch
from refusals import both_ways, refused
from tiny import tiny

import speclab
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner
from speclab.models.transfers import check_finite

pytestmark = pytest.mark.model

PROMPT, NEW = [5, 9, 2, 40], 24


def own_text() -> list[int]:
    return speclab.generate(pair_of(), speclab.Autoregressive(), PROMPT, max_new_tokens=NEW).token_ids


def pair_of(poisoned: int | None = None, role: str = "target") -> ModelPair:
    """Models of which one gives no numbers once it has read the token `poisoned`."""
    models = {"target": tiny("llama"), "draft": tiny("llama")}
    if poisoned is not None:
        with torch.no_grad():
            models[role].get_input_embeddings().weight[poisoned] = torch.nan
    return ModelPair(Runner(models["target"], "big"), Runner(models["draft"], "small"), name="pair")


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("candidates", ["top", "independent"])
def test_what_was_decoded_before_a_nan_stands(role, candidates):
    text = own_text()
    place = next(place for place in range(6, NEW) if text[place] not in text[:place] + PROMPT)
    strategy = speclab.LinearSpeculation(draft_tokens=2, candidates=candidates)
    session = speclab.Session(pair_of(text[place], role), strategy, PROMPT, max_new_tokens=NEW)
    with refused(speclab.LogitsError, "NaN", "float32", "big" if role == "target" else "small"):
        session.run()
    shown, lengths = session.token_ids, [runner.length for runner in session.pair.runners.values()]
    assert 1 < len(shown) < NEW
    assert shown == text[: len(shown)]
    with refused(speclab.LogitsError, "NaN"):
        session.step()
    assert (session.token_ids, session.cursor) == (shown, len(session.steps))
    assert [runner.length for runner in session.pair.runners.values()] == lengths
    if role == "draft":  # the target is well: another strategy goes on from there
        twin = session.fork(strategy=speclab.Autoregressive())
        twin.run()
        assert twin.token_ids == text


@both_ways
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_nan_in_the_prompt(way, temperature):
    with refused(speclab.LogitsError, "NaN", "big"):
        way(pair_of(PROMPT[1]), speclab.FixedTree(), PROMPT, max_new_tokens=NEW, temperature=temperature)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_one_bad_number_in_any_row_is_enough(bad):
    for row in range(3):
        logits = torch.zeros((3, 5))
        logits[row, 4] = bad
        with refused(speclab.LogitsError, "float32"):
            check_finite(logits, 0, "model")


def test_a_token_that_is_ruled_out_is_fine_and_a_row_of_nothing_is_not():
    logits = torch.tensor([[0.0, -torch.inf]])
    assert check_finite(logits, 0, "model").rows is logits
    with refused(speclab.LogitsError, "NaN"):
        check_finite(logits.fill_(-torch.inf), 0, "model")
