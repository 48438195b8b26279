"""Models that cannot be had, each refused in one sentence, while the session of before goes on."""

from __future__ import annotations

from types import SimpleNamespace

import huggingface_hub
import pytest
from lab_tools import choose_own, click, said_of_memory
from tiny import tiny
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from speclab.lab import Lab
from speclab.models import memory
from speclab.models.presets import MINI_HEADS

pytestmark = pytest.mark.usefixtures("at_once")


def words(*added: str) -> PreTrainedTokenizerFast:
    known = {word: i for i, word in enumerate([*added, "<unk>", "The", "quick", "brown", "fox"])}
    core = Tokenizer(WordLevel(known, unk_token="<unk>"))
    core.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>")


def hub_raises(monkeypatch, error: Exception) -> None:
    def model_info(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)


def refused(lab: Lab, sentence: str) -> None:
    """Apply ends in the panel with one sentence, and so does Step; the session of before stays, and goes on."""
    session = lab.session
    assert lab.step() is None
    assert sentence in lab.state.error
    lab.status.dismiss()
    click(lab, lab.config.apply)
    assert sentence in lab.state.error
    assert len(lab.state.error.splitlines()) == 1
    assert lab.session is session
    assert lab.state.status.endswith("is not loaded: everything stays as it was.")
    lab.status.dismiss()
    lab.config.models.name.value = "given"
    assert lab.step() is not None


@pytest.fixture
def begun(make) -> Lab:
    lab = make(max_new_tokens=200)
    lab.step()
    return lab


def test_an_unknown_model_and_one_that_cannot_be_reached_are_refused(begun, monkeypatch):
    response = SimpleNamespace(headers={}, request=None, status_code=404)
    hub_raises(monkeypatch, huggingface_hub.errors.RepositoryNotFoundError("404", response=response))
    choose_own(begun, "some/model")
    refused(begun, "There is no model some/model here or on the hub")
    hub_raises(monkeypatch, ConnectionError("no route"))
    choose_own(begun, "some/model")
    refused(begun, "the model hub cannot be reached")


def test_too_large_a_model_is_refused_with_the_figures(begun, folder, monkeypatch):
    monkeypatch.setattr(memory, "free", lambda device: 1 << 10)
    choose_own(begun, folder)
    assert "Too large" in said_of_memory(begun)
    refused(begun, "and 1.0 KiB are free")


def test_an_unsupported_family_and_tokenizers_that_differ_are_refused(begun, tmp_path):
    tiny("bloom").save_pretrained(tmp_path / "bloom")
    choose_own(begun, tmp_path / "bloom")
    refused(begun, "cannot verify a draft tree")
    for name, added in (("a", ()), ("b", ("first",))):
        tiny("llama").save_pretrained(tmp_path / name)
        words(*added).save_pretrained(tmp_path / name)
    choose_own(begun, tmp_path / "a", tmp_path / "b")
    refused(begun, "The tokenizers of target and draft differ")


def test_heads_of_another_target_or_that_are_nowhere_are_refused(begun, folder, tmp_path):
    choose_own(begun, folder, folder, f"{MINI_HEADS / 'prose'}, {MINI_HEADS / 'code'}")
    assert "Draft heads: prose, code." in said_of_memory(begun)
    refused(begun, "was made for hidden states of width")
    choose_own(begun, folder, folder, str(tmp_path / "none"))
    assert "There is no folder" in said_of_memory(begun)
    refused(begun, "There is no folder")
