"""Where a model's files are and how large its weights are: folder, GGUF file, hub, looked up before any is loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
from safetensors import SafetensorError, safe_open

from speclab.errors import ModelNotFoundError, OfflineError
from speclab.files import read_whole
from speclab.models import gguf, memory

_HUB_ID = re.compile(r"(?!\.)[\w.-]+(/[\w.-]+)?")
_SHARD = re.compile(r"[\w-][\w.-]*\.safetensors")
_LONGEST_JSON, _LONGEST_ID = 100_000_000, 96
_LAYERS, _MOST_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 1000
_HUB_TIMEOUT = 10.0  # seconds
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


@dataclass(frozen=True)
class Checkpoint:
    """One model's files.

    `name`: as the user wrote it. `where`: a folder if `local`, else a hub id still to be downloaded. `parameters`: how
    many, None if the files do not say. `item_bytes`: bytes a parameter takes in the files. `safetensors`, `pickled`:
    what weights there are. `gguf`: the file's name in the folder, where it is one of llama.cpp's.
    """

    name: str
    where: str
    parameters: int | None
    item_bytes: float = 4.0
    safetensors: bool = True
    pickled: bool = False
    local: bool = True
    gguf: str | None = None

    @property
    def options(self) -> dict[str, str]:
        """What transformers has to be told beside `where`."""
        return {"gguf_file": self.gguf} if self.gguf else {}

    def needed(self, dtype: torch.dtype | None) -> int | None:
        """Bytes of memory, loaded in `dtype` (None: as stored); None if the files do not say how large it is."""
        item_bytes = dtype.itemsize if dtype and not self.gguf else self.item_bytes  # GGUF is unpacked to float32
        return None if self.parameters is None else memory.needed(self.parameters, item_bytes)


def locate(source: str | PathLike[str]) -> Checkpoint:
    """Finds a local folder or GGUF file, a model in the hub's cache, or on the hub, in this order; downloads nothing.

    Raises:
        ModelNotFoundError: there is no such folder and no such model.
        OfflineError: it is not on this machine, and the hub cannot be reached (found out within seconds).
    """
    return locate_local(source) or _on_hub(str(source))


def folder_of(source: str | PathLike[str]) -> Path | None:
    """The local folder of that path; None where there is none, whatever else the path may be."""
    try:
        folder = Path(source).expanduser()
        return folder if folder.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # too long a name, no home directory, a NUL
        return None


def locate_local(source: str | PathLike[str]) -> Checkpoint | None:
    """A folder or GGUF file, or a model in the hub's cache; None where the hub, which this never asks, would be asked.

    Raises:
        ModelNotFoundError: there is no such folder, and it is no hub id.
    """
    name, folder, file = str(source), folder_of(source), gguf.file_of(source)
    if file is not None:
        return Checkpoint(name, str(file.parent), gguf.read_header(file).parameters, gguf=file.name)
    if folder is not None:
        return _in_folder(name, folder)
    try:
        is_id = bool(_HUB_ID.fullmatch(name)) and len(name) <= _LONGEST_ID and not name.lower().endswith(".gguf")
        cached = try_to_load_from_cache(name, "config.json") if is_id else None
    except HFValidationError:
        is_id = False
    if not is_id:
        raise ModelNotFoundError(
            f"There is no folder or file {name}: check the path, or give a hub id such as Qwen/Qwen3-0.6B."
        )
    if isinstance(cached, str):
        with suppress(ModelNotFoundError):  # downloaded in part: the hub has the rest
            found = _in_folder(name, Path(cached).parent)
            return found if found.safetensors or found.pickled else None
    return None


def locate_head(source: str | PathLike[str]) -> Checkpoint:
    """A draft head of speclab's own format in a folder, or whatever else `locate` finds."""
    folder = folder_of(source)
    if folder is None or not (folder / "head.safetensors").is_file():
        return locate(source)
    return Checkpoint(str(source), str(folder), *stored_size([folder / "head.safetensors"]))


def _in_folder(name: str, folder: Path) -> Checkpoint:
    if not (folder / "config.json").is_file():
        raise ModelNotFoundError(f"The folder {name} holds no model (no config.json): check the path.")
    check_config(folder)
    files = _weights(folder)
    pickled = any(path.suffix in _PICKLES for path in folder.iterdir())
    return Checkpoint(name, str(folder), *stored_size(files), bool(files), pickled)


def check_config(folder: Path) -> None:
    """Refuses a config that is no JSON object, or has more layers than could ever be built.

    Raises:
        ModelNotFoundError: its config.json is damaged.
    """
    path = folder / "config.json"
    if path.is_file():
        config = read_json(path)
        parts = (config, *(part for part in config.values() if isinstance(part, dict)))
        layers = [part[name] for part in parts for name in _LAYERS if isinstance(part.get(name), int)]
        if max(layers, default=0) > _MOST_LAYERS:
            raise damaged(path, f"it names {max(layers)} layers")


def _on_hub(name: str) -> Checkpoint:
    try:
        info = HfApi().model_info(name, files_metadata=True, timeout=_HUB_TIMEOUT)
    except (RepositoryNotFoundError, HFValidationError):
        raise absent(name) from None
    except Exception as error:  # the hub's client has had several transport libraries, each with its own errors
        raise offline(name) from error
    names = [file.rfilename for file in info.siblings or ()]
    size = _size(info.safetensors.parameters if info.safetensors else {})
    safe, pickled = (any(file.endswith(ending) for file in names) for ending in (".safetensors", _PICKLES))
    return Checkpoint(name, name, *size, safe, pickled, local=False)


def absent(name: str) -> ModelNotFoundError:
    """The error for a name that the hub does not know, or not for this user."""
    return ModelNotFoundError(
        f"There is no model {name} here or on the hub: check its name, or log in with `hf auth login`."
    )


def offline(name: str) -> OfflineError:
    """The error for a model that would have to be downloaded."""
    return OfflineError(
        f"{name} is not on this machine and the model hub cannot be reached: use the shipped models (load_pair()), "
        "a local folder, or connect and unset HF_HUB_OFFLINE."
    )


def _weights(folder: Path) -> list[Path]:
    """The safetensors files that the library loads, there or not; none if the folder has no such weights."""
    listed = folder / "model.safetensors.index.json"
    if listed.is_file():
        shards = read_json(listed).get("weight_map")
        names = set(map(str, shards.values())) if isinstance(shards, dict) else set()
        if not names or not all(map(_SHARD.fullmatch, names)):
            raise damaged(listed, "its weight_map names no safetensors files of this folder")
        return [folder / shard for shard in sorted(names)]
    single = folder / "model.safetensors"
    return [single] if single.is_file() else []


def stored_size(files: Iterable[Path]) -> tuple[int | None, float]:
    """Parameters in safetensors files, and bytes each takes; the library reads, and checks, their headers alone."""
    counts: dict[str, int] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as tensors:
                for part in map(tensors.get_slice, tensors.keys()):
                    kind = part.get_dtype()
                    counts[kind] = counts.get(kind, 0) + prod(part.get_shape())
        except (SafetensorError, OSError) as error:
            raise damaged(path, str(error).splitlines()[0][:160]) from None
    return _size(counts)


def _size(counts: dict[str, int]) -> tuple[int | None, float]:
    """Parameters in all, and bytes each takes, from their number by dtype; as a guess 4 bytes where there are none."""
    total = sum(counts.values())
    stored = sum(count * _ITEM_BYTES.get(kind, 4) for kind, count in counts.items())
    return (total, stored / total) if total else (None, 4.0)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of a model's folder.

    Raises:
        ModelNotFoundError: it is missing, or holds something else.
    """
    try:
        found = json.loads(read_whole(path, ModelNotFoundError, _LONGEST_JSON))
    except (ValueError, RecursionError):
        raise damaged(path, "it is no JSON") from None
    if not isinstance(found, dict):
        raise damaged(path, "it holds no JSON object")
    return found


def damaged(path: Path, why: str) -> ModelNotFoundError:
    """The error for a file of a model's folder that is not what it should be."""
    return ModelNotFoundError(f"{path.name} in {path.parent.name} is missing or damaged ({why}): fetch it again.")
