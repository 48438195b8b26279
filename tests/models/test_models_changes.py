"""A module that is changed after loading: the next text is that of the module as it is then, or one sentence."""

from __future__ import annotations

import inspect
from types import MethodType

import pytest
import torch
from support.heads import random_head
from support.pairs import library_text
from support.tiny import tiny
from torch import nn
from torch.nn.utils import parametrize, prune

from speclab import (
    Autoregressive,
    DraftHead,
    LinearSpeculation,
    Session,
    SpeclabError,
    TokenRecycling,
    generate,
)
from speclab.errors import ExactnessError
from speclab.heads.runner import HeadRunner
from speclab.models.lean import LeanForward
from speclab.models.runner import Runner
from speclab.pair import ModelPair

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
NEW = 10


def _own(model) -> list[int]:
    return library_text(model, PROMPT, NEW)


def _pair(family: str) -> ModelPair:
    return ModelPair(Runner(tiny(family)), Runner(tiny(family, seed=1))).fresh()


def _decoded(pair, **settings):
    return generate(pair, LinearSpeculation(), PROMPT, max_new_tokens=NEW, **settings).token_ids


def _mlp(model):
    return model.base_model.layers[1].mlp


def _attention(model):
    layer = model.base_model.layers[1]
    return layer.self_attn if hasattr(layer, "self_attn") else layer.attention


def _linear(model) -> nn.Linear:
    mlp = _mlp(model)
    return mlp.dense_h_to_4h if hasattr(mlp, "dense_h_to_4h") else mlp.up_proj


def _another_embedding(model):
    torch.manual_seed(3)
    model.set_input_embeddings(nn.Embedding(model.config.vocab_size, model.config.hidden_size))


def _without_grad(model):
    with torch.no_grad():
        _linear(model).weight.neg_()


def _in_inference_mode(model):
    with torch.inference_mode():
        _linear(model).weight.mul_(-1)


def _trained(optimizer, **options):
    def change(model):
        chosen = optimizer(model.parameters(), lr=0.1, **options)
        ids = torch.tensor([[5, 6, 7, 8]])
        model(ids, labels=ids).loss.backward()
        chosen.step()
        model.zero_grad()

    return change


def _data_copied(model):
    weight = _linear(model).weight
    weight.data.copy_(-weight)


def _data_sliced(model):
    _linear(model).weight.data[:] = 0.5


def _merged(model):
    weight = _linear(model).weight
    torch.manual_seed(1)
    weight.data += torch.randn(len(weight), 2) @ torch.randn(2, weight.shape[1])


def _by_numpy(model):
    _linear(model).weight.detach().numpy()[:] *= -1


def _one_row_of_the_output(model):
    model.get_output_embeddings().weight.data[_own(model)[0]] *= -3


class _Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, rows):
        return 0 * self.inner(rows)


def _wrapped(model):
    layer = model.base_model.layers[1]
    layer.mlp = _Wrapped(layer.mlp)


def _another_activation(model):
    name = "act" if hasattr(_mlp(model), "act") else "act_fn"
    setattr(_mlp(model), name, nn.Tanh())


def _swapped_class(model):
    mlp = _mlp(model)
    mlp.__class__ = type("Halved", (type(mlp),), {"forward": lambda self, rows: rows})


def _bound_method(model):
    mlp = _mlp(model)
    mlp.forward = MethodType(lambda self, rows: -rows, mlp)


def _own_forward(model):
    own = model.forward

    def forward(*inputs, **options):
        output = own(*inputs, **options)
        output.logits = -output.logits
        return output

    forward.__signature__ = inspect.signature(own)
    model.forward = forward


def _parallel(model):
    for layer in model.gpt_neox.layers:
        layer.use_parallel_residual = not layer.use_parallel_residual


def _pruned(model):
    prune.random_unstructured(_linear(model), "weight", amount=0.9)


class _Negative(nn.Module):
    def forward(self, weight):
        return -weight


def _loaded(model):
    other = tiny(model.config.model_type, seed=7)
    model.load_state_dict(other.state_dict())


CHANGES = {
    "no_grad": _without_grad,
    "inference_mode": _in_inference_mode,
    "AdamW": _trained(torch.optim.AdamW),
    "AdamW, fused": _trained(torch.optim.AdamW, fused=True),
    "SGD, fused": _trained(torch.optim.SGD, fused=True),
    "SGD, foreach": _trained(torch.optim.SGD, foreach=True),
    "data.mul_": lambda model: _linear(model).weight.data.mul_(-1),
    "data.copy_": _data_copied,
    "data[:] =": _data_sliced,
    "data.zero_": lambda model: _linear(model).weight.data.zero_(),
    "data +=": _merged,
    "data =": lambda model: setattr(_linear(model).weight, "data", -_linear(model).weight.data),
    "numpy": _by_numpy,
    "one row of the output": _one_row_of_the_output,
    "new parameter": lambda model: setattr(
        _linear(model), "weight", nn.Parameter(-_linear(model).weight)
    ),
    "load_state_dict": _loaded,
    "init": lambda model: nn.init.ones_(_linear(model).weight),
    "pruned": _pruned,
    "parametrised": lambda model: parametrize.register_parametrization(
        _linear(model), "weight", _Negative()
    ),
    "embedding": _another_embedding,
    "wrapped part": _wrapped,
    "removed part": lambda model: setattr(model.base_model.layers[1], "mlp", nn.Identity()),
    "fewer layers": lambda model: setattr(model.base_model, "layers", model.base_model.layers[:1]),
    "activation": _another_activation,
    "scaling": lambda model: setattr(_attention(model), "scaling", 2.0),
    "attention_scaling": lambda model: setattr(
        model.base_model.rotary_emb, "attention_scaling", 3.0
    ),
    "inv_freq": lambda model: model.base_model.rotary_emb.inv_freq.mul_(0.1),
    "forward of a part": lambda model: setattr(_mlp(model), "forward", lambda rows: -rows),
    "bound method": _bound_method,
    "swapped class": _swapped_class,
    "forward of the model": _own_forward,
    "float64": lambda model: model.double(),
}


@pytest.mark.parametrize(
    ("family", "packing"), [("llama", True), ("gpt_neox", True), ("gpt_neox", False)]
)
@pytest.mark.parametrize("name", [*CHANGES, "parallel residual"])
def test_the_next_text_is_the_changed_modules(name, family, packing):
    if name == "parallel residual" and family == "llama":
        pytest.skip("only GPT-NeoX has it")
    model = tiny(family)
    pair = ModelPair(Runner(model, packing=packing), Runner(tiny(family, seed=1))).fresh()
    before = _decoded(pair)
    session = Session(pair, LinearSpeculation(), PROMPT, max_new_tokens=NEW)
    session.step()
    (CHANGES | {"parallel residual": _parallel})[name](model)
    want = _own(model)
    assert name == "float64" or before != want
    assert _decoded(pair) == want
    assert generate(pair, TokenRecycling(), PROMPT, max_new_tokens=NEW).token_ids == want
    fork = session.fork(at=0, check=True)
    fork.run()
    assert fork.token_ids[1:] == library_text(model, [*PROMPT, fork.token_ids[0]], NEW - 1)
    assert fork.pair.target.length == len(PROMPT) + len(fork.token_ids) - 1


def test_a_patched_class_is_decoded_as_it_is(monkeypatch):
    pair = _pair("llama")
    _decoded(pair)
    monkeypatch.setattr(type(_mlp(pair.target.model)), "forward", lambda self, rows: -rows)
    assert _decoded(pair) == _own(pair.target.model)


def test_what_is_changed_back_is_decoded_as_at_first():
    pair = _pair("gpt_neox")
    want = _decoded(pair)
    for _ in range(2):
        _linear(pair.target.model).weight.data.neg_()
        assert _decoded(pair) != want
        _linear(pair.target.model).weight.data.neg_()
        assert _decoded(pair) == want
    assert pair.fresh().target.lean is not None


def test_weights_written_in_the_middle_of_a_text_are_named_and_a_fork_goes_on():
    pair = _pair("llama")
    session = Session(pair, LinearSpeculation(), PROMPT, max_new_tokens=NEW)
    session.step()
    _without_grad(session.pair.target.model)
    with pytest.raises(SpeclabError, match="llama"):
        session.step()
    done = session.token_ids
    fork = session.fork()
    fork.run()
    assert fork.token_ids == done + library_text(pair.target.model, PROMPT + done, NEW - len(done))


def test_another_vocabulary_is_one_sentence():
    pair = _pair("llama")
    pair.target.model.resize_token_embeddings(80)
    with pytest.raises(
        SpeclabError, match="has changed from 64 to 80 token ids: load the pair again"
    ):
        _decoded(pair)


def test_training_mode_ends_at_the_next_text():
    pair = ModelPair(
        Runner(tiny("gpt_neox", hidden_dropout=0.5, attention_dropout=0.5), lean=False)
    )
    want = _own(pair.target.model)
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


def test_heads_follow_their_own_changed_weights_and_a_changed_target():
    model = tiny("llama")
    target = Runner(model)
    head = random_head(model)
    pair = ModelPair(target, heads=(HeadRunner(head, target),))

    def tree(pair):
        return Session(pair, DraftHead(), PROMPT, max_new_tokens=NEW).step().tree.token.tolist()

    before = tree(pair)
    with torch.no_grad():
        head.fc.weight.neg_()
    assert tree(pair) == tree(ModelPair(target, heads=(HeadRunner(head, target),))) != before
    session = Session(pair, DraftHead(), PROMPT, max_new_tokens=NEW)
    session.step()
    _another_embedding(model.double())
    model.double()
    fork = session.fork()
    fork.run()
    done = len(session.token_ids)
    assert fork.token_ids[done:] == library_text(model, [*PROMPT, *session.token_ids], NEW - done)
    assert fork.pair.heads[0].dtype == torch.float64
    assert fork.pair.heads[0].length > 0
