"""The mini target: pretraining on next tokens, then unlikelihood training so that it does not loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from speclab.trace.metrics import loops
from training.data import Batches, Packed
from training.loop import (
    CHECKPOINT,
    Recipe,
    Schedule,
    State,
    accumulate,
    append_line,
    run,
    stage,
    train,
)
from training.model import TARGET, Shape, build, continue_all, export, load, logits, next_token_loss
from training.repeats import repeated


class PretrainConfig(Recipe):
    """The shipped recipe of pretraining."""

    out: Path = Path("checkpoints/target")
    shape: Shape = Field(TARGET, description="Sizes of the model.")
    schedule: Schedule = Schedule(minutes=82)
    batch_tokens: int = Field(8192, ge=16)
    weight_decay: float = Field(0.02, ge=0)


def pretrain(config: PretrainConfig) -> Any:
    """Pretrain the target, or go on from the checkpoint in `out`; returns the model, which `out/model` holds."""
    _, sources = config.packed()
    batches = Batches(sources, config.mixture, config.seed)
    model = build(config.shape, config.seed)

    def validate(state: State) -> None:
        losses = held_out_losses(model, sources, tokens=4096)
        append_line(
            config.out / "validation.jsonl", {"step": state.step, "tokens": state.tokens, **losses}
        )

    train(config, model, batches, lambda batch: next_token_loss(model, batch), validate)
    export(model, config.out / "model")
    return model


@torch.no_grad()
def held_out_losses(
    model: Any, sources: list[Packed], tokens: int | None = None, length: int = 256
) -> dict[str, float]:
    """Loss in nats per token on the head of each source's held-out text (all of it if `tokens` is None)."""
    losses = {}
    for source in sources:
        ids = torch.from_numpy(
            source.held_out_tokens()[: tokens + 1 if tokens else None].astype("int64")
        )
        rows = (len(ids) - 1) // length
        if rows == 0:
            continue
        windows = ids[: rows * length + 1].unfold(0, length + 1, length)
        with torch.autocast("cpu", torch.bfloat16):
            sums = [next_token_loss(model, part).item() * len(part) for part in windows.split(8)]
        losses[source.name] = round(sum(sums) / rows, 4)
    return losses


# A 4-gram may occur twice, as in real text; later occurrences are made less likely.
BEFORE = 2

Continued = tuple[list[int], list[int]]  # token ids of a prefix and of what the model added

# Articles loop most, sums hardly ever: continue the texts that loop.
PREFIXES: dict[str, float] = {
    "wikitext2_train": 0.45,
    "books": 0.15,
    "books_simple": 0.15,
    "python_stdlib": 0.20,
    "tinystories": 0.05,
}


class UnlikelihoodConfig(Recipe):
    """The shipped recipe of the phase against loops."""

    model: Path = Field(
        Path("checkpoints/target/model"), description="Folder of the pretrained target."
    )
    out: Path = Path("checkpoints/unlikelihood")
    schedule: Schedule = Schedule(
        minutes=15, peak_lr=1e-3, warm_up=0.03, flat_until=0.5, final=0.05
    )
    seed: int = 1
    lengths: tuple[tuple[float, int], ...] = ((0.0, 1024),)  # the whole context
    weight_decay: float = Field(0.02, ge=0)
    prefix_mixture: dict[str, float] = Field(
        default_factory=lambda: dict(PREFIXES),
        description="Shares of the sources that are continued.",
    )
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


def unlikelihood(config: UnlikelihoodConfig) -> Any:
    """Teach the target not to loop, or go on from the checkpoint; returns the model, which
    `out/model` holds.

    Sequence-level unlikelihood training (Welleck et al. 2020, "Neural Text Generation with
    Unlikelihood Training", section 5.2): the model continues training text greedily, and tokens
    that end a 4-gram which the continuation held before are made less likely, beside ordinary
    next-token steps. Here only continuations that loop are touched, so that repetition in real
    text, and copying from the prompt, stay as they were learnt.
    """
    _, sources = config.packed()
    text = Batches(sources, config.mixture, config.seed)
    prefixes = Batches(sources, config.prefix_mixture, config.seed + 1)
    model = load(config.model)
    state = State(model, config.weight_decay, config.out / CHECKPOINT)
    position = state.restore()
    if position is not None:
        text.restore(position["text"])
        prefixes.restore(position["prefixes"])
    looping: list[Continued] = []

    def step(progress: float) -> tuple[float, int]:
        generated = 0
        turn = state.step % config.reuse
        if turn == 0 or not looping:
            looping[:] = looping_continuations(model, prefixes, state.step, config)
            generated = config.rows * config.new_tokens
            append_line(
                config.out / "loops.jsonl",
                {"step": state.step, "looping": round(len(looping) / config.rows, 3)},
            )
        punish(model, looping[turn :: config.reuse], stage(config.weights, progress))
        length = stage(config.lengths, progress)
        loss, read = accumulate(
            lambda batch: next_token_loss(model, batch),
            text,
            length,
            config.batch_tokens,
            config.micro_tokens,
        )
        return loss, generated + read

    def save(state: State) -> None:
        state.save({"text": text.state(), "prefixes": prefixes.state()})

    run(state, config.schedule, step=step, every=save, log=config.out / "log.jsonl")
    export(model, config.out / "model")
    return model


def looping_continuations(
    model: Any, prefixes: Batches, step: int, config: UnlikelihoodConfig
) -> list[Continued]:
    """The (prefix, greedy continuation) pairs that loop, out of `config.rows` made with the model as it is."""
    length = config.prefix_lengths[step // config.reuse % len(config.prefix_lengths)]
    rows = [[int(token) for token in row] for row in prefixes.next(config.rows, length)[:, :length]]
    continued = continue_all(model, rows, config.new_tokens, batch=config.rows)
    return [(row, more) for row, more in zip(rows, continued, strict=True) if loops(more)]


def punish(model: Any, looping: list[Continued], weight: float, rows: int = 8) -> None:
    """Add the gradients of the mean unlikelihood over the repeated tokens of `looping`, times `weight`."""
    model.train()
    marked = sum(sum(repeated(more, BEFORE)) for _, more in looping) or 1
    for start in range(0, len(looping), rows):
        (weight * unlikelihood_loss(model, looping[start : start + rows]) / marked).backward()


def unlikelihood_loss(model: Any, continued: list[Continued]) -> Tensor:
    """Sum of -log(1 - p) over the repeated tokens of (prefix, continuation) pairs."""
    width = max(len(row) + len(more) for row, more in continued)
    tokens = torch.zeros(len(continued), width, dtype=torch.int64)
    marks = torch.zeros(len(continued), width, dtype=torch.bool)
    for i, (row, more) in enumerate(continued):
        tokens[i, : len(row) + len(more)] = torch.tensor(row + more)
        marks[i, len(row) : len(row) + len(more)] = torch.tensor(repeated(more, BEFORE))
    with torch.autocast("cpu", torch.bfloat16):
        scores = logits(model, tokens[:, :-1])
    probs = scores[marks[:, 1:]].float().softmax(-1)
    of_marked = probs.gather(1, tokens[:, 1:][marks[:, 1:]][:, None])
    return -torch.log((1 - of_marked).clamp(min=1e-4)).sum()
