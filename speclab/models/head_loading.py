"""What drafts for a target beside its draft model: heads and second draft models, from wherever they are given."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path as Folder

from huggingface_hub.errors import RepositoryNotFoundError
from torch import nn
from transformers import PreTrainedModel

from speclab.errors import ModelNotFoundError, SpeclabError
from speclab.models.checkpoint import folder_of, offline
from speclab.models.download import Report, fetch
from speclab.models.head_files import check_fit, holds_head, read_head
from speclab.models.head_runner import HeadRunner
from speclab.models.heads import Head
from speclab.models.loading import Loader, Source, shown_name, unwrapped
from speclab.models.runner import Runner

HeadSource = Source | nn.Module
_HEAD_FILES = ("*.json", "*.safetensors", "*.bin")


def listed(heads: HeadSource | Sequence[HeadSource] | None) -> Sequence[HeadSource]:
    """One head, several or none, as a sequence."""
    if heads is None:
        return ()
    return heads if isinstance(heads, Sequence) and not isinstance(heads, str) else (heads,)


def load_head(source: HeadSource, target: Runner, loader: Loader) -> HeadRunner | Runner:
    """A draft head for `target`, or a draft model in its place.

    Raises:
        SpeclabError: it is not to be had, damaged, or made for another target.
    """
    if isinstance(source, Head):
        check_fit(source.config, target)
        return HeadRunner(source, target)
    source = unwrapped(source)
    folder = None if isinstance(source, PreTrainedModel) else _folder(source, loader.report)
    if folder is not None and holds_head(folder):
        loader.report(f"Loading the draft head {folder.name}…")
        return HeadRunner(read_head(folder, target), target)
    model = loader.models([source])[0]
    return Runner(model, shown_name(model))


def _folder(source: str | PathLike[str], report: Report) -> Folder | None:
    """The folder of a local source, or of a hub id whose files can be had; None where it is neither."""
    folder, name = folder_of(source), str(source)
    if folder is not None:
        return folder
    if name.count("/") != 1 or not name.isprintable() or name.startswith((".", "/", "~")):
        return None
    try:
        return fetch(name, report, _HEAD_FILES)
    except SpeclabError:
        raise
    except RepositoryNotFoundError:
        raise ModelNotFoundError(
            f"There is no draft head {name} here or on the hub: check its name, or give a folder."
        ) from None
    except Exception as error:  # the hub's client has had several transport libraries, each with its own errors
        raise offline(name) from error
