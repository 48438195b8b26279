"""Training text for what drafts: half of it real, half made by the target, since that is what will be drafted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from speclab.training.corpus import MIXTURE, Batches, Packed, corpus_folder, pack
from speclab.training.generation import continue_all
from speclab.training.tokenizer import read_tokenizer

MADE = "made_by_target"


class MadeText(BaseModel):
    """Where the text of a phase that learns from the target comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    corpus: Path | None = Field(None, description="Folder of the training text; default: SPECLAB_CORPUS.")
    tokenizer: Path = Field(Path("checkpoints/tokenizer"), description="Folder of the tokenizer.")
    target: Path = Field(Path("checkpoints/unloop/model"), description="Folder of the target.")
    out: Path = Field(description="Folder for checkpoint, log and the finished model.")
    mixture: dict[str, float] = Field(default_factory=lambda: dict(MIXTURE), description="Shares of the sources.")
    seed: int = Field(2, description="Seed of weights, data order and sampling.")
    made_share: float = Field(0.5, ge=0, le=1, description="Share of text made by the target.")
    made_tokens: int = Field(60_000, ge=0, description="Tokens of such text, made once and read several times.")
    made_prefix: int = Field(32, ge=1, description="Tokens of training text before each piece of such text.")
    made_length: int = Field(224, ge=1, description="Tokens the target adds.")
    temperatures: list[float] = Field([0.0, 0.7, 1.0], description="Temperatures of that text, in equal parts.")


def batches(config: MadeText, target: Any) -> Batches:
    """Windows of real text and of the target's own, in the shares that `config` asks for."""
    config.out.mkdir(parents=True, exist_ok=True)
    tokenizer = read_tokenizer(config.tokenizer)
    sources = pack(corpus_folder(config.corpus), config.mixture, tokenizer, config.out / "packed")
    mixture = {name: share * (1 - config.made_share) for name, share in config.mixture.items()}
    if config.made_share > 0:
        sources = [*sources, made_text(target, sources, config)]
        mixture[MADE] = config.made_share * sum(config.mixture.values())
    return Batches(sources, mixture, config.seed)


def made_text(target: Any, sources: list[Packed], config: MadeText) -> Packed:
    """The target's continuations of training text, packed as a source; made once and kept in `out`."""
    path = config.out / f"{MADE}.bin"
    if not path.is_file():
        prefixes = Batches(sources, config.mixture, config.seed + 1)
        parts: list[list[int]] = []
        while sum(map(len, parts)) < config.made_tokens:
            temperature = config.temperatures[(len(parts) // 64) % len(config.temperatures)]
            starts = [[int(t) for t in row] for row in prefixes.next(64, config.made_prefix)[:, :-1]]
            made = continue_all(
                target,
                starts,
                config.made_length,
                temperature=temperature,
                seed=config.seed + len(parts),
                batch=64,
            )
            parts += [[*row, *more] for row, more in zip(starts, made, strict=True)]
        temporary = path.with_suffix(".tmp")
        np.concatenate([np.array(part, dtype=np.uint16) for part in parts]).tofile(temporary)
        temporary.replace(path)
    return Packed(name=MADE, train=path, held_out=path, held_out_bytes=0)
