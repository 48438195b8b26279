"""Training of block heads (DFlash): the target is frozen, anchors are random positions in its own
text.

At an anchor the head sees the target's states before it, the anchor's token and masks. It learns
the target's distribution at each position of the block. Nearer positions weigh more, because a
chain ends at its first error.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import Field
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from speclab.heads.block_head import BlockConfig, BlockHead
from speclab.heads.eagle import rotary
from training.draft import DistillDataConfig, distill_batches
from training.heads import CODE, PROSE, Divergence, frequent
from training.loop import Recipe, Schedule, train
from training.model import hidden_states, load
from training.smollm2 import KINDS, Windows, frame_ids, output_matrix
from training.smollm2 import frequent as frequent_in_answers
from training.states import Store


class BlockRecipe(Recipe):
    """What the recipes of both block heads have in common."""

    block_size: int = Field(
        8, ge=2, description="Entries of a block: the newest token and what is drafted."
    )
    block_layers: int = Field(2, ge=1, description="Layers of the head.")
    anchors: int = Field(24, ge=1, description="Blocks in a window of text.")
    gamma: float = Field(
        4.0, gt=0, description="A place i counts exp(-(i - 1) / gamma) in the loss (DFlash)."
    )


class MiniBlockConfig(DistillDataConfig, BlockRecipe):
    """The shipped recipe of the mini family's block head."""

    out: Path = Field(
        Path("checkpoints/mini_block"), description="Folder; the head goes into `head` in it."
    )
    layers: tuple[int, ...] = Field((2, 4, 6), description="Fused layers of the target.")
    feed_forward: int = Field(320, ge=1, description="Width of the feed-forward part.")
    generated_share: float = 0.75
    generated_tokens: int = 240_000
    mixture: dict[str, float] = Field(
        {name: 0.5 * share for part in (PROSE, CODE) for name, share in part.items()},
        description="Shares of the sources.",
    )
    draft_vocab_size: int = Field(3072, ge=2, description="Tokens that the head drafts from.")
    mask_token_id: int = Field(0, ge=0, description="Token whose embedding marks a masked place.")
    schedule: Schedule = Schedule(minutes=32, peak_lr=3e-3)


class ChatBlockConfig(BlockRecipe):
    """The shipped recipe of SmolLM2's block head."""

    target: Path = Field(description="Folder of the target.")
    name: str = Field("SmolLM2-135M-Instruct", description="Name of the target.")
    texts: list[Path] = Field(
        [Path("checkpoints/smollm2/answers")], description="Folders of texts with states."
    )
    kept: tuple[int, ...] = Field(
        (8, 16, 24, -1), description="Layers whose states those texts hold."
    )
    out: Path = Field(
        Path("checkpoints/smollm2_block"), description="Folder; the head goes into `head` in it."
    )
    layers: tuple[int, ...] = Field((8, 16, 24), description="Fused layers of the target.")
    feed_forward: int = Field(768, ge=1, description="Width of the feed-forward part.")
    draft_vocab_size: int = Field(8192, ge=2, description="Tokens that the head drafts from.")
    mask_token_id: int = Field(16, ge=0, description="Token whose embedding marks a masked place.")
    prompt_weight: float = Field(
        0.3, ge=0, description="Weight of a prompt's places beside the answer's, 1."
    )
    schedule: Schedule = Schedule(minutes=75, peak_lr=3e-3, flat_until=0.5, final=0.02)


class Lesson(NamedTuple):
    """What a head reads at P places of B texts, and what the target says there."""

    embeddings: Tensor  # [B, P, hidden], of the tokens
    states: Tensor  # [B, P, layers * hidden], the target's at the tokens
    truth: Tensor  # [B, P, hidden], its last states there: what they say is of the token after
    weights: Tensor  # [B, P], of the place's own token in the loss
    texts: Tensor  # [B, P] int, the text that a place belongs to; none sees another


def block_loss(
    head: BlockHead,
    lesson: Lesson,
    anchors: Tensor,
    mask_embedding: Tensor,
    output: Tensor,
    gamma: float,
) -> Tensor:
    """Mean KL(target || head) over the places of the blocks at `anchors`, int64 `[B, A]`, nearer
    places weighing more.

    Args:
        mask_embedding: `[hidden]`.
        output: `[draft_vocab, hidden]`, rows of the target's output matrix.
    """
    size = head.config.block_size
    batch, places = lesson.texts.shape
    # [B, A * size], the block's places in the text
    rows = (anchors[:, :, None] + torch.arange(size)).flatten(1)
    first = anchors.repeat_interleave(size, dim=1)
    own = torch.arange(anchors.shape[1]).repeat_interleave(size)

    def at(values: Tensor, where: Tensor) -> Tensor:
        return values.gather(1, where[..., None].expand(-1, -1, values.shape[-1]))

    newest = (torch.arange(rows.shape[1]) % size == 0)[None, :, None]
    block = torch.where(newest, at(lesson.embeddings, rows), mask_embedding)
    texts_of = lesson.texts.gather(1, first)
    context = (torch.arange(places) < first[:, :, None]) & (
        lesson.texts[:, None] == texts_of[:, :, None]
    )
    inside = (own[:, None] == own[None]).expand(batch, -1, -1)
    mask = torch.cat((context, inside), dim=2)[:, None]
    positions = torch.cat((torch.arange(places).expand(batch, -1), rows), dim=1)
    cos, sin = (angle[positions][:, None] for angle in rotary(head.config, torch.arange(places)))
    out = head(block, head.fused(lesson.states), (cos, sin), mask)
    with torch.no_grad():
        wanted = functional.linear(at(lesson.truth, rows - 1), output).float().softmax(-1)
        depth = torch.arange(rows.shape[1]) % size
        counted = lesson.weights.gather(1, rows) * torch.exp(-(depth - 1) / gamma) * (depth > 0)
        counted = counted * (lesson.texts.gather(1, rows) == texts_of)
        counted = counted / counted.sum()
    both = out.flatten(0, 1), wanted.flatten(0, 1)
    loss: Tensor = Divergence.apply(*both, output, counted.flatten(), 0.0)  # type: ignore[no-untyped-call]
    return loss


def train_mini_block(config: MiniBlockConfig) -> BlockHead:
    """Train the mini family's block head, or go on from its checkpoint."""
    target = load(config.target).eval().requires_grad_(False)
    batches = distill_batches(config, target)
    embeddings = target.gpt_neox.embed_in.weight
    ids = frequent(batches, len(embeddings), config.draft_vocab_size)
    head = _fresh(config, target.config, config.draft_vocab_size, "mini/target")
    head.choose_tokens(ids)
    output = embeddings[ids]
    mask_embedding = embeddings[config.mask_token_id]
    drafted = torch.zeros(len(embeddings)).index_fill_(0, ids, 1.0)
    whole = torch.compile(block_loss, dynamic=False) if config.compile else block_loss

    def loss(batch: Tensor) -> Tensor:
        with torch.no_grad():
            *read, last = hidden_states(target, batch, (*config.layers, -1)).split(
                output.shape[1], dim=-1
            )
            weights = 0.25 + 0.75 * drafted[batch]
            lesson = Lesson(
                functional.embedding(batch, embeddings),
                torch.cat(read, dim=-1),
                last,
                weights,
                torch.zeros_like(batch),
            )
        return whole(head, lesson, _anchors(batch, config), mask_embedding, output, config.gamma)

    train(config.model_copy(update={"compile": False}), head, batches, loss)
    save_block(head, config.out / "head")
    return head


def train_chat_block(config: ChatBlockConfig) -> BlockHead:
    """Train SmolLM2's block head on its stored answers, or go on from its checkpoint."""
    matrix, settings = output_matrix(config.target)
    kinds = KINDS["base"]
    windows = Windows(
        [Store(path) for path in config.texts], kinds, config.seed, frame_ids(config.target)
    )
    ids = frequent_in_answers(windows, kinds, config.draft_vocab_size, len(matrix))
    head = _fresh(config, settings, len(ids), config.name)
    head.choose_tokens(ids)
    hidden = settings.hidden_size
    columns = torch.cat(
        [
            torch.arange(hidden * at, hidden * (at + 1))
            for at in map(config.kept.index, config.layers)
        ]
    )
    last = slice(hidden * config.kept.index(-1), hidden * (config.kept.index(-1) + 1))
    scale = windows.scale(columns, config.out / "scale.pt").bfloat16()
    small = matrix.bfloat16()
    output = matrix[ids].bfloat16()
    drafted = torch.zeros(len(matrix)).index_fill_(0, ids, 1.0)
    whole = torch.compile(block_loss, dynamic=False) if config.compile else block_loss

    def loss(places: Tensor) -> Tensor:
        with torch.no_grad():
            tokens = windows.tokens[places]
            states = windows.states(places)
            weights = torch.where(windows.answers[places], 1.0, config.prompt_weight) * (
                0.25 + 0.75 * drafted[tokens]
            )
            lesson = Lesson(
                functional.embedding(tokens, small), states[..., columns] / scale, states[..., last], weights,
                windows.texts[places],
            )  # fmt: skip
        return whole(
            head,
            lesson,
            _anchors(places, config),
            small[config.mask_token_id],
            output,
            config.gamma,
        )

    train(config.model_copy(update={"compile": False}), head, windows, loss)
    finished = copy.deepcopy(head)
    with torch.no_grad():
        finished.fc.weight.div_(scale.float())
    save_block(finished, config.out / "head")
    return finished


def _anchors(batch: Tensor, config: BlockRecipe) -> Tensor:
    """Random different anchors `[B, A]`, each with a whole block behind it."""
    room = batch.shape[1] - config.block_size
    picked = torch.rand(len(batch), room).argsort(dim=1)[:, : config.anchors] + 1
    return picked.sort(dim=1).values


def _fresh(
    config: MiniBlockConfig | ChatBlockConfig, settings: Any, draft_vocab: int, target: str
) -> BlockHead:
    """A head of random weights whose layers have the attention heads of the target's."""
    torch.manual_seed(config.seed)
    shape = BlockConfig(
        name="block",
        target=target,
        vocab_size=settings.vocab_size,
        draft_vocab_size=draft_vocab,
        hidden_size=settings.hidden_size,
        depth=config.block_layers,
        heads=settings.num_attention_heads,
        key_value_heads=getattr(settings, "num_key_value_heads", settings.num_attention_heads),
        feed_forward=config.feed_forward,
        block_size=config.block_size,
        mask_token_id=config.mask_token_id,
        layers=config.layers,
    )
    return BlockHead(shape)


def save_block(head: BlockHead, folder: Path) -> None:
    """Writes `config.json` and float16 `model.safetensors` in the published layout."""
    config = head.config
    fields: dict[str, Any] = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "target": config.target,
        "vocab_size": config.vocab_size,
        "draft_vocab_size": config.draft_vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.feed_forward,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rope_theta,
        "rope_scaling": config.rope_scaling,
        "block_size": config.block_size,
    }
    own = {
        "mask_token_id": config.mask_token_id,
        "target_layer_ids": [layer - 1 for layer in config.layers],
    }
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {n: t.half() if t.is_floating_point() else t for n, t in head.state_dict().items()}
    save_file(
        {n: t.contiguous() for n, t in tensors.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    (folder / "model.safetensors").chmod(0o644)
    (folder / "config.json").write_text(
        json.dumps(fields | {"dflash_config": own}, indent=2) + "\n"
    )
