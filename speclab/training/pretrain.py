"""Pretraining of the mini target: a next-token model on the mixture, resumable at any checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field

from speclab.training.corpus import MIXTURE, Batches, Packed, corpus_folder, pack
from speclab.training.loop import Schedule, State, accumulate, run, stage
from speclab.training.model import TARGET, Shape, build, export, next_token_loss
from speclab.training.tokenizer import read_tokenizer


class PretrainConfig(BaseModel):
    """The shipped recipe of pretraining."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    corpus: Path | None = Field(None, description="Folder of the training text; default: SPECLAB_CORPUS.")
    tokenizer: Path = Field(Path("checkpoints/tokenizer"), description="Folder of the tokenizer.")
    out: Path = Field(Path("checkpoints/target"), description="Folder for checkpoint, log and finished model.")
    shape: Shape = Field(TARGET, description="Sizes of the model.")
    schedule: Schedule = Field(Schedule(minutes=82), description="Length and learning rates.")
    lengths: tuple[tuple[float, int], ...] = Field(
        ((0.0, 256),), min_length=1, description="Tokens of a row, each from a share of the run on."
    )
    mixture: dict[str, float] = Field(default_factory=lambda: dict(MIXTURE), description="Shares of the sources.")
    seed: int = Field(0, description="Seed of weights and data order.")
    batch_tokens: int = Field(8192, ge=16, description="Tokens a step.")
    micro_tokens: int = Field(2048, ge=16, description="Tokens a forward pass; 2,048 is fastest on two cores.")
    weight_decay: float = Field(0.02, ge=0, description="Weight decay of the matrices.")
    compile: bool = Field(True, description="Compile the forward (1.2 times as fast on two cores).")


def pretrain(config: PretrainConfig) -> Any:
    """Train, or go on from the checkpoint in `out`; returns the model and writes it to `out/model`."""
    tokenizer = read_tokenizer(config.tokenizer)
    config.out.mkdir(parents=True, exist_ok=True)
    sources = pack(corpus_folder(config.corpus), config.mixture, tokenizer, config.out / "packed")
    batches = Batches(sources, config.mixture, config.seed)
    state = State(build(config.shape, config.seed), config.weight_decay, config.out / "checkpoint.pt")
    position = state.restore()
    if position is not None:
        batches.restore(position)
    loss_of = torch.compile(next_token_loss, dynamic=False) if config.compile else next_token_loss

    def step(progress: float) -> tuple[float, int]:
        length = stage(config.lengths, progress)
        return accumulate(
            lambda batch: loss_of(state.model, batch),
            batches,
            length,
            config.batch_tokens,
            config.micro_tokens,
        )

    def every(state: State) -> None:
        state.save(batches.state())
        losses = held_out_losses(state.model, sources, tokens=4096)
        with (config.out / "validation.jsonl").open("a") as lines:
            lines.write(json.dumps({"step": state.step, "tokens": state.tokens, **losses}) + "\n")

    run(state, config.schedule, step=step, every=every, log=config.out / "log.jsonl")
    export(state.model, config.out / "model")
    return state.model


@torch.no_grad()
def held_out_losses(
    model: Any, sources: list[Packed], tokens: int | None = None, length: int = 256
) -> dict[str, float]:
    """Loss in nats a token on the head of each source's held-out text (all of it if `tokens` is None)."""
    losses = {}
    for source in sources:
        ids = torch.from_numpy(source.held_out_tokens()[: tokens + 1 if tokens else None].astype("int64"))
        rows = (len(ids) - 1) // length
        if rows == 0:
            continue
        windows = ids[: rows * length + 1].unfold(0, length + 1, length)
        with torch.autocast("cpu", torch.bfloat16):
            sums = [next_token_loss(model, part).item() * len(part) for part in windows.split(8)]
        losses[source.name] = round(sum(sums) / rows, 4)
    return losses
