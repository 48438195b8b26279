"""Any strategy inside transformers: `model.generate(…,
custom_generate=speclab.custom_generate(strategy, draft))`.

`generate` prepares ids, logits processors, stopping criteria and the configuration and passes them
to the callable. Each token goes through them as in the library; only the source of tokens is
speclab's. What cannot be honoured is refused by name before a token is decoded. transformers (5.0
to 5.23) does not pass its streamer and tokenizer to the callable: give the streamer to
`custom_generate`, and stop strings as
`stopping_criteria=[StopStringCriteria(tokenizer, […])]`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)
from transformers.generation.utils import GenerateDecoderOnlyOutput

from speclab.drafters import cost
from speclab.drafters.base import Context, Draft, Strategy, checked, require
from speclab.engine.decode import iterate, start
from speclab.errors import ModelNotFoundError, SettingsError, UnsupportedModelError
from speclab.heads.files import HeadSource, bare, listed
from speclab.heads.layout import DraftModule
from speclab.loading.loader import Loader, folder_of, shown_name
from speclab.loading.presets import Offer
from speclab.loading.tokens import compare
from speclab.models.processors import OTHER_LOOPS
from speclab.models.runner import use_maskable_attention
from speclab.pair import ModelPair, load_pair
from speclab.settings import SessionSettings

_NEUTRAL: dict[str, tuple[object, ...]] = {name: (value,) for name, value in OTHER_LOOPS.items()} | {
    "output_attentions": (False,), "output_hidden_states": (False,), "output_scores": (False,),
    "output_logits": (False,), "use_cache": (True,),
    "cache_implementation": ("dynamic", "hybrid"), "prefill_chunk_size": (), "is_assistant": (False,),
}  # fmt: skip
"""Settings of a generation_config that would change the text or the result, with the values that do not."""
_PREPARED = {
    "attention_mask", "position_ids", "past_key_values", "cache_params", "state", "use_cache",
    "logits_to_keep",
}  # fmt: skip
"""What `generate` itself prepares for a text-only model."""
_WAY_OUT = "leave it out, or call generate without custom_generate"


def custom_generate(
    strategy: Strategy,
    draft: HeadSource | Sequence[HeadSource] | None = None,
    *,
    streamer: Any = None,
) -> Callable[..., Tensor | GenerateDecoderOnlyOutput]:
    """A callable for `model.generate(**inputs, custom_generate=…)` that decodes with `strategy`.

    It gives the same text as `generate` without it: greedy token for token in float32, sampled with
    the same distribution (repeatable by `torch.manual_seed`). Reuse the callable: it prepares a
    model once and keeps it.

    Args:
        strategy: any of `speclab.strategies()`.
        draft: a transformers model, a hub id or folder, draft heads (modules, folders, or those of
            a pair), or several of them for a strategy that routes. Strategies that draft without a
            model ignore it.
        streamer: replaces the `streamer` argument of `generate`.

    Returns:
        A callable that gives `[1, L + new]` int64 or, with return_dict_in_generate, the library's
            record of the sequences alone. It leaves the model unchanged.

    Raises:
        SpeclabError: `strategy` is not a strategy, or needs a draft. The callable raises it for
            what it cannot honour.
    """
    name = type(checked(strategy)).__name__
    models = listed(draft)
    if strategy.by_hand:
        raise SettingsError(f"{name} needs a person to build each tree: choose another strategy.")
    require(strategy, Offer("custom_generate", draft=False, heads=len(models)))
    drafts = []
    if strategy.missing(Offer("", draft=False, heads=0)):  # else it ignores them
        drafts = [bare(model) for model in models]
    return partial(_decode, strategy, drafts, streamer, {})


def _decode(
    strategy: Strategy,
    drafts: Sequence[Any],
    streamer: Any,
    pairs: dict[str, ModelPair],
    model: PreTrainedModel,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    **others: Any,
) -> Tensor | GenerateDecoderOnlyOutput:
    """`pairs`: the last one that was prepared."""
    # generate keeps this argument to itself
    others["assistant_model"] = sys._getframe(1).f_locals.get("assistant_model")
    refuse(model, input_ids, generation_config, others)
    padding, ids = input_ids.tensor_split([left_padding(input_ids, others)], 1)
    models = [model] + [draft for draft in drafts if isinstance(draft, PreTrainedModel)]
    with borrowed(models):
        pair = pairs.get("last")
        if pair is None or pair.target.model is not model:
            pair = pairs["last"] = _prepared(model, drafts)
        cost.with_node_budget(strategy, pair)
        text = _Text(pair.fresh(), padding, ids, logits_processor, generation_config)
        text.decode(strategy, stopping_criteria, streamer)
    return text.result()


class _Text:
    def __init__(
        self,
        pair: ModelPair,
        padding: Tensor,
        ids: Tensor,
        processors: Any,
        config: GenerationConfig,
    ) -> None:
        self._pair = pair
        self._padding = padding
        self._processors = processors
        self._config = config
        self.ids = torch.cat((padding, ids), 1)
        self._prompt_ids = pair.encode(ids[0].tolist())

    def decode(self, strategy: Strategy, criteria: StoppingCriteriaList, streamer: Any) -> None:
        config = self._config
        pair = self._pair
        sampled = bool(config.do_sample)
        settings = SessionSettings(
            # the library checks the length after it appends a token
            max_new_tokens=max(1, (criteria.max_length or config.max_length) - self.ids.shape[1]),
            temperature=float(sampled),
            seed=int(torch.randint(2**63 - 1, ())) if sampled else 0,
            stop_at_eos=False,  # a criterion ends the text
        )
        pair.target.allow_nonfinite = config.remove_invalid_values is True
        if streamer is not None:
            streamer.put(self.ids.cpu())
        decoding = start(pair, strategy, self._prompt_ids, settings, self.process)
        # a drafter that samples uses the processors' temperature, top-k and top-p
        drafting = settings
        if sampled:
            drafting = settings.changed(
                temperature=min(config.temperature or 1.0, 100.0),
                top_k=config.top_k or None,
                top_p=config.top_p if config.top_p and config.top_p < 1 else None,
            )

        def propose(context: Context) -> Draft:
            # no deeper than the text: processors are called once per token of it
            depth = min(context.max_depth, decoding.room - 1)
            return decoding.drafter.draft(replace(context, sampling=drafting, max_depth=depth))

        while not self._append(decoding.tokens, criteria, streamer) and decoding.room > 0:
            iterate(decoding, propose)
        if streamer is not None:
            streamer.end()

    def process(self, ids: Sequence[int], row: Tensor) -> Tensor:
        """The library's processors on one row of logits `[V]`, called once per token, as in `generate`."""
        device = self.ids.device
        before = torch.cat((self._padding, torch.tensor([ids], dtype=torch.long, device=device)), 1)
        scores: Tensor = self._processors(before, row.to(device, torch.float32, copy=True)[None])
        if self._config.do_sample and scores.amax() == -torch.inf:
            raise SettingsError(
                f"The logits processors leave no token to draw after {len(ids)} tokens: loosen "
                "them."
            )
        return scores[0]

    def _append(self, tokens: Sequence[int], criteria: Any, streamer: Any) -> bool:
        """Appends committed tokens one by one; True if a criterion ended the text, which is cut there."""
        for position in range(self.ids.shape[1] - self._padding.shape[1], len(tokens)):
            token = torch.tensor([tokens[position]], device=self.ids.device)
            self.ids = torch.cat((self.ids, token[None]), 1)
            ended = bool(criteria(self.ids, None).all())
            if streamer is not None:
                streamer.put(token.cpu())
            if ended:
                return True
        return False

    def result(self) -> Tensor | GenerateDecoderOnlyOutput:
        if not self._config.return_dict_in_generate:
            return self.ids
        return GenerateDecoderOnlyOutput(sequences=cast("Any", self.ids))


def refuse(
    model: PreTrainedModel, input_ids: Tensor, config: GenerationConfig, given: Mapping[str, Any]
) -> None:
    """Raises an error for settings that would change the text or the result; `given`: the model's arguments."""
    prepare = getattr(model.prepare_inputs_for_generation, "__func__", None)
    if prepare is not getattr(type(model), "prepare_inputs_for_generation", None):
        raise UnsupportedModelError(
            f"prepare_inputs_for_generation of {shown_name(model)} was replaced, as peft does for prompt and "
            "prefix tuning: call generate without custom_generate (LoRA and IA3 work with it)."
        )
    for setting, neutral in _NEUTRAL.items():
        if (value := getattr(config, setting, None)) is not None and value not in neutral:
            raise SettingsError(
                f"custom_generate does not support {setting}={value!r}: {_WAY_OUT}."
            )
    if (mode := config.get_generation_mode()) not in {"greedy_search", "sample"}:
        raise SettingsError(
            f"custom_generate supports greedy decoding and sampling, not {mode}: {_WAY_OUT}."
        )
    if (cache := given.get("past_key_values")) is not None and cache.get_seq_length():
        raise SettingsError(
            "custom_generate does not support past_key_values: pass the whole text in input_ids."
        )
    if foreign := sorted(name for name in given.keys() - _PREPARED if given[name] is not None):
        raise SettingsError(f"custom_generate reads only input_ids, not {foreign[0]}: {_WAY_OUT}.")
    if input_ids.ndim != 2 or len(input_ids) != 1 or not input_ids.shape[1]:
        raise SettingsError(
            "custom_generate decodes one text, but input_ids have the shape "
            f"{list(input_ids.shape)}: pass [1, tokens] and call generate once per text."
        )


def left_padding(input_ids: Tensor, given: Mapping[str, Any]) -> int:
    """How many ids before the text are padding.

    Raises:
        SettingsError: the mask hides other tokens, or positions do not count from the text's first
            token.
    """
    length = input_ids.shape[1]
    # generate may have derived one from pad_token_id, the other from the mask
    mask = given.get("attention_mask")
    if mask is None:
        mask = torch.ones_like(input_ids)
    padded = int((mask[0] != 0).long().argmax())
    counted = torch.arange(length - padded, device=input_ids.device)
    positions = counted
    if given.get("position_ids") is not None:
        positions = given["position_ids"].flatten()[padded:]
    if (
        mask.shape != input_ids.shape
        or not bool((mask[:, padded:] == 1).all())
        or not torch.equal(positions.to(counted), counted)
    ):
        raise SettingsError(
            "The attention_mask or the position_ids do more than skip padding before the text: pad "
            "on the left, pass a mask of the length of input_ids, and leave position_ids out."
        )
    return padded


@contextmanager
def borrowed(models: Sequence[PreTrainedModel]) -> Iterator[None]:
    """Sets models to eval mode and to attention that takes a tree mask; restores them at the end."""
    parts = chain.from_iterable(model.modules() for model in models)
    training = [part for part in parts if part.training]
    attention = [(model, model.config._attn_implementation) for model in models]
    try:
        for part in training:
            part.training = False
        for model in models:
            use_maskable_attention(model)
        yield
    finally:
        for part in training:
            part.training = True
        for model, name in attention:
            if model.config._attn_implementation != name:
                model.set_attn_implementation(name)


def _prepared(model: PreTrainedModel, drafts: Sequence[Any]) -> ModelPair:
    """The model with its drafts. Their tokenizers must agree, as far as this machine has them."""
    sources = [model] + [draft for draft in drafts if not isinstance(draft, DraftModule)]
    tokenizers = list(filter(None, map(_tokenizer_of, sources)))
    for tokenizer in tokenizers[1:]:
        compare(tokenizers[0], tokenizer)
    shared = None
    if len(tokenizers) == len(sources):
        shared = tokenizers[0]
    return load_pair(target=model, heads=drafts, tokenizer=shared)


def _tokenizer_of(source: Any) -> PreTrainedTokenizerBase | None:
    name = source
    if isinstance(source, PreTrainedModel):
        name = str(source.config.name_or_path)
    try:
        if name and folder_of(name):
            return Loader().tokenizer(name)
    except ModelNotFoundError:
        pass
    return None
