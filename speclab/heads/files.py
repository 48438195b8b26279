"""Draft heads on disk: speclab's own folder (`head.json`, `head.safetensors`), checks against a target, and loading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from speclab.errors import HeadMismatchError
from speclab.heads.eagle import DraftModule, HeadConfig, rotary
from speclab.heads.formats import (
    EMBEDDINGS,
    OUTPUT,
    is_foreign_head,
    read_foreign,
    read_tensors,
    valid,
)
from speclab.heads.mtp import load_mtp
from speclab.heads.runner import HeadRunner
from speclab.loading.loader import Loader, Source, folder_of, locate, unwrapped
from speclab.models.runner import Runner

CONFIG = "head.json"
WEIGHTS = "head.safetensors"
MTP = "mtp"
"""In the place of a folder: the MTP layers of the target's own checkpoint."""
HeadSource = Source | nn.Module | Runner | HeadRunner


def read_head(folder: Path, target: Runner) -> DraftModule:
    """The head in a folder, float32, checked against its target.

    Raises:
        ModelNotFoundError: files are missing, damaged, or pickles of more than tensors.
        UnsupportedModelError: it is a kind of head that speclab does not run.
        HeadMismatchError: it was made for another target.
    """
    ours = (folder / CONFIG).is_file()
    file = folder / (CONFIG if ours else "config.json")
    with valid(file):
        if ours:
            config = HeadConfig.model_validate_json(file.read_bytes())
            tensors = read_tensors([folder / WEIGHTS])
        else:
            config, tensors = read_foreign(folder, target)
        rotary(config, torch.arange(2))
    tensors.pop("t2d", None)  # marks what d2t names
    own = EMBEDDINGS in tensors
    _check_target(config, target, own_embeddings=own)
    with torch.device("meta"):
        head = config.module(config, own_output=OUTPUT in tensors, own_embeddings=own)
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


def _check_target(config: HeadConfig, target: Runner, *, own_embeddings: bool) -> None:
    text = target.model.config.get_text_config(decoder=True)
    depth = text.num_hidden_layers
    embeddings = text.vocab_size
    if own_embeddings:
        embeddings = config.vocab_size
    reason = ""
    if config.states_size != text.hidden_size:
        reason = f"needs hidden states of width {config.states_size}, but {target.name} has {text.hidden_size}"
    elif any(not -depth - 1 <= layer <= depth for layer in config.layers):
        reason = f"reads layers {config.layers}, but {target.name} has {depth}"
    elif config.states_size != config.hidden_size and not own_embeddings:
        reason = f"is {config.hidden_size} wide and lacks embed_tokens of its own"
    elif getattr(config, "mask_token_id", 0) >= embeddings:
        reason = f"masks with a token id that is not among {embeddings} embeddings"
    # any owner of a copy, and a folder's name without what it is in
    elif config.target and not (
        f"/{target.name}".endswith(f"/{config.target}")
        or f"/{config.target}".endswith(f"/{target.name}")
    ):
        reason = (
            f'was trained for {config.target}, not for {target.name} (empty "target" in its config '
            "if both are one model)"
        )
    if reason:
        raise HeadMismatchError(
            f"The draft head {config.name} {reason}: load heads that were trained for this target."
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
    return heads if isinstance(heads, Sequence) and not isinstance(heads, str) else (heads,)


def bare(source: object) -> DraftModule | Source:
    """A head, a transformers model or a name, without the runner or wrappers around it."""
    module = source.model if isinstance(source, Runner | HeadRunner) else source
    return module if isinstance(module, DraftModule) else unwrapped(module)


def load_head(source: HeadSource, target: Runner, loader: Loader) -> HeadRunner | Runner:
    """A draft head for `target`, or a draft model in its place.

    Raises:
        SpeclabError: it is missing, damaged, or made for another target.
    """
    source = bare(source)
    if isinstance(source, DraftModule):
        own = getattr(source, "embed_tokens", None) is not None
        _check_target(source.config, target, own_embeddings=own)
        _check_vocabulary(source)
        return _runner(source, target)
    if source == MTP:
        return load_mtp(target, loader)
    if not isinstance(source, PreTrainedModel):
        folder = folder_of(source)
        if folder is None and re.fullmatch(r"[^./~][^/]*/[^/]+", str(source)):
            folder = locate(source, loader.report, "draft head")
        if folder is not None and ((folder / CONFIG).is_file() or is_foreign_head(folder)):
            loader.report(f"Loading the draft head {folder.name}…")
            return _runner(read_head(folder, target), target)
    return loader.runner(source)


def _runner(head: DraftModule, target: Runner) -> HeadRunner:
    return HeadRunner.kinds.get(type(head), HeadRunner)(head, target)
