"""Training of block heads (DFlash): the target is frozen, anchors are random positions in its own
text.

At an anchor the head sees the target's states before it, the anchor's token and masks. It learns
the target's distribution at each position of the block. Nearer positions weigh more, because a
chain ends at its first error.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from speclab.errors import SpeclabError
from speclab.heads.block_head import BlockConfig, BlockHead
from speclab.heads.files import read_head
from speclab.heads.layer import rotary
from speclab.models.runner import Runner
from training.draft import DistillDataConfig, distill_batches
from training.head_export import halves, save
from training.heads import CODE, ETA, PROSE, Divergence, choose_tokens, frequent
from training.loop import Recipe, Schedule, Windowed, train
from training.model import hidden_states, load
from training.smollm2 import KINDS, Windows, frame_ids
from training.smollm2 import frequent as frequent_in_answers
from training.states import Store


class BlockRecipe(Recipe):
    """What the recipes of both block heads have in common."""

    start: Path | None = Field(
        None, description="Folder of a head to start from; default: fresh weights."
    )
    markov_rank: int = Field(
        0,
        ge=0,
        description="Rank of a Markov bias, which is added to the head of `start` and learns alone; 0: none.",
    )
    fit_temperature: bool = Field(
        False,
        description="Only fit the temperature of the distributions of `start` to these texts.",
    )
    block_size: int = Field(
        8, ge=2, description="Entries of a block: the newest token and what is drafted."
    )
    block_layers: int = Field(2, ge=1, description="Layers of the head.")
    anchors: int = Field(24, ge=1, description="Blocks in a window of text.")
    gamma: float = Field(
        4.0, gt=0, description="A place i counts exp(-(i - 1) / gamma) in the loss (DFlash)."
    )
    eta: float = ETA
    smoothing: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Of the head's own confidence, by which places count instead of gamma (D-PACE: 0.5); 0: gamma.",
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
        {name: 0.5 * share for name, share in (PROSE | CODE).items()},
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


AnyBlockConfig = MiniBlockConfig | ChatBlockConfig


class Lesson(NamedTuple):
    """What a head reads at P places of B texts, and what the target says there."""

    tokens: Tensor  # [B, P] int64
    embeddings: Tensor  # [B, P, hidden], of the tokens
    states: Tensor  # [B, P, layers * hidden], the target's at the tokens
    truth: Tensor  # [B, P, hidden], its last states there: what they say is of the token after
    weights: Tensor  # [B, P], of the place's own token in the loss
    texts: Tensor  # [B, P] int, the text that a place belongs to; none sees another


class Teacher(NamedTuple):
    """Where a block head learns."""

    batches: Windowed
    lesson: Callable[[Tensor], Lesson]  # of a batch
    mask_embedding: Tensor  # [hidden]
    output: Tensor  # [draft_vocab, hidden], rows of the target's output matrix


class Blocks(NamedTuple):
    """Logits of blocks as a product, and what they should be."""

    read: Tensor  # [N, width]; of N entries of blocks
    output: Tensor  # [draft_vocab, width]
    wanted: Tensor  # [N, draft_vocab], the target's probabilities
    tokens: Tensor  # [N], the text's
    weights: Tensor  # [N], of each entry before its depth in the block counts
    depth: Tensor  # [N], in the block; 0 is the newest token, which is not drafted


def read_blocks(head: BlockHead, lesson: Lesson, anchors: Tensor, teacher: Teacher) -> Blocks:
    """One pass of the head over the blocks at `anchors`, int64 `[B, A]`.

    A Markov bias reads the token before each entry in the text.
    """
    size = head.config.block_size
    batch, places = lesson.texts.shape
    device = anchors.device
    # [B, A * size], the block's places in the text
    rows = (anchors[:, :, None] + torch.arange(size, device=device)).flatten(1)
    first = anchors.repeat_interleave(size, dim=1)
    own = torch.arange(anchors.shape[1], device=device).repeat_interleave(size)
    depth = torch.arange(rows.shape[1], device=device) % size

    def at(values: Tensor, where: Tensor) -> Tensor:
        return values.gather(1, where[..., None].expand(-1, -1, values.shape[-1]))

    newest = (depth == 0)[None, :, None]
    block = torch.where(newest, at(lesson.embeddings, rows), teacher.mask_embedding)
    texts_of = lesson.texts.gather(1, first)
    every = torch.arange(places, device=device)
    context = (every < first[:, :, None]) & (lesson.texts[:, None] == texts_of[:, :, None])
    inside = own[:, None] == own[None]
    mask = torch.cat((context, inside.expand(batch, -1, -1)), dim=2)[:, None]
    positions = torch.cat((every.expand(batch, -1), rows), dim=1)
    cos, sin = (angle[positions][:, None] for angle in rotary(head.config, every))
    read = head(block, head.fused(lesson.states), (cos, sin), mask).flatten(0, 1)
    output = teacher.output
    if head.markov_head is not None:
        before = head.markov_head.markov_w1(lesson.tokens.gather(1, rows - 1)).flatten(0, 1)
        after = head.markov_head.markov_w2.weight.to(output.dtype)
        read = torch.cat((read.to(before.dtype), before), dim=1)
        output = torch.cat((output, after), dim=1)
    with torch.no_grad():
        wanted = functional.linear(at(lesson.truth, rows - 1), teacher.output).float().softmax(-1)
        # the newest token is not drafted, and a block ends with its text
        drafted = (depth > 0) & (lesson.texts.gather(1, rows) == texts_of)
        weights = torch.where(drafted, lesson.weights.gather(1, rows), 0.0)
    return Blocks(
        read,
        output,
        wanted.flatten(0, 1),
        lesson.tokens.gather(1, rows).flatten(),
        weights.flatten(),
        depth.repeat(batch),
    )


def block_loss(
    head: BlockHead, lesson: Lesson, anchors: Tensor, teacher: Teacher, recipe: BlockRecipe
) -> Tensor:
    """Mean KL(target || head), or with `eta` the hybrid loss, over the places of the blocks at
    `anchors`, int64 `[B, A]`; nearer places weigh more.
    """
    blocks = read_blocks(head, lesson, anchors, teacher)
    with torch.no_grad():
        if recipe.smoothing:
            decay = confidence_weights(blocks, head, recipe.smoothing)
        else:
            decay = torch.exp(-(blocks.depth - 1) / recipe.gamma)
        counted = blocks.weights * decay
        counted = counted / counted.sum()
    loss: Tensor = Divergence.apply(  # type: ignore[no-untyped-call]
        blocks.read, blocks.wanted, blocks.output, counted, recipe.eta
    )
    return loss


def confidence_weights(blocks: Blocks, head: BlockHead, smoothing: float) -> Tensor:
    """Weights `[N]` of D-PACE (arXiv 2605.18810): how much a place adds to the expected length.

    With c = smoothing + (1 - smoothing) * the head's probability of the text's token, a place k
    weighs the sum over m >= k of the product of c up to m.
    """
    logits = functional.linear(blocks.read.to(blocks.output.dtype), blocks.output).float()
    ids = head.token_ids
    column = blocks.tokens
    drafted = torch.ones_like(column, dtype=torch.bool)
    if ids is not None:
        order = ids.argsort()
        column = order[torch.searchsorted(ids[order], column).clamp(max=len(ids) - 1)]
        drafted = ids[column] == blocks.tokens
    prob = logits.softmax(-1).gather(1, column[:, None])[:, 0] * drafted
    smooth = (smoothing + (1 - smoothing) * prob).view(-1, head.config.block_size)[:, 1:]
    reached = smooth.cumprod(1)
    weights = reached.flip(1).cumsum(1).flip(1)
    return torch.cat((torch.zeros_like(weights[:, :1]), weights), dim=1).flatten()


def train_mini_block(config: MiniBlockConfig) -> BlockHead:
    """Train the mini family's block head or its Markov bias, or go on from the checkpoint."""
    target = load(config.target).eval().requires_grad_(False)
    batches = distill_batches(config, target)
    embeddings = target.gpt_neox.embed_in.weight
    head = _head(
        config, target, "mini/target", frequent(batches, len(embeddings), config.draft_vocab_size)
    )
    target.to(config.device)
    embeddings = target.gpt_neox.embed_in.weight
    drafted = _drafted(head, len(embeddings))

    def lesson(batch: Tensor) -> Lesson:
        tokens = batch.to(config.device)
        layers = (*head.config.layers, -1)
        *read, last = hidden_states(target, tokens, layers).split(embeddings.shape[1], dim=-1)
        return Lesson(
            tokens,
            functional.embedding(tokens, embeddings),
            torch.cat(read, dim=-1),
            last,
            0.25 + 0.75 * drafted[tokens],
            torch.zeros_like(tokens),
        )

    mask_embedding = embeddings[head.config.mask_token_id]
    _learn(config, head, Teacher(batches, lesson, mask_embedding, embeddings[head.token_ids]))
    save_block(head, config.out / "head")
    return head


def train_chat_block(config: ChatBlockConfig) -> BlockHead:
    """Train SmolLM2's block head or its Markov bias on stored answers, or go on from the checkpoint."""
    from transformers import AutoModelForCausalLM

    target = AutoModelForCausalLM.from_pretrained(config.target, dtype=torch.float32)
    matrix: Tensor = target.get_output_embeddings().weight.detach()
    kinds = KINDS["base"]
    stores = [Store(path) for path in config.texts]
    windows = Windows(stores, kinds, config.seed, frame_ids(config.target), config.device)
    ids = frequent_in_answers(windows, kinds, config.draft_vocab_size, len(matrix))
    head = _head(config, target, config.name, ids)
    hidden = matrix.shape[1]

    def columns_of(layer: int) -> Tensor:
        return torch.arange(hidden) + hidden * config.kept.index(layer)

    columns = torch.cat([columns_of(layer) for layer in head.config.layers])
    last = columns_of(-1)
    # A finished head reads the states as they are.
    scale = None
    if not config.start:
        scale = windows.scale(columns, config.out / "scale.pt").to(config.device)
    small = matrix.to(config.device, torch.bfloat16)
    drafted = _drafted(head, len(matrix))

    def lesson(places: Tensor) -> Lesson:
        places = places.to(config.device)
        tokens = windows.tokens[places]
        states = windows.states(places)
        read = states[..., columns] if scale is None else states[..., columns] / scale.bfloat16()
        said = torch.where(windows.answers[places], 1.0, config.prompt_weight)
        return Lesson(
            tokens,
            functional.embedding(tokens, small),
            read,
            states[..., last],
            said * (0.25 + 0.75 * drafted[tokens]),
            windows.texts[places],
        )

    output = small[head.token_ids]
    _learn(config, head, Teacher(windows, lesson, small[head.config.mask_token_id], output))
    finished = copy.deepcopy(head).cpu()
    if scale is not None:
        with torch.no_grad():
            finished.fc.weight.div_(scale.float().cpu())
    save_block(finished, config.out / "head")
    return finished


def _learn(config: BlockRecipe, head: BlockHead, teacher: Teacher) -> None:
    """Trains a head, or only its Markov bias; then fits the temperature of its distributions."""
    whole = torch.compile(block_loss, dynamic=False) if config.compile else block_loss

    def lesson_of(batch: Tensor) -> tuple[Lesson, Tensor]:
        with torch.no_grad():
            return teacher.lesson(batch), _anchors(batch, config).to(config.device)

    def loss(batch: Tensor) -> Tensor:
        found: Tensor = whole(head, *lesson_of(batch), teacher, config)
        return found

    if config.fit_temperature:
        batch = torch.from_numpy(teacher.batches.next(16, config.lengths[-1][1]))
        with torch.no_grad(), torch.autocast(config.device, torch.bfloat16):
            blocks = read_blocks(head, *lesson_of(batch), teacher)
        temperature = fitted_temperature(blocks)
        head.config = head.config.model_copy(update={"temperature": temperature})
        return
    learner: nn.Module = head
    if config.markov_rank and head.markov_head is not None:
        head.requires_grad_(requires_grad=False)
        learner = head.markov_head.requires_grad_()
    train(config.model_copy(update={"compile": False}), learner, teacher.batches, loss)


@torch.no_grad()
def fitted_temperature(blocks: Blocks) -> float:
    """The temperature, .5 to 2, at which the head's distributions are nearest to the target's: least KL."""
    logits = functional.linear(blocks.read.to(blocks.output.dtype), blocks.output).float()
    weights = blocks.weights / blocks.weights.sum()

    def loss(temperature: float) -> float:
        said = (logits / temperature).log_softmax(-1)
        return float(-(blocks.wanted * said).sum(-1) @ weights)

    return min((2 ** (step / 32) for step in range(-32, 33)), key=loss)


def _head(config: AnyBlockConfig, target: Any, name: str, ids: Tensor) -> BlockHead:
    """A fresh head whose draft vocabulary is `ids`, or that of `start`, with a bias of zero if one is to be learned."""
    torch.manual_seed(config.seed)
    if config.start is None:
        if config.markov_rank:
            raise SpeclabError(
                "A Markov bias is added to a trained head: name its folder with --start."
            )
        head = _fresh(config, target.config, len(ids), name)
        choose_tokens(head, ids)
        return head.to(config.device)
    old = cast("BlockHead", read_head(config.start, Runner(target, name)))
    shape = old.config
    if config.markov_rank:
        shape = shape.model_copy(update={"markov_rank": config.markov_rank})
    head = BlockHead(shape)
    if head.markov_head is not None:
        nn.init.normal_(head.markov_head.markov_w1.weight, std=head.config.markov_rank**-0.5)
        nn.init.zeros_(head.markov_head.markov_w2.weight)
    head.load_state_dict(old.state_dict(), strict=False)
    return head.to(config.device)


def _drafted(head: BlockHead, vocab_size: int) -> Tensor:
    """1 for each token of the draft vocabulary, else 0: `[V]`."""
    ids = head.token_ids
    assert ids is not None
    return torch.zeros(vocab_size, device=ids.device).index_fill_(0, ids, 1.0)


def _anchors(batch: Tensor, config: BlockRecipe) -> Tensor:
    """Random different anchors `[B, A]`, each with a whole block behind it."""
    room = batch.shape[1] - config.block_size
    picked = torch.rand(len(batch), room).argsort(dim=1)[:, : config.anchors] + 1
    return picked.sort(dim=1).values


def _fresh(config: AnyBlockConfig, settings: Any, draft_vocab: int, target: str) -> BlockHead:
    """A head of random weights whose layers have the attention heads of the target's."""
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
    """Writes `config.json` and float16 `model.safetensors` in the published layout: DFlash's, or
    DSpark's if the head has a Markov bias.
    """
    config = head.config
    biased = bool(config.markov_rank)
    fields: dict[str, Any] = {
        "architectures": ["Qwen3DSparkModel" if biased else "DFlashDraftModel"],
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
    own: dict[str, Any] = {
        "mask_token_id": config.mask_token_id,
        "target_layer_ids": [layer - 1 for layer in config.layers],
    }
    if config.temperature != 1:
        own["marginal_temperature"] = round(config.temperature, 4)
    if biased:
        fields |= own | {
            "markov_rank": config.markov_rank,
            "markov_head_type": "vanilla",
            "enable_confidence_head": False,
            "sample_from_anchor": False,
        }
    else:
        fields["dflash_config"] = own
    folder.mkdir(parents=True, exist_ok=True)
    save(halves(head), folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
