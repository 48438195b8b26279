"""A short phase after pretraining that teaches the target not to fall into loops.

Sequence-level unlikelihood training (Welleck et al. 2020, "Neural Text Generation with Unlikelihood
Training", section 5.2): the model continues training text greedily, and tokens that end a 4-gram which the
continuation held before are made less likely, beside ordinary next-token steps. Here only continuations
that loop are touched, so that repetition in real text, and copying from the prompt, stay as they were
learnt.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from speclab.training.corpus import MIXTURE, Batches, corpus_folder, pack
from speclab.training.generation import continue_all
from speclab.training.loop import Schedule, State, accumulate, run, stage
from speclab.training.looping import loops, repeated
from speclab.training.model import export, load, logits, next_token_loss
from speclab.training.tokenizer import read_tokenizer

# A 4-gram may come twice, as it does in real text; from the third time on it is made less likely.
BEFORE = 2

Continued = tuple[list[int], list[int]]  # token ids of a prefix and of what the model added

# Articles loop most, sums hardly: a continuation is made where it teaches something.
PREFIXES: dict[str, float] = {
    "wikitext2_train": 0.45,
    "books": 0.15,
    "books_simple": 0.15,
    "python_stdlib": 0.20,
    "tinystories": 0.05,
}


class UnloopConfig(BaseModel):
    """The shipped recipe of the phase against loops."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    corpus: Path | None = Field(None, description="Folder of the training text; default: SPECLAB_CORPUS.")
    tokenizer: Path = Field(Path("checkpoints/tokenizer"), description="Folder of the tokenizer.")
    model: Path = Field(Path("checkpoints/target/model"), description="Folder of the pretrained target.")
    out: Path = Field(Path("checkpoints/unloop"), description="Folder for checkpoint, log and the finished model.")
    schedule: Schedule = Field(
        Schedule(minutes=15, peak_lr=1e-3, warm_up=0.03, flat_until=0.5, final=0.05),
        description="Length and learning rates.",
    )
    mixture: dict[str, float] = Field(default_factory=lambda: dict(MIXTURE), description="Shares of the sources.")
    prefix_mixture: dict[str, float] = Field(
        default_factory=lambda: dict(PREFIXES), description="Shares of the sources that are continued."
    )
    seed: int = Field(1, description="Seed of the data order.")
    rows: int = Field(24, ge=1, description="Continuations made at a time.")
    reuse: int = Field(3, ge=1, description="Steps fed by one set of continuations.")
    prefix_lengths: list[int] = Field(
        [64, 128, 64, 320], description="Tokens of training text before each continuation."
    )
    new_tokens: int = Field(128, ge=8, description="Tokens of each continuation.")
    weights: tuple[tuple[float, float], ...] = Field(
        ((0.0, 0.5), (0.68, 1.2)),
        min_length=1,
        description="Weight of the unlikelihood beside the next-token loss, each from a share of the run on.",
    )
    text_length: int = Field(1024, ge=8, description="Tokens of a row of training text: the whole context.")
    text_tokens: int = Field(4096, ge=16, description="Tokens of training text a step.")
    micro_tokens: int = Field(2048, ge=16, description="Tokens a forward pass.")
    weight_decay: float = Field(0.02, ge=0, description="Weight decay of the matrices.")


def unloop(config: UnloopConfig) -> Any:
    """Run the phase, or go on from its checkpoint; returns the model and writes it to `out/model`."""
    tokenizer = read_tokenizer(config.tokenizer)
    config.out.mkdir(parents=True, exist_ok=True)
    sources = pack(corpus_folder(config.corpus), config.mixture, tokenizer, config.out / "packed")
    text = Batches(sources, config.mixture, config.seed)
    prefixes = Batches(sources, config.prefix_mixture, config.seed + 1)
    state = State(load(config.model), config.weight_decay, config.out / "checkpoint.pt")
    position = state.restore()
    if position is not None:
        text.restore(position["text"])
        prefixes.restore(position["prefixes"])

    looping: list[Continued] = []

    def step(progress: float) -> tuple[float, int]:
        made, turn = 0, state.step % config.reuse
        if turn == 0 or not looping:
            looping[:] = looping_continuations(state.model, prefixes, state.step, config)
            made = config.rows * config.new_tokens
            _note(config.out / "loops.jsonl", step=state.step, looping=round(len(looping) / config.rows, 3))
        punish(state.model, looping[turn :: config.reuse], stage(config.weights, progress))
        loss, read = accumulate(
            lambda batch: next_token_loss(state.model, batch),
            text,
            config.text_length,
            config.text_tokens,
            config.micro_tokens,
        )
        return loss, made + read

    def every(state: State) -> None:
        state.save({"text": text.state(), "prefixes": prefixes.state()})

    run(state, config.schedule, step=step, every=every, log=config.out / "log.jsonl")
    export(state.model, config.out / "model")
    return state.model


def looping_continuations(model: Any, prefixes: Batches, step: int, config: UnloopConfig) -> list[Continued]:
    """The (prefix, greedy continuation) pairs that loop, out of `config.rows` made with the model as it is."""
    length = config.prefix_lengths[step // config.reuse % len(config.prefix_lengths)]
    rows = [[int(token) for token in row] for row in prefixes.next(config.rows, length)[:, :length]]
    made = continue_all(model, rows, config.new_tokens, batch=config.rows)
    return [(row, more) for row, more in zip(rows, made, strict=True) if loops(more)]


def punish(model: Any, looping: list[Continued], weight: float, rows: int = 8) -> None:
    """Add the gradients of the mean unlikelihood over the repeated tokens of `looping`, times `weight`."""
    model.train()
    marked = sum(sum(repeated(more, BEFORE)) for _, more in looping) or 1
    for start in range(0, len(looping), rows):
        (weight * unlikelihood(model, looping[start : start + rows]) / marked).backward()


def unlikelihood(model: Any, continued: list[Continued]) -> Tensor:
    """Sum of -log(1 - p) over the repeated tokens of (prefix, continuation) pairs."""
    width = max(len(row) + len(more) for row, more in continued)
    tokens = torch.zeros(len(continued), width, dtype=torch.int64)
    marks = torch.zeros(len(continued), width, dtype=torch.bool)
    for i, (row, more) in enumerate(continued):
        tokens[i, : len(row) + len(more)] = torch.tensor(row + more)
        marks[i, len(row) : len(row) + len(more)] = torch.tensor(repeated(more, BEFORE))
    with torch.autocast("cpu", torch.bfloat16):
        scores = logits(model, tokens[:, :-1])
    chances = scores[marks[:, 1:]].float().softmax(-1)
    of_marked = chances.gather(1, tokens[:, 1:][marks[:, 1:]][:, None])
    return -torch.log((1 - of_marked).clamp(min=1e-4)).sum()


def _note(path: Path, **values: float) -> None:
    with path.open("a") as lines:
        lines.write(json.dumps(values) + "\n")
