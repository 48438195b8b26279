"""Models of the mini family: their shape, a lean forward for training, saving and loading."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn import functional

from speclab.errors import SpeclabError


class Shape(BaseModel):
    """Sizes of a GPT-NeoX model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hidden: int = Field(320, ge=8, description="Width of the residual stream.")
    layers: int = Field(8, ge=1, description="Transformer blocks.")
    heads: int = Field(5, ge=1, description="Attention heads.")
    context: int = Field(1024, ge=16, description="Positions the model is made for.")
    vocab_size: int = Field(4096, ge=2, description="Entries of the tokenizer.")


TARGET = Shape()
DRAFT = Shape(hidden=128, layers=2, heads=2)


def build(shape: Shape, seed: int) -> Any:
    """A fresh float32 `GPTNeoXForCausalLM`: tied embeddings, a quarter of each head rotated, as in Pythia."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    torch.manual_seed(seed)
    config = GPTNeoXConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.hidden,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
        },
    )
    return GPTNeoXForCausalLM(config)


def logits(model: Any, tokens: Tensor) -> Tensor:
    """`[B, T]` ids to `[B, T, vocab]` logits: what the module computes, without caches, masks and outputs."""
    return functional.linear(hidden_states(model, tokens), model.gpt_neox.embed_in.weight)


def hidden_states(model: Any, tokens: Tensor, layers: tuple[int, ...] = (-1,)) -> Tensor:
    """`[B, T]` ids to the states of `layers`, `[B, T, len(layers) * hidden]`: 0 the embeddings, -1
    after the last norm.

    Straight-line code that `torch.compile` fuses well; a test holds it equal to the module's own
    forward.
    """
    body = model.gpt_neox
    heads = model.config.num_attention_heads
    x = functional.embedding(tokens, body.embed_in.weight)
    cos, sin = (t[:, None] for t in body.rotary_emb(x, torch.arange(tokens.shape[1])[None]))
    states = [x]
    for block in body.layers:
        mixed = _attention(block.attention, block.input_layernorm(x), heads, cos, sin)
        wide = functional.gelu(block.mlp.dense_h_to_4h(block.post_attention_layernorm(x)))
        x = x + mixed + block.mlp.dense_4h_to_h(wide)
        states.append(x)
    states[-1] = body.final_layer_norm(x)
    return torch.cat([states[layer] for layer in layers], dim=-1)


def _attention(attention: Any, x: Tensor, heads: int, cos: Tensor, sin: Tensor) -> Tensor:
    batch, length, width = x.shape
    qkv = attention.query_key_value(x).view(batch, length, heads, 3 * width // heads)
    query, key, value = qkv.transpose(1, 2).chunk(3, dim=-1)
    query = _rotate(query, cos, sin)
    key = _rotate(key, cos, sin)
    mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    out: Tensor = attention.dense(mixed.transpose(1, 2).reshape(batch, length, width))
    return out


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    turned = x[..., : cos.shape[-1]]
    still = x[..., cos.shape[-1] :]
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cos.to(x.dtype) + torch.cat((-second, first), dim=-1) * sin.to(x.dtype)
    return torch.cat((turned, still), dim=-1)


def next_token_loss(model: Any, batch: Tensor) -> Tensor:
    """Mean cross-entropy in nats of `[B, T + 1]` ids, each row predicting its own next token."""
    scores = logits(model, batch[:, :-1])
    return functional.cross_entropy(scores.flatten(0, 1).float(), batch[:, 1:].flatten())


def export(model: Any, folder: Path) -> None:
    """Write `config.json` and float16 `model.safetensors` into `folder`, each atomically."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    half = type(model)(model.config)
    half.load_state_dict(model.state_dict())
    half.half().save_pretrained(temporary)
    folder.mkdir(parents=True, exist_ok=True)
    for file in temporary.iterdir():
        file.chmod(0o644)  # safetensors writes for the owner alone; a wheel is read by all
        file.replace(folder / file.name)
    shutil.rmtree(temporary)


def load(folder: Path) -> Any:
    """The model saved in `folder`, as float32; raises `SpeclabError` if there is none."""
    from transformers import GPTNeoXForCausalLM

    if not (folder / "config.json").is_file():
        raise SpeclabError(
            f"There is no model in {folder}: run the training phase before this one, or pass its "
            "folder."
        )
    return GPTNeoXForCausalLM.from_pretrained(folder, dtype=torch.float32)


@torch.no_grad()
def continue_all(
    model: Any,
    prompts: list[list[int]],
    new_tokens: int,
    *,
    temperature: float = 0.0,
    seed: int = 0,
    batch: int = 32,
) -> list[list[int]]:
    """Continuations of token-id prompts, `new_tokens` long or up to the end-of-text id, in the
    order of the prompts.

    Temperature 0 is greedy. Prompts of similar length share a batch, padded on the left; a prompt
    too long for the context loses its beginning.
    """
    model.eval()
    room = model.config.max_position_embeddings - new_tokens
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    generator = torch.Generator().manual_seed(seed)
    results: list[list[int]] = [[] for _ in prompts]
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        rows = _continue(
            model, [prompts[i][-room:] for i in chosen], new_tokens, temperature, generator
        )
        for i, row in zip(chosen, rows, strict=True):
            results[i] = row
    return results


def _continue(
    model: Any,
    prompts: list[list[int]],
    new_tokens: int,
    temperature: float,
    generator: torch.Generator,
) -> list[list[int]]:
    from transformers import DynamicCache

    eos = model.config.eos_token_id
    tokens, mask = _padded(prompts)
    cache = DynamicCache()
    picks = []
    ended = torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(new_tokens):
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        scores = model(
            tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            logits_to_keep=1,
        ).logits[:, -1]
        picked = _pick(scores.float(), temperature, generator).masked_fill(ended, eos)
        picks.append(picked)
        ended |= picked == eos
        if bool(ended.all()):
            break
        tokens = picked[:, None]
        mask = torch.cat((mask, torch.ones_like(mask[:, :1])), dim=1)
    return [_until(row, eos) for row in torch.stack(picks, dim=1).tolist()]


def _padded(prompts: list[list[int]]) -> tuple[Tensor, Tensor]:
    width = max(len(prompt) for prompt in prompts)
    tokens = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return tokens, mask


def _pick(scores: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    if temperature == 0:
        return scores.argmax(-1)
    return torch.multinomial((scores / temperature).softmax(-1), 1, generator=generator)[:, 0]


def _until(row: list[int], eos: int) -> list[int]:
    return row[: row.index(eos) + 1] if eos in row else row
