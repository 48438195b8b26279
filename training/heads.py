"""Training of the draft heads: KL from the target, on the target's hidden states and on the head's
own output.

A head trains as it is used: the first row of a draft reads the target's hidden state, every later
row the head's own output, and sees the keys of its ancestors. So each batch is unrolled a few rows
deep over the same keys (EAGLE-3's training-time test, Li et al. 2025). One loop serves both kinds:
an EAGLE head also has an L1 term, which keeps its features near the target's (Li et al. 2024); an
EAGLE-3 head fuses three layers and learns an output matrix over a draft vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from speclab.heads.eagle import EagleConfig, Head
from speclab.heads.layer import rotary
from speclab.heads.layout import OUTPUT, DraftModule
from training.data import Batches
from training.draft import DistillDataConfig, distill_batches
from training.head_export import save_head
from training.loop import Schedule, train
from training.model import hidden_states, load

PROSE = {
    "books_simple": 0.38,
    "books": 0.28,
    "wikitext2_train": 0.26,
    "tinystories": 0.06,
    "tinyshakespeare": 0.02,
}
CODE = {"python_stdlib": 0.6, "gsm8k_train": 0.36, "mbpp_train": 0.04}
ETA: float = Field(
    0.0, ge=0, description="Of the hybrid loss of acceptance (3 in its paper); 0: KL alone."
)
_ROWS = 512  # whose logits are in memory at a time
MIXTURES = {"prose": PROSE, "code": CODE}


class HeadsConfig(DistillDataConfig):
    """The shipped recipe of one head."""

    subject: Literal["prose", "code"] = Field(
        description="What the head is trained on: its name and its mixture."
    )
    out: Path = Field(
        Path("checkpoints/heads"), description="Folder; the head goes into a folder of its subject."
    )
    kind: Literal["EAGLE", "EAGLE-3", "EAGLE-3.1"] = Field("EAGLE", description="What the head is.")
    draft_vocab_size: int = Field(3072, ge=2, description="Tokens that an EAGLE-3 head proposes.")
    heads: int = Field(5, ge=1, description="Attention heads.")
    feed_forward: int = Field(320, ge=1, description="Width of the feed-forward part.")
    schedule: Schedule = Schedule(minutes=15, peak_lr=3e-3)
    depth: int = Field(3, ge=1, description="How many rows deep a batch is unrolled.")
    decay: float = Field(0.8, gt=0, le=1, description="Weight of each further row in the loss.")
    eta: float = ETA
    feature_weight: float = Field(
        0.1,
        ge=0,
        description="Weight of the L1 distance to the target's hidden states; of an EAGLE head.",
    )


def train_head(config: HeadsConfig) -> Head:
    """Train a draft head, or go on from its checkpoint; returns it and writes it to `out/<subject>/head`."""
    config = config.model_copy(
        update={"out": config.out / config.subject, "mixture": MIXTURES[config.subject]}
    )
    target = load(config.target).eval().requires_grad_(False)
    batches = distill_batches(config, target)
    head = fresh_head(target, config)
    output = target.gpt_neox.embed_in.weight
    if head.lm_head is not None:
        choose_tokens(head, frequent(batches, len(output), config.draft_vocab_size))
        head.lm_head.weight.data.copy_(output[head.token_ids])
    taught = output if head.token_ids is None else output[head.token_ids]
    weight = 0.0 if head.config.eagle3 else config.feature_weight

    def loss(batch: Tensor) -> Tensor:
        with torch.no_grad():
            tokens = batch[:, :-1]
            *read, last = hidden_states(target, tokens, (*head.config.layers, -1)).split(
                output.shape[1], dim=-1
            )
            said = functional.linear(last[:, 1:], output).argmax(-1)
            # Where the target would say what the head cannot, there is nothing to learn (EAGLE-3,
            # code).
            ids = head.token_ids
            weights = None if ids is None else torch.isin(said, ids).float()
            embeddings = functional.embedding(tokens[:, 1:], output)
            lesson = Lesson(embeddings, torch.cat(read, dim=-1)[:, :-1], last[:, 1:], weights)
        return unrolled_loss(head, lesson, taught, config.depth, config.decay, weight, config.eta)

    train(config, head, batches, loss)
    save_head(head, config.out / "head")
    return head


def fresh_head(target: Any, config: HeadsConfig) -> Head:
    """A head of random weights that fits the target."""
    torch.manual_seed(config.seed)
    depth = target.config.num_hidden_layers
    eagle3 = config.kind != "EAGLE"
    shape = EagleConfig(
        name=config.subject,
        target="mini/target",
        vocab_size=target.config.vocab_size,
        hidden_size=target.config.hidden_size,
        draft_vocab_size=config.draft_vocab_size if eagle3 else None,
        layers=tuple(sorted((2, depth // 2, max(depth - 3, 0)))) if eagle3 else (-1,),
        heads=config.heads,
        key_value_heads=config.heads,
        feed_forward=config.feed_forward,
        eagle3=eagle3,
        fc_norm=config.kind == "EAGLE-3.1",
        norm_output=config.kind == "EAGLE-3.1",
    )
    return shape.module(shape, {OUTPUT} if eagle3 else ())


def choose_tokens(head: DraftModule, ids: Tensor) -> None:
    """Makes the target's tokens `ids`, int64 `[draft_vocab]`, all different, the draft vocabulary."""
    head.get_buffer("d2t").copy_(ids.sort().values - torch.arange(len(ids), device=ids.device))


def frequent(batches: Batches, vocab_size: int, size: int) -> Tensor:
    """The `size` ids most frequent in what will be read, int64 ascending."""
    place = batches.state()
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for _ in range(64):
        counts += torch.from_numpy(batches.next(16, 64)).flatten().bincount(minlength=vocab_size)
    batches.restore(place)
    return counts.argsort(descending=True, stable=True)[:size].sort().values


class Ancestors:
    """Keys and values of the rows so far; unlike in a cache nothing is overwritten, so gradients flow."""

    def __init__(self) -> None:
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def update(self, key: Tensor, value: Tensor, _: int) -> tuple[Tensor, Tensor]:
        """Adds a pass; everything so far, pass after pass."""
        self._keys.append(key)
        self._values.append(value)
        return torch.cat(self._keys, dim=2), torch.cat(self._values, dim=2)


class Lesson(NamedTuple):
    """A head's input at P positions of B texts: position `i` has token `i + 1` and the target's state at `i`."""

    embeddings: Tensor  # [B, P, hidden], of the tokens
    states: Tensor  # [B, P, layers * hidden], the target's at the positions before them
    # [B, P, hidden], the target's last states at the tokens, which the head must predict
    truth: Tensor
    weights: Tensor | None = None  # [B, P], of each position in the loss; None: all 1
    # [B, P] int, the text of each position; positions see only their own text
    texts: Tensor | None = None


def unrolled_loss(
    head: Head,
    lesson: Lesson,
    output: Tensor,
    depth: int,
    decay: float,
    feature_weight: float,
    eta: float = 0.0,
) -> Tensor:
    """Mean over `depth` drafted rows, later ones with less weight, of KL(target || head) and the
    feature distance.

    Args:
        output: `[V, hidden]`, rows of the target's output matrix for the tokens that the head
            proposes.
        eta: of `Divergence`.
    """
    learned = output if head.lm_head is None else head.lm_head.weight
    places = lesson.truth.shape[1]
    device = lesson.truth.device
    weights = lesson.weights
    if weights is None:
        weights = torch.ones(lesson.truth.shape[:2], device=device)
    with torch.no_grad():
        wanted = functional.linear(lesson.truth, output).float().softmax(-1)
    angles = rotary(head.config, torch.arange(places, device=device))
    first = features = head.fused(lesson.states)
    ancestors = Ancestors()
    total = torch.zeros((), device=device)
    for row in range(depth):
        visible = seen(places, row, lesson.texts).to(device)
        out = head(lesson.embeddings, features, angles, visible, ancestors)
        counted = weights.clone()
        counted[:, :row] = 0
        counted = counted / counted.sum()
        read = head.read_out(out).flatten(0, 1)
        loss = Divergence.apply(read, wanted.flatten(0, 1), learned, counted.flatten(), eta)  # type: ignore[no-untyped-call]
        if feature_weight:
            distance = functional.smooth_l1_loss(
                out.float(), lesson.truth.float(), reduction="none"
            ).mean(-1)
            loss = loss + feature_weight * (distance * counted).sum()
        total = total + decay**row * loss
        # The next row reads at position i this row's output at i - 1; position 0 has nothing before
        # it.
        features = torch.cat((first[:, :1], out[:, :-1]), dim=1)
    return total / sum(decay**row for row in range(depth))


class Divergence(torch.autograd.Function):
    """Weighted KL(wanted || softmax(out @ output.T)); computes its gradient at once and keeps no
    logits.

    With `eta` it is the hybrid loss of acceptance (arXiv 2602.23881): a share exp(-eta * alpha) of
    KL and the rest of 1 - alpha, where alpha = sum(min(p, q)) is the share of samples accepted.
    """

    @staticmethod
    def forward(
        ctx: Any, out: Tensor, wanted: Tensor, output: Tensor, weights: Tensor, eta: float
    ) -> Tensor:
        """`out` `[N, hidden]`, `wanted` `[N, V]` probabilities, `weights` `[N]`, to a number in nats."""
        losses = []
        gradients = []
        learned = None
        if ctx.needs_input_grad[2]:
            learned = torch.zeros_like(output)
        for rows, probs, weight in zip(
            out.split(_ROWS), wanted.split(_ROWS), weights.split(_ROWS), strict=True
        ):
            got = functional.linear(rows.to(output.dtype), output).float().log_softmax(-1)
            drafted = got.exp()
            loss = -(probs * got + torch.special.entr(probs)).sum(-1)
            gradient = drafted - probs
            if eta:
                accepted = torch.minimum(probs, drafted).sum(-1)
                share = torch.exp(-eta * accepted)
                below = drafted < probs
                more = drafted * ((drafted * below).sum(-1, keepdim=True) - below.float())
                loss = share * loss + (1 - share) * (1 - accepted)
                gradient = share[:, None] * gradient + (1 - share[:, None]) * more
            losses.append(loss @ weight)
            gradient = (gradient * weight[:, None]).to(output.dtype)
            gradients.append(gradient @ output)
            if learned is not None:
                learned += gradient.T @ rows.to(output.dtype)
        ctx.save_for_backward(torch.cat(gradients).to(out.dtype), learned)
        return torch.stack(losses).sum()

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of `out`, and of `output` where it learns."""
        out, learned = ctx.saved_tensors
        if learned is not None:
            learned = given[0] * learned
        return given[0] * out, None, learned, None, None


def seen(places: int, row: int, texts: Tensor | None) -> Tensor:
    """`[places, (row + 1) * places]` bool: a position sees true positions up to `row` before it,
    then its ancestors.

    With `texts` it is `[B, 1, …]`, and a position sees only its own text.
    """
    every = torch.arange(places)
    if texts is not None:
        every = every.to(texts.device)
    back = every[:, None] - every[None]
    parts = [back >= row]
    for above in range(1, row + 1):
        parts.append(back == row - above)
    seen = torch.cat(parts, dim=1)
    if texts is None:
        return seen
    return seen & (texts[:, :, None] == texts[:, None]).repeat(1, 1, row + 1)[:, None]
