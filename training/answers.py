"""A chat model's answers: prompts made from the corpus and from lists, and the text that the target
writes after them.

A draft head is used on the target's own text, so it learns mostly from that. The answers are
generated once, in batches, alternately greedy and sampled, and stored as token ids; a stopped run
continues after the last whole batch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn import functional

from training.data import corpus_folder, read_documents, split
from training.states import Store
from training.topics import CHAT, CODE, CORRECTION, EXPLAIN, REWRITE, SUMS, TASKS, TOPICS


class Ask(NamedTuple):
    """A prompt: its kind, its text, and whether the chat template wraps it (else it is plain text)."""

    kind: str
    text: str
    chat: bool = True


class AnswersConfig(BaseModel):
    """The shipped recipe of the answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Path = Field(
        description="Folder of the target, a Llama with tokenizer and chat template."
    )
    corpus: Path | None = Field(
        None, description="Folder of the training text; default: SPECLAB_CORPUS."
    )
    out: Path = Field(
        Path("checkpoints/smollm2/answers"), description="Folder of the answers; it is added to."
    )
    layers: tuple[int, ...] = Field(
        (8, 16, 24, -1), min_length=1, description="Layers whose states are kept."
    )
    seed: int = Field(0, description="Seed of the prompts and of sampling.")
    device: str = Field("cpu", description="Where the target runs: cpu or cuda.")
    prompts: int = Field(4000, ge=1, description="Prompts to answer.")
    new_tokens: int = Field(192, ge=1, description="Longest answer, in tokens.")
    batch: int = Field(80, ge=1, description="Answers made at a time.")
    temperatures: list[float] = Field(
        [0.0, 0.0, 0.8], description="Temperatures of the batches, in turn."
    )


def write_answers(config: AnswersConfig) -> None:
    """Write the target's answers to training prompts, with its hidden states; a second call continues."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(config.target)
    model: Any = AutoModelForCausalLM.from_pretrained(config.target, dtype=torch.bfloat16)
    writer = Writer(model.to(config.device), config.layers)
    store = Store(config.out, len(config.layers) * writer.config.hidden_size)
    prompts = asks(corpus_folder(config.corpus), config.seed)[: config.prompts]
    while len(store.documents) < len(prompts):
        # Prompts of similar length share a batch, out of a window of four batches.
        done = len(store.documents)
        window = prompts[done : done + 4 * config.batch]
        ids = [prompt_ids(tokenizer, ask.text, chat=ask.chat) for ask in window]
        order = sorted(range(len(window)), key=lambda i: len(ids[i]))
        for number, start in enumerate(range(0, len(order), config.batch)):
            chosen = order[start : start + config.batch]
            temperature = config.temperatures[
                (done // (4 * config.batch) + number) % len(config.temperatures)
            ]
            torch.manual_seed(config.seed + done + start)
            for i, row in zip(
                chosen,
                writer.write([ids[i] for i in chosen], config.new_tokens, temperature),
                strict=True,
            ):
                store.add(window[i].kind, len(ids[i]), row.tokens, row.states)
        store.flush()


def prompt_ids(tokenizer: Any, text: str, *, chat: bool) -> list[int]:
    """The ids of a prompt, in the chat template if `chat` is set."""
    if chat:
        messages = [{"role": "user", "content": text}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    return ids


def _from_lists(rng: random.Random) -> list[Ask]:
    """Prompts of our own topics, tasks and sums."""
    prompts = []
    for topic in TOPICS:
        prompts += [Ask("chat", form.format(topic)) for form in rng.sample(CHAT, 12)]
    for task in TASKS:
        prompts += [Ask("code", form.format(task)) for form in rng.sample(CODE, 5)]
    for form in SUMS:
        prompts += [Ask("math", _sum(rng, form)) for _ in range(12)]
    return prompts


def asks(folder: Path, seed: int) -> list[Ask]:
    """All training prompts, shuffled; made of training documents only."""
    rng = random.Random(seed)
    prompts = _from_lists(rng)
    questions = [
        d.partition("\nAnswer:")[0].removeprefix("Question: ")
        for d in _documents(folder, "gsm8k_train")
    ]
    prompts += [Ask("math", text) for text in _some(questions, 900, rng)]
    prompts += [
        Ask("math", f"Question: {text}\nAnswer:", chat=rng.random() < 0.5)
        for text in _some(questions, 500, rng)
    ]
    for document in _documents(folder, "mbpp_train"):
        ask = document.split('"""')[1]
        code = document.split('"""')[2]
        prompts.append(Ask("code", ask.strip()))
        prompts.append(
            Ask("code", f'"""{ask}"""\n{code[: code.find(":") + 1].strip()}', chat=False)
        )
    for passage in _passages(folder, "python_stdlib", rng, 2, 700):
        prompts.append(Ask("code", passage[: rng.randint(150, 600)], chat=False))
        prompts.append(Ask("code", rng.choice(EXPLAIN).format(passage)))
    for source, each in (
        ("books", 1),
        ("books_simple", 1),
        ("wikitext2_train", 3),
        ("tinystories", 1),
    ):
        for passage in _passages(folder, source, rng, each, 900):
            if rng.random() < 0.35:
                prompts.append(Ask("prose", passage[: rng.randint(100, 700)], chat=False))
            if rng.random() < 0.3:
                prompts.append(
                    Ask("correction", rng.choice(CORRECTION).format(worsened(passage, rng)))
                )
            if rng.random() < 0.15:
                prompts.append(Ask("prose", rng.choice(REWRITE).format(passage)))
    rng.shuffle(prompts)
    return prompts


def _documents(folder: Path, source: str) -> list[str]:
    return split(read_documents(folder, source))[0]


def _passages(
    folder: Path, source: str, rng: random.Random, each: int, longest: int
) -> Iterator[str]:
    for document in _documents(folder, source):
        parts = [part for part in document.split("\n\n") if 200 < len(part) < longest]
        yield from _some(parts, each, rng)


def _some(items: list[str], number: int, rng: random.Random) -> list[str]:
    return rng.sample(items, min(number, len(items)))


def _sum(rng: random.Random, form: str) -> str:
    return form.format(*(rng.randint(2, 99) for _ in range(4)), rng.randint(100, 2000))


def worsened(text: str, rng: random.Random) -> str:
    """`text` with some errors: letters swapped, dropped or doubled, small words left out, capitals and commas lost."""
    words = []
    for word in text.split(" "):
        slip = rng.random()
        if slip > 0.16 or len(word) < 2:
            words.append(word)
        elif slip < 0.03:
            words.append(word.lower().rstrip(",.;"))
        elif slip < 0.05 and len(word) < 4:
            continue
        else:
            index = rng.randrange(len(word) - 1)
            swapped = word[:index] + word[index + 1] + word[index] + word[index + 2 :]
            words.append(
                rng.choice(
                    [swapped, word[:index] + word[index + 1 :], word[: index + 1] + word[index:]]
                )
            )
    return " ".join(words)


class Written(NamedTuple):
    """A prompt with the target's continuation and hidden states."""

    tokens: list[int]
    states: Tensor  # [len(tokens) - 1, layers * hidden]: of all positions but the last


class Writer:
    """Batched decoding with a Llama on one core: keys in place, grouped heads, finished rows
    dropped.

    `model` is any module of transformers' Llama family without biases; `layers` are those whose
    states are returned. It is four times as fast as the module's `generate` on one core, and the
    states cost nothing.
    """

    def __init__(self, model: Any, layers: Sequence[int] = (-1,)) -> None:
        self.model = model.eval()
        self.config = model.config
        depth = self.config.num_hidden_layers
        self.layers = [layer % (depth + 1) for layer in layers]
        self.joined = [
            (
                torch.cat(
                    [
                        layer.self_attn.q_proj.weight,
                        layer.self_attn.k_proj.weight,
                        layer.self_attn.v_proj.weight,
                    ]
                ),
                torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight]),
            )
            for layer in model.model.layers
        ]
        eos = self.config.eos_token_id
        self.ends = set(eos) if isinstance(eos, list) else {eos}

    @torch.inference_mode()
    def write(
        self, prompts: list[list[int]], new_tokens: int, temperature: float = 0.0
    ) -> list[Written]:
        """`prompts` (ids), each with at most `new_tokens` more, up to an end-of-text id.

        With `new_tokens` 0 the prompts are only read.
        """
        width = max(map(len, prompts))
        device = self.model.device
        seen = torch.zeros(len(prompts), width + new_tokens, dtype=torch.bool, device=device)
        seen[:, :width] = torch.tensor(
            [[False] * (width - len(p)) + [True] * len(p) for p in prompts], device=device
        )
        tokens = torch.tensor([[0] * (width - len(p)) + p for p in prompts], device=device)
        cache = self._cache(len(prompts), width + new_tokens)
        rows_so_far = [list(prompt) for prompt in prompts]
        out = self._pass(tokens, seen, 0, cache)
        states = [[kept[width - len(p) :]] for p, kept in zip(prompts, self._kept, strict=True)]
        alive = list(range(len(prompts)))
        for column in range(width, width + new_tokens):
            picked = _picked(self._logits(out).float(), temperature)
            for i, token in zip(alive, picked.tolist(), strict=True):
                rows_so_far[i].append(token)
            going = torch.tensor(
                [rows_so_far[i][-1] not in self.ends for i in alive], device=device
            )
            if column + 1 == width + new_tokens or not bool(going.any()):
                break
            alive = [i for i, goes in zip(alive, going.tolist(), strict=True) if goes]
            picked = picked[going]
            seen = seen[going]
            if not bool(going.all()):
                cache = [(key[going], value[going]) for key, value in cache]
            seen[:, column] = True
            out = self._pass(picked[:, None], seen, column, cache)
            for i, kept in zip(alive, self._kept, strict=True):
                states[i].append(kept)
        return [
            Written(row, torch.cat(parts)[: len(row) - 1])
            for row, parts in zip(rows_so_far, states, strict=True)
        ]

    def _cache(self, rows: int, width: int) -> list[tuple[Tensor, Tensor]]:
        weight = self.model.get_input_embeddings().weight
        shape = (rows, self.config.num_key_value_heads, width, self._head_dim())
        return [(weight.new_zeros(shape), weight.new_zeros(shape)) for _ in self.joined]

    def _head_dim(self) -> int:
        return int(self.config.hidden_size // self.config.num_attention_heads)

    def _logits(self, out: Tensor) -> Tensor:
        return functional.linear(out[:, -1], self.model.get_output_embeddings().weight)

    def _pass(
        self, tokens: Tensor, seen: Tensor, begin: int, cache: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        """Last states `[B, T, hidden]` of `tokens` `[B, T]`, which lie at columns `begin` and on."""
        body = self.model.model
        config = self.config
        batch, length = tokens.shape
        shared = config.num_key_value_heads
        size = self._head_dim()
        group = config.num_attention_heads // shared
        end = begin + length
        positions = (seen[:, :end].cumsum(1) - 1).clamp(min=0)[:, begin:]
        x = functional.embedding(tokens, body.embed_tokens.weight)
        cos, sin = (angle[:, :, None] for angle in body.rotary_emb(x, positions))
        columns = torch.arange(end, device=tokens.device)
        mask = seen[:, None, :end] & (columns <= columns[begin:, None])
        mask[:, :, 0] |= ~mask.any(-1)  # padding sees one column, or its states would be NaN
        mask = mask[:, None].repeat(1, 1, group, 1)
        passed = [x]
        for layer, (qkv, wide), (keys, values) in zip(body.layers, self.joined, cache, strict=True):
            parts = functional.linear(_normed(x, layer.input_layernorm), qkv).view(
                batch, length, -1, size
            )
            query, key, value = parts.split((shared * group, shared, shared), dim=2)
            query = _turned(query, cos, sin)
            key = _turned(key, cos, sin)
            keys[:, :, begin:end] = key.transpose(1, 2)
            values[:, :, begin:end] = value.transpose(1, 2)
            query = (
                query.view(batch, length, shared, group, size).permute(0, 2, 3, 1, 4).flatten(2, 3)
            )
            mixed = functional.scaled_dot_product_attention(
                query, keys[:, :, :end], values[:, :, :end], attn_mask=mask
            )
            mixed = (
                mixed.unflatten(2, (group, length))
                .permute(0, 3, 1, 2, 4)
                .reshape(batch, length, -1)
            )
            x = x + functional.linear(mixed, layer.self_attn.o_proj.weight)
            gate, up = functional.linear(_normed(x, layer.post_attention_layernorm), wide).chunk(
                2, -1
            )
            x = x + functional.linear(functional.silu(gate) * up, layer.mlp.down_proj.weight)
            passed.append(x)
        out = passed[-1] = _normed(x, body.norm)
        self._kept = torch.cat([passed[layer] for layer in self.layers], dim=-1)
        return out


def _normed(x: Tensor, norm: Any) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), norm.weight, norm.variance_epsilon)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def _picked(scores: Tensor, temperature: float) -> Tensor:
    if temperature == 0:
        return scores.argmax(-1)
    return torch.multinomial((scores / temperature).softmax(-1), 1)[:, 0]
