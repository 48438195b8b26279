"""Loading from folders and the hub: what is found, what is refused, and that both happen fast and in one sentence."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError
from tiny import tiny
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from speclab.errors import (
    ModelNotFoundError,
    OfflineError,
    OutOfMemoryError,
    SettingsError,
    SpeclabError,
    TokenizerMismatchError,
    UnsupportedModelError,
)
from speclab.models import checkpoint, memory
from speclab.models.checkpoint import locate
from speclab.models.loading import Loader, parse_device, parse_dtype
from speclab.models.pair import TokenTexts, compare, load_pair

pytestmark = pytest.mark.model


@pytest.fixture
def folder(tmp_path) -> Path:
    tiny("llama").save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


def words(*added: str, drop: int = 0, **special: str) -> PreTrainedTokenizerFast:
    """A small tokenizer of whole words; `drop` leaves out words, so that ids move."""
    plain = ["The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "def", "area", "return"]
    known = ["<unk>", "<s>", "</s>", *plain[drop:]]
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(known)}, unk_token="<unk>"))
    core.pre_tokenizer = Whitespace()
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"} | special
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **names)
    tokenizer.add_tokens(list(added), special_tokens=True)
    return tokenizer


def refusal(error: type[SpeclabError], **given) -> str:
    with pytest.raises(error) as caught:
        load_pair(**given)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def test_a_folder_is_loaded_as_it_was_saved(folder):
    loaded = load_pair(target=folder, draft=str(folder))
    assert loaded.tokenizer is None
    assert torch.equal(loaded.target.extend([1, 2, 3]), loaded.draft.extend([1, 2, 3]))
    with torch.inference_mode():
        want = tiny("llama")(torch.tensor([[1, 2, 3]])).logits[0, -1]
    torch.testing.assert_close(loaded.fresh().target.extend([1, 2, 3]), want)


def test_half_precision_checkpoints_become_float32_on_cpu_unless_asked(tmp_path):
    tiny("llama").half().save_pretrained(tmp_path)
    assert load_pair(target=tmp_path).target.dtype == torch.float32
    assert load_pair(target=tmp_path, dtype="bfloat16").target.dtype == torch.bfloat16


@pytest.mark.parametrize("shards", [1, 3])
def test_parameters_are_counted_from_headers_alone(tmp_path, shards):
    model = tiny("llama", num_hidden_layers=4)
    model.save_pretrained(tmp_path, max_shard_size="1GB" if shards == 1 else "60KB")
    (tmp_path / "consolidated.safetensors").write_bytes(b"not read")
    assert len(list(tmp_path.glob("model*.safetensors"))) >= shards
    found = locate(tmp_path)
    assert (found.parameters, found.item_bytes) == (model.num_parameters(), 4)
    assert found.safetensors
    assert not found.pickled


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "../up", "~/nowhere/at/all", "a/b/c", "sp ace"])
def test_what_looks_like_a_path_is_not_asked_from_the_hub(name, monkeypatch):
    monkeypatch.setattr(checkpoint, "HfApi", lambda: pytest.fail("asked the hub"))
    assert "There is no folder" in refusal(ModelNotFoundError, target=name)


def test_a_folder_without_a_model(tmp_path):
    assert "no config.json" in refusal(ModelNotFoundError, target=tmp_path)


def test_a_folder_without_weights(folder):
    (folder / "model.safetensors").unlink()
    assert "has no weights" in refusal(ModelNotFoundError, target=folder)


def test_damaged_weights(folder):
    (folder / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0not json at all")
    assert "model.safetensors in" in refusal(ModelNotFoundError, target=folder)
    tiny("llama").save_pretrained(folder)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-100])
    assert "outside the file" in refusal(ModelNotFoundError, target=folder)


def _header(change):
    """Weights whose header is changed, the tensors behind it left as they are."""

    def damage(folder):
        whole = (folder / "model.safetensors").read_bytes()
        length = int.from_bytes(whole[:8], "little")
        header = json.loads(whole[8 : 8 + length])
        text = json.dumps(change(header) or header).encode()
        (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length :])

    return damage


def _written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def _config(**values):
    def damage(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | values))

    return damage


INDEX = "model.safetensors.index.json"
DAMAGES = {
    "a header of 2^64-1 bytes": (_written("model.safetensors", b"\xff" * 8 + b"{}"), "model.safetensors"),
    "a header of 40 GiB": (_written("model.safetensors", (40 << 30).to_bytes(8, "little")), "model.safetensors"),
    "no bytes": (_written("model.safetensors", b""), "model.safetensors"),
    "a header that is a list": (_header(lambda header: [1]), "model.safetensors"),
    "a header that is very deep": (_header(lambda header: "x"), "model.safetensors"),
    "a tensor without shape": (_header(lambda header: header["model.norm.weight"].pop("shape") and None), "tensors"),
    "a shape of text": (_header(lambda header: header["model.norm.weight"].update(shape="ab")), "tensors"),
    "a shape below zero": (_header(lambda header: header["model.norm.weight"].update(shape=[-32])), "tensors"),
    "a tensor that is missing": (_config(num_hidden_layers=3), "lack model.layers.2"),
    "an index that is empty": (_written(INDEX, b"{}"), INDEX),
    "an index that is a list": (_written(INDEX, b"[]"), INDEX),
    "an index that is no JSON": (_written(INDEX, b"{"), INDEX),
    "an index that leads out": (_written(INDEX, b'{"weight_map": {"a": "../other/model.safetensors"}}'), INDEX),
    "an index of numbers": (_written(INDEX, b'{"weight_map": {"a": 3}}'), INDEX),
    "an index of a missing file": (_written(INDEX, b'{"weight_map": {"a": "model-9.safetensors"}}'), "model-9"),
    "a config that is a list": (_written("config.json", b"[]"), "config.json"),
    "a config that is no JSON": (_written("config.json", b"\0"), "config.json"),
    "a size of text": (_config(hidden_size="x"), "hidden_size"),
    "a size below zero": (_config(vocab_size=-1), "negative"),
    "a size that is huge": (_config(hidden_size=10**9), "does not load"),
    "layers without end": (_config(num_hidden_layers=10**9), "1000000000 layers"),
    "a tokenizer that is no JSON": (_written("tokenizer.json", b"{"), "tokenizer"),
    "a tokenizer that is a list": (_written("tokenizer.json", b"[]"), "tokenizer"),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_one_sentence_that_names_what_is_wrong(folder, damage, said):
    damage(folder)
    assert said in refusal(SpeclabError, target=folder)


@pytest.mark.parametrize("name", ["a\0b", "7" * 5000, "x/" * 3000, "a" * 97, "..", "a--b", "\ud800"], ids=ascii)
@pytest.mark.parametrize("part", ["target", "heads", "tokenizer"])
def test_a_name_that_can_be_no_model_is_not_asked_from_the_hub(part, name, monkeypatch):
    monkeypatch.setattr(checkpoint, "HfApi", lambda: pytest.fail("asked the hub"))
    given = {"target": tiny("llama")} | {part: name}
    with pytest.raises(SpeclabError) as caught:
        load_pair(**given)
    assert len(str(caught.value)) <= 500
    assert str(caught.value).isprintable()


def test_a_tied_head_is_not_missing(folder):
    model = tiny("llama", tie_word_embeddings=True)
    model.save_pretrained(folder)
    assert load_pair(target=folder).target.model.lm_head.weight is not None


def test_pickled_weights_are_loaded_only_if_allowed(folder):
    torch.save(tiny("llama").state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    text = refusal(ModelNotFoundError, target=folder)
    assert "can run code" in text
    assert "allow_pickle=True" in text
    assert load_pair(target=folder, allow_pickle=True).target.extend([1]).shape == (64,)


def test_unfit_families_are_refused_before_their_weights_are_read(tmp_path, monkeypatch):
    tiny("gpt_neo").save_pretrained(tmp_path)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("loaded"))
    assert "family gpt_neo" in refusal(UnsupportedModelError, target=tmp_path)


def test_a_family_the_library_does_not_know(folder):
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "unheard_of"}
    (folder / "config.json").write_text(json.dumps(config))
    assert "does not load" in refusal(UnsupportedModelError, target=folder)


def test_code_in_a_checkpoint_is_not_run_unasked(folder):
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "code.Own", "AutoModelForCausalLM": "code.OwnModel"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text("raise AssertionError('this code ran')")
    assert "trust_remote_code=True" in refusal(UnsupportedModelError, target=folder)


def test_memory_of_both_models_counts_before_either_is_loaded(folder, monkeypatch):
    need = 2 * memory.needed(tiny("llama").num_parameters(), 4)
    tiny("llama", seed=1).save_pretrained(folder.parent / "draft")
    both = {"target": folder, "draft": folder.parent / "draft"}
    monkeypatch.setattr(memory, "free", lambda device: need)
    load_pair(**both)
    monkeypatch.setattr(memory, "free", lambda device: need - 1)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("loaded"))
    assert "choose smaller models" in refusal(OutOfMemoryError, **both)


def test_memory_is_the_least_that_machine_and_container_leave(monkeypatch, tmp_path):
    assert memory.free(torch.device("cpu")) > 0
    for name, text in {"memory.max": "1000000", "memory.current": "400000", "memory.stat": "inactive_file 5\n"}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.free(torch.device("cpu")) == 600005
    (tmp_path / "memory.max").write_text("max")
    assert memory.free(torch.device("cpu")) == memory._machine()
    memory.require({"anything": 1 << 60}, torch.device("meta"))  # a machine that does not say is not refused


def test_running_out_while_loading_is_one_sentence(folder, monkeypatch):
    def scarce(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", scarce)
    assert "does not fit in memory" in refusal(OutOfMemoryError, target=folder)


def no_network(monkeypatch) -> list[str]:
    asked = []

    def lookup(host, *_, **__):
        asked.append(host)
        raise socket.gaierror("no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return asked


def test_without_a_network_a_hub_id_fails_after_one_attempt(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    asked = no_network(monkeypatch)
    text = refusal(OfflineError, target="some/model", draft="some/draft")
    assert text.startswith("some/model is not on this machine")
    assert "load_pair()" in text
    assert len(asked) <= 2


def test_offline_mode_is_obeyed(monkeypatch):
    asked = no_network(monkeypatch)

    def refuse(*_, **__):
        raise OfflineModeIsEnabled("offline mode is enabled")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    assert "HF_HUB_OFFLINE" in refusal(OfflineError, target="some/model")
    assert not asked


def hub(monkeypatch, files: list[str], kinds: dict[str, int] | None = None) -> None:
    """A hub that knows every model, with these files and these parameters."""
    counts = SimpleNamespace(total=sum(kinds.values()), parameters=kinds) if kinds else None
    info = SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in files], safetensors=counts)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: info)


def test_the_hub_says_how_large_a_model_is_before_it_is_downloaded(monkeypatch):
    hub(monkeypatch, ["config.json", "model.safetensors"], {"BF16": 3_000_000_000, "F32": 1_000_000_000})
    found = locate("some/model")
    assert (found.parameters, found.item_bytes, found.local) == (4_000_000_000, 2.5, False)
    monkeypatch.setattr(Loader, "_config", lambda self, place: tiny("llama").config)
    monkeypatch.setattr(memory, "free", lambda device: 8 << 30)
    with pytest.raises(OutOfMemoryError, match=r"some/model \(17.9 GiB\)"):  # 4e9 in float32, and a fifth more
        Loader().models(["some/model"])


def test_a_pickled_model_on_the_hub_is_refused_before_it_is_downloaded(monkeypatch):
    hub(monkeypatch, ["config.json", "pytorch_model.bin"])
    with pytest.raises(ModelNotFoundError, match="allow_pickle"):
        Loader().models(["some/model"])


def test_a_model_the_hub_does_not_know(monkeypatch):
    response = SimpleNamespace(headers={}, request=None, status_code=404)

    def unknown(*_, **__):
        raise RepositoryNotFoundError("404", response=response)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", unknown)
    assert "check its name" in refusal(ModelNotFoundError, target="some/model")


def test_a_model_in_the_hubs_cache_needs_no_network(folder, monkeypatch):
    asked = no_network(monkeypatch)
    monkeypatch.setattr(checkpoint, "try_to_load_from_cache", lambda name, file: str(folder / file))
    assert load_pair(target="some/model").target.extend([1]).shape == (64,)
    assert not asked


def test_a_half_downloaded_model_is_asked_from_the_hub(tmp_path, monkeypatch):
    tiny("llama", num_hidden_layers=4).save_pretrained(tmp_path, max_shard_size="60KB")
    next(tmp_path.glob("model-00002*")).unlink()
    monkeypatch.setattr(checkpoint, "try_to_load_from_cache", lambda name, file: str(tmp_path / file))
    hub(monkeypatch, ["model.safetensors"], {"F32": 5})
    assert not locate("some/model").local


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (words(drop=1), "split 'The quick brown fox jump"),
        (words(eos_token="<s>"), "eos ids are 2 and 1"),
        (words("<tool>", "<call>"), "<call> is 15 in one and 16 in the other"),
    ],
)
def test_tokenizers_that_differ_are_refused(tmp_path, other, reason):
    for name, tokenizer in (("target", words("<call>")), ("draft", other)):
        tiny("llama").save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    text = refusal(TokenizerMismatchError, target=tmp_path / "target", draft=tmp_path / "draft")
    assert reason in text
    assert "pass tokenizer=" in text
    both = load_pair(target=tmp_path / "target", draft=tmp_path / "draft", tokenizer=tmp_path / "target")
    assert both.encode("quick fox") == [4, 6]


def test_tokenizers_that_agree_are_accepted(tmp_path):
    for name in ("target", "draft"):
        tiny("llama").save_pretrained(tmp_path / name)
        words("<call>").save_pretrained(tmp_path / name)
    both = load_pair(target=tmp_path / "target", draft=tmp_path / "draft")
    assert len(both.tokenizer) == 16
    assert both.eos_ids == set()  # where a text ends, the generation_config says, and no tokenizer
    compare(words(), words())


def test_texts_of_sentencepiece_tokens():
    core = Tokenizer(WordLevel({"<unk>": 0, "▁the": 1, "<0x0A>": 2, "<0xE2>": 3, "é": 4}, unk_token="<unk>"))
    texts = TokenTexts(PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>"))
    assert [texts(token) for token in range(6)] == ["<unk>", " the", "\n", "<0xE2>", "é", "#5"]


@pytest.mark.parametrize(
    "device", ["meta", "x" * 5000, 1.5, "cuda:99999999999999999999"], ids=lambda name: str(name)[:9]
)
def test_a_device_that_cannot_decode(device):
    with pytest.raises(SettingsError, match="There is no device") as caught:
        parse_device(device)
    assert len(str(caught.value)) <= 500


def test_devices_and_dtypes_by_name():
    assert parse_device(None) is None
    assert parse_device("cpu") == torch.device("cpu")
    assert parse_dtype("float16") == parse_dtype(torch.float16) == torch.float16
    assert parse_dtype(None) is None
