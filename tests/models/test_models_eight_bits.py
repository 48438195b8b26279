"""The target as its own draft: at eight bits, and as it is."""

import pytest
import torch
from support.pairs import PROMPT, library_text
from support.records import ran
from support.refusals import refused
from support.tiny import tiny
from torch import nn

import speclab
from speclab.errors import SettingsError
from speclab.models.eight_bits import FEW, EightBit

pytestmark = pytest.mark.model

CHAIN = speclab.LinearSpeculation(draft_tokens=4)
WIDE = {"hidden_size": 64, "intermediate_size": 96}


def decoded(pair, strategy, new=24):
    prompt = [token % pair.vocab_size for token in PROMPT]
    result = speclab.generate(pair, strategy, prompt, max_new_tokens=new)
    return prompt, result


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "qwen3", "mistral", "mamba2"])
def test_the_control_accepts_everything_and_shares_the_weights(family):
    pair = speclab.load_pair(target=tiny(family, 3), draft="self")
    assert pair.draft.model is pair.target.model
    prompt, result = decoded(pair, CHAIN)
    assert result.token_ids == library_text(pair.target.model, prompt, 24)
    assert result.metrics.acceptance_hazard == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "gpt_neox", "qwen3"])
def test_eight_bits_draft_and_the_text_is_the_targets(family, dtype):
    model = tiny(family, 3, vocab=640, **WIDE).to(dtype)
    pair = speclab.load_pair(target=model, draft="int8", exact="rounding")
    assert pair.target.model is model
    assert not any(isinstance(part, EightBit) for part in model.modules())
    ours = {id(tensor) for tensor in model.parameters()}
    assert {id(tensor) for tensor in pair.draft.model.parameters()} == ours
    eight = [part for part in pair.draft.model.modules() if isinstance(part, EightBit)]
    assert sum(part.eight.nbytes for part in eight) == sum(part.weight.numel() for part in eight)
    session = ran(pair, CHAIN, PROMPT, max_new_tokens=24, check=True)
    assert session.metrics.acceptance_hazard > 0.2


@torch.inference_mode()
def test_weights_are_rounded_to_a_255th_of_the_largest():
    part = nn.Linear(64, 32)
    rounded = EightBit(part)
    rows = torch.randn(FEW, 64)
    step = part.weight.abs().amax(1) / 127
    assert ((rounded.eight * step[:, None] - part.weight).abs() <= step[:, None] * 0.51).all()
    # weights by half a step each, and activations in bfloat16
    bound = rows.abs().sum(1, keepdim=True) * step * 0.55 + 0.02 * part(rows).abs().amax()
    assert ((rounded(rows) - part(rows)).abs() < bound).all()
    assert not torch.equal(rounded(rows), part(rows))
    more = torch.randn(FEW + 1, 64)
    assert torch.equal(rounded(more), part(more))


def test_products_whose_inner_size_torch_would_misread_stay_as_they_are():
    model = tiny("qwen3", hidden_size=40, intermediate_size=64)
    pair = speclab.load_pair(target=model, draft="int8")
    kinds = {name: type(part) for name, part in pair.draft.model.named_modules()}
    assert kinds["model.layers.0.mlp.up_proj"] is nn.Linear  # 40 inputs
    assert kinds["model.layers.0.mlp.down_proj"] is EightBit  # 64


def test_a_target_that_was_changed_drafts_on():
    model = tiny("llama", 3, vocab=640)
    pair = speclab.load_pair(target=model, draft="int8")
    with torch.no_grad():
        model.lm_head.weight.mul_(1.5)
    prompt, result = decoded(pair, CHAIN)
    assert result.token_ids == library_text(model, prompt, 24)


def test_what_cannot_be_rounded_is_one_sentence():
    damaged = tiny("llama", 3)
    with torch.no_grad():
        damaged.model.layers[0].mlp.up_proj.weight[0, 0] = torch.inf
    quantized = tiny("llama", 3)
    quantized.hf_quantizer = object()
    uneven = tiny("llama", 3, hidden_size=36, head_dim=10, intermediate_size=52)
    for model, word in ((quantized, "quantised"), (uneven, "multiple of 16")):
        with refused(SettingsError, "int8", word):
            speclab.load_pair(target=model, draft="int8")
    with refused(speclab.SpeclabError):
        speclab.load_pair(target=damaged, draft="int8")


def test_a_product_that_torch_lacks_is_one_sentence(monkeypatch):
    def missing(*_):
        raise RuntimeError("not implemented for this processor\nat line 3")

    monkeypatch.setattr(torch, "_weight_int8pack_mm", missing)
    with refused(SettingsError, "int8", "not implemented"):
        speclab.load_pair(target=tiny("llama", 3), draft="int8")


def test_a_pair_by_name_takes_its_own_draft():
    pair = speclab.load_pair("mini", draft="self")
    assert pair.draft.model is pair.target.model
    assert len(pair.heads) == len(speclab.load_pair("mini").heads)
