"""Models and tokenizers from hub ids, folders or memory, safely: safetensors only, no remote code, memory first.

`estimate` tells what a load would take of the memory; `Loader` refuses what does not fit before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
from torch import nn
from tqdm import tqdm  # type: ignore[import-untyped]
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from speclab.errors import (
    ModelNotFoundError,
    OutOfMemoryError,
    SettingsError,
    SpeclabError,
    UnsupportedModelError,
    named,
)
from speclab.files import byte_count
from speclab.models import gguf, memory
from speclab.models.checkpoint import (
    Checkpoint,
    absent,
    check_config,
    folder_of,
    locate,
    locate_head,
    locate_local,
    offline,
)
from speclab.models.presets import SMOLLM2, Preset, find
from speclab.models.probe import unfit
from speclab.models.runner import Runner

ModelPath = str | PathLike[str]
Source = ModelPath | PreTrainedModel
Report = Callable[[str], None]
"""Hears what a load is doing, one sentence at a time; what it raises ends the load."""

_MODEL_FILES = ("*.json", "*.txt", "*.model", "*.jinja", "*.py", "model.safetensors", "model-*.safetensors")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


def silent(_: str) -> None:
    """Reports nothing."""


def fetch(name: str, report: Report, files: Sequence[str] = _MODEL_FILES) -> Path:
    """The folder of a hub id's files in the hub's cache, those downloaded that are not there.

    Args:
        report: hears the bytes; called from several threads.
        files: patterns of the files to fetch, in the repository's top folder.

    Raises:
        SpeclabError: they are not to be had, or what `report` raises.
    """
    bar = _bar(name, report)
    try:
        return Path(snapshot_download(name, allow_patterns=list(files), ignore_patterns=["*/*"], tqdm_class=bar))
    except SpeclabError:
        raise
    except Exception as error:  # the hub's client has had several transport libraries, each with its own errors
        unknown = isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError)
        raise absent(name) if unknown else _explain(error, name, "file") from error


def _bar(name: str, report: Report) -> type[Any]:
    """A progress bar that draws nothing and reports the bytes."""

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            self._of_bytes = options.get("unit") == "B"
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self._of_bytes:
                of = f" of {byte_count(self.total)}" if self.total and self.total >= self.n else ""
                report(f"Downloading {name}: {byte_count(self.n)}{of}…")

    return Bar


@dataclass(frozen=True)
class Loader:
    """Loads models to one device, in one dtype.

    Args:
        device: None for CUDA if there is one, else CPU; a module in memory stays where it is.
        dtype: None for float32 on CPU and the checkpoint's own on CUDA; a module in memory keeps its own.
        trust_remote_code: let a checkpoint bring its own Python code.
        allow_pickle: let weights come from pickles, which can run code.
        report: hears what is being done; what it raises ends the load.
    """

    device: torch.device | None = None
    dtype: torch.dtype | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False
    report: Report = silent

    def models(self, sources: Iterable[Source]) -> list[PreTrainedModel]:
        """Loads several models, having checked first that all can be found, are fit, and fit in memory.

        Raises:
            ModelNotFoundError, OfflineError, UnsupportedModelError, OutOfMemoryError: in this order.
        """
        found = [source if isinstance(source, PreTrainedModel) else self._check(source) for source in sources]
        sizes = {it.name: it.needed(self.load_dtype) for it in found if isinstance(it, Checkpoint)}
        memory.require({name: size for name, size in sizes.items() if size}, self.place)
        return [self._load(item) if isinstance(item, Checkpoint) else self._move(item) for item in found]

    def runner(self, model: PreTrainedModel) -> Runner:
        """A runner of a loaded model, by the name that it is shown under."""
        return Runner(model, shown_name(model))

    def tokenizer(self, source: ModelPath) -> PreTrainedTokenizerBase | None:
        """Loads a tokenizer from a hub id, folder or GGUF file; None if the folder holds none."""
        file = gguf.file_of(source)
        where = str(file or folder_of(source) or locate(source).where)
        if file is None and Path(where).is_dir():
            if not any((Path(where) / name).is_file() for name in _TOKENIZER_FILES):
                return None
            check_config(Path(where))
        try:
            if file is not None:
                return gguf.tokenizer(file)
            loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                where, trust_remote_code=self.trust_remote_code
            )
        except SpeclabError:
            raise
        except Exception as error:
            raise _explain(error, str(source), "tokenizer") from error
        return loaded

    @property
    def place(self) -> torch.device:
        """Where models go."""
        return self.device or torch.device("cuda" if torch.cuda.is_available() else "cpu")

    @property
    def load_dtype(self) -> torch.dtype | None:
        """What checkpoints are loaded in; None for their own."""
        return self.dtype or (torch.float32 if self.place.type == "cpu" else None)

    def _check(self, source: ModelPath) -> Checkpoint:
        place = locate(source)
        if not place.safetensors and not (place.pickled and self.allow_pickle):
            has = "only pickled weights, which can run code" if place.pickled else "no weights"
            way = "pass allow_pickle=True if you trust it, or " if place.pickled else ""
            raise ModelNotFoundError(f"{place.name} has {has}: {way}choose a checkpoint with safetensors.")
        config = self._config(place)
        reason = unfit(config)
        if reason:
            raise UnsupportedModelError(
                f"{place.name} (family {config.model_type}) cannot verify a draft tree: {reason}; choose another model."
            )
        return place

    def _config(self, place: Checkpoint) -> PreTrainedConfig:
        try:
            config: PreTrainedConfig = AutoConfig.from_pretrained(
                place.where, trust_remote_code=self.trust_remote_code, **place.options
            )
        except Exception as error:
            raise _explain(error, place.name, "config") from error
        return config

    def _load(self, place: Checkpoint) -> PreTrainedModel:
        watched = self.report is not silent
        if watched and place.safetensors and not place.local:
            fetch(place.name, self.report)
        needs = place.needed(self.load_dtype)
        slowly = ", read out of a GGUF file, which takes a while" if place.gguf else ""
        self.report(f"Loading {short_name(place.name)}{f', about {byte_count(needs)}' if needs else ''}{slowly}…")
        try:
            with _progress_shown(not place.local and not watched):
                found: Any = AutoModelForCausalLM.from_pretrained(
                    place.where,
                    output_loading_info=True,
                    dtype=torch.float32 if place.gguf else self.load_dtype or "auto",
                    trust_remote_code=self.trust_remote_code,
                    use_safetensors=None if self.allow_pickle or place.gguf else True,
                    **place.options,
                )
            model, info = found
            if place.gguf:
                gguf.make_plain(model)
            loaded: PreTrainedModel = nn.Module.to(model, self.place, self.load_dtype)
            if self.place.type == "cpu" and loaded.dtype.itemsize == place.item_bytes:
                _copy_weights(loaded)  # the library maps weights that it need not convert from their file
        except Exception as error:
            raise _explain(error, place.name, "model") from error
        if missing := sorted(info["missing_keys"]):  # the library has drawn them at random
            raise ModelNotFoundError(
                f"The weights of {place.name} lack {missing[0]}, of {len(missing)}: fetch it again."
            )
        loaded.config.name_or_path = place.name
        return loaded

    def _move(self, model: PreTrainedModel) -> PreTrainedModel:
        moved = self.device is not None or self.dtype is not None
        memory.check_device_map(model, shown_name(model), moved=moved)
        if moved:
            nn.Module.to(model, device=self.device, dtype=self.dtype)
        return model


def unwrapped(source: object) -> Source:
    """What can be loaded: a name as it is, a module out of the wrappers of `torch.compile` and of peft.

    A compiled module would be compiled again for every shape of tree. What peft puts inside the layers stays there.

    Raises:
        SettingsError: it is neither a name nor a transformers model.
        UnsupportedModelError: it is a peft model with more than its layers (a learned prompt).
    """
    module = getattr(source, "_orig_mod", source)
    adapters = getattr(module, "peft_config", None)
    if not isinstance(module, PreTrainedModel) and isinstance(adapters, dict) and hasattr(module, "get_base_model"):
        if any(getattr(adapter, "is_prompt_learning", False) for adapter in adapters.values()):
            raise UnsupportedModelError(
                "This peft model puts a learned prompt before every text, and speclab runs adapters inside the layers "
                "alone (such as LoRA): choose one of those, or its base model."
            )
        module = module.get_base_model()
        module = getattr(module, "_orig_mod", module)
    if isinstance(module, str | PathLike | PreTrainedModel):
        return module
    raise SettingsError(f"{named(source)} is no model: give a hub id, a folder or a transformers model.")


def shown_name(model: PreTrainedModel) -> str:
    """A hub id; the end of a folder's path, so that records do not tell where things lie; or the family."""
    name = str(model.config.name_or_path)
    return short_name(name) if name else str(model.config.get_text_config(decoder=True).model_type)


def short_name(name: str) -> str:
    """A hub id; the end of a local path; what was fetched by its name alone."""
    path = folder_of(name) or gguf.file_of(name)
    if path is None or path == SMOLLM2:
        return name if path is None else path.name
    return "/".join(path.resolve().parts[-2:])


def _copy_weights(model: PreTrainedModel) -> None:
    """Puts weights into memory: those mapped from a file are read from it again and again where memory is short."""
    for weights in (*model.parameters(), *model.buffers()):
        weights.data = weights.data.clone()


@contextmanager
def _progress_shown(show: bool) -> Iterator[None]:
    """The library's progress bars: for downloads, not for files that are here."""
    were_shown = logging.is_progress_bar_enabled()
    if not show:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if were_shown:
            logging.enable_progress_bar()


def parse_device(device: str | torch.device | None) -> torch.device | None:
    """A device by name; refuses CUDA where there is none."""
    if device is None:
        return None
    try:
        parsed = torch.device(device)
    except (RuntimeError, TypeError):
        parsed = torch.device("meta")
    if parsed.type == "meta":
        raise SettingsError(f'There is no device {device!r}: use "cpu", "cuda" or "cuda:1".')
    if parsed.type == "cuda" and (parsed.index or 0) >= torch.cuda.device_count():
        raise SettingsError(f'This machine has {torch.cuda.device_count()} GPUs, and no {device}: use device="cpu".')
    return parsed


def parse_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    """A floating dtype by name."""
    parsed = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if parsed not in {None, torch.float32, torch.float16, torch.bfloat16, torch.float64} or (dtype and not parsed):
        raise SettingsError(f'There is no dtype {dtype!r} for models: use "float32", "float16" or "bfloat16".')
    return parsed


def _explain(error: Exception, name: str, what: str) -> SpeclabError:
    """One sentence for what the library raised while loading."""
    text = str(error)
    if memory.is_out_of_memory(error):
        return OutOfMemoryError(f"{name} does not fit in memory: choose a smaller model or half precision.")
    if "trust_remote_code" in text:
        return UnsupportedModelError(f"{name} brings its own code: pass trust_remote_code=True if you trust it.")
    if "gated" in text.lower():
        return ModelNotFoundError(f"{name} is gated: accept its licence on the hub and log in with `hf auth login`.")
    unreached = isinstance(error, ConnectionError | LocalEntryNotFoundError)
    if unreached or "offline" in text or "connect" in text:
        return offline(name)
    first = text.splitlines()[0][:160] if text else type(error).__name__
    if isinstance(error, OSError):
        return ModelNotFoundError(f"{name} has no readable {what} ({first}): check its files.")
    return UnsupportedModelError(f"The {what} of {name} does not load ({first}): choose another model.")


@dataclass(frozen=True)
class Estimate:
    """Bytes of memory by role, weights and the headroom of `speclab.models.memory`; None where the files do not say.

    `device`: where. `precision`: in words. `free`: bytes, None where the device does not say. `download`: bytes of
    weights to be fetched first, about.
    """

    sizes: Mapping[str, int | None]
    device: torch.device
    precision: str
    free: int | None
    download: int = 0

    @property
    def needed(self) -> int:
        """Bytes of all whose size is known."""
        return sum(size or 0 for size in self.sizes.values())

    @property
    def fits(self) -> bool:
        """Whether it would be loaded: nothing known speaks against it."""
        return self.free is None or self.needed <= self.free

    def __str__(self) -> str:
        known = [f"{role} {byte_count(size)}" for role, size in self.sizes.items() if size]
        unknown = [role for role, size in self.sizes.items() if size is None]
        where = f"on {self.device} in {self.precision}"
        needs = f"needs about {byte_count(self.needed)} {where} ({', '.join(known)})" if known else f"unknown {where}"
        available = f"{byte_count(self.free)} are free" if self.free is not None else "how much is free is not known"
        text = f"Memory: {needs}; {available}." if self.fits else f"Too large: {needs}, and {available}."
        text += f" The size of {' and '.join(unknown)} is not known." if unknown else ""
        text += f" About {byte_count(self.download)} are downloaded first." if self.download else ""
        return text if self.fits else f"{text} Choose smaller models, half precision, or another device."


def estimate(
    name: str = "mini",
    *,
    target: ModelPath | None = None,
    draft: ModelPath | None = None,
    heads: Sequence[ModelPath] = (),
    device: str | None = None,
    dtype: str | None = None,
) -> Estimate:
    """The memory that `load_pair` would need with the same arguments; loads and downloads nothing.

    A preset is answered without the hub; of hub ids that are not on this machine the hub is asked, for at most seconds.

    Raises:
        ModelNotFoundError, OfflineError, SettingsError: as `load_pair` would.
    """
    preset = find(name) if target is None else None
    if preset is not None:
        found, heads, dtype = _in_preset(preset), heads or preset.heads, dtype or preset.dtype
    else:
        found = {role: locate(source) for role, source in (("target", target), ("draft", draft)) if source}
    drafting = [locate_head(head) for head in heads]
    loader = Loader(parse_device(device), parse_dtype(dtype))
    sizes = {role: checkpoint.needed(loader.load_dtype) for role, checkpoint in found.items()}
    if drafting:
        known = [head.needed(loader.load_dtype) for head in drafting]
        sizes["heads"] = None if None in known else sum(filter(None, known))
    remote = [it for it in (*found.values(), *drafting) if not it.local]
    published = int(sum((it.parameters or 0) * it.item_bytes for it in remote))
    download = preset.download or published if preset and remote else published
    precision = str(loader.load_dtype or "the checkpoint's precision").removeprefix("torch.")
    return Estimate(sizes, loader.place, precision, memory.free(loader.place), download)


def _in_preset(preset: Preset) -> dict[str, Checkpoint]:
    """The checkpoints of a preset: read where they are here, else as published."""
    stored = parse_dtype(preset.stored)
    assert stored is not None
    known = {"target": (preset.target, preset.target_parameters), "draft": (preset.draft, preset.draft_parameters)}
    return {
        role: (None if preset.missing else locate_local(source))
        or Checkpoint(source, source, parameters, stored.itemsize, local=False)
        for role, (source, parameters) in known.items()
        if source is not None
    }
