"""Loading from folders and the hub: what is found, what is refused in one sentence, how much memory it takes."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
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

import speclab
from speclab.errors import (
    CancelledError,
    ModelNotFoundError,
    OfflineError,
    OutOfMemoryError,
    SettingsError,
    SpeclabError,
    TokenizerMismatchError,
    UnsupportedModelError,
)
from speclab.files import byte_count
from speclab.models import checkpoint, loading, memory
from speclab.models.checkpoint import locate
from speclab.models.loading import Estimate, Loader, estimate, parse_device, parse_dtype
from speclab.models.pair import TokenTexts, compare, load_pair
from speclab.models.presets import PRESETS, find

pytestmark = pytest.mark.model


@pytest.fixture
def folder(tmp_path) -> Path:
    tiny("llama").save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


@pytest.fixture
def empty_cache(monkeypatch) -> None:
    monkeypatch.setattr(checkpoint, "try_to_load_from_cache", lambda *_: None)


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
    assert text.isprintable()
    assert text.endswith(".")
    assert len(text) <= 500
    return text


def hub(monkeypatch, files: list[str], kinds: dict[str, int] | None = None) -> None:
    """A hub that knows every model, with these files and these parameters."""
    counts = SimpleNamespace(total=sum(kinds.values()), parameters=kinds) if kinds else None
    info = SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in files], safetensors=counts)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: info)


# Folders


def test_a_folder_is_loaded_as_it_was_saved(folder):
    loaded = load_pair(target=folder, draft=str(folder))
    assert loaded.tokenizer is None
    assert torch.equal(loaded.target.extend([1, 2, 3]), loaded.draft.extend([1, 2, 3]))
    with torch.inference_mode():
        want = tiny("llama")(torch.tensor([[1, 2, 3]])).logits[0, -1]
    torch.testing.assert_close(loaded.fresh().target.extend([1, 2, 3]), want)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_happens_to_a_file_after_loading_does_not_reach_the_model(folder, dtype):
    tiny("llama").to(getattr(torch, dtype)).save_pretrained(folder)
    loaded = load_pair(target=folder, dtype=dtype).target.model
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(4096)
        file.write(bytes((folder / "model.safetensors").stat().st_size - 4096))
    want = tiny("llama").to(getattr(torch, dtype)).state_dict()
    assert all(torch.equal(weights, want[name]) for name, weights in loaded.state_dict().items())


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


NAMES = ["./nowhere", "/no/such/folder", "../up", "~/nowhere/at/all", "a/b/c", "sp ace"]
STRAY = ["a\0b", "7" * 5000, "x/" * 3000, "a" * 97, "..", "a--b", "\ud800"]


@pytest.mark.parametrize("name", [*NAMES, *STRAY], ids=lambda name: ascii(name)[:12])
def test_a_name_that_can_be_no_model_is_not_asked_from_the_hub(name, monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoint, "HfApi", lambda: pytest.fail("asked the hub"))
    monkeypatch.chdir(tmp_path)  # or ".." would be whatever lies above
    if name in NAMES:
        assert "There is no folder" in refusal(ModelNotFoundError, target=name)
        return
    for part in ("target", "heads", "tokenizer"):
        with pytest.raises(SpeclabError) as caught:
            load_pair(**{"target": tiny("llama")} | {part: name})
        assert len(str(caught.value)) <= 500
        assert str(caught.value).isprintable()


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


def _cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


INDEX = "model.safetensors.index.json"
DAMAGES = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "no config.json"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
    "a header of 2^64-1 bytes": (_written("model.safetensors", b"\xff" * 8 + b"{}"), "model.safetensors"),
    "a file cut short": (_cut, "model.safetensors"),
    "a tensor without shape": (_header(lambda header: header["model.norm.weight"].pop("shape") and None), "shape"),
    "a shape below zero": (_header(lambda header: header["model.norm.weight"].update(shape=[-32])), "-32"),
    "a tensor that is missing": (_config(num_hidden_layers=3), "lack model.layers.2"),
    "an index that is empty": (_written(INDEX, b"{}"), INDEX),
    "an index that is no JSON": (_written(INDEX, b"{"), INDEX),
    "an index that leads out": (_written(INDEX, b'{"weight_map": {"a": "../other/model.safetensors"}}'), INDEX),
    "an index of a missing file": (_written(INDEX, b'{"weight_map": {"a": "model-9.safetensors"}}'), "model-9"),
    "a config that is no JSON": (_written("config.json", b"\0"), "config.json"),
    "a family that is not known": (_config(model_type="unheard_of"), "does not load"),
    "a size of text": (_config(hidden_size="x"), "hidden_size"),
    "a size that is huge": (_config(hidden_size=10**9), "does not load"),
    "layers without end": (_config(num_hidden_layers=10**9), "1000000000 layers"),
    "a tokenizer that is no JSON": (_written("tokenizer.json", b"{"), "tokenizer"),
}


@pytest.mark.parametrize(("damage", "part"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_one_sentence_that_names_what_is_wrong(folder, damage, part):
    damage(folder)
    assert part in refusal(SpeclabError, target=folder)


def test_a_tied_head_is_not_missing(folder):
    tiny("llama", tie_word_embeddings=True).save_pretrained(folder)
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


def test_code_in_a_checkpoint_is_not_run_unasked(folder):
    _config(model_type="own", auto_map={"AutoConfig": "code.Own", "AutoModelForCausalLM": "code.OwnModel"})(folder)
    (folder / "code.py").write_text("raise AssertionError('this code ran')")
    assert "trust_remote_code=True" in refusal(UnsupportedModelError, target=folder)


# Memory


def test_memory_of_both_models_counts_before_either_is_loaded_and_is_what_was_estimated(folder, monkeypatch):
    tiny("llama", seed=1).save_pretrained(folder.parent / "draft")
    both = {"target": folder, "draft": folder.parent / "draft"}
    found = estimate(**both)
    assert found.sizes["target"] == memory.needed(tiny("llama").num_parameters(), 4)
    assert estimate(**both, dtype="bfloat16").needed == pytest.approx(found.needed / 2, abs=1)
    monkeypatch.setattr(memory, "free", lambda device: found.needed)
    heard: list[str] = []
    load_pair(**both, report=heard.append)
    end = "/".join(folder.parts[-2:])
    assert heard[0] == f"Loading {end}, about {byte_count(found.sizes['target'])}…"
    assert heard[2] == f"Checking that {end} verifies trees…"
    monkeypatch.setattr(memory, "free", lambda device: found.needed - 1)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("loaded"))
    assert "choose smaller models" in refusal(OutOfMemoryError, **both)


def test_memory_is_the_least_that_machine_and_container_leave(monkeypatch, tmp_path):
    cpu = torch.device("cpu")
    for name, text in {"memory.max": "1000000", "memory.current": "400000", "memory.stat": "inactive_file 5\n"}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.free(cpu) == 600005
    assert memory.usage(cpu).endswith("585.9 KiB free")
    (tmp_path / "memory.max").write_text("max")
    assert memory.free(cpu) > 1 << 20
    memory.require({"anything": 1 << 60}, torch.device("meta"))  # a machine that does not say is not refused


def test_running_out_while_loading_is_one_sentence(folder, monkeypatch):
    def scarce(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", scarce)
    assert "does not fit in memory" in refusal(OutOfMemoryError, target=folder)


def test_presets_are_estimated_without_asking_the_hub(empty_cache, monkeypatch):
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: pytest.fail("asked the hub"))
    for name, preset in PRESETS.items():
        found = estimate(name, dtype="float32", device="cpu")
        assert ("draft" in found.sizes) == (preset.draft is not None)
        models = found.sizes["target"] + found.sizes.get("draft", 0)
        assert models == pytest.approx(preset.weight_bytes("float32") * memory.HEADROOM, rel=0.01)
        here = Path(preset.target).is_dir()
        assert found.download == (0 if here else preset.download or preset.weight_bytes(preset.stored))
        assert ("heads" in found.sizes) == bool(preset.heads)


def test_what_was_not_fetched_is_estimated_and_its_way_in_is_said(tmp_path, monkeypatch):
    nowhere = replace(PRESETS["smollm2"], target=str(tmp_path / "none"), heads=())
    monkeypatch.setitem(PRESETS, "smollm2", nowhere)
    assert estimate("smollm2", dtype="float32").download == nowhere.download
    assert "speclab fetch smollm2" in refusal(ModelNotFoundError, name="smollm2")
    assert "smollm2" in refusal(SettingsError, name="mini", source="hub")
    assert "no source 'disk'" in refusal(SettingsError, name="smollm2", source="disk")


def test_a_preset_from_the_hub_is_its_original(folder, monkeypatch):
    monkeypatch.setitem(PRESETS, "smollm2", replace(PRESETS["smollm2"], target="/gone", hub=str(folder), heads=()))
    assert load_pair("smollm2", source="hub").target.name.endswith("/llama")


def test_on_a_gpu_the_published_precision_counts(empty_cache, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (20 << 30, 24 << 30))
    found = estimate("pythia-2.8b")
    assert found.device.type == "cuda"
    assert found.free == 20 << 30
    assert found.needed == pytest.approx(find("pythia-2.8b").weight_bytes("float16") * memory.HEADROOM, rel=1e-6)
    assert "on cuda in the checkpoint's precision" in str(found)
    assert memory.usage(found.device) == "cuda: 4.0 GiB of 24.0 GiB in use"


def test_what_the_files_do_not_say_is_said_to_be_unknown():
    cpu = torch.device("cpu")
    assert "size of draft is not known" in str(Estimate({"target": 1 << 30, "draft": None}, cpu, "float32", 2 << 30))
    alone = Estimate({"target": None}, cpu, "float32", None)
    assert alone.fits
    assert str(alone) == (
        "Memory: unknown on cpu in float32; how much is free is not known. The size of target is not known."
    )


def test_what_cannot_be_loaded_cannot_be_estimated(tmp_path, empty_cache, monkeypatch):
    def unreachable(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", unreachable)
    for error, given in (
        (OfflineError, {"target": "some/model"}),
        (ModelNotFoundError, {"target": tmp_path}),
        (ModelNotFoundError, {"name": "nothing"}),
        (ModelNotFoundError, {"heads": [tmp_path / "none"]}),
        (SettingsError, {"device": "cuda:9"}),
        (SettingsError, {"dtype": "int3"}),
    ):
        with pytest.raises(error):
            estimate(**given)


# The hub


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


@pytest.mark.parametrize("offline", [True, False])
def test_a_draft_or_head_that_is_not_here_is_offline_wherever_it_is_asked_for(monkeypatch, offline):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
    no_network(monkeypatch)
    pair = speclab.load_pair()
    inside = speclab.custom_generate(speclab.DynaTree(), draft="some/draft")
    for ask in (
        lambda: speclab.load_pair(heads="some/draft"),
        lambda: pair.target.model.generate(torch.tensor([[5, 6]]), max_new_tokens=2, custom_generate=inside),
    ):
        with pytest.raises(OfflineError, match=r"^some/draft is not on this machine .* HF_HUB_OFFLINE\.$"):
            ask()


def test_what_the_hub_refuses_is_explained(monkeypatch):
    unknown = RepositoryNotFoundError("404", response=SimpleNamespace(headers={}, request=None, status_code=404))
    asked = no_network(monkeypatch)
    for raised, error, part in (
        (OfflineModeIsEnabled("offline mode is enabled"), OfflineError, "HF_HUB_OFFLINE"),
        (unknown, ModelNotFoundError, "check its name"),
    ):

        def refuse(*_, error=raised, **__):
            raise error

        monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
        assert part in refusal(error, target="some/model")
    assert not asked


def test_too_large_a_model_is_refused_before_its_download(empty_cache, monkeypatch):
    hub(monkeypatch, ["config.json", "model.safetensors"], {"BF16": 3_000_000_000, "F32": 1_000_000_000})
    monkeypatch.setattr(memory, "free", lambda device: 8 << 30)
    assert (locate("some/model").parameters, locate("some/model").item_bytes) == (4_000_000_000, 2.5)
    found = estimate(target="some/model")  # 4e9 in float32, and a fifth more
    assert not found.fits
    assert str(found) == (
        "Too large: needs about 17.9 GiB on cpu in float32 (target 17.9 GiB), and 8.0 GiB are free. "
        "About 9.3 GiB are downloaded first. Choose smaller models, half precision, or another device."
    )
    assert estimate(target="some/model", dtype="bfloat16").needed == 9_600_000_000
    monkeypatch.setattr(Loader, "tokenizer", lambda *_: None)
    monkeypatch.setattr(Loader, "_config", lambda self, place: tiny("llama").config)
    monkeypatch.setattr(loading, "fetch", lambda *_: pytest.fail("downloaded"))
    with pytest.raises(OutOfMemoryError, match=r"some/model \(17.9 GiB\)"):
        load_pair(target="some/model", report=lambda _: None)


def test_a_pickled_model_on_the_hub_is_refused_before_it_is_downloaded(monkeypatch):
    hub(monkeypatch, ["config.json", "pytorch_model.bin"])
    with pytest.raises(ModelNotFoundError, match="allow_pickle"):
        Loader().models(["some/model"])


def test_a_model_in_the_hubs_cache_needs_no_network_unless_it_is_half_there(folder, monkeypatch):
    asked = no_network(monkeypatch)
    monkeypatch.setattr(checkpoint, "try_to_load_from_cache", lambda name, file: str(folder / file))
    assert load_pair(target="some/model").target.extend([1]).shape == (64,)
    assert not asked
    tiny("llama", num_hidden_layers=4).save_pretrained(folder, max_shard_size="60KB")
    next(folder.glob("model-00002*")).unlink()
    hub(monkeypatch, ["model.safetensors"], {"F32": 5})
    assert not locate("some/model").local


def test_what_the_report_raises_ends_the_load(folder, monkeypatch):
    def enough(_: str) -> None:
        raise CancelledError("enough")

    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(CancelledError):
        load_pair(target=folder, report=enough)
    assert not load_pair.__globals__["_ONE_AT_A_TIME"].locked()


def test_a_download_tells_its_bytes_draws_no_bar_and_ends_when_nobody_waits_for_it(monkeypatch, capsys):
    def snapshot(name: str, *, tqdm_class, **_) -> str:
        """A hub whose files come in two pieces, of 4 GiB in all."""
        files = tqdm_class(total=3, unit="it")
        bar = tqdm_class(total=0, unit="B", desc="Downloading")
        bar.total += 4 << 30
        bar.refresh()
        for update in (100 << 20, 2 << 30):
            bar.update(update)
        files.update(1)
        bar.set_description("done")
        return f"cache/{name}"

    monkeypatch.setattr(loading, "snapshot_download", snapshot)
    heard: list[str] = []
    assert loading.fetch("some/model", heard.append) == Path("cache/some/model")
    assert heard == ["Downloading some/model: 100.0 MiB of 4.0 GiB…", "Downloading some/model: 2.1 GiB of 4.0 GiB…"]
    assert capsys.readouterr() == ("", "")

    def stop(sentence: str) -> None:
        heard.append(sentence)
        raise CancelledError("enough")

    with pytest.raises(CancelledError):
        loading.fetch("some/model", stop)
    assert len(heard) == 3


# Tokenizers, devices, dtypes


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
    compare(words(), words())


def test_texts_of_sentencepiece_tokens():
    core = Tokenizer(WordLevel({"<unk>": 0, "▁the": 1, "<0x0A>": 2, "<0xE2>": 3, "é": 4}, unk_token="<unk>"))
    texts = TokenTexts(PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>"))
    assert list(texts(range(6)).values()) == ["<unk>", " the", "\n", "<0xE2>", "é", "#5"]


def test_devices_and_dtypes_by_name():
    for device in ("meta", "x" * 5000, 1.5, "cuda:99999999999999999999"):
        with pytest.raises(SettingsError, match="There is no device") as caught:
            parse_device(device)
        assert len(str(caught.value)) <= 500
    assert parse_device(None) is None
    assert parse_device("cpu") == torch.device("cpu")
    assert parse_dtype("float16") == parse_dtype(torch.float16) == torch.float16
    assert parse_dtype(None) is None
