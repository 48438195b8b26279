"""A target and what drafts for it: runners, tokenizer, prompts, the texts of tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from speclab.errors import ModelNotFoundError, PromptError, SettingsError
from speclab.models.download import Report, silent
from speclab.models.head_loading import HeadSource, listed, load_head
from speclab.models.head_runner import HeadRunner
from speclab.models.loading import Loader, Path, Source, parse_device, parse_dtype, shown_name, unwrapped
from speclab.models.presets import Preset, find
from speclab.models.probe import check_trees
from speclab.models.processors import GenerationRules
from speclab.models.runner import Runner
from speclab.models.vocabulary import TokenTexts, compare, share_vocabulary, whole_numbers


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
    carried: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)
    """What strategies carry from one prompt to the next, by strategy; shared by all copies of the pair."""
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

    @property
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
        heads = tuple(
            head.fork(min(length, head.length), target)
            if isinstance(head, HeadRunner)
            else head.fork(min(length, head.length))
            for head in self.heads
        )
        return replace(self, target=target, draft=draft, heads=heads)

    def by_module(self) -> ModelPair:
        """The same models with empty caches, every pass of target and draft through their modules: no lean forward."""
        draft = self.draft.by_module() if self.draft is not None else None
        return replace(self.fresh(), target=self.target.by_module(), draft=draft)

    def encode(self, prompt: str | Sequence[int]) -> list[int]:
        """Token ids of a prompt, special tokens added as the tokenizer does by default.

        Raises:
            PromptError: it is empty, an id is no token of the models, or it is text and there is no
                tokenizer, or text that is no UTF-8.
        """
        if isinstance(prompt, str) and prompt:
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
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a whole sequence, special tokens shown; ids with a # where there is no tokenizer."""
        if self.tokenizer is None:
            return " ".join(self.token_text(token) for token in ids)
        return str(self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    def token_text(self, token: int) -> str:
        """Text of one token for display: " the"; "<0xE2>" for bytes that are no text alone; "#123" for no text."""
        assert self.texts is not None
        return self.texts(token)

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
        facts: dict[str, str | int | float | bool | None] = {"pair": self.name}
        for role, runner in self.runners.items():
            facts[role] = runner.name
            facts[f"{role}_family"] = runner.family
            facts[f"{role}_parameters"] = self._parameters[role]
            facts[f"{role}_attention"] = runner.model.config._attn_implementation
            facts[f"{role}_dtype"] = str(runner.dtype).removeprefix("torch.")
            facts[f"{role}_forward"] = runner.through.name
        for place in range(len(self.heads)):
            facts[f"head_{place}"] = self.head_names[place]
            facts[f"head_{place}_parameters"] = self._parameters[f"head_{place}"]
        device = self.target.device
        facts["device"] = str(device)
        if device.type == "cuda":
            facts["gpu"] = torch.cuda.get_device_name(device)
        facts["threads"] = torch.get_num_threads()
        return facts | self.rules.describe() | {"torch": torch.__version__, "transformers": transformers.__version__}


_ONE_AT_A_TIME = Lock()
"""transformers cannot load two models at once: on two threads it leaves one without storage."""


def load_pair(
    name: str = "mini",
    *,
    target: Source | nn.Module | None = None,
    draft: Source | nn.Module | None = None,
    heads: HeadSource | Sequence[HeadSource] | None = None,
    tokenizer: PreTrainedTokenizerBase | Path | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    report: Report = silent,
) -> ModelPair:
    """Loads a target and its draft, checks that they belong together, and probes that both verify trees.

    Modules in memory change for good: to eval mode, sdpa or eager attention, and `device` and `dtype` if given.

    Args:
        name: of a preset (`speclab.models.presets`), read when no target is given; "mini" is shipped with speclab.
        target, draft: hub id, local folder, or a `transformers` module; no draft for strategies that need none. A peft
            model with adapters inside its layers will do, and a compiled one, which is taken out of `torch.compile`.
        heads: draft heads for the target, or draft models in their place: folders of ours or EAGLE's, hub ids, modules.
        tokenizer: one for all, or where it is, taken unchecked; by default those of target and draft are compared.
        device: by default CUDA if there is one, else CPU; modules in memory stay where they are.
        dtype: by default float32 on CPU and for the mini family, else the checkpoint's own.
        trust_remote_code: let a checkpoint run its own Python code.
        allow_pickle: load pickled weights, which can run code; by default only safetensors.
        report: hears what is being done, a sentence at a time; what it raises ends the load.

    Raises:
        SpeclabError: a subclass for each cause (not found, offline, memory, tokenizers, family, settings).
    """
    if target is None:
        preset = _preset(name, draft)
        target, draft = preset.target, preset.draft
        tokenizer, dtype = tokenizer or preset.tokenizer, dtype or preset.dtype
        heads = preset.heads if heads is None else heads
    else:
        name = ""
    loader = Loader(parse_device(device), parse_dtype(dtype), trust_remote_code, allow_pickle, report)
    sources = [unwrapped(source) for source in (target, draft) if source is not None]
    return _assemble(loader, sources, listed(heads), tokenizer, name)


def _preset(name: str, draft: object) -> Preset:
    if draft is not None:
        raise SettingsError("A draft needs its target: pass target= as well, or the name of a pair.")
    return find(name)


def _assemble(
    loader: Loader,
    sources: Sequence[Source],
    heads: Sequence[HeadSource],
    tokenizer: PreTrainedTokenizerBase | Path | None,
    name: str,
) -> ModelPair:
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        tokenizer = _tokenizer(loader, sources, tokenizer)
    if _ONE_AT_A_TIME.locked():
        loader.report("Waiting for another load to end…")
    with _ONE_AT_A_TIME:
        runners = [Runner(model, shown_name(model)) for model in loader.models(sources)]
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


def _tokenizer(loader: Loader, sources: Sequence[Source], given: Path | None) -> PreTrainedTokenizerBase | None:
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
