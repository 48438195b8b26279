"""Draft heads on disk: their folders, checks against a target, and loading.

speclab's own folder has `head.json` and `head.safetensors`; that of another project `config.json`
and the weights, as safetensors or as a pickle, which is opened as plain tensors only, so it cannot
run code. `docs/models.md` lists the layouts.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from speclab.errors import (
    HeadMismatchError,
    ModelNotFoundError,
    SpeclabError,
    UnsupportedModelError,
    first_line,
)
from speclab.heads.eagle import EagleConfig
from speclab.heads.layer import library_config
from speclab.heads.layout import DraftModule, Folder, Layout, Tensors
from speclab.heads.layouts import LAYOUTS
from speclab.heads.mtp import load_mtp
from speclab.heads.runner import HeadRunner
from speclab.loading.loader import Loader, Source, folder_of, locate, unwrapped
from speclab.models.runner import Runner

CONFIG = "head.json"
WEIGHTS = "head.safetensors"
FOREIGN = "config.json"
MTP = "mtp"
"""In the place of a folder: the MTP layers of the target's own checkpoint."""
_NOTES = ("auto_map", "torch_dtype")  # keys of any config that change nothing
HeadSource = Source | nn.Module | Runner | HeadRunner


def read_head(folder: Path, target: Runner) -> DraftModule:
    """The head in a folder, float32, checked against its target.

    Raises:
        ModelNotFoundError: files are missing, damaged, or pickles of more than tensors.
        UnsupportedModelError: it is a kind of head that speclab does not run.
        HeadMismatchError: it was made for another target.
    """
    file = folder / CONFIG
    if not file.is_file():
        file = folder / FOREIGN
    with _valid(file):
        head: DraftModule
        if file.name == CONFIG:
            tensors = _tensors_in([folder / WEIGHTS])
            config = EagleConfig.model_validate_json(file.read_bytes())
            head = config.module.empty(config, tensors)
        else:
            head, tensors = _read_foreign(folder, target)
    tensors.pop("t2d", None)  # d2t contains the same
    _check_target(head, target)
    try:
        head.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        reason = str(error).splitlines()[1].strip()
        raise HeadMismatchError(
            f"The weights in {folder.name} do not fit their config ({reason}): fetch or train the "
            "head again."
        ) from None
    _check_vocabulary(head)
    return head.float()


def _check_target(head: DraftModule, target: Runner) -> None:
    reason = head.misfit(target)
    if reason:
        raise HeadMismatchError(
            f"The draft head {head.config.name} {reason}: load heads that were trained for this "
            "target."
        )


def _check_vocabulary(head: DraftModule) -> None:
    ids = head.token_ids
    if ids is None:
        return
    size = head.config.vocab_size
    whole = head.get_buffer("d2t").dtype == torch.int64 and len(ids.unique()) == len(ids)
    if not whole or not ((ids >= 0) & (ids < size)).all():
        raise HeadMismatchError(
            f"The draft vocabulary of {head.config.name} is damaged: d2t must name different ids "
            f"below {size}; fetch or train the head again."
        )


def listed(heads: HeadSource | Sequence[HeadSource] | None) -> Sequence[HeadSource]:
    if heads is None:
        return ()
    if isinstance(heads, Sequence) and not isinstance(heads, str):
        return heads
    return (heads,)


def bare(source: object) -> DraftModule | Source:
    """A head, a transformers model or a name, without the runner or wrappers around it."""
    if isinstance(source, Runner | HeadRunner):
        source = source.model
    if isinstance(source, DraftModule):
        return source
    return unwrapped(source)


def load_head(source: HeadSource, target: Runner, loader: Loader) -> HeadRunner | Runner:
    """A draft head for `target`, or a draft model in its place.

    Raises:
        SpeclabError: it is missing, damaged, or made for another target.
    """
    source = bare(source)
    if isinstance(source, DraftModule):
        _check_target(source, target)
        _check_vocabulary(source)
        return source.runner(source, target)
    if source == MTP:
        return load_mtp(target, loader)
    if not isinstance(source, PreTrainedModel):
        folder = folder_of(source)
        if folder is None and re.fullmatch(r"[^./~][^/]*/[^/]+", str(source)):
            folder = locate(source, loader.report, "draft head")
        if folder is not None and ((folder / CONFIG).is_file() or _is_foreign(folder)):
            loader.report(f"Loading the draft head {folder.name}…")
            head = read_head(folder, target)
            return head.runner(head, target)
    return loader.runner(source)


def _is_foreign(folder: Path) -> bool:
    """Whether a folder contains a draft head of another project, supported or not."""
    config: dict[str, Any] = {}
    if (folder / FOREIGN).is_file():
        config = _json(folder / FOREIGN)
    words = f"{_name_in(config)} {' '.join(config)}"
    for layout in LAYOUTS:
        if re.search(layout.words, words, re.IGNORECASE):
            return True
    tensors = _tensors_in([file for file in _weights_of(folder) if file.is_file()])
    return any(not tensors.keys().isdisjoint(layout.marks) for layout in LAYOUTS)


def _read_foreign(folder: Path, target: Runner) -> tuple[DraftModule, Tensors]:
    """A head in another project's format, and its weights by the names of the module."""
    config = _json(folder / FOREIGN)
    layout = _layout_of(folder, _name_in(config))
    settings = _settings(config, layout)
    tensors = {}
    for name, tensor in _tensors_in(_weights_of(folder)).items():
        if not re.search(layout.unread, name):
            for pattern, replacement in layout.renamed:
                name = re.sub(pattern, replacement, name)
            tensors[name] = tensor
    keys = layout.keys(**_keys(settings, layout))
    return keys.head(Folder(folder.name, settings, tensors, target)), tensors


def _name_in(config: Mapping[str, Any]) -> str:
    """What a config calls its head: speculators' type, an architecture, or a key that only heads have."""
    if config.get("speculators_model_type"):
        return str(config["speculators_model_type"])
    for architecture in config.get("architectures") or ():
        return str(architecture)
    for layout in LAYOUTS:
        if layout.key and layout.key in config:
            return layout.key
    return ""


def _layout_of(folder: Path, name: str) -> Layout:
    for layout in LAYOUTS:
        if re.fullmatch(layout.names, name):
            return layout
    heads = ", ".join(layout.runs for layout in LAYOUTS)
    raise UnsupportedModelError(
        f"{FOREIGN} in {folder.name} says {name}, and speclab runs {heads}: load another head."
    )


def _settings(config: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    """The keys of a config and of its nested parts that have a value."""
    settings: dict[str, Any] = {}
    for part in [config.get(name) for name in layout.nested] + [config]:
        for name, value in (part or {}).items():
            if value is not None:
                settings[name] = value
    return settings


def _keys(settings: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """The settings that a layout must know: its own, and any that describe no language model."""
    keys = {}
    library = library_config(settings)().to_dict()
    for name, value in settings.items():
        note = name in library or name in layout.nested or name.startswith(_NOTES + layout.notes)
        # a key that is off changes nothing, whatever it means
        if name in layout.keys.model_fields or (value and not note):
            keys[name] = value
    return keys


@contextmanager
def _valid(file: Path) -> Iterator[None]:
    """Turns what pydantic and transformers raise for a key or a value of a config into one sentence.

    Raises:
        UnsupportedModelError: instead.
    """
    try:
        yield
        return
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
    except SpeclabError:
        raise
    except Exception as error:  # transformers has many errors for a damaged config
        reason = first_line(error, 120)
    raise UnsupportedModelError(
        f"{file.name} in {file.parent.name} describes no head that speclab runs ({reason}): load "
        "another head."
    ) from None


def _json(file: Path) -> dict[str, Any]:
    with _valid(file):
        return dict(json.loads(file.read_bytes()))


def _weights_of(folder: Path) -> list[Path]:
    """The files of a head's weights: safetensors, perhaps in shards, or a pickle."""
    for end in (".safetensors", ".bin", ".pt"):
        files = set(folder.glob(f"*{end}"))
        for index in folder.glob(f"*{end}.index.json"):  # names shards that may be missing
            files |= {folder / name for name in _json(index)["weight_map"].values()}
        if files:
            return sorted(files)
    return [folder / "model.safetensors"]


def _tensors_in(files: Sequence[Path]) -> Tensors:
    """The tensors of files of weights.

    Raises:
        ModelNotFoundError: a file is missing, damaged, or a pickle of more than tensors.
    """
    tensors: Tensors = {}
    for file in files:
        tensors.update(_tensors_of(file))
    return tensors


def _tensors_of(file: Path) -> Tensors:
    reason = "is missing or damaged: fetch the head again"
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        tensors = torch.load(file, map_location="cpu", weights_only=True)
        if all(isinstance(tensor, Tensor) for tensor in tensors.values()):
            return dict(tensors)
    except pickle.UnpicklingError:
        reason = "contains more than tensors and could run code: use safetensors weights"
    except Exception:  # torch and safetensors have many errors for a damaged file
        pass
    raise ModelNotFoundError(f"{file.name} in {file.parent.name} {reason}.")
