"""Modules inside wrappers: compiled ones, peft's, and what is no model at all."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
import torch
from tiny import tiny
from torch import nn

from speclab import Autoregressive, LinearSpeculation, SettingsError, UnsupportedModelError, generate, load_pair

pytestmark = pytest.mark.model
PROMPT, NEW = [3, 1, 4, 1, 5, 9, 2, 6], 10


class Adapter(nn.Module):
    """A low-rank adapter around a linear layer, as peft places it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.down, self.up = nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.base_layer(rows) + 3 * self.up(self.down(rows))


class Wrapper(nn.Module):
    """What peft hands out: the model, changed in its layers, and the configs of its adapters."""

    def __init__(self, model: nn.Module, *, is_prompt_learning: bool = False) -> None:
        super().__init__()
        self.base_model = model
        self.peft_config = {"default": SimpleNamespace(is_prompt_learning=is_prompt_learning)}
        torch.manual_seed(4)
        for layer in model.base_model.layers:
            layer.mlp.up_proj = Adapter(layer.mlp.up_proj)

    def get_base_model(self) -> nn.Module:
        return self.base_model


def own_text(model) -> list[int]:
    ids = torch.tensor([PROMPT])
    text = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False)
    return text[0, len(PROMPT) :].tolist()


def test_a_peft_model_decodes_with_its_adapters():
    bare = own_text(tiny("llama"))
    wrapped = Wrapper(tiny("llama"))
    pair = load_pair(target=wrapped, draft=tiny("llama", seed=1))
    text = generate(pair, LinearSpeculation(), PROMPT, max_new_tokens=NEW, check=True).token_ids
    assert text == own_text(wrapped.base_model) != bare
    assert re.fullmatch(r"module: a part of it is a [\w.]*\.Adapter", pair.describe()["target_forward"])


def test_a_peft_model_drafts_too():
    pair = load_pair(target=tiny("llama"), draft=Wrapper(tiny("llama", seed=1)), heads=Wrapper(tiny("llama", seed=2)))
    assert generate(pair, LinearSpeculation(), PROMPT, max_new_tokens=NEW).token_ids == own_text(pair.target.model)
    assert len(pair.heads) == 1


def test_a_compiled_model_decodes():
    model = tiny("llama")
    pair = load_pair(target=torch.compile(model, backend="eager"))
    assert pair.target.model is model
    assert generate(pair, Autoregressive(), PROMPT, max_new_tokens=NEW).token_ids == own_text(model)


def test_a_learned_prompt_is_refused():
    with pytest.raises(UnsupportedModelError, match="learned prompt"):
        load_pair(target=Wrapper(tiny("llama"), is_prompt_learning=True))


@pytest.mark.parametrize("source", [nn.Linear(2, 2), 7, {"model": "gpt2"}, lambda: None])
@pytest.mark.parametrize("role", ["target", "draft", "heads"])
def test_what_is_no_model_is_one_sentence(source, role):
    given = {"target": tiny("llama")} | {role: source}
    with pytest.raises(SettingsError, match=r"A model is a hub id, a folder or a transformers model, and \w+ is none"):
        load_pair(**given)
