"""Figures of a target and its draft: loss per byte, loops in greedy text, and how often the two agree."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from speclab.errors import SpeclabError
from speclab.training.corpus import MIXTURE, Packed, Tokens, corpus_folder, pack
from speclab.training.generation import continue_all
from speclab.training.looping import loops, periodic, repeated
from speclab.training.model import load, logits


class EvaluateConfig(BaseModel):
    """What is measured, on what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    corpus: Path | None = Field(None, description="Folder of the training text; default: SPECLAB_CORPUS.")
    prompts: Path | None = Field(None, description="Folder of prompt files (*.jsonl); default: shipped prompts alone.")
    tokenizer: Path = Field(Path("checkpoints/tokenizer"), description="Folder of the tokenizer.")
    target: Path = Field(Path("checkpoints/unloop/model"), description="Folder of the target.")
    draft: Path | None = Field(Path("checkpoints/draft/model"), description="Folder of the draft.")
    out: Path = Field(Path("checkpoints/figures.json"), description="File for the figures.")
    mixture: dict[str, float] = Field(default_factory=lambda: dict(MIXTURE), description="Sources with held-out text.")
    new_tokens: int = Field(128, ge=1, description="Tokens of each greedy continuation.")
    per_file: int = Field(120, ge=1, description="Prompts taken of each file, evenly spread.")


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Measure and write `out`; the two parts are `held_out` (by source) and `prompts` (by file or kind)."""
    tokenizer = Tokenizer.from_file(str(config.tokenizer / "tokenizer.json"))
    target = load(config.target).eval()
    draft = load(config.draft).eval() if config.draft else None
    sources = pack(corpus_folder(config.corpus), config.mixture, tokenizer, config.out.parent / "packed")
    figures: dict[str, Any] = {
        "held_out": {s.name: held_out(target, draft, s) for s in sources},
        "prompts": {},
    }
    figures["copying"] = copying(target, sources)
    for name, entries in prompt_sets(config.prompts, config.per_file).items():
        texts = [tokenizer.encode(prompt).ids for prompt, _ in entries]
        full = [tokenizer.encode(prompt + reference).ids for prompt, reference in entries]
        figures["prompts"][name] = prompt_figures(target, draft, texts, full, config.new_tokens)
    config.out.write_text(json.dumps(figures, indent=2) + "\n")
    return figures


def held_out(target: Any, draft: Any | None, source: Packed) -> dict[str, float]:
    """Losses (nats a token, nats and bits a byte) of the target, and of any draft, on held-out text."""
    tokens = source.held_out_tokens()
    nats, count, _ = _read(target, None, _windows(tokens, target.config.max_position_embeddings))
    figures = _losses("target", nats, count, source.held_out_bytes)
    if draft is not None:
        nats, count, agreed = _read(draft, target, _windows(tokens, target.config.max_position_embeddings))
        figures |= _losses("draft", nats, count, source.held_out_bytes) | {"agreement": round(agreed / count, 4)}
    return figures | {"tokens": count}


def _losses(who: str, nats: float, count: int, size: int) -> dict[str, float]:
    return {
        f"{who}_nats_per_token": round(nats / count, 4),
        f"{who}_nats_per_byte": round(nats / size, 4),
        f"{who}_bits_per_byte": round(nats / size / math.log(2), 4),
    }


def _windows(tokens: Tokens, length: int) -> Iterable[Tensor]:
    ids = torch.from_numpy(np.asarray(tokens).astype("int64"))
    for start in range(0, len(ids) - 1, length):
        yield ids[start : start + length + 1]


@torch.no_grad()
def _read(model: Any, other: Any | None, rows: Iterable[Tensor]) -> tuple[float, int, int]:
    """Over rows of ids: the model's loss in nats, the positions, and how many have equal argmax."""
    nats, count, agreed = 0.0, 0, 0
    for row in rows:
        scores = logits(model, row[None, :-1])[0]
        nats += functional.cross_entropy(scores, row[1:], reduction="sum").item()
        count += len(row) - 1
        if other is not None:
            agreed += int((scores.argmax(-1) == logits(other, row[None, :-1])[0].argmax(-1)).sum())
    return nats, count, agreed


def prompt_figures(
    target: Any, draft: Any | None, prompts: list[list[int]], full: list[list[int]], new_tokens: int
) -> dict[str, float]:
    """Shares of greedy continuations that loop, are periodic, or ended; agreement on `full` and on them."""
    made = continue_all(target, prompts, new_tokens)
    number, eos = len(prompts), target.config.eos_token_id
    figures = {
        "prompts": number,
        "looping": round(sum(map(loops, made)) / number, 4),
        "periodic": round(sum(map(periodic, made)) / number, 4),
        "ended": round(sum(row[-1] == eos for row in made) / number, 4),
        "repeated_4grams": round(sum(sum(repeated(m)) / len(m) for m in made) / number, 4),
    }
    if draft is not None:
        context = target.config.max_position_embeddings
        agreed = _agreement(target, draft, [row[:context] for row in full])
        room = context - new_tokens
        rows = [prompt[-room:] + more for prompt, more in zip(prompts, made, strict=True)]
        own = _agreement(target, draft, rows, [len(prompt[-room:]) for prompt in prompts])
        figures |= {"agreement_text": round(agreed, 4), "agreement_own": round(own, 4)}
    return figures


@torch.no_grad()
def _agreement(target: Any, draft: Any, rows: list[list[int]], begins: list[int] | None = None) -> float:
    same = total = 0
    for row, begin in zip(rows, begins or [1] * len(rows), strict=True):
        tokens = torch.tensor(row)[None, :-1]
        equal = (logits(target, tokens)[0].argmax(-1) == logits(draft, tokens)[0].argmax(-1))[begin - 1 :]
        same, total = same + int(equal.sum()), total + len(equal)
    return same / total


@torch.no_grad()
def copying(target: Any, sources: list[Packed], length: int = 128, rows: int = 64) -> dict[str, float]:
    """Loss (nats a token) on held-out text read once, and on the same text read a second time right after."""
    tokens = np.concatenate([np.asarray(s.held_out_tokens()[: rows * length // len(sources)]) for s in sources])
    first = torch.from_numpy(tokens[: len(tokens) // length * length].astype("int64")).view(-1, length)
    twice = torch.cat((first, first), dim=1)
    scores = logits(target, twice[:, :-1])
    losses = functional.cross_entropy(scores.transpose(1, 2), twice[:, 1:], reduction="none")
    return {
        "first": round(losses[:, : length - 1].mean().item(), 4),
        "second": round(losses[:, length:].mean().item(), 4),
    }


def prompt_sets(folder: Path | None, per_file: int) -> Mapping[str, list[tuple[str, str]]]:
    """(prompt, reference) pairs by set: each kind of shipped prompt, and each `*.jsonl` file of `folder`."""
    from speclab.prompts import examples, kinds

    sets = {f"shipped {kind}": [(p.text, "") for p in examples(kind)] for kind in kinds()}
    if folder is None:
        return sets
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise SpeclabError(f"There are no *.jsonl prompt files in {folder}: pass the folder that holds them.")
    for file in files:
        entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        spread = entries[:: max(len(entries) // per_file, 1)][:per_file]
        sets[file.stem] = [(e["prompt"], e.get("reference") or "") for e in spread]
    return sets
