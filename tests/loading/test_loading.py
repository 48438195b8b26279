"""Loading from folders and the hub: what is found, what is refused in one sentence."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path

import huggingface_hub
import pytest
import torch
from support.interrupts import at_line
from support.processes import python
from support.tiny import tiny
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from speclab.errors import (
    OfflineError,
    OutOfMemoryError,
    SpeclabError,
    TokenizerMismatchError,
    UnsupportedModelError,
)
from speclab.loading import loader
from speclab.loading.loader import shown_name
from speclab.loading.tokens import TokenTexts, compare
from speclab.pair import load_pair


@pytest.fixture
def folder(tmp_path) -> Path:
    tiny("llama").save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


def words(*added: str, drop: int = 0, **special: str) -> PreTrainedTokenizerFast:
    """A small tokenizer of whole words; `drop` leaves out words, so that ids move."""
    plain = [
        "The",
        "quick",
        "brown",
        "fox",
        "jumps",
        "over",
        "the",
        "lazy",
        "dog",
        "def",
        "area",
        "return",
    ]
    known = ["<unk>", "<s>", "</s>", *plain[drop:]]
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(known)}, unk_token="<unk>"))
    core.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, **{"eos_token": "</s>", "unk_token": "<unk>"} | special
    )
    tokenizer.add_tokens(list(added), special_tokens=True)
    return tokenizer


def refusal(error: type[SpeclabError], **given) -> str:
    with pytest.raises(error) as caught:
        load_pair(**given)
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) <= 500
    return text


def test_a_folder_is_loaded_as_it_was_saved(folder):
    loaded = load_pair(target=folder, draft=str(folder))
    assert loaded.tokenizer is None
    assert torch.equal(loaded.target.extend([1, 2, 3]), loaded.draft.extend([1, 2, 3]))
    with torch.inference_mode():
        want = tiny("llama")(torch.tensor([[1, 2, 3]])).logits[0, -1]
    torch.testing.assert_close(loaded.fresh().target.extend([1, 2, 3]), want)


def test_a_file_that_changes_after_the_load_does_not_reach_the_model(folder):
    loaded = load_pair(target=folder).target.model
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(4096)
        file.write(bytes((folder / "model.safetensors").stat().st_size - 4096))
    want = tiny("llama").state_dict()
    assert all(torch.equal(weights, want[name]) for name, weights in loaded.state_dict().items())


def _written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def _cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def _config(**values):
    def damage(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | values))

    return damage


def _adapter(folder):
    (folder / "config.json").unlink()
    (folder / "adapter_config.json").write_text("{}")


def _nothing(_):
    pass


REFUSED = [
    *[
        (_nothing, name, "")
        for name in ("./nowhere", "~/no/where", "a/b/c", "sp ace", "a\0b", "7" * 5000)
    ],
    (_nothing, "some/model", "some/model"),
    (lambda folder: (folder / "model.safetensors").unlink(), None, "model.safetensors"),
    (_written("model.safetensors", b"\xff" * 8 + b"{}"), None, "header too large"),
    (_cut, None, "not fully covered"),
    (_config(num_hidden_layers=3), None, "lack model.layers.2"),
    (_config(model_type="unheard_of"), None, "unheard_of"),
    (_config(quantization_config={"quant_method": "gptq", "bits": 4}), None, "pip install optimum"),
    (_adapter, None, "get_base_model"),
    (_written("tokenizer.json", b"{"), None, "tokenizer"),
]


@pytest.mark.parametrize(("damage", "name", "part"), REFUSED)
def test_what_is_not_there_or_damaged_is_one_sentence_with_the_librarys_way_out(
    folder, monkeypatch, damage, name, part
):
    no_network(monkeypatch)
    damage(folder)
    assert part in refusal(SpeclabError, target=name or folder)
    if name:
        for role in ("heads", "tokenizer"):
            refusal(SpeclabError, **{"target": tiny("llama"), role: name})


def no_network(monkeypatch) -> list[str]:
    asked = []

    def lookup(host, *_, **__):
        asked.append(host)
        raise socket.gaierror("no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return asked


def test_a_module_without_weights_is_refused():
    model = tiny("llama")
    model.get_submodule("model.layers.1").to("meta")
    assert "no weights" in refusal(UnsupportedModelError, target=model)


def test_without_a_network_a_hub_id_fails_after_one_attempt(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    asked = no_network(monkeypatch)
    for role in ("target", "heads"):
        given = {"target": tiny("llama")} | {role: "some/model"}
        assert "some/model" in refusal(OfflineError, **given)
    assert len(asked) <= 4


def test_a_hub_that_takes_a_call_and_never_answers_is_said(tmp_path):
    """As behind a firewall that drops what it does not know."""
    code = """if True:
        import socket
        silent = socket.socket()
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        import os
        os.environ["HF_ENDPOINT"] = "http://127.0.0.1:%d" % silent.getsockname()[1]
        from speclab import OfflineError, load_pair
        from speclab.loading import loader
        loader.PATIENCE = 1
        try:
            load_pair(target="some/model")
        except OfflineError as error:
            print(error)
    """
    assert "some/model" in python("-c", code, HF_HOME=str(tmp_path), HF_HUB_OFFLINE="0")


def test_a_model_that_does_not_fit_in_memory_is_named(folder, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", full)
    assert folder.name in refusal(OutOfMemoryError, target=folder)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (words(drop=1), "'quick' is 4 in one and 3 in the other"),
        (words("<tool>", "<call>"), "'<call>' is 15 in one and 16 in the other"),
    ],
)
def test_tokenizers_that_differ_are_refused(tmp_path, other, reason):
    for name, tokenizer in (("target", words("<call>")), ("draft", other)):
        tiny("llama").save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    text = refusal(TokenizerMismatchError, target=tmp_path / "target", draft=tmp_path / "draft")
    assert reason in text
    assert "pass tokenizer=" in text
    both = load_pair(
        target=tmp_path / "target", draft=tmp_path / "draft", tokenizer=tmp_path / "target"
    )
    assert both.encode("quick fox") == [4, 6]
    compare(words(), words("<only here>", eos_token="<s>"))


def test_tokenizers_that_share_no_text_load_with_a_warning(tmp_path):
    other = Tokenizer(WordLevel({"<other>": 0, "le": 1, "chat": 2}, unk_token="<other>"))
    tokenizers = {"target": words(), "draft": PreTrainedTokenizerFast(tokenizer_object=other)}
    for name, tokenizer in tokenizers.items():
        tiny("llama").save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    with pytest.warns(UserWarning, match="share no token text"):
        pair = load_pair(target=tmp_path / "target", draft=tmp_path / "draft")
    assert "every token" in pair.describe()["draft_lacks"]
    alike = load_pair(target=tmp_path / "target", draft=tmp_path / "target")
    assert "draft_lacks" not in alike.describe()


def test_a_record_names_a_model_by_the_last_part_of_its_path(folder):
    """Wherever the folder is, or was; a hub id has two parts, and shipped models keep theirs."""
    assert load_pair(target=folder).describe()["target"] == "llama"
    model = tiny("llama")
    for name, shown in {
        "/mnt/alice/gone/target": "target",
        "C:\\Users\\alice\\target": "target",
        "org/model": "org/model",
    }.items():
        model.config.name_or_path = name
        assert shown_name(model) == shown
    assert load_pair("mini").describe()["target"] == "mini/target"


def test_texts_of_tokens_are_right_after_they_were_stopped_at_any_line():
    tokenizer = words()
    whole = TokenTexts(tokenizer)(range(6))

    def stopped(number):
        texts = TokenTexts(tokenizer)
        with (
            suppress(KeyboardInterrupt),
            at_line("loading/tokens")(number, KeyboardInterrupt()) as seen,
        ):
            texts(range(6))
        assert texts(range(6)) == whole
        return len(seen)

    lines = stopped(0)
    assert lines > 20
    assert [stopped(number) for number in range(1, lines + 1)] == [*range(1, lines + 1)]


def test_texts_of_sentencepiece_tokens():
    core = Tokenizer(
        WordLevel({"<unk>": 0, "▁the": 1, "<0x0A>": 2, "<0xE2>": 3, "é": 4}, unk_token="<unk>")
    )
    texts = TokenTexts(PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>"))
    assert list(texts(range(6)).values()) == ["<unk>", " the", "\n", "<0xE2>", "é", "#5"]


def test_a_gpu_that_torch_cannot_use_leaves_the_cpu_with_one_warning(monkeypatch):
    """As a card does for which this build of torch has no kernels."""

    def to(tensor, *where, real=torch.Tensor.to, **options):
        if "cuda" in str(where) + str(options):
            raise RuntimeError("CUDA error: no kernel image is available\nand more lines")
        return real(tensor, *where, **options)

    loader._gpu_works.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "to", to)
    try:
        with pytest.warns(UserWarning, match=r'no kernel image.*device="cpu"') as warned:
            pairs = [load_pair("mini"), load_pair("mini")]
    finally:
        loader._gpu_works.cache_clear()
    assert len(warned) == 1
    assert {pair.target.device.type for pair in pairs} == {"cpu"}
