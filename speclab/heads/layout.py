"""What a layout of draft heads defines: a config, a module, and how its folder is read.

A layout is one file beside this one and a row of `speclab.heads.layouts.LAYOUTS`. The file has a
`HeadConfig` with the sizes that its heads use, a `DraftModule`, a `HeadRunner`, and a `Layout`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from speclab.models.runner import Runner

if TYPE_CHECKING:
    from speclab.heads.runner import HeadRunner

Tensors = dict[str, Tensor]
Size = Annotated[int, Field(ge=1, le=1 << 24)]  # more than that is a damaged file
OUTPUT = "lm_head.weight"
EMBEDDINGS = "embed_tokens.weight"


class HeadConfig(BaseModel):
    """Sizes of a head, and its target.

    Attributes:
        target: name of the only target that may load it; empty: any that fits.
        vocab_size: ids of its tables.
        hidden_size: width of its rows.
        layers: the target's states that it reads: 0 the embeddings, -1 the last layer.
        context: positions that it was trained for, if it says so.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = "head"
    target: str = ""
    vocab_size: Size = Field(ge=2)
    hidden_size: Size = Field(ge=8)
    layers: tuple[int, ...] = Field(default=(-1,), min_length=1)
    context: int | None = Field(default=None, ge=1)

    @property
    @abstractmethod
    def kind(self) -> str:
        """What its papers call such a head."""

    @property
    def states_size(self) -> int:
        """Width of the target's hidden states."""
        return self.hidden_size


class DraftModule(nn.Module):
    """The trained part of a draft head.

    Attributes:
        runner: the class that runs such modules (`class MyRunner(HeadRunner, runs=MyModule)`).
        lm_head: its output layer; None: the target's.
        embed_tokens: its token embeddings; None: the target's.
    """

    runner: ClassVar[type[HeadRunner]]

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.lm_head: nn.Linear | None = None
        self.embed_tokens: nn.Embedding | None = None

    @classmethod
    def empty(cls, config: HeadConfig, *names: Container[str]) -> Self:
        """The module without memory for its weights, until they are assigned; arguments are its own."""
        with torch.device("meta"):
            return cls(config, *names)

    @property
    def token_ids(self) -> Tensor | None:
        """The target's id of each token that it proposes, int64 `[draft_vocab]`; None: all ids."""
        return None

    def misfit(self, target: Runner) -> str:
        """Why the head cannot draft for a target; empty if it can."""
        text = target.text_config
        config = self.config
        depth = text.num_hidden_layers
        if config.states_size != text.hidden_size:
            return (
                f"needs hidden states of width {config.states_size}, but {target.name} has "
                f"{text.hidden_size}"
            )
        if min(config.layers) < -depth - 1 or max(config.layers) > depth:
            return f"reads layers {config.layers}, but {target.name} has {depth}"
        # any owner of a copy, and the name of a folder without what it is in
        trained = f"/{config.target}"
        present = f"/{target.name}"
        if config.target and not present.endswith(trained) and not trained.endswith(present):
            return (
                f"was trained for {config.target}, not for {target.name} (empty "
                '"target" in its config if both are one model)'
            )
        return ""


@dataclass(frozen=True)
class Folder:
    """A head's folder, as it was read.

    Attributes:
        name: the folder's.
        settings: keys of `config.json`, those of nested parts included.
        tensors: by the names of the module; a layout may change them.
        target: what the head is loaded for.
    """

    name: str
    settings: dict[str, Any]
    tensors: Tensors
    target: Runner


class Keys(BaseModel):
    """The keys of `config.json` that only heads of a layout have, with the values that run.

    Any other key that matters is refused by name, since the head would draft something else.
    """

    model_config = ConfigDict(extra="forbid")

    @abstractmethod
    def head(self, folder: Folder) -> DraftModule:
        """The head in a folder, without its weights (`DraftModule.empty`).

        Raises:
            ValueError: the head does not run; the reason goes into a sentence.
        """


@dataclass(frozen=True)
class Layout:
    """How heads of one kind are published.

    Attributes:
        runs: its heads in a sentence.
        words: pattern of words in a config that only draft heads have, supported or not.
        names: pattern of what `config.json` calls a head that runs: a type or an architecture.
        key: the key that names a head whose config has neither.
        marks: tensors that no language model has.
        nested: keys that contain further settings.
        notes: beginnings of keys that change nothing.
        renamed: patterns of tensors' names, and their replacements that lead to the module's.
        unread: pattern of tensors that change no draft.
    """

    keys: type[Keys]
    runs: str
    words: str
    names: str
    key: str = ""
    marks: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    unread: str = "$^"
