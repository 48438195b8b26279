"""Token ids and their texts, and whether tokenizers and models share them."""

from __future__ import annotations

import numbers
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from speclab.errors import ModelNotFoundError, PromptError, SettingsError, TokenizerMismatchError, named
from speclab.files import byte_count
from speclab.models.chat import encode_messages, has_template
from speclab.models.head_files import HeadSource, listed, load_head
from speclab.models.heads import HeadRunner
from speclab.models.loading import Loader, ModelPath, Report, Source, parse_device, parse_dtype, silent, unwrapped
from speclab.models.presets import Preset, find
from speclab.models.probe import check_trees
from speclab.models.processors import GenerationRules
from speclab.models.runner import Runner
from speclab.prompts import Message, PromptInput, is_conversation

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SAMPLES = (
    "The quick brown fox jumps over the lazy dog, twice.",
    "def area(r):\n    return 3.14159 * r**2  # in m²\n",
    "  Two  spaces,\ta tab,\r\n\r\nand numbers: 1234567890, 0.001, -42.",
    "Ünïcödé – naïve café, Ελληνικά, 日本語, русский, 🦊🌳.",
)


class TokenTexts:
    """Texts of single tokens, for display; remembers what it was asked.

    Args:
        tokenizer: None gives "#123" for every token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self.tokenizer = tokenizer
        by_byte = bytes_to_unicode() if _is_byte_level(tokenizer) else {}
        self._alphabet = {char: byte for byte, char in by_byte.items()}
        self._known: dict[int, str] = {}

    def __call__(self, tokens: Iterable[int]) -> dict[int, str]:
        """Token to text, as in " the"; "<0xE2>" for bytes that are no text by themselves; "#123" where there is none.

        The order is that of `tokens`.
        """
        known, wanted = self._known, list(dict.fromkeys(tokens))
        new = [token for token in wanted if token not in known]
        if new:
            known.update(self._read(new))
        return {token: known[token] for token in wanted}

    def _read(self, tokens: Sequence[int]) -> dict[int, str]:
        """The texts of new tokens, in one request to the tokenizer."""
        texts = {token: f"#{token}" for token in tokens}
        if self.tokenizer is None:
            return texts
        size, added = len(self.tokenizer), self.tokenizer.added_tokens_decoder
        ids = [token for token in tokens if 0 <= token < size]
        for token, piece in zip(ids, self.tokenizer.convert_ids_to_tokens(ids), strict=True):
            if token in added:
                texts[token] = piece
            elif isinstance(piece, str):  # else a gap in the numbering
                if single := _BYTE_TOKEN.fullmatch(piece):
                    data = bytes([int(single[1], 16)])
                elif self._alphabet.keys() >= set(piece):
                    data = bytes(map(self._alphabet.__getitem__, piece))
                else:
                    data = piece.replace("▁", " ").encode()
                try:
                    texts[token] = data.decode()
                except UnicodeDecodeError:
                    texts[token] = "".join([f"<0x{byte:02X}>" for byte in data])
        return texts


def _is_byte_level(tokenizer: PreTrainedTokenizerBase | None) -> bool:
    return tokenizer is not None and "Ġ" in "".join(tokenizer.tokenize("a b"))


def compare(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> None:
    """Checks that both give the same ids to the same text, and number their special tokens alike.

    Raises:
        TokenizerMismatchError: they do not.
    """
    for role in ("bos", "eos"):
        ids = [getattr(tokenizer, f"{role}_token_id") for tokenizer in (target, draft)]
        if ids[0] != ids[1]:
            raise _mismatch(f"their {role} ids are {ids[0]} and {ids[1]}")
    added = [tokenizer.get_added_vocab() for tokenizer in (target, draft)]
    for text in sorted(added[0].keys() & added[1].keys()):
        if added[0][text] != added[1][text]:
            raise _mismatch(f"{text} is {added[0][text]} in one and {added[1][text]} in the other")
    for sample in _SAMPLES:
        if target(sample)["input_ids"] != draft(sample)["input_ids"]:
            raise _mismatch(f"they split {sample[:24]!r} differently")


def _mismatch(what: str) -> TokenizerMismatchError:
    return TokenizerMismatchError(
        f"The tokenizers of target and draft differ: {what}; choose two models of one family, or pass tokenizer= "
        "if you know that their ids mean the same."
    )


def whole_numbers(prompt: object) -> list[int]:
    """Token ids from a list, an array or a tensor; raises `PromptError` for anything else."""
    tokens = prompt.tolist() if hasattr(prompt, "tolist") else prompt  # an array or a tensor
    if not isinstance(tokens, Sequence):
        raise PromptError(f"A prompt is text, a list of token ids or of messages, and {prompt!r} is none.")
    for token in tokens:
        if isinstance(token, bool) or not isinstance(token, numbers.Integral):
            raise PromptError(f"A prompt is text or a list of token ids, and {token!r} is no token id.")
    return [int(token) for token in tokens]


def share_vocabulary(runners: Sequence[Runner], tokenizer: PreTrainedTokenizerBase | None) -> None:
    """Cuts logits to the ids that all models have; what is cut off is padding that no text produces."""
    smallest = min(runners, key=lambda runner: runner.vocab_size)
    largest = max(runners, key=lambda runner: runner.vocab_size)
    if tokenizer is None and smallest.vocab_size != largest.vocab_size:
        raise TokenizerMismatchError(
            f"{smallest.name} has {smallest.vocab_size} token ids and {largest.name} {largest.vocab_size}: choose "
            "models of one vocabulary, or pass tokenizer= if they differ in padding alone."
        )
    if tokenizer is not None and len(tokenizer) > smallest.vocab_size:
        raise TokenizerMismatchError(
            f"The tokenizer has {len(tokenizer)} ids and {smallest.name} knows {smallest.vocab_size}: pass the "
            "tokenizer that belongs to the model."
        )
    for runner in runners:
        runner.vocab_size = smallest.vocab_size


def checked_pair(pair: object) -> ModelPair:
    """The pair itself, if it is one.

    Raises:
        SettingsError: it is a name, a model, or anything else.
    """
    if isinstance(pair, ModelPair):
        return pair
    raise SettingsError(f'{named(pair)} is no pair of models: load one, as in speclab.load_pair("mini").')


@dataclass(frozen=True)
class ModelPair:
    """Models that decode together; `draft` and `tokenizer` may be absent, and `heads` may be none.

    A head is a draft head on the target, or a second draft model in the place of one.
    """

    target: Runner
    draft: Runner | None = None
    heads: tuple[HeadRunner | Runner, ...] = ()
    tokenizer: PreTrainedTokenizerBase | None = None
    name: str = ""
    shared_state: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)
    """What strategies keep from one prompt to the next, by strategy; shared by all copies of the pair."""
    texts: TokenTexts | None = field(default=None, repr=False)  # shared by all that are made fresh from this one

    def __post_init__(self) -> None:
        if self.texts is None:
            object.__setattr__(self, "texts", TokenTexts(self.tokenizer))

    @property
    def runners(self) -> dict[str, Runner]:
        """Role to runner, of those that are there."""
        return {"target": self.target} | ({"draft": self.draft} if self.draft else {})

    @property
    def context(self) -> int | None:
        """Positions that every model was trained for; None if no config names a bound."""
        models = (*self.runners.values(), *self.heads)
        bounds = [runner.context for runner in models if runner.context is not None]
        return min(bounds, default=None)

    @property
    def vocab_size(self) -> int:
        """Ids that every model knows."""
        return min(runner.vocab_size for runner in (*self.runners.values(), *self.heads))

    @cached_property
    def head_names(self) -> tuple[str, ...]:
        """What pictures and records call each head; numbered where a name alone would not tell it apart."""
        names = [head.name for head in self.heads]
        taken = Counter([*names, *self.runners])
        return tuple(name if taken[name] == 1 else f"{name} {place}" for place, name in enumerate(names))

    @cached_property
    def rules(self) -> GenerationRules:
        """What the target's generation_config asks of a text; read once for every pair that is made fresh."""
        return GenerationRules.of(getattr(self.target.model, "generation_config", None))

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a text, as `model.generate` has it: those of the target's generation_config."""
        return frozenset(self.rules.eos_ids)

    def fresh(self) -> ModelPair:
        """The same modules with empty caches of their own: every session takes one."""
        return self.fork(0)

    def fork(self, length: int) -> ModelPair:
        """As `fresh`, with copies of the first `length` entries of each cache, or of as many as it holds."""
        target = self.target.fork(min(length, self.target.length))
        draft = self.draft.fork(min(length, self.draft.length)) if self.draft else None
        for runner in (target, draft):
            if runner is not None and runner.changes.admitted != runner.version:  # it was changed since it was probed
                check_trees(runner)
        heads = tuple(
            head.fork(min(length, head.length), target)
            if isinstance(head, HeadRunner)
            else head.fork(min(length, head.length))
            for head in self.heads
        )
        return replace(self, target=target, draft=draft, heads=heads)

    @property
    def chats(self) -> bool:
        """Whether a prompt may be messages: the tokenizer has a chat template."""
        return has_template(self.tokenizer)

    def encode(self, prompt: PromptInput) -> list[int]:
        """Token ids of a prompt: of a text with the special tokens that the tokenizer adds by default.

        Of messages (`{"role": …, "content": …}`) those of the tokenizer's chat template (`speclab.models.chat`).

        Raises:
            PromptError: it is empty, an id is no token of the models, it is text or messages and there is no tokenizer
                or no chat template, or text that is no UTF-8, or messages that the template does not take.
        """
        return self.read_prompt(prompt)[0]

    def read_prompt(self, prompt: PromptInput) -> tuple[list[int], tuple[Message, ...]]:
        """As `encode`, and the messages with the tokens of each; of text and ids there are none."""
        messages: tuple[Message, ...] = ()
        if is_conversation(prompt):
            ids, messages = encode_messages(self.tokenizer, prompt)
        elif isinstance(prompt, str) and prompt:
            if self.tokenizer is None:
                raise PromptError("This pair has no tokenizer: give token ids, or pass tokenizer= to load_pair.")
            if any("\ud800" <= char <= "\udfff" for char in prompt):  # what Python makes of bytes that are no UTF-8
                raise PromptError("The prompt is no text: a part of it is no UTF-8; write it as UTF-8.")
            ids = list(self.tokenizer(prompt, verbose=False)["input_ids"])
        else:
            ids = whole_numbers(prompt)
        if not ids:
            raise PromptError("The prompt is empty: write at least one token for the models to continue.")
        for token in ids:
            if not 0 <= token < self.vocab_size:
                raise PromptError(f"Id {token} is outside the vocabulary: ids go from 0 to {self.vocab_size - 1}.")
        return ids, messages

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a whole sequence, special tokens shown; ids with a # where there is no tokenizer."""
        if self.tokenizer is None:
            texts = self.token_texts(ids)
            return " ".join([texts[token] for token in ids])
        return str(self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    def token_texts(self, tokens: Iterable[int]) -> dict[int, str]:
        """Token to text, for display: " the"; "<0xE2>" for bytes that are no text alone; "#123" for no text."""
        assert self.texts is not None
        return self.texts(tokens)

    def token_text(self, token: int) -> str:
        """The text of one token, as `token_texts` has it."""
        return self.token_texts([token])[token]

    @cached_property
    def _parameters(self) -> dict[str, int]:
        """Counted once: a lab describes the pair at every step."""
        heads = {
            f"head_{place}": sum(weights.numel() for weights in head.model.parameters())
            for place, head in enumerate(self.heads)
        }
        return {role: runner.model.num_parameters() for role, runner in self.runners.items()} | heads

    def describe(self) -> dict[str, str | int | float | bool | None]:
        """What runs where, for records."""
        found: dict[str, str | int | float | bool | None] = {"pair": self.name}
        for role, runner in self.runners.items():
            found[role] = runner.name
            found[f"{role}_family"] = runner.family
            found[f"{role}_parameters"] = self._parameters[role]
            found[f"{role}_attention"] = runner.model.config._attn_implementation
            found[f"{role}_dtype"] = str(runner.dtype).removeprefix("torch.")
            found[f"{role}_forward"] = runner.forward_name
        for place in range(len(self.heads)):
            found[f"head_{place}"] = self.head_names[place]
            found[f"head_{place}_parameters"] = self._parameters[f"head_{place}"]
        device = self.target.device
        found["device"] = str(device)
        if device.type == "cuda":
            found["gpu"] = torch.cuda.get_device_name(device)
        found["threads"] = torch.get_num_threads()
        return found | self.rules.describe() | {"torch": torch.__version__, "transformers": transformers.__version__}


_ONE_AT_A_TIME = Lock()
"""transformers cannot load two models at once: on two threads it leaves one without storage."""


def load_pair(
    name: str = "mini",
    *,
    target: Source | nn.Module | None = None,
    draft: Source | nn.Module | None = None,
    heads: HeadSource | Sequence[HeadSource] | None = None,
    tokenizer: PreTrainedTokenizerBase | ModelPath | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    source: str | None = None,
    report: Report = silent,
) -> ModelPair:
    """Loads a target and its draft, checks that they belong together, and probes that both verify trees.

    Modules in memory change for good: to eval mode, sdpa or eager attention, and `device` and `dtype` if given.

    Args:
        name: of a preset (`speclab.models.presets`), read when no target is given; "mini" is shipped with speclab.
        target, draft: hub id, local folder, or a `transformers` module; no draft for strategies that need none. A peft
            model with adapters inside its layers will do, and a compiled one, which is taken out of `torch.compile`.
        heads: draft heads for the target, or draft models in their place: folders (speclab's format or EAGLE's), hub
            ids, modules.
        tokenizer: one for all, or where it is, taken unchecked; by default those of target and draft are compared.
        device: by default CUDA if there is one, else CPU; modules in memory stay where they are.
        dtype: by default float32 on CPU and for the mini family, else the checkpoint's own.
        trust_remote_code: let a checkpoint run its own Python code.
        allow_pickle: load pickled weights, which can run code; by default only safetensors.
        source: "hub" for the original weights of a preset that `speclab fetch` brings; by default those fetched.
        report: hears what is being done, a sentence at a time; what it raises ends the load.

    Raises:
        SpeclabError: a subclass for each cause (not found, offline, memory, tokenizers, family, settings).
    """
    if target is None:
        preset = _preset(name, draft, source)
        target, draft = preset.target, preset.draft
        tokenizer, dtype = tokenizer or preset.tokenizer, dtype or preset.dtype
        heads = preset.heads if heads is None else heads
    else:
        name = ""
    loader = Loader(parse_device(device), parse_dtype(dtype), trust_remote_code, allow_pickle, report)
    sources = [unwrapped(source) for source in (target, draft) if source is not None]
    return _assemble(loader, sources, listed(heads), tokenizer, name)


def _preset(name: str, draft: object, source: str | None) -> Preset:
    if draft is not None:
        raise SettingsError("A draft needs its target: pass target= as well, or the name of a pair.")
    if not isinstance(name, str):
        raise SettingsError(f"A {type(name).__name__} is no name of a pair: pass a model as target=….")
    preset = find(name)
    if source is not None:
        if source != "hub" or preset.hub is None:
            raise SettingsError(f'The pair {name} has no source {source!r}: leave it out; only smollm2 has "hub".')
        return replace(preset, target=preset.hub)
    if preset.missing:
        raise ModelNotFoundError(
            f"{name} is not on this machine: run `speclab fetch {name}` once ({byte_count(preset.download)})."
        )
    return preset


def _assemble(
    loader: Loader,
    sources: Sequence[Source],
    heads: Sequence[HeadSource],
    tokenizer: PreTrainedTokenizerBase | ModelPath | None,
    name: str,
) -> ModelPair:
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        tokenizer = _tokenizer(loader, sources, tokenizer)
    if _ONE_AT_A_TIME.locked():
        loader.report("Waiting for another load to end…")
    with _ONE_AT_A_TIME:
        target, *others = loader.models(sources)
        runners = [loader.runner(target), *map(loader.runner, others)]
        drafting = [load_head(head, runners[0], loader) for head in heads]
    runners += [head for head in drafting if isinstance(head, Runner)]
    share_vocabulary(runners, tokenizer)
    for head in drafting:
        head.vocab_size = runners[0].vocab_size
    for runner in runners:
        loader.report(f"Checking that {runner.name} verifies trees…")
        check_trees(runner)
    name = name or " + ".join(runner.name for runner in runners[: len(sources)])
    draft = runners[1] if len(sources) > 1 else None
    return ModelPair(runners[0], draft, tuple(drafting), tokenizer, name).fresh()


def _tokenizer(loader: Loader, sources: Sequence[Source], given: ModelPath | None) -> PreTrainedTokenizerBase | None:
    if given is not None:
        tokenizer = loader.tokenizer(given)
        if tokenizer is None:
            raise ModelNotFoundError(f"The folder {given} holds no tokenizer (no tokenizer.json): check the path.")
        return tokenizer
    found = [loader.tokenizer(source) for source in sources if not isinstance(source, PreTrainedModel)]
    tokenizers = [tokenizer for tokenizer in found if tokenizer is not None]
    if len(tokenizers) > 1:
        compare(tokenizers[0], tokenizers[1])
    return tokenizers[0] if tokenizers else None
