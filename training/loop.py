"""Shared by all training phases: schedule, optimisers, checkpoints, and a progress line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from tokenizers import Tokenizer
from torch import Tensor

from training.data import MIXTURE, Packed, corpus_folder, pack, read_tokenizer

T = TypeVar("T")

CHECKPOINT = "checkpoint.pt"


class Schedule(BaseModel):
    """How long a phase runs, and its learning rate over that span: warm-up, flat, then linear down."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    minutes: float | None = Field(
        None, gt=0, description="Training time; learning rates follow it."
    )
    steps: int | None = Field(
        None, gt=0, description="Length in steps (exactly repeatable); goes before minutes."
    )
    peak_lr: float = Field(
        3e-3, gt=0, description="Highest learning rate, of Muon and AdamW alike."
    )
    warm_up: float = Field(
        0.04, ge=0, lt=1, description="Share of the run spent rising to the peak."
    )
    flat_until: float = Field(
        0.55, gt=0, le=1, description="Share of the run after which the rate falls."
    )
    final: float = Field(0.03, ge=0, le=1, description="Rate at the end, as a share of the peak.")

    def progress(self, step: int, seconds: float) -> float:
        """Finished share of the run, 0 to 1."""
        if self.steps is not None:
            return min(step / self.steps, 1.0)
        return min(seconds / (60 * (self.minutes or 1.0)), 1.0)

    def learning_rate(self, progress: float) -> float:
        """The learning rate at a share `progress` of the run."""
        if progress < self.warm_up:
            return self.peak_lr * max(progress / self.warm_up, 0.02)
        fall = max(progress - self.flat_until, 0.0) / max(1 - self.flat_until, 1e-9)
        return self.peak_lr * (1 - (1 - self.final) * fall)


class Recipe(BaseModel):
    """Common to the recipes of all phases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    corpus: Path | None = Field(
        None, description="Folder of the training text; default: SPECLAB_CORPUS."
    )
    tokenizer: Path = Field(Path("checkpoints/tokenizer"), description="Folder of the tokenizer.")
    out: Path = Field(description="Folder for checkpoint, log and the finished model.")
    schedule: Schedule = Field(description="Length and learning rates.")
    mixture: dict[str, float] = Field(
        default_factory=lambda: dict(MIXTURE), description="Shares of the sources."
    )
    lengths: tuple[tuple[float, int], ...] = Field(
        ((0.0, 256),), min_length=1, description="Tokens of a row, each from a share of the run on."
    )
    seed: int = Field(0, description="Seed of weights, data order and sampling.")
    device: str = Field("cpu", description="Where it is trained: cpu or cuda.")
    batch_tokens: int = Field(4096, ge=16, description="Tokens per step.")
    micro_tokens: int = Field(
        2048, ge=16, description="Tokens per forward pass; 2,048 is fastest on two cores."
    )
    weight_decay: float = Field(0.0, ge=0, description="Weight decay of the matrices.")
    compile: bool = Field(
        True, description="Compile the forward passes (1.2 times as fast on two cores)."
    )

    def packed(self) -> tuple[Tokenizer, list[Packed]]:
        """The tokenizer, and the sources of the mixture tokenised with it."""
        tokenizer = read_tokenizer(self.tokenizer)
        return tokenizer, pack(
            corpus_folder(self.corpus), self.mixture, tokenizer, self.out / "packed"
        )


def stage(stages: Sequence[tuple[float, T]], progress: float) -> T:
    """The value that holds at `progress`, out of `stages` (share of the run at which it begins, value)."""
    return [value for start, value in stages if start <= progress][-1]


def optimisers(model: Any, weight_decay: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for embeddings, output matrix, norms and biases; nothing frozen."""
    named = [
        (p, p.ndim == 2 and not any(part in n for part in ("embed", "lm_head", "markov")))
        for n, p in model.named_parameters()
        if p.requires_grad
    ]
    matrices = [p for p, inner in named if inner]
    others = [p for p, inner in named if not inner]
    found: list[torch.optim.Optimizer] = []
    if matrices:
        found.append(
            torch.optim.Muon(matrices, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        )
    if others:
        found.append(torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0))
    return found


class Windowed(Protocol):
    """Text for a phase, a window at a time, with a position that a checkpoint can store."""

    def next(self, sequences: int, length: int) -> NDArray[np.int64]:
        """`[sequences, length + 1]` ids, or what the phase reads ids by."""

    def state(self) -> Any:
        """The position, for a checkpoint."""

    def restore(self, state: Any) -> None:
        """Go to a position that `state` gave."""


class State:
    """Everything that a run needs to continue: model, optimisers, step, seconds, tokens, random state."""

    def __init__(self, model: Any, weight_decay: float, path: Path) -> None:
        self.model = model
        self.optimisers = optimisers(model, weight_decay)
        self.path = path
        self.step = 0
        self.seconds = 0.0
        self.tokens = 0

    def save(self, data: Any) -> None:
        """Write a checkpoint; if writing fails, the earlier one stays."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".tmp")
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimisers": [o.state_dict() for o in self.optimisers],
                "step": self.step,
                "seconds": self.seconds,
                "tokens": self.tokens,
                "data": data,
                "random": torch.get_rng_state(),
            },
            temporary,
        )
        temporary.replace(self.path)

    def restore(self) -> Any | None:
        """Load the checkpoint if there is one; returns its data position, else None."""
        if not self.path.is_file():
            return None
        saved = torch.load(self.path, weights_only=True)
        self.model.load_state_dict(saved["model"])
        for optimiser, state in zip(self.optimisers, saved["optimisers"], strict=True):
            optimiser.load_state_dict(state)
        self.step = saved["step"]
        self.seconds = saved["seconds"]
        self.tokens = saved["tokens"]
        torch.set_rng_state(saved["random"])
        return saved["data"]


def train(
    recipe: Recipe,
    model: Any,
    batches: Windowed,
    loss_of: Callable[[Tensor], Tensor],
    after: Callable[[State], None] = lambda _: None,
) -> None:
    """Train, or continue from the checkpoint in `recipe.out`; `after(state)` runs after each checkpoint."""
    recipe.out.mkdir(parents=True, exist_ok=True)
    state = State(model, recipe.weight_decay, recipe.out / CHECKPOINT)
    position = state.restore()
    if position is not None:
        batches.restore(position)
    loss = torch.compile(loss_of, dynamic=False) if recipe.compile else loss_of

    def step(progress: float) -> tuple[float, int]:
        return accumulate(
            loss,
            batches,
            stage(recipe.lengths, progress),
            recipe.batch_tokens,
            recipe.micro_tokens,
            next(model.parameters()).device.type,
        )

    def every(state: State) -> None:
        state.save(batches.state())
        after(state)

    run(state, recipe.schedule, step=step, every=every, log=recipe.out / "log.jsonl")


def run(
    state: State,
    schedule: Schedule,
    *,
    step: Callable[[float], tuple[float, int]],
    every: Callable[[State], None],
    log: Path,
    checkpoint_seconds: float = 120.0,
) -> None:
    """Repeat `step` until the schedule is over.

    `step(progress)` adds gradients and returns (loss in nats, tokens used); `every(state)` runs
    each `checkpoint_seconds` and at the end (it saves). Each step appends a line to the JSONL file
    `log`.
    """
    last_saved = time.monotonic()
    with _bar() as bar:
        task = bar.add_task("training", total=1.0, loss=float("nan"), rate=0.0)
        while (progress := schedule.progress(state.step, state.seconds)) < 1:
            begun = time.monotonic()
            loss, tokens = step(progress)
            _update(state, schedule.learning_rate(progress))
            state.step = state.step + 1
            state.tokens = state.tokens + tokens
            spent = time.monotonic() - begun
            state.seconds += spent
            seconds = round(state.seconds, 2)
            append_line(
                log, {"step": state.step, "tokens": state.tokens, "seconds": seconds, "loss": loss}
            )
            bar.update(task, completed=progress, loss=loss, rate=tokens / spent)
            if time.monotonic() - last_saved > checkpoint_seconds:
                every(state)
                last_saved = time.monotonic()
        every(state)


def accumulate(
    loss_of: Callable[[Tensor], Tensor],
    batches: Windowed,
    length: int,
    batch_tokens: int,
    micro_tokens: int,
    device: str = "cpu",
) -> tuple[float, int]:
    """Add the gradients of one batch, in bfloat16, a few rows at a time; returns (loss in nats, tokens)."""
    rows = max(micro_tokens // length, 1)
    rounds = max(batch_tokens // (rows * length), 1)
    total = 0.0
    for _ in range(rounds):
        with torch.autocast(device, torch.bfloat16):
            loss = loss_of(torch.from_numpy(batches.next(rows, length)))
        (loss / rounds).backward()
        total += loss.item() / rounds
    return total, rounds * rows * length


def append_line(path: Path, values: dict[str, Any]) -> None:
    """Appends a line to a JSONL file."""
    with path.open("a") as lines:
        lines.write(json.dumps(values) + "\n")


def _update(state: State, learning_rate: float) -> None:
    torch.nn.utils.clip_grad_norm_(state.model.parameters(), 1.0)
    for optimiser in state.optimisers:
        for group in optimiser.param_groups:
            group["lr"] = learning_rate
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(
            "{task.percentage:5.1f}%  loss {task.fields[loss]:.3f}  {task.fields[rate]:,.0f} "
            "tokens/s"
        ),
        TimeRemainingColumn(),
    )
