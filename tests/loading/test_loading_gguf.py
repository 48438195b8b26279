"""GGUF files of one's own: read as they were written, or refused in one sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import gguf
import pytest
from support.gguf_made import TOKENS, original, same_weights, write
from support.refusals import refused

import speclab
from speclab.errors import ModelNotFoundError, PromptError, SpeclabError, UnsupportedModelError
from speclab.loading import gguf as module
from speclab.pair import load_pair


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SPECLAB_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("own") / "tiny.gguf")


def test_a_file_is_the_model_that_was_written_with_its_tokenizer_and_template(whole):
    pair = load_pair(target=whole)
    assert same_weights(pair.target.model, original())
    assert pair.target.name == "tiny.gguf"
    assert pair.eos_ids == {1}
    tokens = [TOKENS[token] for token in pair.encode("the  12")]
    assert tokens == ["the", "ĠĠ", "1", "2"], (
        "digits stand alone, and the spaces before them together"
    )
    assert pair.decode(pair.encode("the  12")) == "the  12"
    asked = pair.tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert asked == "<s>user hi</s>"
    plain = speclab.generate(
        pair, speclab.Autoregressive(), "the", max_new_tokens=12, stop_at_eos=False
    )
    again = speclab.generate(pair, speclab.Goose(), "the", max_new_tokens=12, stop_at_eos=False)
    assert again.token_ids == plain.token_ids


def test_a_file_is_converted_once_with_reports(tmp_path, monkeypatch):
    file = write(tmp_path / "own.gguf")
    heard = list[str]()
    first = load_pair(target=file, report=heard.append)
    assert [sentence for sentence in heard if "Converting own.gguf" in sentence]
    with monkeypatch.context() as patch:
        patch.setattr(module, "convert", lambda *_: pytest.fail("converted again"))
        again = load_pair(target=file)
    assert same_weights(first.target.model, again.target.model)
    write(file, gguf.GGMLQuantizationType.Q8_0)
    assert not same_weights(first.target.model, load_pair(target=file).target.model), (
        "a changed file is another"
    )


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"family": "abacus"}, "architecture abacus is not supported"),
        ({"scaled": True}, "positions are scaled"),
        ({"parts": 3}, "one of 3 parts"),
    ],
)
def test_what_would_be_read_wrongly_is_refused(tmp_path, made, words):
    with refused(UnsupportedModelError, "odd.gguf", words):
        load_pair(target=write(tmp_path / "odd.gguf", **made))


def test_a_tokenizer_that_would_split_text_wrongly_is_left_out(tmp_path):
    pair = load_pair(target=write(tmp_path / "odd.gguf", splits="mystery"))
    with refused(PromptError, "no tokenizer", "pass tokenizer="):
        pair.encode("the")


def test_a_folder_of_several(whole, tmp_path):
    for name in ("a.gguf", "b.gguf"):
        shutil.copy(whole, tmp_path / name)
    with refused(ModelNotFoundError, "2 GGUF files", "a.gguf"):
        load_pair(target=tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1000],
        lambda data: b"PK" + data[2:],
        lambda data: data[:8] + bytes([255] * 16) + data[24:],
    ],
    ids=["weights cut", "other format", "endless"],
)
def test_a_damaged_file_is_one_sentence(whole, tmp_path, damage):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(damage(whole.read_bytes()))
    with refused(SpeclabError, "broken.gguf"):
        load_pair(target=broken)
