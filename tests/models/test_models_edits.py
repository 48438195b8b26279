"""A model that is edited after it was loaded is decoded as it is now, or one sentence names it."""

from __future__ import annotations

import pytest
import torch
from support.edits import CASES, NEW, PROMPT, SETTINGS, Wrapped, outcomes, own_text
from support.heads import random_head
from support.pairs import noisy
from support.tiny import BORDER, tiny
from torch.nn.utils import prune

from speclab import (
    Autoregressive,
    ChangedModelError,
    DraftHead,
    ExactnessError,
    LinearSpeculation,
    Session,
    SpeclabError,
    generate,
    load_pair,
)
from speclab.models.lean import LeanForward
from speclab.models.runner import Runner
from speclab.pair import ModelPair


@pytest.mark.wide
@pytest.mark.parametrize(("name", "family"), CASES)
def test_no_text_is_the_old_models_or_a_mixture(name, family):
    now = "UnsupportedModelError" if name == "offloaded" else "right"
    got = outcomes(name, family)
    assert {got.pop("new text"), got.pop("fork")} == {now}
    if name.startswith("row"):  # a step may not see it
        del got["step"], got["later step"]
    assert set(got.values()) == {"ChangedModelError"}


@pytest.mark.parametrize("role", ["draft", "heads"])
def test_an_edited_draft_ends_an_open_session_and_drafts_the_next_text(role):
    target = tiny("llama")
    model = random_head(target) if role == "heads" else noisy(target, 0.1)
    strategy = DraftHead() if role == "heads" else LinearSpeculation()

    def tree(pair):
        return Session(pair, strategy, PROMPT, **SETTINGS).step().tree.token.tolist()

    pair = load_pair(target=target, **{role: model})
    before = tree(pair)
    session = Session(pair, strategy, PROMPT, **SETTINGS)
    with torch.no_grad():
        for weight in model.parameters():
            weight.neg_()
    with pytest.raises(ChangedModelError):
        session.step()
    assert before != tree(pair) == tree(load_pair(target=target, **{role: model}))


def test_a_patched_function_of_the_library_is_seen(monkeypatch):
    pair = load_pair(target=tiny("llama"))
    session = Session(pair, Autoregressive(), PROMPT, **SETTINGS)
    module = type(pair.target.model).__module__
    monkeypatch.setattr(f"{module}.rotate_half", torch.neg)
    with pytest.raises(ChangedModelError):
        session.step()
    assert generate(pair, Autoregressive(), PROMPT, **SETTINGS).token_ids == own_text(
        pair.target.model
    )


def _recording(model):
    model.model.layers[1].mlp = Wrapped(model.model.layers[1].mlp)


DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
QUIET = {
    "parts that count": ("llama", {}, _recording),
    "pruned": (
        "llama",
        {},
        lambda model: prune.l1_unstructured(model.lm_head, "weight", 0.2),
    ),
    "longrope": ("phi3", {}, None),
    "dynamic": ("llama", {"rope_parameters": DYNAMIC, "max_position_embeddings": 64}, None),
    "lean": ("llama", {}, None),
}


@pytest.mark.parametrize("name", QUIET)
def test_what_passes_and_the_library_write_is_no_edit(name, tmp_path):
    family, overrides, edit = QUIET[name]
    model = tiny(family, **overrides)
    if edit:
        edit(model)
    pair = load_pair(target=model)
    prompt = (PROMPT * 3)[: BORDER - NEW]
    session = Session(pair, Autoregressive(), prompt, **SETTINGS)
    session.step()
    model(torch.tensor([PROMPT]), output_hidden_states=True)
    own_text(model, PROMPT * 6)
    model.save_pretrained(tmp_path)
    fork = session.fork()
    assert fork.pair.target.lean is pair.target.lean
    assert fork.pair.target.calls <= 1
    session.run()
    assert session.token_ids == own_text(model, prompt)


def test_a_hook_sees_the_passes_of_the_text_alone():
    pair = load_pair(target=tiny("llama"))
    seen = []
    hook = pair.target.model.lm_head.register_forward_hook(lambda *_: seen.append(1))
    generate(pair, Autoregressive(), PROMPT, **SETTINGS)
    assert len(seen) == NEW
    hook.remove()
    assert pair.fresh().target.lean is pair.target.lean is not None


def test_another_vocabulary_is_one_sentence():
    pair = load_pair(target=tiny("llama"))
    pair.target.model.resize_token_embeddings(80)
    with pytest.raises(
        SpeclabError, match="has changed from 64 to 80 token ids: load the pair again"
    ):
        generate(pair, Autoregressive(), PROMPT, **SETTINGS)


def test_training_mode_ends_at_the_next_text():
    model = tiny("gpt_neox", hidden_dropout=0.5, attention_dropout=0.5)
    pair = ModelPair(Runner(model, lean=False))
    want = own_text(model)
    model.train()
    assert generate(pair, Autoregressive(), PROMPT, **SETTINGS).token_ids == want
    assert not any(part.training for part in model.modules())


def test_a_check_compares_with_the_module_and_not_with_the_lean_pass(monkeypatch):
    pair = load_pair(target=tiny("llama"))
    own = LeanForward.__call__

    def negated(self, *args, **options):
        logits, states = own(self, *args, **options)
        return -logits, states

    monkeypatch.setattr(LeanForward, "__call__", negated)
    with pytest.raises(ExactnessError):
        generate(pair, Autoregressive(), PROMPT, check=True, **SETTINGS)


def test_one_value_that_steps_do_not_sample_is_seen_by_a_check_and_a_new_text():
    model = tiny("llama")
    pair = load_pair(target=model)
    session = Session(pair, Autoregressive(), PROMPT, check=True, **SETTINGS)
    session.step()
    weight = model.model.layers[0].mlp.down_proj.weight
    weight.detach().numpy().reshape(-1)[1] += 1.0  # torch does not see this
    with pytest.raises(ChangedModelError):
        session.step()
    assert generate(pair, Autoregressive(), PROMPT, **SETTINGS).token_ids == own_text(model)
