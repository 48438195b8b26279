"""Logits that are not numbers: one sentence, and nothing decoded is lost."""

import pytest
import torch
from support.refusals import refused
from support.tiny import tiny

import speclab
from speclab.models.runner import Runner
from speclab.models.transfers import check_finite
from speclab.pair import ModelPair

pytestmark = pytest.mark.model

PROMPT = [5, 9, 2, 40]
NEW = 24


def pair_of(poisoned=None, role="target"):
    """Two equal models; one gives NaN once it has read the token `poisoned`."""
    models = {"target": tiny("llama"), "draft": tiny("llama")}
    if poisoned is not None:
        with torch.no_grad():
            models[role].get_input_embeddings().weight[poisoned] = torch.nan
    return ModelPair(Runner(models["target"], "big"), Runner(models["draft"], "small"), name="pair")


@pytest.mark.parametrize(
    ("role", "candidates"), [("target", "top"), ("draft", "top"), ("draft", "independent")]
)
def test_what_was_decoded_before_a_nan_stands(role, candidates):
    text = speclab.generate(
        pair_of(), speclab.Autoregressive(), PROMPT, max_new_tokens=NEW
    ).token_ids
    place = next(place for place in range(6, NEW) if text[place] not in text[:place] + PROMPT)
    strategy = speclab.LinearSpeculation(draft_tokens=2, candidates=candidates)
    session = speclab.Session(pair_of(text[place], role), strategy, PROMPT, max_new_tokens=NEW)
    with refused(speclab.LogitsError, "NaN", "float32", "big" if role == "target" else "small"):
        session.run()
    shown = session.token_ids
    lengths = [runner.length for runner in session.pair.runners.values()]
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


def test_one_bad_number_in_any_row_is_enough_and_a_token_ruled_out_is_fine():
    good = torch.tensor([[0.0, -torch.inf]] * 3)
    assert check_finite(good, 0, "model").rows is good
    for row in range(3):
        for bad in ([0.0, torch.nan], [torch.inf, 0.0], [-torch.inf, -torch.inf]):
            logits = good.clone()
            logits[row] = torch.tensor(bad)
            with refused(speclab.LogitsError, "float32"):
                check_finite(logits, 0, "model")
