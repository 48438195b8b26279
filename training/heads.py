"""Training of the draft heads: KL from the target, behind its own hidden states and behind the head's.

A head is taught as it will be used: the first row of a draft reads the target's hidden state, every later row the
head's own output, and sees the keys that its ancestors left. So each batch is unrolled a few rows deep over the same
keys (the idea of EAGLE-3's training-time test, Li et al. 2025); an L1 term keeps the features near the target's
(EAGLE, Li et al. 2024).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

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

    def loss(batch: Tensor) -> Tensor:
        return unrolled_loss(head, target, batch[:, :-1], config.depth, config.decay, config.feature_weight)

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


def unrolled_loss(head: Head, target: Any, tokens: Tensor, depth: int, decay: float, feature_weight: float) -> Tensor:
    """Mean over `depth` drafted rows, the later ones weighing less, of KL(target || head) and the feature distance.

    Args:
        tokens: `[B, T]` ids. Place `i` of a row belongs to token `i + 1` and the target's state at `i`.
    """
    with torch.no_grad():
        states = hidden_states(target, tokens)
        wanted = functional.linear(states, target.gpt_neox.embed_in.weight).float().log_softmax(-1)
        embeddings = functional.embedding(tokens[:, 1:], target.gpt_neox.embed_in.weight)
    places = tokens.shape[1] - 1
    angles = rotary(head.config, torch.arange(places))
    features, ancestors, log_probs = states[:, :-1], Ancestors(), wanted[:, 1:]
    total = torch.zeros(())
    for row in range(depth):
        out = head(head.join(embeddings, features), angles, _seen(places, row), ancestors)
        got = functional.linear(out, target.gpt_neox.embed_in.weight).float().log_softmax(-1)
        divergence = (log_probs.exp() * (log_probs - got)).sum(-1)[:, row:].mean()
        distance = functional.smooth_l1_loss(out[:, row:].float(), states[:, 1 + row :].float())
        total = total + decay**row * (divergence + feature_weight * distance)
        # What the next row reads at place i is what this one made of place i - 1; place 0 has nothing before it.
        features = torch.cat((states[:, :1], out[:, :-1]), dim=1)
    return total / sum(decay**row for row in range(depth))


def _seen(places: int, row: int) -> Tensor:
    """`[places, (row + 1) * places]` bool: a place sees true places up to `row` before it, then its own ancestors."""
    back = torch.arange(places)[:, None] - torch.arange(places)[None]
    return torch.cat([back >= row, *(back == row - above for above in range(1, row + 1))], dim=1)
