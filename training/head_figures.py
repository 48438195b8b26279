"""How often a draft head agrees with its target, by depth and rank, on answers to held-out prompts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, cast

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn import functional

import speclab
from speclab.errors import SpeclabError
from speclab.heads.eagle import Head
from speclab.heads.files import read_head
from speclab.heads.layer import rotary
from speclab.models.runner import Runner
from training.answers import Ask, Writer, prompt_ids, worsened
from training.heads import Ancestors, seen
from training.states import Document, Store
from training.topics import CORRECTION

RANKS = (1, 4, 8)
SHIPPED = Path(speclab.__file__).parent / "models" / "smollm2_heads"
# By kind: prompt files, and whether the chat template wraps their prompts.
HELD_OUT = {
    "chat": (("mtbench", "specbench"), True),
    "code": (("humaneval", "mbpp"), True),
    "math": (("gsm8k",), True),
    "prose": (("wikitext2", "pg19like"), False),
    "correction": (("wikitext2", "pg19like"), True),
}
# by kind, by depth: correct ones for each of RANKS, and their number
Counts = dict[str, list[list[int]]]


class HeadFiguresConfig(BaseModel):
    """What to measure, on what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folders: list[Path] = Field(
        [SHIPPED / "chat", SHIPPED / "code"], description="Folders of the heads."
    )
    target: Path = Field(description="Folder of the target.")
    prompts: Path = Field(description="Folder of the held-out prompt files (*.jsonl).")
    answers: Path = Field(
        Path("checkpoints/smollm2/held_out"), description="Folder for the target's answers."
    )
    out: Path = Field(Path("checkpoints/smollm2/figures.json"), description="File for the figures.")
    per_kind: int = Field(24, ge=1, description="Prompts of each kind.")
    new_tokens: int = Field(128, ge=1, description="Longest answer, in tokens.")
    depth: int = Field(6, ge=1, description="Drafted tokens in a row that are looked at.")
    batch: int = Field(24, ge=1, description="Answers made at a time.")


def head_figures(config: HeadFiguresConfig) -> dict[str, Any]:
    """Measure agreement of heads with the target's greedy text, by head, kind, depth and rank; written to `out`."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(config.target, dtype=torch.float32)
    figures: dict[str, Any] = {"ranks": RANKS, "heads": {}}
    for folder in config.folders:
        name = json.loads((folder / "head.json").read_text())["target"]
        head = cast("Head", read_head(folder, Runner(model, name)))
        store = _held_out(model, head.config.layers, config)
        shares = {
            kind: _shares(counts)
            for kind, counts in agreement(head, model, store, config.depth).items()
        }
        figures["heads"][head.config.name] = {"agreement": shares, "outside": outside(head, store)}
    config.out.parent.mkdir(parents=True, exist_ok=True)
    config.out.write_text(json.dumps(figures, indent=1) + "\n")
    return figures


def _held_out(model: Any, layers: tuple[int, ...], config: HeadFiguresConfig) -> Store:
    """The target's greedy answers to held-out prompts, with its states; generated once."""
    from transformers import AutoTokenizer

    store = Store(config.answers, len(layers) * model.config.hidden_size)
    if not store.documents:
        tokenizer = AutoTokenizer.from_pretrained(config.target)
        writer = Writer(model, layers)
        asked = held_out_asks(config.prompts, config.per_kind)
        ids = sorted(
            ((prompt_ids(tokenizer, a.text, chat=a.chat)[-600:], a.kind) for a in asked),
            key=lambda p: len(p[0]),
        )
        for start in range(0, len(ids), config.batch):
            part = ids[start : start + config.batch]
            for (prompt, kind), row in zip(
                part, writer.write([p for p, _ in part], config.new_tokens), strict=True
            ):
                store.add(kind, len(prompt), row.tokens, row.states)
        store.flush()
    return store


def held_out_asks(folder: Path, number: int) -> list[Ask]:
    """`number` prompts of each kind, evenly spread over its files."""
    rng = random.Random(0)
    prompts = []
    for kind, (files, chat) in HELD_OUT.items():
        for file in files:
            path = folder / f"{file}.jsonl"
            if not path.is_file():
                raise SpeclabError(
                    f"{path} is missing: pass the folder of the held-out prompt files."
                )
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            share = -(-number // len(files))
            for line in lines[:: max(len(lines) // share, 1)][:share]:
                text = line["prompt"]
                if kind == "correction":
                    text = rng.choice(CORRECTION).format(worsened(text[:500], rng))
                prompts.append(Ask(kind, text, chat))
    return prompts


def output_rows(head: Head, output: Tensor) -> Tensor:
    """`[draft_vocab, hidden]`: its own output matrix, or its tokens' rows of the target's, `[vocab, hidden]`."""
    if head.lm_head is not None:
        return head.lm_head.weight
    return output if head.token_ids is None else output[head.token_ids]


@torch.no_grad()
def agreement(head: Head, target: Any, store: Store, depth: int) -> Counts:
    """How often the target's next token is among the head's best, d drafted tokens after the
    target's last state.

    The drafted tokens are those of the text, as on an accepted path of a tree.
    """
    embeddings = target.get_input_embeddings().weight
    output = output_rows(head, target.get_output_embeddings().weight)
    tokens = store.tokens().long() & 0xFFFF
    states = store.states()
    counts: Counts = {}
    for document in store.documents:
        ids = tokens[document.start : document.start + document.length]
        read = states[document.start : document.start + document.length - 2].float()
        by_depth = counts.setdefault(document.kind, [[0] * (len(RANKS) + 1) for _ in range(depth)])
        for row, features in enumerate(
            _unrolled(head, functional.embedding(ids[1:-1], embeddings), read, depth)
        ):
            first = max(document.prompt - 2, 0) + row
            wanted = ids[2:][first:]
            best = (
                functional.linear(head.read_out(features[first:]), output).topk(max(RANKS)).indices
            )
            best = best if head.token_ids is None else head.token_ids[best]
            hits = best == wanted[:, None]
            for i, rank in enumerate(RANKS):
                by_depth[row][i] += int(hits[:, :rank].sum())
            by_depth[row][-1] += len(wanted)
    return counts


def _unrolled(head: Head, embeddings: Tensor, states: Tensor, depth: int) -> list[Tensor]:
    """The head's features at every position of one text, `[P, hidden]`, after 0, 1, … drafted tokens."""
    angles = rotary(head.config, torch.arange(len(states)))
    ancestors = Ancestors()
    first = features = head.fused(states[None])
    rows = []
    for row in range(depth):
        out = head(embeddings[None], features, angles, seen(len(states), row, None), ancestors)
        features = torch.cat((first[:, :1], out[:, :-1]), dim=1)
        rows.append(out[0])
    return rows


def _shares(counts: list[list[int]]) -> list[list[float]]:
    return [[round(hits / max(number, 1), 4) for hits in right] for *right, number in counts]


def outside(head: Head, store: Store) -> dict[str, float]:
    """Share of the answers' tokens, by kind, that are not in the head's draft vocabulary."""
    if head.token_ids is None:
        return {}
    drafted = head.token_ids
    ids = store.tokens().long() & 0xFFFF

    def lacking(documents: list[Document]) -> float:
        answers = torch.cat([ids[d.start + d.prompt : d.start + d.length] for d in documents])
        return round(1 - torch.isin(answers, drafted).float().mean().item(), 4)

    kinds = dict.fromkeys(document.kind for document in store.documents)
    return {kind: lacking([d for d in store.documents if d.kind == kind]) for kind in kinds}
