"""A checkpoint's own code never runs, even where standard input would agree to it."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path

import pytest
from support.tiny import tiny

from speclab.errors import UnsupportedModelError
from speclab.pair import load_pair

CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

Path(__file__).with_name("ran").touch()
Path({ran!r}).touch()


class Config(LlamaConfig):
    model_type = "evil"


class Model(LlamaForCausalLM):
    config_class = Config


class Tokenizer(PreTrainedTokenizerFast):
    pass
"""


@pytest.fixture
def ran(tmp_path, monkeypatch) -> Path:
    """A file that the code of a checkpoint would write; standard input says y to every question."""
    monkeypatch.setattr(sys, "stdin", StringIO("y\n" * 20))
    return tmp_path / "ran"


def checkpoint(folder: Path, ran: Path, *, model: bool = True, tokenizer: bool = False) -> Path:
    """A tiny Llama whose config, tokenizer or both are said to be classes in `evil.py`."""
    tiny("llama").save_pretrained(folder)
    (folder / "evil.py").write_text(CODE.format(ran=str(ran)))
    if model:
        mapped = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
        config = json.loads((folder / "config.json").read_text())
        config |= {"model_type": "evil", "auto_map": mapped}
        (folder / "config.json").write_text(json.dumps(config))
    if tokenizer:
        own_tokenizer(folder)
    return folder


def own_tokenizer(folder: Path) -> None:
    named = {
        "tokenizer_class": "Tokenizer",
        "auto_map": {"AutoTokenizer": [None, "evil.Tokenizer"]},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(named))


@pytest.mark.parametrize("part", ["target", "draft", "heads", "tokenizer"])
def test_it_is_refused_in_one_sentence_and_asks_nothing(tmp_path, ran, capfd, part):
    in_tokenizer = part == "tokenizer"
    folder = checkpoint(tmp_path / part, ran, model=not in_tokenizer, tokenizer=in_tokenizer)
    with pytest.raises(UnsupportedModelError) as caught:
        load_pair(**{"target": tiny("llama")} | {part: folder})
    assert "own code" in str(caught.value)
    assert str(caught.value).isprintable()
    assert not ran.exists()
    assert not (folder / "ran").exists()
    assert "[y/N]" not in capfd.readouterr().out
    assert sys.stdin.tell() == 0
