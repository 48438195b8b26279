"""Where a model's files are, and what they hold: folder, hub cache or hub, found before anything is loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

from speclab.errors import ModelNotFoundError, OfflineError

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_SECONDS = 10.0
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


@dataclass(frozen=True)
class Checkpoint:
    """One model's files.

    `name`: as the user wrote it. `where`: a folder if `local`, else a hub id still to be downloaded. `parameters`: how
    many, None if the files do not say. `item_bytes`: bytes a parameter takes in the files. `safetensors`, `pickled`:
    what weights there are.
    """

    name: str
    where: str
    parameters: int | None
    item_bytes: float
    safetensors: bool
    pickled: bool
    local: bool


def locate(source: str | PathLike[str]) -> Checkpoint:
    """Finds a local folder, a model in the hub's cache, or a model on the hub, in this order; downloads nothing.

    Raises:
        ModelNotFoundError: there is no such folder and no such model.
        OfflineError: it is not on this machine, and the hub cannot be reached (found out within seconds).
    """
    return here(source) or _on_hub(str(source))


def here(source: str | PathLike[str]) -> Checkpoint | None:
    """A local folder, or a model in the hub's cache; None where the hub would have to be asked, which this never does.

    Raises:
        ModelNotFoundError: there is no such folder, and it is no hub id.
    """
    name = str(source)
    folder = Path(source).expanduser()
    if folder.is_dir():
        return _in_folder(name, folder)
    if not _HUB_ID.fullmatch(name) or name.startswith("."):
        raise ModelNotFoundError(
            f"There is no folder {name}: check the path, or give a hub id such as Qwen/Qwen3-0.6B."
        )
    cached = try_to_load_from_cache(name, "config.json")
    if isinstance(cached, str) and _is_whole(Path(cached).parent):
        return _in_folder(name, Path(cached).parent)
    return None


def _in_folder(name: str, folder: Path) -> Checkpoint:
    if not (folder / "config.json").is_file():
        raise ModelNotFoundError(f"The folder {name} holds no model (no config.json): check the path.")
    files = [path for path in _weights(folder) if path.is_file()]
    parameters, item_bytes = count(files)
    return Checkpoint(name, str(folder), parameters, item_bytes, bool(files), _is_pickled(folder), local=True)


def _on_hub(name: str) -> Checkpoint:
    try:
        info = HfApi().model_info(name, files_metadata=True, timeout=_SECONDS)
    except (RepositoryNotFoundError, HFValidationError):
        raise ModelNotFoundError(
            f"There is no model {name} here or on the hub: check its name, or log in with `hf auth login`."
        ) from None
    except Exception as error:  # the hub's client has had several transport libraries, each with its own errors
        raise offline(name) from error
    names = [file.rfilename for file in info.siblings or ()]
    total = info.safetensors.total if info.safetensors else None
    kinds = info.safetensors.parameters if info.safetensors else {}
    item_bytes = sum(count * _ITEM_BYTES.get(kind, 4) for kind, count in kinds.items()) / total if total else 4.0
    safe, pickled = (any(file.endswith(ending) for file in names) for ending in (".safetensors", _PICKLES))
    return Checkpoint(name, name, total, item_bytes, safe, pickled, local=False)


def offline(name: str) -> OfflineError:
    """The error for a model that would have to be downloaded."""
    return OfflineError(
        f"{name} is not on this machine and the model hub cannot be reached: use the shipped models (load_pair()), "
        "a local folder, or connect and unset HF_HUB_OFFLINE."
    )


def _weights(folder: Path) -> list[Path]:
    """The safetensors files that the library loads, there or not; none if the folder has no such weights."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return [folder / shard for shard in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
    single = folder / "model.safetensors"
    return [single] if single.is_file() else []


def _is_pickled(folder: Path) -> bool:
    return any(path.suffix in _PICKLES for path in folder.iterdir())


def _is_whole(snapshot: Path) -> bool:
    """Whether a snapshot in the cache has weights, every shard of them."""
    files = _weights(snapshot)
    return all(path.is_file() for path in files) if files else _is_pickled(snapshot)


def count(files: Iterable[Path]) -> tuple[int | None, float]:
    """Parameters in safetensors files, and bytes each takes, read from the headers alone."""
    parameters, stored = 0, 0
    for path in files:
        for tensor in _header(path).values():
            size = prod(tensor["shape"])
            parameters += size
            stored += size * _ITEM_BYTES.get(tensor["dtype"], 4)
    return (parameters, stored / parameters) if parameters else (None, 4.0)


def _header(path: Path) -> dict[str, Any]:
    """A safetensors header: its length in 8 little-endian bytes, then JSON (the format's specification)."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(length))
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(f"{path.name} is no readable safetensors file: fetch it again.") from error
    header.pop("__metadata__", None)
    return header
