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
from torch import Tensor
from torch.nn import functional

from speclab.errors import SpeclabError
from speclab.trace.metrics import loops
from training.data import MIXTURE, Packed, Tokens, corpus_folder, pack, read_tokenizer
from training.model import continue_all, load, logits
from training.repeats import periodic, repeated


class EvaluateConfig(BaseModel):
    """What to measure, on what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    corpus: Path | None = Field(
        None, description="Folder of the training text; default: SPECLAB_CORPUS."
    )
    prompts: Path | None = Field(
        None, description="Folder of prompt files (*.jsonl); default: shipped prompts alone."
    )
    tokenizer: Path = Field(Path("checkpoints/tokenizer"), description="Folder of the tokenizer.")
    target: Path = Field(
        Path("checkpoints/unlikelihood/model"), description="Folder of the target."
    )
    draft: Path | None = Field(Path("checkpoints/draft/model"), description="Folder of the draft.")
    out: Path = Field(Path("checkpoints/figures.json"), description="File for the figures.")
    mixture: dict[str, float] = Field(
        default_factory=lambda: dict(MIXTURE), description="Sources with held-out text."
    )
    new_tokens: int = Field(128, ge=1, description="Tokens of each greedy continuation.")
    per_file: int = Field(60, ge=1, description="Prompts taken of each file, evenly spread.")


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Measure losses, loops and agreement, by source (`held_out`) and by file or kind (`prompts`); written to `out`."""
    tokenizer = read_tokenizer(config.tokenizer)
    target = load(config.target).eval()
    draft = None
    if config.draft:
        draft = load(config.draft).eval()
    sources = pack(
        corpus_folder(config.corpus), config.mixture, tokenizer, config.out.parent / "packed"
    )
    figures: dict[str, Any] = {
        "held_out": {s.name: held_out(target, draft, s) for s in sources},
        "prompts": {},
    }
    figures["copying"] = copying(target, sources)
    for name, entries in prompt_sets(config.prompts, config.per_file).items():
        prompts = [tokenizer.encode(prompt).ids for prompt, _ in entries]
        continued = continue_all(target, prompts, config.new_tokens)
        entry = loop_figures(continued, target.config.eos_token_id)
        if draft is not None:
            full = [tokenizer.encode(prompt + reference).ids for prompt, reference in entries]
            entry |= agreement_figures(target, draft, prompts, continued, full)
        figures["prompts"][name] = entry
    config.out.write_text(json.dumps(figures, indent=2) + "\n")
    return figures


@torch.no_grad()
def held_out(target: Any, draft: Any | None, source: Packed) -> dict[str, float]:
    """Losses (nats per token, nats and bits per byte) of the target and the draft on held-out text."""
    models = {"target": target}
    if draft is not None:
        models["draft"] = draft
    nats = dict.fromkeys(models, 0.0)
    count = 0
    agreed = 0
    for row in _windows(source.held_out_tokens(), target.config.max_position_embeddings):
        scores = {who: logits(model, row[None, :-1])[0] for who, model in models.items()}
        for who, rows in scores.items():
            nats[who] += functional.cross_entropy(rows, row[1:], reduction="sum").item()
        count += len(row) - 1
        if draft is not None:
            agreed += _same(scores["target"], scores["draft"])
    figures: dict[str, float] = {"tokens": count}
    for who, total in nats.items():
        figures[f"{who}_nats_per_token"] = round(total / count, 4)
        figures[f"{who}_nats_per_byte"] = round(total / source.held_out_bytes, 4)
        figures[f"{who}_bits_per_byte"] = round(total / source.held_out_bytes / math.log(2), 4)
    if draft is not None:
        figures["agreement"] = round(agreed / count, 4)
    return figures


def _windows(tokens: Tokens, length: int) -> Iterable[Tensor]:
    ids = torch.from_numpy(np.asarray(tokens).astype("int64"))
    for start in range(0, len(ids) - 1, length):
        yield ids[start : start + length + 1]


def _same(left: Tensor, right: Tensor) -> int:
    return int((left.argmax(-1) == right.argmax(-1)).sum())


def loop_figures(continuations: list[list[int]], eos: int) -> dict[str, float]:
    """Shares of greedy continuations that loop, are periodic, or ended; the mean share of repeated 4-grams."""
    number = len(continuations)
    return {
        "prompts": number,
        "looping": round(sum(map(loops, continuations)) / number, 4),
        "periodic": round(sum(map(periodic, continuations)) / number, 4),
        "ended": round(sum(row[-1] == eos for row in continuations) / number, 4),
        "repeated_4grams": round(
            sum(sum(repeated(row)) / len(row) for row in continuations) / number, 4
        ),
    }


def agreement_figures(
    target: Any,
    draft: Any,
    prompts: list[list[int]],
    continuations: list[list[int]],
    full: list[list[int]],
) -> dict[str, float]:
    """Shares of positions where both models' argmax agree: in the text `full`, and in the target's continuations."""
    context = target.config.max_position_embeddings
    on_text = [_agreed(target, draft, row[:context], 1) for row in full]
    shortened = [
        prompt[-(context - len(more)) :]
        for prompt, more in zip(prompts, continuations, strict=True)
    ]
    on_own = [
        _agreed(target, draft, p + more, len(p))
        for p, more in zip(shortened, continuations, strict=True)
    ]
    return {
        name: round(sum(same for same, _ in pairs) / sum(count for _, count in pairs), 4)
        for name, pairs in (("agreement_text", on_text), ("agreement_own", on_own))
    }


@torch.no_grad()
def _agreed(target: Any, draft: Any, row: list[int], begin: int) -> tuple[int, int]:
    tokens = torch.tensor(row)[None, :-1]
    same = _same(logits(target, tokens)[0, begin - 1 :], logits(draft, tokens)[0, begin - 1 :])
    return same, len(row) - begin


@torch.no_grad()
def copying(
    target: Any, sources: list[Packed], length: int = 128, rows: int = 64
) -> dict[str, float]:
    """Loss (nats per token) on held-out text read once, and on the same text read a second time right after."""
    tokens = np.concatenate(
        [np.asarray(s.held_out_tokens()[: rows * length // len(sources)]) for s in sources]
    )
    first = torch.from_numpy(tokens[: len(tokens) // length * length].astype("int64")).view(
        -1, length
    )
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
        raise SpeclabError(f"{folder} contains no *.jsonl prompt files: pass another folder.")
    for file in files:
        entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        spread = entries[:: max(len(entries) // per_file, 1)][:per_file]
        sets[file.stem] = [(e["prompt"], e.get("reference") or "") for e in spread]
    return sets
