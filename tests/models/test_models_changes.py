"""A module that is changed after loading: the next text is that of the module as it is then, or one sentence."""

from __future__ import annotations

import warnings
from itertools import cycle

import pytest
import torch
from heads import random_head
from tiny import tiny
from torch import nn
from torch.nn.utils import parametrize

from speclab import (
    Autoregressive,
    DraftHead,
    LinearSpeculation,
    Session,
    SpeclabError,
    TokenRecycling,
    UnsupportedModelError,
    generate,
)
from speclab.errors import ExactnessError
from speclab.models.heads import HeadRunner
from speclab.models.lean import LeanForward
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner

pytestmark = pytest.mark.model
PROMPT, NEW = [3, 1, 4, 1, 5, 9, 2, 6], 10


def _by_library(model, prompt=PROMPT):
    """Greedy decoding by the module alone, without a cache."""
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(NEW):
            ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(prompt) :]


def _pair(family: str) -> ModelPair:
    return ModelPair(Runner(tiny(family)), Runner(tiny(family, seed=1))).fresh()


def _decoded(pair, **settings):
    return generate(pair, LinearSpeculation(), PROMPT, max_new_tokens=NEW, **settings).token_ids


def _place(model):
    mlp = model.base_model.layers[1].mlp
    return mlp, "dense_h_to_4h" if hasattr(mlp, "dense_h_to_4h") else "up_proj"


def _linear(model):
    return getattr(*_place(model))


def _data_added(model):
    _linear(model).weight.data.add_(torch.linspace(-1, 1, _linear(model).weight.numel()).view_as(_linear(model).weight))


def _data_replaced(model):
    _linear(model).weight.data = -_linear(model).weight.data


def _trained(model):
    model(torch.tensor([PROMPT]), labels=torch.tensor([PROMPT])).loss.backward()
    torch.optim.AdamW(model.parameters(), lr=0.1, fused=True).step()
    model.zero_grad()


class _LowRank(nn.Module):
    """What an adapter library puts in the place of a linear layer."""

    def __init__(self, base):
        super().__init__()
        self.base_layer = base
        self.down, self.up = nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)

    def forward(self, rows):
        return self.base_layer(rows) + 3 * self.up(self.down(rows))


def _adapted(model):
    torch.manual_seed(5)
    mlp, name = _place(model)
    setattr(mlp, name, _LowRank(getattr(mlp, name)))


def _another_head(model):
    torch.manual_seed(3)
    model.lm_head = nn.Linear(model.lm_head.in_features, model.lm_head.out_features, bias=False)


def _another_embedding(model):
    torch.manual_seed(3)
    model.set_input_embeddings(nn.Embedding(model.config.vocab_size, model.config.hidden_size))


def _shorter(model):
    model.base_model.layers = model.base_model.layers[:1]


def _other_angles(model):
    model.base_model.rotary_emb.inv_freq.mul_(0.1)


def _patched(model):
    mlp = model.base_model.layers[0].mlp
    mlp.forward = lambda rows, own=mlp.forward: own(rows).neg()


def _parametrized(model):
    class Doubled(nn.Module):
        def forward(self, weight):
            return 2 * weight

    parametrize.register_parametrization(_linear(model), "weight", Doubled())


def _written(model):
    with torch.no_grad():
        _linear(model).weight.neg_()


def _scaled(model):
    for layer in model.base_model.layers:
        attention = getattr(layer, "self_attn", None) or layer.attention
        attention.scaling *= 3


def _in_turn(model):
    for layer in model.gpt_neox.layers:
        layer.use_parallel_residual = False


CHANGES = {
    "data.add_": _data_added, "data =": _data_replaced, "fused AdamW": _trained, "adapter": _adapted,
    "head": _another_head, "embedding": _another_embedding, "layers": _shorter, "inv_freq": _other_angles,
    "patched forward": _patched, "parametrization": _parametrized, "float64": lambda model: model.double(),
    "no_grad": _written, "scaling of gpt_neox": _scaled, "scaling of llama": _scaled, "residual": _in_turn,
}  # fmt: skip


FAMILIES = dict(zip(CHANGES, cycle(["gpt_neox", "llama"]), strict=False)) | {"residual": "gpt_neox"}


@pytest.mark.parametrize(("change", "family"), FAMILIES.items())
def test_the_next_text_is_the_changed_modules(change, family):
    pair = _pair(family)
    before = _decoded(pair)
    session = Session(pair, LinearSpeculation(), PROMPT, max_new_tokens=NEW)
    session.step()
    CHANGES[change](pair.target.model)
    want = _by_library(pair.target.model)
    assert _decoded(pair) == want
    assert pair.fresh().target.forward_name == "module", "until it is loaded anew"
    assert change == "float64" or before != want, "the change shows in no text, so this would prove nothing"
    fork = session.fork(at=0, check=True)
    fork.run()
    assert fork.token_ids[1:] == _by_library(pair.target.model, [*PROMPT, fork.token_ids[0]])[: len(fork.token_ids) - 1]
    assert fork.pair.target.length == len(PROMPT) + len(fork.token_ids) - 1


@pytest.mark.parametrize(("family", "dtype"), [("gpt_neox", "float16"), ("llama", "bfloat16")])
def test_a_module_in_another_dtype_decodes_in_it(family, dtype):
    pair = _pair(family)
    _decoded(pair)
    pair.target.model.to(getattr(torch, dtype))
    session = Session(pair, LinearSpeculation(), PROMPT, max_new_tokens=NEW, check=True)
    session.run()
    assert session.pair.describe()["target_dtype"] == dtype
    assert len(session.token_ids) == NEW


def test_dynamic_quantisation_in_place_is_refused():
    """Activations are scaled by what else is in the pass, so a tree has other logits than its paths."""
    pair = _pair("llama")
    _decoded(pair)
    try:
        with warnings.catch_warnings(action="ignore"):
            torch.ao.quantization.quantize_dynamic(pair.target.model, {nn.Linear}, inplace=True)
    except RuntimeError:
        pytest.skip("this torch has no quantised engine")
    for _ in range(2):
        with pytest.raises(UnsupportedModelError, match="logits over a tree differ"):
            generate(pair, TokenRecycling(), PROMPT, max_new_tokens=NEW)


def test_another_vocabulary_is_one_sentence():
    pair = _pair("llama")
    pair.target.model.resize_token_embeddings(80)
    with pytest.raises(SpeclabError, match="has changed from 64 to 80 token ids: load the pair again"):
        _decoded(pair)


def test_a_hook_on_all_modules_is_called_in_passes():
    pair, seen = _pair("llama"), []
    hook = nn.modules.module.register_module_forward_hook(lambda part, *_: seen.append(type(part).__name__))
    try:
        pair.fresh().target.extend(PROMPT)
    finally:
        hook.remove()
    assert seen.count("LlamaMLP") == 2


def test_training_mode_ends_at_the_next_text():
    pair = ModelPair(Runner(tiny("gpt_neox", hidden_dropout=0.5, attention_dropout=0.5), lean=False))
    want = _by_library(pair.target.model)
    pair.target.model.train()
    assert generate(pair, Autoregressive(), PROMPT, max_new_tokens=NEW).token_ids == want
    assert not any(part.training for part in pair.target.model.modules())


def test_a_module_that_was_only_used_keeps_its_lean_pass_and_its_cache():
    pair = _pair("llama")
    session = Session(pair, LinearSpeculation(), PROMPT, max_new_tokens=NEW)
    session.step()
    pair.target.model(torch.tensor([PROMPT]), output_hidden_states=True)
    pair.target.model.generate(torch.tensor([PROMPT]), max_new_tokens=2)
    fork = session.fork()
    assert fork.pair.target.lean is pair.target.lean is not None
    assert fork.pair.target.calls <= 1


def test_a_check_compares_with_the_module_and_not_with_the_lean_pass(monkeypatch):
    pair = _pair("llama")
    own = LeanForward.__call__

    def negated(self, *args, **options):
        logits, states = own(self, *args, **options)
        return -logits, states

    monkeypatch.setattr(LeanForward, "__call__", negated)
    with pytest.raises(ExactnessError):
        _decoded(pair, check=True)


def test_a_head_that_was_trained_after_its_load_drafts_with_its_new_weights():
    model = tiny("llama")
    target = Runner(model)
    head = random_head(model)
    pair = ModelPair(target, heads=(HeadRunner(head, target),))
    before = Session(pair, DraftHead(), PROMPT, max_new_tokens=NEW).step().tree
    with torch.no_grad():
        head.fc.weight.neg_()
    again = Session(pair, DraftHead(), PROMPT, max_new_tokens=NEW).step().tree
    own = ModelPair(target, heads=(HeadRunner(head, target),))
    want = Session(own, DraftHead(), PROMPT, max_new_tokens=NEW).step().tree
    assert again.token.tolist() == want.token.tolist() != before.token.tolist()


def test_heads_follow_a_changed_target():
    model = tiny("llama")
    target = Runner(model)
    pair = ModelPair(target, heads=(HeadRunner(random_head(model), target),))
    session = Session(pair, DraftHead(), PROMPT, max_new_tokens=NEW)
    session.step()
    _another_embedding(model.double())
    model.double()
    fork = session.fork()
    fork.run()
    done = len(session.token_ids)
    assert fork.token_ids[done:] == _by_library(model, [*PROMPT, *session.token_ids])[: NEW - done]
    assert fork.pair.heads[0].dtype == torch.float64
    assert fork.pair.heads[0].length > 0
