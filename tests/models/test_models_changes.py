"""A module that is changed after loading: the next text is that of the module as it is then, or one sentence."""

from __future__ import annotations

import pytest
import torch
from support.heads import random_head
from support.pairs import library_text
from support.tiny import tiny
from torch import nn

from speclab import Autoregressive, DraftHead, LinearSpeculation, Session, SpeclabError, generate
from speclab.errors import ExactnessError
from speclab.heads.runner import HeadRunner
from speclab.models.lean import LeanForward
from speclab.models.runner import Runner
from speclab.pair import ModelPair

pytestmark = pytest.mark.model
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
NEW = 10


def _own(model) -> list[int]:
    return library_text(model, PROMPT, NEW)


def _pair(family: str) -> ModelPair:
    return ModelPair(Runner(tiny(family)), Runner(tiny(family, seed=1))).fresh()


def _decoded(pair, **settings):
    return generate(pair, LinearSpeculation(), PROMPT, max_new_tokens=NEW, **settings).token_ids


def _place(model):
    mlp = model.base_model.layers[1].mlp
    return mlp, "dense_h_to_4h" if hasattr(mlp, "dense_h_to_4h") else "up_proj"


def _linear(model):
    return getattr(*_place(model))


def _another_embedding(model):
    torch.manual_seed(3)
    model.set_input_embeddings(nn.Embedding(model.config.vocab_size, model.config.hidden_size))


def _written(model):
    with torch.no_grad():
        _linear(model).weight.neg_()


CHANGES = {
    "no_grad": ("llama", _written),
    "embedding": ("gpt_neox", _another_embedding),
    "layers": ("llama", lambda model: setattr(model.model, "layers", model.model.layers[:1])),
    "inv_freq": ("gpt_neox", lambda model: model.gpt_neox.rotary_emb.inv_freq.mul_(0.1)),
    "float64": ("gpt_neox", lambda model: model.double()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_next_text_is_the_changed_modules(name):
    family, change = CHANGES[name]
    pair = _pair(family)
    before = _decoded(pair)
    session = Session(pair, LinearSpeculation(), PROMPT, max_new_tokens=NEW)
    session.step()
    change(pair.target.model)
    want = _own(pair.target.model)
    assert _decoded(pair) == want
    assert pair.fresh().target.forward_name == "module"
    assert name == "float64" or before != want
    fork = session.fork(at=0, check=True)
    fork.run()
    assert fork.token_ids[1:] == library_text(
        pair.target.model, [*PROMPT, fork.token_ids[0]], NEW - 1
    )
    assert fork.pair.target.length == len(PROMPT) + len(fork.token_ids) - 1


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
