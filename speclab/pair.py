"""Models that decode together: a target, a draft, draft heads, and their tokenizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, Literal, Never

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from speclab.display import line, table
from speclab.errors import (
    ModelNotFoundError,
    PromptError,
    SettingsError,
    named,
)
from speclab.files import byte_count
from speclab.heads.files import HeadSource, listed, load_head
from speclab.heads.runner import HeadRunner
from speclab.loading.chat import encode_messages
from speclab.loading.loader import (
    Loader,
    ModelPath,
    Report,
    Source,
    parse_device,
    parse_dtype,
    silent,
    unwrapped,
)
from speclab.loading.presets import Offer, Preset, find
from speclab.loading.tokens import TokenTexts, compare, encoded, whole_numbers
from speclab.models.bits import measured
from speclab.models.eight_bits import at_eight_bits
from speclab.models.probe import check_trees
from speclab.models.processors import GenerationRules
from speclab.models.runner import Runner
from speclab.prompts import Message, PromptInput, is_conversation

OWN_DRAFTS = ("int8", "self")
"""Drafts that are made of the target; a folder of such a name is given as ./int8."""
_ONE_AT_A_TIME = Lock()
"""transformers cannot load two models at once: on two threads one model is left without storage."""


@dataclass(frozen=True)
class ModelPair:
    """Models that decode together; `draft` and `tokenizer` may be None, and `heads` may be empty.

    A head is a draft head on the target, or a second draft model.

    Attributes:
        shared_state: what strategies keep between prompts, by strategy; shared by all copies of the
            pair.
        budgets: what "auto" took for the node budget of each strategy in this text and its forks.
        alike: False if the tokenizers of target and draft share no token text.
    """

    target: Runner
    draft: Runner | None = None
    heads: tuple[HeadRunner | Runner, ...] = ()
    tokenizer: PreTrainedTokenizerBase | None = None
    name: str = ""
    shared_state: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)
    budgets: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    alike: bool = field(default=True, repr=False)

    def __repr__(self) -> str:
        names = {role: runner.name for role, runner in self.runners.items()}
        return line("ModelPair", self.name, **names, heads=", ".join(self.head_names))

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        facts = self.describe()
        rows = []
        for role, count in self._parameters.items():
            rows.append({"role": role, "name": facts[role], "parameters": f"{count:,}"})
        return table(rows)

    @property
    def runners(self) -> dict[str, Runner]:
        runners = {"target": self.target}
        if self.draft:
            runners["draft"] = self.draft
        return runners

    @property
    def vocab_size(self) -> int:
        """Ids of the target, whatever the drafts have."""
        return self.target.vocab_size

    @cached_property
    def head_names(self) -> tuple[str, ...]:
        """Names of the heads in pictures and records, numbered if they are not unique."""
        names = [head.name for head in self.heads]
        taken = Counter(names + list(self.runners))
        for index, name in enumerate(names):
            if taken[name] > 1:
                names[index] = f"{name} {index}"
        return tuple(names)

    @cached_property
    def texts(self) -> TokenTexts:
        return TokenTexts(self.tokenizer)

    @property
    def block_heads(self) -> tuple[int, ...]:
        """Which of the heads draft a whole block in one pass."""
        return tuple(index for index, head in enumerate(self.heads) if head.reach is not None)

    @property
    def offer(self) -> Offer:
        """What can draft beside the target."""
        return Offer(self.name, self.draft is not None, len(self.heads), self.block_heads)

    @cached_property
    def rules(self) -> GenerationRules:
        """What the target's generation_config asks of a text; read once for all copies of the pair."""
        return GenerationRules.of(getattr(self.target.model, "generation_config", None))

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a text, from the target's generation_config as in `model.generate`."""
        return frozenset(self.rules.eos_ids)

    def __reduce__(self) -> Never:
        raise SettingsError(
            "A pair holds its models and their caches, so it is not copied or pickled: use "
            "session.fork(), or load the pair where it is needed."
        )

    def fresh(self) -> ModelPair:
        """The same modules with empty caches, for a new session."""
        return replace(self.fork(0), budgets={})

    def fork(self, length: int) -> ModelPair:
        """As `fresh`, with copies of the first `length` entries of each cache, or of as many as it
        has.

        A model that has changed since it was loaded is probed again.
        """

        def forked(source: Any, *target: Runner) -> Any:
            fork = source.fork(max(0, min(length - source.spare, source.length)), *target)
            return fork if fork.state.admitted else check_trees(fork)

        target = forked(self.target)
        asked = self.target.state.bits
        now = target.state.bits
        # a changed module, or other threads, which divide products in other ways
        if asked and (now is None or now.threads != torch.get_num_threads()):
            target.state.bits = measured(target)
        draft = self.draft and forked(self.draft)
        heads = [forked(head, target) for head in self.heads]
        return replace(self, target=target, draft=draft, heads=tuple(heads))

    @property
    def chats(self) -> bool:
        """Whether a prompt may be messages: the tokenizer has a chat template."""
        return bool(getattr(self.tokenizer, "chat_template", None))

    def encode(self, prompt: PromptInput) -> list[int]:
        """Token ids of a prompt: a text with the tokenizer's default special tokens, ids, or
        messages in the chat template.

        Raises:
            PromptError: the prompt has no ids, or ids outside the vocabulary.
        """
        return self.read_prompt(prompt)[0]

    def read_prompt(
        self, prompt: PromptInput, template: Mapping[str, Any] | None = None
    ) -> tuple[list[int], tuple[Message, ...]]:
        """As `encode`, and the messages with the token range of each; empty for text and ids.

        `template`: arguments of the chat template.
        """
        messages: tuple[Message, ...] = ()
        if is_conversation(prompt):
            ids, messages = encode_messages(self.tokenizer, prompt, template)
        elif template is not None:
            raise PromptError(
                "template= is for a prompt of messages, and this is none: leave it out, or give "
                "messages."
            )
        elif isinstance(prompt, str) and prompt:
            plain = self.plain_ids(prompt)
            assert self.tokenizer is not None
            ids = list(encoded(self.tokenizer, prompt)["input_ids"])
            # a rendered chat template begins with the token that the tokenizer adds, too
            first = [self.tokenizer.bos_token_id]
            if plain[:1] == ids[:1] == first and ids[1 : len(plain) + 1] == plain:
                ids = ids[1:]
        else:
            ids = whole_numbers(prompt)
        if not ids:
            raise PromptError(
                "The prompt is empty: write at least one token for the models to continue."
            )
        for token in ids:
            if not 0 <= token < self.vocab_size:
                raise PromptError(
                    f"Id {token} is outside the vocabulary of {self.target.name}: its ids go from 0 "
                    f"to {self.vocab_size - 1}."
                )
        return ids, messages

    def plain_ids(self, text: str) -> list[int]:
        """Token ids of a text without special tokens; raises `PromptError`."""
        if self.tokenizer is None:
            raise PromptError(
                "This pair has no tokenizer: use token ids, or pass tokenizer= to load_pair."
            )
        return list(encoded(self.tokenizer, text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a sequence, special tokens shown; an id without a text, as without a tokenizer, with a #."""
        return self.texts.decode(ids)

    def continuation(self, prompt: Sequence[int], ids: Sequence[int]) -> str:
        """What `ids` add to the text of a prompt: the first space is kept where `decode` strips it."""
        if self.tokenizer is None:
            return self.decode(ids)
        before = self.decode(prompt).rstrip("\ufffd")  # a character that `ids` complete
        return self.decode(list(prompt) + list(ids)).removeprefix(before)

    def token_texts(self, tokens: Iterable[int]) -> dict[int, str]:
        """Token to text for display: " the"; "<0xE2>" for a part of a character; "#123" for an unknown id."""
        return self.texts(tokens)

    @property
    def _sources(self) -> dict[str, Runner | HeadRunner]:
        """The runners and the heads, by role."""
        sources: dict[str, Runner | HeadRunner] = dict(self.runners)
        for index, head in enumerate(self.heads):
            sources[f"head_{index}"] = head
        return sources

    @cached_property
    def _parameters(self) -> dict[str, int]:
        counts = {}
        for role, source in self._sources.items():
            counts[role] = sum(weights.numel() for weights in source.model.parameters())
        return counts

    def describe(self) -> dict[str, str | int | float | bool | None]:
        """What runs where, for records."""
        facts: dict[str, str | int | float | bool | None] = {"pair": self.name}
        names = [runner.name for runner in self.runners.values()]
        names += self.head_names
        for (role, source), name in zip(self._sources.items(), names, strict=True):
            facts[role] = name
            facts[f"{role}_parameters"] = self._parameters[role]
            if source.known < self.vocab_size:  # ids that it never reads
                facts[f"{role}_lacks"] = f"{source.known} to {self.vocab_size - 1}"
            if len(source.proposes) < self.vocab_size:
                facts[f"{role}_ids"] = f"{len(source.proposes)} of {self.vocab_size}"
        if not self.alike:
            facts["draft_lacks"] = "every token text of the target"
        for role, runner in self.runners.items():
            facts[f"{role}_family"] = runner.family
            facts[f"{role}_attention"] = runner.model.config._attn_implementation
            facts[f"{role}_dtype"] = str(runner.dtype).removeprefix("torch.")
            facts[f"{role}_forward"] = runner.forward_name
            facts[f"{role}_context"] = runner.context
            state = runner.state
            if state.lean is not None:
                facts[f"{role}_products"] = state.lean.ways()
            if state.bits is not None:
                facts[f"{role}_exact"] = str(state.bits)
        device = self.target.device
        facts["device"] = str(device)
        if device.type == "cuda":
            facts["gpu"] = torch.cuda.get_device_name(device)
        facts["threads"] = torch.get_num_threads()
        return (
            facts
            | self.rules.describe()
            | {"torch": torch.__version__, "transformers": transformers.__version__}
        )


def checked_pair(pair: object) -> ModelPair:
    """The pair itself; raises `SettingsError` for anything else."""
    if isinstance(pair, ModelPair):
        return pair
    raise SettingsError(
        f'Expected a pair of models, got {named(pair)}: load one, as in speclab.load_pair("mini").'
    )


def load_pair(
    name: str = "mini",
    *,
    target: Source | nn.Module | None = None,
    draft: Source | nn.Module | None = None,
    heads: HeadSource | Sequence[HeadSource] | None = None,
    tokenizer: PreTrainedTokenizerBase | ModelPath | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    exact: Literal["bits", "rounding"] | None = None,
    report: Report = silent,
) -> ModelPair:
    """Loads a target and its draft, and probes that they belong together and verify trees.

    Modules in memory change for good: to eval mode, sdpa or eager attention, `device`, `dtype`.

    Args:
        name: a preset, used without a target; "mini" is shipped with speclab.
        target, draft: hub id, local folder, GGUF file, or a `transformers` module, also compiled or
            with peft adapters inside its layers. Some strategies need no draft. draft="int8": the
            target at eight bits; draft="self": the target, a control that must accept everything.
        heads: draft heads for the target, or more draft models: folders (speclab's format, EAGLE's
            or speculators'), hub ids, modules.
        tokenizer: one for all, or where it is, taken unchecked; by default those of target and
            draft are compared.
        device: by default CUDA if there is one, else CPU; modules in memory stay where they are.
        dtype: by default float32 on CPU and for the shipped models, else the checkpoint's own.
        exact: "bits": a tree pass has the bits of the library's token-by-token decoding, or it is
            refused; "rounding": near-ties are counted. In bfloat16 a probe decides by default.
        report: called with one sentence at a time; an exception that it raises ends the load.

    Raises:
        SpeclabError: a subclass for each cause, such as not found, offline, memory, tokenizers.
    """
    kind = draft if isinstance(draft, str) and draft in OWN_DRAFTS else ""
    draft = None if kind else draft
    if target is None:
        preset = _preset(name, draft)
        target = preset.target
        draft = None if kind else preset.draft
        tokenizer = tokenizer or preset.tokenizer
        dtype = dtype or preset.dtype
        heads = preset.heads if heads is None else heads
    else:
        name = ""
    loader = Loader(parse_device(device), parse_dtype(dtype), report)
    with _ONE_AT_A_TIME:
        models = [unwrapped(source) for source in (target, draft) if source is not None]
        tokenizer, alike = _tokenizer(loader, models, tokenizer)
        runners = [loader.runner(model) for model in models]
        sources = runners + [load_head(head, runners[0], loader) for head in listed(heads)]
    share_vocabulary(sources, tokenizer)
    name = name or " + ".join([runner.name for runner in runners])
    if len(runners) > 1 and runners[0].name == runners[1].name:
        runners[1].name = f"the draft {runners[1].name}"
    first, *others = _checked(sources, exact, report)
    drafter = _own_draft(first, kind) if kind else None
    if draft is not None:
        drafter = others.pop(0)
    return ModelPair(first, drafter, tuple(others), tokenizer, name, alike=alike).fresh()


def _checked(sources: Sequence[Any], exact: str | None, report: Report) -> list[Any]:
    """Sources that verify trees; the first, the target, bit for bit if it shall or may."""
    if exact not in (None, "bits", "rounding"):
        raise SettingsError(f'exact is "bits" or "rounding", not {exact!r}.')
    report("Checking how the models verify trees…")
    checked: list[Any] = []
    for source in sources:
        if isinstance(source, Runner):
            source = check_trees(source)
        checked.append(source)
    _check_bits(checked[0], exact, report)
    return checked


def _check_bits(target: Runner, exact: str | None, report: Report) -> None:
    """Measures whether tree passes have the bits of plain decoding, if they shall or may."""
    if exact == "rounding" or (exact is None and target.dtype != torch.bfloat16):
        return
    report("Checking bits by rows…")
    target.state.bits = bits = measured(target)
    if exact == "bits" and not bits.rows:
        kind = str(target.dtype).removeprefix("torch.")
        raise SettingsError(
            f"{target.name} does not verify bit for bit in {kind} here ({bits.reason}): leave exact "
            "out, so that near-ties are counted, or try another dtype."
        )


def _own_draft(target: Runner, kind: str) -> Runner:
    """The target as its own draft, verified as the target is: at eight bits, or as it is."""
    if kind == "int8":
        model = at_eight_bits(target.model, target.name)
        draft = type(target)(model, f"{target.name} at 8 bits")
    else:
        draft = type(target)(target.model, f"{target.name} itself", lean=target.lean is not None)
        # what the control answers has the target's bits
        draft.state.bits = target.bits
    draft.settle()
    share_vocabulary([target, draft], None)
    return draft


def _preset(name: str, draft: object) -> Preset:
    if draft is not None:
        raise SettingsError("A draft needs its target: pass target= too, or the name of a pair.")
    preset = find(name)
    if preset.missing:
        raise ModelNotFoundError(
            f"{name} is not on this machine: run `speclab fetch {name}` once "
            f"({byte_count(preset.download)})."
        )
    return preset


def _tokenizer(
    loader: Loader, sources: Sequence[Source], given: PreTrainedTokenizerBase | ModelPath | None
) -> tuple[PreTrainedTokenizerBase | None, bool]:
    """The tokenizer of all sources, and whether theirs have token texts in common."""
    if isinstance(given, PreTrainedTokenizerBase):
        return given, True
    names = [source for source in sources if not isinstance(source, PreTrainedModel)]
    if given is not None:
        names = [given]
    every = [loader.tokenizer(name) for name in names]
    tokenizers = [tokenizer for tokenizer in every if tokenizer is not None]
    if given is not None and not tokenizers:
        raise ModelNotFoundError(
            f"The folder {given} has no tokenizer (no tokenizer.json): check the path."
        )
    alike = len(tokenizers) < 2 or compare(*tokenizers)
    return next(iter(tokenizers), None), alike


def share_vocabulary(
    sources: Sequence[Runner | HeadRunner], tokenizer: PreTrainedTokenizerBase | None
) -> None:
    """Gives all models the ids of the first, the target.

    A draft reads the tokenizer's unknown token in the place of an id that it lacks; if there is
    none, padding, the end of a text, or id 0.
    """
    ids = [getattr(tokenizer, f"{role}_token_id", None) for role in ("unk", "pad", "eos")]
    for source in sources:
        source.vocab_size = sources[0].vocab_size
        source.unknown = next((i for i in ids if i is not None and i < source.known), 0)
