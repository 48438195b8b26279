"""Loads models and tokenizers from hub ids, folders, GGUF files or memory: safetensors only, no remote code."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import psutil
import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
from safetensors import SafetensorError
from torch import nn
from tqdm import tqdm  # type: ignore[import-untyped]
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from speclab.errors import (
    ModelNotFoundError,
    OfflineError,
    OutOfMemoryError,
    SettingsError,
    SpeclabError,
    UnsupportedModelError,
    named,
)
from speclab.files import byte_count, read_whole
from speclab.loading import gguf
from speclab.loading.presets import SMOLLM2
from speclab.models.probe import unfit
from speclab.models.runner import Runner
from speclab.models.transfers import check_placed, is_out_of_memory, is_spread

ModelPath = str | PathLike[str]
Source = ModelPath | PreTrainedModel
Report = Callable[[str], None]
"""Called with one sentence at a time during a load; an exception that it raises ends the load."""

MODEL_FILES = ("*.json", "*.txt", "*.model", "*.jinja", "model.safetensors", "model-*.safetensors")
HEAD_FILES = ("*.json", "*.safetensors", "*.bin")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
_HUB_ID = re.compile(r"(?!\.)[\w.-]+(/[\w.-]+)?", re.ASCII)
_LONGEST_ID = 96
_LONGEST_JSON = 100_000_000


def silent(_: str) -> None:
    """Reports nothing."""


def folder_of(source: ModelPath) -> Path | None:
    """The local folder at a path, or None."""
    try:
        folder = Path(source).expanduser()
        return folder if folder.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # too long a name, no home directory, a NUL
        return None


def locate(source: ModelPath, report: Report = silent, files: Sequence[str] = MODEL_FILES) -> Path:
    """The folder of a model's files: a local one, a GGUF file's conversion, or the hub's, downloaded if needed."""
    file = gguf.file_of(source)
    folder = folder_of(source)
    if file is not None:
        return gguf.converted(file, report)
    if folder is not None:
        return folder
    name = str(source)
    if (
        not _HUB_ID.fullmatch(name)
        or len(name) > _LONGEST_ID
        or re.search(r"\.\.|--|\.gguf$", name)
    ):
        raise ModelNotFoundError(
            f"There is no folder or file {name}: check the path, or give a hub id such as "
            "Qwen/Qwen3-0.6B."
        )
    return _cached(name, files) or _downloaded(name, report, files)


def is_here(source: ModelPath) -> bool:
    """Whether nothing needs to be downloaded."""
    return (
        folder_of(source) is not None
        or gguf.file_of(source) is not None
        or _cached(str(source)) is not None
    )


def _cached(name: str, files: Sequence[str] = MODEL_FILES) -> Path | None:
    """The folder of a hub id in the hub's cache, if all of its weights are there."""
    try:
        folder = Path(snapshot_download(name, local_files_only=True, allow_patterns=list(files)))
    except (OSError, ValueError):
        return None
    index = folder / "model.safetensors.index.json"
    shards = read_json(index)["weight_map"].values() if index.is_file() else ()
    weights = [
        *folder.glob("*.safetensors"),
        *(folder.glob("*.bin") if files is HEAD_FILES else ()),
    ]
    whole = weights and all((folder / shard).is_file() for shard in shards)
    return folder if whole and (folder / "config.json").is_file() else None


def _downloaded(name: str, report: Report, files: Sequence[str]) -> Path:
    try:
        bar = None if report is silent else _bar(name, report)
        return Path(
            snapshot_download(
                name, allow_patterns=list(files), ignore_patterns=["*/*"], tqdm_class=bar
            )
        )
    except SpeclabError:
        raise
    except GatedRepoError as error:
        raise ModelNotFoundError(
            f"{name} is gated: accept its licence on the hub and log in with `hf auth login`."
        ) from error
    except RepositoryNotFoundError:
        raise ModelNotFoundError(
            f"There is no model {name} here or on the hub: check its name, or log in with `hf auth "
            "login`."
        ) from None
    # the hub's client has had several transport libraries, each with its own errors
    except Exception as error:
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise SpeclabError(
                f"The disk is full: {name} does not fit into the hub's cache."
            ) from None
        raise OfflineError(
            f"{name} is not on this machine and the hub cannot be reached: use a local folder or "
            "the shipped models (load_pair()), or connect and unset HF_HUB_OFFLINE."
        ) from error


def _bar(name: str, report: Report) -> type[Any]:
    """A progress bar that reports bytes instead of drawing."""

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            self._counts_bytes = options.get("unit") == "B"
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self._counts_bytes:
                of = f" of {byte_count(self.total)}" if self.total and self.total >= self.n else ""
                report(f"Downloading {name}: {byte_count(self.n)}{of}…")

    return Bar


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of a model's folder.

    Raises:
        ModelNotFoundError: the file is missing, or has other contents.
    """
    try:
        content = json.loads(read_whole(path, ModelNotFoundError, _LONGEST_JSON))
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        return content
    raise ModelNotFoundError(
        f"{path.name} in {path.parent.name} is not a JSON object: download it again."
    )


@dataclass(frozen=True)
class Loader:
    """Loads models to one device, in one dtype; the defaults are those of `load_pair`."""

    device: torch.device | None = None
    dtype: torch.dtype | None = None
    report: Report = silent

    def runner(self, source: Source) -> Runner:
        """A runner of a model that is loaded, or of a module in memory."""
        model = self._moved(source) if isinstance(source, PreTrainedModel) else self._loaded(source)
        return Runner(model, shown_name(model))

    def tokenizer(self, source: ModelPath) -> PreTrainedTokenizerBase | None:
        """The tokenizer of a hub id, folder or GGUF file; None if there is none."""
        folder = _base_of(locate(source, self.report))
        if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
            return None
        try:
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                folder, trust_remote_code=False
            )
        except Exception as error:
            raise _explain(error, str(source), "tokenizer") from error
        return tokenizer

    def _loaded(self, source: ModelPath) -> PreTrainedModel:
        name = str(source)
        adapter = locate(source, self.report)
        folder = _base_of(adapter)
        device = self.device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        dtype = self.dtype or (torch.float32 if device.type == "cpu" else None)
        if not (folder / "config.json").is_file():
            raise ModelNotFoundError(
                f"The folder {name} contains no model (no config.json): check the path."
            )
        files = list(folder.glob("model*.safetensors"))
        if not files:
            raise ModelNotFoundError(
                f"{name} has no safetensors weights: choose another checkpoint."
            )
        try:
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
            reason = unfit(config)
            if reason:
                raise UnsupportedModelError(
                    f"{name} (family {config.model_type}) cannot verify a draft tree: {reason}; "
                    "choose another model."
                )
            stored = getattr(config, "dtype", None) or torch.float32
            size = (
                sum(file.stat().st_size for file in files)
                * (dtype or stored).itemsize
                // stored.itemsize
            )
            self.report(f"Loading {short_name(name)}, about {byte_count(size)}…")
            _check_memory(name, size, device)
            with no_progress_bar():
                loaded: Any = AutoModelForCausalLM.from_pretrained(
                    folder,
                    output_loading_info=True,
                    dtype=dtype or "auto",
                    use_safetensors=True,
                    trust_remote_code=False,
                )
            model, info = loaded
            if adapter != folder:
                model.load_adapter(str(adapter))
            nn.Module.to(model, device, dtype)
            # the library memory-maps some weights from a file, which may change
            if device.type == "cpu":
                for weights in (*model.parameters(), *model.buffers()):
                    weights.data = weights.data.clone()
        except SpeclabError:
            raise
        except Exception as error:
            raise _explain(error, name, "model") from error
        if missing := sorted(info["missing_keys"]):  # the library initialised them at random
            raise ModelNotFoundError(
                f"The weights of {name} lack {missing[0]}, of {len(missing)}: download it again."
            )
        model.config.name_or_path = name
        assert isinstance(model, PreTrainedModel)
        return model

    def _moved(self, model: PreTrainedModel) -> PreTrainedModel:
        move = self.device is not None or self.dtype is not None
        if move and is_spread(model):
            raise SettingsError(
                f"{shown_name(model)} is placed by its device_map or tensor-parallel plan: pass "
                "device and dtype to from_pretrained instead."
            )
        check_placed(model, shown_name(model))
        if move:
            nn.Module.to(model, device=self.device, dtype=self.dtype)
        return model


def _base_of(folder: Path) -> Path:
    """The folder of a model; of an adapter without a model, the folder of its base.

    Raises:
        UnsupportedModelError: the base is no local folder, or peft is not installed.
    """
    file = folder / "adapter_config.json"
    if (folder / "config.json").is_file() or not file.is_file():
        return folder
    name = str(read_json(file).get("base_model_name_or_path"))
    base = folder_of(name)
    if base is not None and find_spec("peft"):
        return base
    raise UnsupportedModelError(
        f"{folder.name} is an adapter of {name}, without a model: load both with peft (pip install "
        "peft), and pass the module."
    )


def _check_memory(name: str, size: int, device: torch.device) -> None:
    """Raises if a model of so many bytes cannot fit, since an operating system ends the process instead."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
    else:
        free = psutil.virtual_memory().available
    if size > free:
        raise OutOfMemoryError(
            f"{name} needs about {byte_count(size)}, but {byte_count(free)} are free on {device}: "
            "choose a smaller model, another dtype, or end other programs."
        )


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Hides the library's progress bar."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def unwrapped(source: object) -> Source:
    """What can be loaded: a name unchanged, a module without the wrappers of `torch.compile` and
    peft.

    A compiled module would be compiled again for every shape of tree. peft's adapters inside the
    layers stay there.
    """
    module = getattr(source, "_orig_mod", source)
    adapters = getattr(module, "peft_config", None)
    if (
        not isinstance(module, PreTrainedModel)
        and isinstance(adapters, dict)
        and hasattr(module, "get_base_model")
    ):
        if any(getattr(adapter, "is_prompt_learning", False) for adapter in adapters.values()):
            raise UnsupportedModelError(
                "This peft model puts a learned prompt before every text, but speclab supports "
                "only adapters in the layers, such as LoRA: choose one of those, or the base model."
            )
        module = module.get_base_model()
        module = getattr(module, "_orig_mod", module)
    if isinstance(module, str | PathLike | PreTrainedModel):
        return module
    raise SettingsError(
        f"Expected a model, got {named(source)}: pass a hub id, a folder or a transformers model."
    )


def shown_name(model: PreTrainedModel) -> str:
    """A hub id; the end of a folder's path, so that records do not reveal where files are; or the family."""
    name = str(model.config.name_or_path)
    return short_name(name) if name else str(model.config.get_text_config(decoder=True).model_type)


def short_name(name: str) -> str:
    """A hub id; the end of a local path; just the name of SmolLM2."""
    path = folder_of(name) or gguf.file_of(name)
    if path is None or path == SMOLLM2:
        return name if path is None else path.name
    return "/".join(path.resolve().parts[-2:])


def parse_device(device: str | torch.device | None) -> torch.device | None:
    """A device by name; refuses CUDA if there is none."""
    if device is None:
        return None
    try:
        parsed = torch.device(device)
    except (RuntimeError, TypeError):
        parsed = torch.device("meta")
    if parsed.type == "meta":
        raise SettingsError(f'There is no device {device!r}: use "cpu", "cuda" or "cuda:1".')
    if parsed.type == "cuda" and (parsed.index or 0) >= torch.cuda.device_count():
        raise SettingsError(
            f'This machine has {torch.cuda.device_count()} GPUs and no {device}: use device="cpu".'
        )
    return parsed


def parse_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    """A floating dtype by name."""
    parsed = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if parsed not in {None, torch.float32, torch.float16, torch.bfloat16, torch.float64} or (
        dtype and not parsed
    ):
        raise SettingsError(
            f'There is no dtype {dtype!r} for models: use "float32", "float16" or "bfloat16".'
        )
    return parsed


def _explain(error: Exception, name: str, what: str) -> SpeclabError:
    text = str(error)
    first = text.strip().splitlines()[0][:160] if text else type(error).__name__
    if is_out_of_memory(error):
        return OutOfMemoryError(
            f"{name} does not fit in memory: choose a smaller model or half precision."
        )
    if "trust_remote_code" in text:
        return UnsupportedModelError(
            f"{name} needs its own code, which speclab does not run: choose another model."
        )
    if isinstance(error, OSError | SafetensorError):
        return ModelNotFoundError(f"{name} has no readable {what} ({first}): download it again.")
    # often with a way out, as to install a quantisation's package
    return UnsupportedModelError(f"The {what} of {name} does not load: {first.rstrip('.')}.")
