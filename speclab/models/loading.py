"""Models and tokenizers from hub ids, folders or memory, safely: safetensors only, no remote code, memory first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path as Folder
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from speclab.errors import ModelNotFoundError, OutOfMemoryError, SettingsError, SpeclabError, UnsupportedModelError
from speclab.models import memory
from speclab.models.checkpoint import Checkpoint, check_config, folder_of, locate, offline
from speclab.models.download import Report, fetch, silent
from speclab.models.memory import check_place
from speclab.models.probe import unfit

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
Path = str | PathLike[str]
Source = Path | PreTrainedModel


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
        sizes = {found_.name: self._bytes(found_) for found_ in found if isinstance(found_, Checkpoint)}
        memory.require({name: size for name, size in sizes.items() if size}, self._place)
        return [self._load(item) if isinstance(item, Checkpoint) else self._move(item) for item in found]

    def tokenizer(self, source: Path) -> PreTrainedTokenizerBase | None:
        """Loads a tokenizer from a hub id or folder; None if the folder holds none."""
        where = str(folder_of(source) or locate(source).where)
        if Folder(where).is_dir():
            if not any((Folder(where) / name).is_file() for name in _TOKENIZER_FILES):
                return None
            check_config(Folder(where))
        try:
            loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                where, trust_remote_code=self.trust_remote_code
            )
        except Exception as error:
            raise _explain(error, str(source), "tokenizer") from error
        return loaded

    @property
    def _place(self) -> torch.device:
        return self.device or torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def _check(self, source: Path) -> Checkpoint:
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
            config: PreTrainedConfig = AutoConfig.from_pretrained(place.where, trust_remote_code=self.trust_remote_code)
        except Exception as error:
            raise _explain(error, place.name, "config") from error
        return config

    def _bytes(self, place: Checkpoint) -> int:
        dtype = self._dtype_for_load()
        item_bytes = dtype.itemsize if isinstance(dtype, torch.dtype) else place.item_bytes
        return memory.needed(place.parameters, item_bytes) if place.parameters else 0

    def _dtype_for_load(self) -> torch.dtype | str:
        return self.dtype or (torch.float32 if self._place.type == "cpu" else "auto")

    def _load(self, place: Checkpoint) -> PreTrainedModel:
        watched = self.report is not silent
        if watched and place.safetensors and not place.local:
            self._fetch(place)
        needs = self._bytes(place)
        self.report(f"Loading {short_name(place.name)}{f', about {memory.amount(needs)}' if needs else ''}…")
        try:
            with _progress_shown(not place.local and not watched):
                found: Any = AutoModelForCausalLM.from_pretrained(
                    place.where,
                    output_loading_info=True,
                    dtype=self._dtype_for_load(),
                    trust_remote_code=self.trust_remote_code,
                    use_safetensors=None if self.allow_pickle else True,
                )
            model, told = found
            loaded: PreTrainedModel = nn.Module.to(model, self._place)
        except Exception as error:
            raise _explain(error, place.name, "model") from error
        if missing := sorted(told["missing_keys"]):  # the library has drawn them at random
            raise ModelNotFoundError(
                f"The weights of {place.name} lack {missing[0]}, of {len(missing)}: fetch it again."
            )
        loaded.config.name_or_path = place.name
        return loaded

    def _fetch(self, place: Checkpoint) -> None:
        try:
            fetch(place.name, self.report)
        except SpeclabError:
            raise
        except Exception as error:
            raise _explain(error, place.name, "model") from error

    def _move(self, model: PreTrainedModel) -> PreTrainedModel:
        moved = self.device is not None or self.dtype is not None
        check_place(model, shown_name(model), moved=moved)
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
    raise SettingsError(
        f"A model is a hub id, a folder or a transformers model, and {type(source).__name__} is none of them: give one."
    )


def shown_name(model: PreTrainedModel) -> str:
    """A hub id; the end of a folder's path, so that records do not tell where things lie; or the family."""
    name = str(model.config.name_or_path)
    return short_name(name) if name else str(model.config.get_text_config(decoder=True).model_type)


def short_name(name: str) -> str:
    """A hub id; the end of a folder's path."""
    folder = folder_of(name)
    return name if folder is None else "/".join(folder.resolve().parts[-2:])


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
    if isinstance(error, ConnectionError) or "offline" in text or "connect" in text:
        return offline(name)
    first = text.splitlines()[0][:160] if text else type(error).__name__
    if isinstance(error, OSError):
        return ModelNotFoundError(f"{name} has no readable {what} ({first}): check its files.")
    return UnsupportedModelError(f"The {what} of {name} does not load ({first}): choose another model.")
