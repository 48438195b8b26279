"""Training of the draft heads: KL from the target, behind its own hidden states and behind the head's.

A head is taught as it will be used: the first row of a draft reads the target's hidden state, every later row the
head's own output, and sees the keys that its ancestors left. So each batch is unrolled a few rows deep over the same
keys (the idea of EAGLE-3's training-time test, Li et al. 2025); an L1 term keeps the features near the target's
(EAGLE, Li et al. 2024).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from speclab.models.head_files import save_head
from speclab.models.heads import Head, HeadConfig, rotary
from training.draft import DistillDataConfig, distill_batches
from training.loop import Schedule, train
from training.model import hidden_states, load

PROSE = {"books_simple": 0.38, "books": 0.28, "wikitext2_train": 0.26, "tinystories": 0.06, "tinyshakespeare": 0.02}
CODE = {"python_stdlib": 0.6, "gsm8k_train": 0.36, "mbpp_train": 0.04}
_ROWS = 512  # whose logits are held at a time
MIXTURES = {"prose": PROSE, "code": CODE}


class HeadsConfig(DistillDataConfig):
    """The shipped recipe of one head."""

    subject: Literal["prose", "code"] = Field(description="What the head is trained on: its name and its mixture.")
    out: Path = Field(Path("checkpoints/heads"), description="Folder; the head goes into a folder of its subject.")
    heads: int = Field(5, ge=1, description="Attention heads.")
    feed_forward: int = Field(320, ge=1, description="Width of the feed-forward part.")
    schedule: Schedule = Schedule(minutes=15, peak_lr=3e-3)
    depth: int = Field(3, ge=1, description="How many rows deep a batch is unrolled.")
    decay: float = Field(0.8, gt=0, le=1, description="Weight of each further row in the loss.")
    feature_weight: float = Field(0.1, ge=0, description="Weight of the L1 distance to the target's hidden states.")


def train_head(config: HeadsConfig) -> Head:
    """Train a draft head, or go on from its checkpoint; returns it and writes it to `out/<subject>/head`."""
    config = config.model_copy(update={"out": config.out / config.subject, "mixture": MIXTURES[config.subject]})
    target = load(config.target).eval().requires_grad_(False)
    batches = distill_batches(config, target)
    head = fresh_head(target, config)

    output = target.gpt_neox.embed_in.weight

    def loss(batch: Tensor) -> Tensor:
        with torch.no_grad():
            tokens = batch[:, :-1]
            states = hidden_states(target, tokens)
            lesson = Lesson(functional.embedding(tokens[:, 1:], output), states[:, :-1], states[:, 1:])
        return unrolled_loss(head, lesson, output, config.depth, config.decay, config.feature_weight)

    train(config, head, batches, loss)
    save_head(head, config.out / "head")
    return head


def fresh_head(target: Any, config: HeadsConfig) -> Head:
    """A head of random weights that fits the target."""
    torch.manual_seed(config.seed)
    shape = HeadConfig(
        name=config.subject,
        target="mini/target",
        vocab_size=target.config.vocab_size,
        hidden_size=target.config.hidden_size,
        heads=config.heads,
        key_value_heads=config.heads,
        feed_forward=config.feed_forward,
    )
    return Head(shape)


class Ancestors:
    """Keys and values of the rows so far, in the place of a cache: nothing is overwritten, so gradients flow."""

    def __init__(self) -> None:
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def update(self, key: Tensor, value: Tensor, _: int) -> tuple[Tensor, Tensor]:
        """Adds a pass; everything so far, pass after pass."""
        self._keys.append(key)
        self._values.append(value)
        return torch.cat(self._keys, dim=2), torch.cat(self._values, dim=2)


class Lesson(NamedTuple):
    """What a head reads at P places of B texts: place `i` belongs to token `i + 1` and the target's state at `i`."""

    embeddings: Tensor  # [B, P, hidden], of the tokens
    states: Tensor  # [B, P, layers * hidden], the target's at the places before them
    truth: Tensor  # [B, P, hidden], the target's last states at the tokens: the head's own are to say the same
    weights: Tensor | None = None  # [B, P], of each place in the loss; None for one each
    texts: Tensor | None = None  # [B, P] int, the text that a place is of; none sees another


def unrolled_loss(
    head: Head, lesson: Lesson, output: Tensor, depth: int, decay: float, feature_weight: float
) -> Tensor:
    """Mean over `depth` drafted rows, the later ones weighing less, of KL(target || head) and the feature distance.

    Args:
        output: `[V, hidden]`, the rows of the target's output matrix that the head drafts from.
    """
    places = lesson.truth.shape[1]
    weights = torch.ones(lesson.truth.shape[:2]) if lesson.weights is None else lesson.weights
    with torch.no_grad():
        log_probs = functional.linear(lesson.truth, output).float().log_softmax(-1)
        wanted = log_probs.exp()
        entropies = -(wanted * log_probs).sum(-1)
    angles = rotary(head.config, torch.arange(places))
    first = features = head.fused(lesson.states)
    ancestors, total = Ancestors(), torch.zeros(())
    for row in range(depth):
        out = head(head.join(lesson.embeddings, features), angles, seen(places, row, lesson.texts), ancestors)
        counted = weights.clone()
        counted[:, :row] = 0
        counted = counted / counted.sum()
        crossed = CrossEntropy.apply(out.flatten(0, 1), wanted.flatten(0, 1), output, counted.flatten())  # type: ignore[no-untyped-call]
        loss = crossed - (entropies * counted).sum()
        if feature_weight:
            distance = functional.smooth_l1_loss(out.float(), lesson.truth.float(), reduction="none").mean(-1)
            loss = loss + feature_weight * (distance * counted).sum()
        total = total + decay**row * loss
        # What the next row reads at place i is what this one made of place i - 1; place 0 has nothing before it.
        features = torch.cat((first[:, :1], out[:, :-1]), dim=1)
    return total / sum(decay**row for row in range(depth))


class CrossEntropy(torch.autograd.Function):
    """Weighted cross-entropy from `wanted` to softmax(out @ output.T); its gradient is made at once: no logits stay."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, wanted: Tensor, output: Tensor, weights: Tensor) -> Tensor:
        """`out` `[N, hidden]`, `wanted` `[N, V]` probabilities, `weights` `[N]`, to a number."""
        losses, gradients = [], []
        for rows, probs, weight in zip(out.split(_ROWS), wanted.split(_ROWS), weights.split(_ROWS), strict=True):
            got = functional.linear(rows.to(output.dtype), output).float().log_softmax(-1)
            losses.append(-(probs * got).sum(-1) @ weight)
            gradients.append(((got.exp() - probs) * weight[:, None]).to(output.dtype) @ output)
        ctx.save_for_backward(torch.cat(gradients).to(out.dtype))
        return torch.stack(losses).sum()

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of `out` alone."""
        return given[0] * ctx.saved_tensors[0], None, None, None


def seen(places: int, row: int, texts: Tensor | None) -> Tensor:
    """`[places, (row + 1) * places]` bool: a place sees true places up to `row` before it, then its own ancestors.

    With `texts` it is `[B, 1, …]`, and a place sees no other text.
    """
    back = torch.arange(places)[:, None] - torch.arange(places)[None]
    seen = torch.cat([back >= row, *(back == row - above for above in range(1, row + 1))], dim=1)
    if texts is None:
        return seen
    return seen & (texts[:, :, None] == texts[:, None]).repeat(1, 1, row + 1)[:, None]
