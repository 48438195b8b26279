"""Batched continuation of many prompts at once, for training data and evaluation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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
    """Continuations of token-id prompts, each `new_tokens` long or ending with the end-of-text id.

    Temperature 0 is greedy. Prompts of like length share a batch, padded on the left; a prompt too long for
    the context loses its beginning. The results come in the order of the prompts.
    """
    model.eval()
    room = model.config.max_position_embeddings - new_tokens
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    generator = torch.Generator().manual_seed(seed)
    results: list[list[int]] = [[] for _ in prompts]
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        rows = _continue(model, [prompts[i][-room:] for i in chosen], new_tokens, temperature, generator)
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
    cache, made = DynamicCache(), []
    ended = torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(new_tokens):
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        scores = model(
            tokens, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
        ).logits[:, -1]
        picked = _pick(scores.float(), temperature, generator).masked_fill(ended, eos)
        made.append(picked)
        ended |= picked == eos
        if bool(ended.all()):
            break
        tokens, mask = picked[:, None], torch.cat((mask, torch.ones_like(mask[:, :1])), dim=1)
    return [_until(row, eos) for row in torch.stack(made, dim=1).tolist()]


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
