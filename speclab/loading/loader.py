"""Loads models and tokenizers from hub ids, folders, GGUF files or memory: safetensors only, no remote code."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from os import PathLike
from pathlib import Path, PureWindowsPath
from typing import Any

import torch
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from speclab.errors import (
    ModelNotFoundError,
    OfflineError,
    SettingsError,
    UnsupportedModelError,
    named,
)
from speclab.loading import gguf
from speclab.loading.library_errors import one_sentence
from speclab.loading.presets import MINI, PRESETS
from speclab.models.runner import Runner
from speclab.models.transfers import check_placed, is_spread

ModelPath = str | PathLike[str]
Source = ModelPath | PreTrainedModel
Report = Callable[[str], None]
"""Called with one sentence at a time during a load; an exception that it raises ends the load."""

_FILES = {
    "model": ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"],
    "draft head": ["*.json", "*.safetensors", "*.bin", "*.pt"],
}
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
PATIENCE = 10
"""Seconds of the network without a byte from the hub."""
_SAFE: dict[str, Any] = {"trust_remote_code": False}


def silent(_: str) -> None:
    """Reports nothing."""


def folder_of(source: ModelPath) -> Path | None:
    """The local folder at a path, or None."""
    path = gguf.local(source)
    if path is None or not path.is_dir():
        return None
    return path


def locate(source: ModelPath, report: Report = silent, what: str = "model") -> Path:
    """The folder of a model's files: a local one, a GGUF file's conversion, or the hub's, downloaded if needed."""
    file = gguf.file_of(source)
    folder = folder_of(source)
    if file is not None:
        return gguf.converted(file, report)
    if folder is not None:
        return folder
    name = str(source)
    path = gguf.local(source)
    if path is not None and path.is_file():
        raise ModelNotFoundError(
            f"{name[:100]} is a file without a model: give a folder, a GGUF file or a name of the hub."
        )
    report(f"Looking for {name[:100]} on the hub…")
    return _from_hub(name, what)


def _from_hub(name: str, what: str) -> Path:
    """The folder of a model of the hub, downloaded if needed; without an answer, what was downloaded before."""
    silence = ""
    try:
        HfApi().model_info(name, timeout=PATIENCE)
    except HfHubHTTPError:
        pass  # an answer: the download says it in full
    except Exception as error:  # no network, or a hub that takes a call and never answers it
        silence = str(error) or type(error).__name__
    download = partial(snapshot_download, name, allow_patterns=_FILES[what], ignore_patterns="*/*")
    with one_sentence(name, what):
        if not silence:
            return Path(download())
        with suppress(LocalEntryNotFoundError):
            return Path(download(local_files_only=True))
    pairs = f" The pairs are {', '.join(PRESETS)}." if "/" not in name else ""
    raise OfflineError(
        f"The {what} of {name[:100]} is not on this machine, and the hub does not answer "
        f"({silence[:100]}): check the connection, or name a folder that has the model.{pairs}"
    )


@dataclass(frozen=True)
class Loader:
    """Loads models to one device, in one dtype; the defaults are those of `load_pair`."""

    device: torch.device | None = None
    dtype: torch.dtype | None = None
    report: Report = silent

    def runner(self, source: Source) -> Runner:
        """A runner of a model that is loaded, or of a module in memory."""
        if isinstance(source, PreTrainedModel):
            model = self._moved(source)
        else:
            model = self._loaded(source)
        return Runner(model, shown_name(model))

    def tokenizer(self, source: ModelPath) -> PreTrainedTokenizerBase | None:
        """The tokenizer of a hub id, folder or GGUF file; None if a folder has none."""
        place = locate(source, self.report)
        if not any((place / name).is_file() for name in _TOKENIZER_FILES):
            return None
        with one_sentence(str(source), "tokenizer"):
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(place, **_SAFE)
        return tokenizer

    def _loaded(self, source: ModelPath) -> PreTrainedModel:
        name = str(source)
        place = locate(source, self.report)
        if (place / "adapter_config.json").is_file() and not (place / "config.json").is_file():
            raise UnsupportedModelError(
                f"{place.name} is an adapter without its model: load both with peft, and pass the "
                "model of peft's get_base_model()."
            )
        device = self.device or default_device()
        dtype = self.dtype
        if dtype is None and device.type == "cpu":
            dtype = torch.float32
        self.report(f"Loading {short_name(name)}…")
        with one_sentence(name, "model"), no_progress_bar():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                place,
                output_loading_info=True,
                dtype=dtype or "auto",
                use_safetensors=True,
                **_SAFE,
            )
            model, info = loaded
            nn.Module.to(model, device, dtype)
            # the library memory-maps some weights from a file, which may change
            if device.type == "cpu":
                for weights in chain(model.parameters(), model.buffers()):
                    weights.data = weights.data.clone()
            if missing := sorted(info["missing_keys"]):  # the library initialised them at random
                raise OSError(f"its weights lack {missing[0]}: download it again")
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
    """What can be loaded: a name unchanged, a module without the wrapper of `torch.compile`, which
    would compile it again for every shape of tree.
    """
    module = getattr(source, "_orig_mod", source)
    if isinstance(module, str | PathLike | PreTrainedModel):
        return module
    raise SettingsError(
        f"Expected a model, got {named(source)}: pass a hub id, a folder or a transformers model."
    )


def shown_name(model: PreTrainedModel) -> str:
    """A hub id; the last part of a path, so that records do not reveal where files are; or the family."""
    name = str(model.config.name_or_path)
    if name:
        return short_name(name)
    return str(model.config.get_text_config(decoder=True).model_type)


def short_name(name: str) -> str:
    """A hub id; the last part of a path; of the mini family the last two."""
    path = folder_of(name) or gguf.file_of(name)
    if path is not None:
        if path.is_relative_to(MINI):
            return "/".join(path.parts[-2:])
        return path.resolve().name
    # a module may have been loaded elsewhere: a hub id has at most two parts
    if len(re.split(r"[/\\]", name)) > 2:
        return PureWindowsPath(name).name
    return name


def default_device() -> torch.device:
    """CUDA if there is a GPU that this build of torch can use, else CPU."""
    if torch.cuda.is_available() and _gpu_works():
        return torch.device("cuda")
    return torch.device("cpu")


@cache
def _gpu_works() -> bool:
    """Whether one small tensor can be computed on the GPU; if not, a warning says why."""
    try:
        torch.ones(1).to("cuda").add(1).item()
    except RuntimeError as error:  # it is older than this build of torch, or full
        reason = str(error).partition("\n")[0]
        warnings.warn(
            f"torch {torch.__version__} cannot use the GPU ({reason}), so models run on the CPU: "
            'install a build of torch for it, or pass device="cpu".',
            stacklevel=2,
        )
        return False
    return True


def parse_device(device: str | torch.device | None) -> torch.device | None:
    """A device by name; refuses CUDA if there is none."""
    if device is None:
        return None
    try:
        parsed = torch.device(device)
        if parsed.type == "cpu" or (parsed.index or 0) < torch.cuda.device_count():
            return parsed
    except (RuntimeError, TypeError):
        pass
    present = ["cpu"] + [f"cuda:{gpu}" for gpu in range(torch.cuda.device_count())]
    raise SettingsError(f"There is no device {device!r} here: choose one of {', '.join(present)}.")


def parse_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    """A floating dtype by name."""
    parsed = dtype
    if isinstance(dtype, str):
        parsed = getattr(torch, dtype, "")
    if parsed in (None, torch.float32, torch.float16, torch.bfloat16, torch.float64):
        return parsed
    raise SettingsError(
        f'There is no dtype {dtype!r} for models: use "float32", "float16" or "bfloat16".'
    )
