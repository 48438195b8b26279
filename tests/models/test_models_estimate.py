"""The memory that models would take, told before any is loaded, and how a load tells what it does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from tiny import tiny

from speclab.errors import CancelledError, ModelNotFoundError, OfflineError, OutOfMemoryError, SettingsError
from speclab.models import loading, memory
from speclab.models import loading as download
from speclab.models.loading import Estimate, estimate
from speclab.models.pair import load_pair
from speclab.models.presets import PRESETS, find

pytestmark = pytest.mark.model


@pytest.fixture
def folder(tmp_path) -> Path:
    tiny("llama").save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


@pytest.fixture
def empty_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("speclab.models.checkpoint.try_to_load_from_cache", lambda *_: None)


def hub(monkeypatch, parameters: dict[str, int]) -> None:
    counts = SimpleNamespace(total=sum(parameters.values()), parameters=parameters)
    info = SimpleNamespace(siblings=[SimpleNamespace(rfilename="model.safetensors")], safetensors=counts)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: info)


def test_the_estimate_is_what_the_loader_would_ask_for(folder, monkeypatch):
    found = estimate(target=folder, draft=folder)
    asked = []
    monkeypatch.setattr(memory, "require", lambda sizes, device: asked.append(sizes))
    load_pair(target=folder)
    assert asked == [{str(folder): found.sizes["target"]}]
    assert found.needed == 2 * found.sizes["target"]
    assert found.sizes["target"] == memory.needed(tiny("llama").num_parameters(), 4)


def test_half_precision_takes_half(folder):
    assert estimate(target=folder, dtype="bfloat16").needed == pytest.approx(estimate(target=folder).needed / 2, abs=1)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_estimated_without_asking_the_hub(name, empty_cache, monkeypatch):
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: pytest.fail("asked the hub"))
    found, preset = estimate(name, dtype="float32", device="cpu"), find(name)
    assert ("draft" in found.sizes) == (preset.draft is not None)
    models = found.sizes["target"] + found.sizes.get("draft", 0)
    assert models == pytest.approx(preset.weight_bytes("float32") * memory.HEADROOM, rel=0.01)
    assert found.download == (0 if name == "mini" else preset.weight_bytes(preset.stored))
    assert ("heads" in found.sizes) == bool(preset.heads)


def test_on_a_gpu_the_published_precision_counts(empty_cache, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (20 << 30, 24 << 30))
    found = estimate("pythia-2.8b")
    assert found.device.type == "cuda"
    assert found.free == 20 << 30
    assert found.needed == pytest.approx(find("pythia-2.8b").weight_bytes("float16") * memory.HEADROOM, rel=1e-6)
    assert "on cuda in the checkpoint's precision" in str(found)
    assert memory.usage(found.device) == "cuda: 4.0 GiB of 24.0 GiB in use"


def test_a_hub_id_is_estimated_from_what_the_hub_says(empty_cache, monkeypatch):
    hub(monkeypatch, {"BF16": 4_000_000_000})
    monkeypatch.setattr(memory, "free", lambda device: 8 << 30)
    found = estimate(target="some/model")
    assert not found.fits
    assert str(found) == (
        "Too large: needs about 17.9 GiB on cpu in float32 (target 17.9 GiB), and 8.0 GiB are free. "
        "About 7.5 GiB are downloaded first. Choose smaller models, half precision, or another device."
    )
    assert estimate(target="some/model", dtype="bfloat16").needed == 9_600_000_000


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


def test_a_load_says_what_it_does_in_its_order(folder):
    heard: list[str] = []
    load_pair(target=folder, report=heard.append)
    end = "/".join(folder.parts[-2:])
    assert heard == [
        f"Loading {end}, about {memory.amount(estimate(target=folder).needed)}…",
        f"Checking that {end} verifies trees…",
    ]


def test_what_the_report_raises_ends_the_load(folder, monkeypatch):
    def enough(_: str) -> None:
        raise CancelledError("enough")

    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(CancelledError):
        load_pair(target=folder, report=enough)
    assert not load_pair.__globals__["_ONE_AT_A_TIME"].locked()


def downloads(monkeypatch, *updates: int) -> None:
    """A hub whose files come in pieces of so many bytes, of 4 GiB in all."""

    def snapshot(name: str, *, tqdm_class, **_) -> str:
        files = tqdm_class(total=3, unit="it")
        bar = tqdm_class(total=0, unit="B", desc="Downloading")
        bar.total += 4 << 30
        bar.refresh()
        for update in updates:
            bar.update(update)
        files.update(1)
        bar.set_description("done")
        return f"cache/{name}"

    monkeypatch.setattr(download, "snapshot_download", snapshot)


def test_a_download_tells_its_bytes_and_draws_no_bar(monkeypatch, capsys):
    downloads(monkeypatch, 100 << 20, 2 << 30)
    heard: list[str] = []
    assert download.fetch("some/model", heard.append) == Path("cache/some/model")
    assert heard == ["Downloading some/model: 100 MiB of 4.0 GiB…", "Downloading some/model: 2.1 GiB of 4.0 GiB…"]
    assert capsys.readouterr() == ("", "")


def test_a_download_ends_when_nobody_waits_for_it(monkeypatch):
    downloads(monkeypatch, 1, 1, 1)
    heard: list[str] = []

    def report(sentence: str) -> None:
        heard.append(sentence)
        raise CancelledError("enough")

    with pytest.raises(CancelledError):
        download.fetch("some/model", report)
    assert len(heard) == 1


def test_too_large_a_model_is_refused_before_its_download(empty_cache, monkeypatch):
    hub(monkeypatch, {"F32": 4_000_000_000})
    monkeypatch.setattr(memory, "free", lambda device: 8 << 30)
    monkeypatch.setattr(loading.Loader, "tokenizer", lambda *_: None)
    monkeypatch.setattr(loading.Loader, "_config", lambda self, place: tiny("llama").config)
    monkeypatch.setattr(loading, "fetch", lambda *_: pytest.fail("downloaded"))
    with pytest.raises(OutOfMemoryError):
        load_pair(target="some/model", report=lambda _: None)


def test_memory_in_use_is_told_of_the_cpu():
    assert memory.usage(torch.device("cpu")).startswith("memory: ")
