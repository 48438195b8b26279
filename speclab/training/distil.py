"""Distillation of the mini draft: KL from the target, half on text, half on the target's own output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from speclab.training.corpus import MIXTURE, Batches, Packed, corpus_folder, pack
from speclab.training.generation import continue_all
from speclab.training.loop import Schedule, State, accumulate, run, stage
from speclab.training.model import DRAFT, Shape, build, export, load, logits
from speclab.training.tokenizer import read_tokenizer

MADE = "made_by_target"


class DistilConfig(BaseModel):
    """The shipped recipe of distillation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    corpus: Path | None = Field(None, description="Folder of the training text; default: SPECLAB_CORPUS.")
    tokenizer: Path = Field(Path("checkpoints/tokenizer"), description="Folder of the tokenizer.")
    target: Path = Field(Path("checkpoints/unloop/model"), description="Folder of the target.")
    start: Path | None = Field(None, description="Folder of a draft to go on from; default: fresh weights.")
    out: Path = Field(Path("checkpoints/draft"), description="Folder for checkpoint, log and the finished model.")
    shape: Shape = Field(DRAFT, description="Sizes of the draft.")
    schedule: Schedule = Field(Schedule(minutes=25, peak_lr=4e-3), description="Length and learning rates.")
    lengths: tuple[tuple[float, int], ...] = Field(
        ((0.0, 256), (0.75, 1024)), min_length=1, description="Tokens of a row, each from a share of the run on."
    )
    mixture: dict[str, float] = Field(default_factory=lambda: dict(MIXTURE), description="Shares of the sources.")
    seed: int = Field(2, description="Seed of weights, data order and sampling.")
    made_share: float = Field(0.5, ge=0, le=1, description="Share of text made by the target.")
    made_tokens: int = Field(60_000, ge=0, description="Tokens of such text, made once and read several times.")
    made_prefix: int = Field(32, ge=1, description="Tokens of training text before each piece of such text.")
    made_length: int = Field(224, ge=1, description="Tokens the target adds.")
    temperatures: list[float] = Field([0.0, 0.7, 1.0], description="Temperatures of that text, in equal parts.")
    batch_tokens: int = Field(4096, ge=16, description="Tokens a step.")
    micro_tokens: int = Field(2048, ge=16, description="Tokens a forward pass.")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay of the matrices.")
    compile: bool = Field(True, description="Compile the forward passes.")


def distil(config: DistilConfig) -> Any:
    """Distil, or go on from the checkpoint in `out`; returns the draft and writes it to `out/model`."""
    tokenizer = read_tokenizer(config.tokenizer)
    config.out.mkdir(parents=True, exist_ok=True)
    target = load(config.target).eval().requires_grad_(False)
    sources = pack(corpus_folder(config.corpus), config.mixture, tokenizer, config.out / "packed")
    mixture = {name: share * (1 - config.made_share) for name, share in config.mixture.items()}
    if config.made_share > 0:
        sources = [*sources, made_text(target, sources, config)]
        mixture[MADE] = config.made_share * sum(config.mixture.values())
    batches = Batches(sources, mixture, config.seed)
    draft = load(config.start) if config.start else sketch(target, config.shape, config.seed)
    state = State(draft, config.weight_decay, config.out / "checkpoint.pt")
    position = state.restore()
    if position is not None:
        batches.restore(position)
    loss_of = torch.compile(divergence, dynamic=False) if config.compile else divergence

    def step(progress: float) -> tuple[float, int]:
        length = stage(config.lengths, progress)
        return accumulate(
            lambda batch: loss_of(draft, target, batch[:, :-1]),
            batches,
            length,
            config.batch_tokens,
            config.micro_tokens,
        )

    run(
        state,
        config.schedule,
        step=step,
        every=lambda state: state.save(batches.state()),
        log=config.out / "log.jsonl",
    )
    export(draft, config.out / "model")
    return draft


@torch.no_grad()
def sketch(target: Any, shape: Shape, seed: int) -> Any:
    """A fresh draft whose token embeddings are the target's, cut to their strongest principal components."""
    draft = build(shape, seed)
    wide = target.gpt_neox.embed_in.weight
    centred = wide - wide.mean(0)
    _, _, components = torch.linalg.svd(centred, full_matrices=False)
    narrow = centred @ components[: shape.hidden].T
    draft.gpt_neox.embed_in.weight.copy_(narrow * (wide.std() / narrow.std()))
    return draft


def divergence(draft: Any, target: Any, tokens: Tensor) -> Tensor:
    """Mean KL(target || draft) in nats over the next-token distributions at all positions of `[B, T]` ids."""
    with torch.no_grad():
        wanted = logits(target, tokens).float().log_softmax(-1)
    got = logits(draft, tokens).float().log_softmax(-1)
    return (wanted.exp() * (wanted - got)).sum(-1).mean()


def made_text(target: Any, sources: list[Packed], config: DistilConfig) -> Packed:
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
