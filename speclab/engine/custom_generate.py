"""Any strategy inside transformers: `model.generate(…, custom_generate=speclab.custom_generate(strategy, draft))`.

`generate` prepares what it prepares for its own decoding and hands it to the callable: the ids, its logits processors
and stopping criteria, the whole configuration. All of these stay the library's own objects here, and each token goes
through them as it would there; only where the tokens come from is speclab's. What cannot be honoured is refused by
name before a token is decoded.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from os import PathLike
from typing import Any, Never, cast
from weakref import WeakKeyDictionary

import torch
import transformers
from torch import Tensor, nn
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)
from transformers.generation.configuration_utils import GenerationMode
from transformers.generation.utils import GenerateDecoderOnlyOutput

from speclab.drafters import cost
from speclab.drafters.base import Strategy, checked
from speclab.engine.decisions import Decisions
from speclab.engine.decode import Decoding, iterate, start
from speclab.errors import (
    ModelNotFoundError,
    NoDraftError,
    SettingsError,
    TokenizerMismatchError,
    UnsupportedModelError,
)
from speclab.models.head_files import HeadSource, bare, listed, load_head
from speclab.models.heads import HeadRunner
from speclab.models.loading import Loader, is_here, shown_name
from speclab.models.pair import ModelPair, share_vocabulary
from speclab.models.probe import check_trees, unfit
from speclab.models.runner import Runner, use_maskable_attention
from speclab.models.tokens import compare
from speclab.settings import SessionSettings

_LEFT_OUT = "leave it out, or call generate without custom_generate"
_NEUTRAL: dict[str, tuple[tuple[object, ...], str]] = {
    "num_beams": ((1,), _LEFT_OUT),
    "num_return_sequences": ((1,), "call generate once for each text"),
    "penalty_alpha": ((0,), _LEFT_OUT),
    "dola_layers": ((), _LEFT_OUT),
    "constraints": ((), _LEFT_OUT),
    "force_words_ids": ((), _LEFT_OUT),
    "prompt_lookup_num_tokens": ((), "leave it out; speclab.PromptLookup() drafts so"),
    "assistant_early_exit": ((), _LEFT_OUT),
    "assistant_ensemble_weight": ((), _LEFT_OUT),
    "speculation_type": ((), _LEFT_OUT),
    "use_mtp": ((False,), _LEFT_OUT),
    "output_attentions": ((False,), "a tree's pass has other rows than the text; " + _LEFT_OUT),
    "output_hidden_states": ((False,), "a tree's pass has other rows than the text; " + _LEFT_OUT),
    "use_cache": ((True,), "a tree is verified against a cache; leave it out"),
    "cache_implementation": (("dynamic", "hybrid"), "speclab keeps a cache of its own; leave it out"),
    "prefill_chunk_size": ((), _LEFT_OUT),
    "is_assistant": ((False,), _LEFT_OUT),
}
"""Settings of a generation_config that would change the text or what comes back: values that do not, the way out."""
_PREPARED = {"attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep"}
"""What `generate` itself prepares for a model of text alone."""


def custom_generate(
    strategy: Strategy, draft: HeadSource | Sequence[HeadSource] | None = None, **others: Never
) -> CustomGenerate:
    """A callable for `model.generate(**inputs, custom_generate=…)` that decodes with `strategy`.

    The text is the one that `generate` writes without it: greedy token for token in float32, sampled with the same
    distribution (repeated by `torch.manual_seed`). Keep the callable: what it prepares for a model, it prepares once.

    Args:
        strategy: any of `speclab.strategies()`.
        draft: a transformers model, a hub id or folder, draft heads (modules, folders, or those of a pair), or several
            of them for a strategy that routes. Strategies that draft without a model leave it alone.
        others: there are none; they come where `generate` is given this function, uncalled.

    Raises:
        SpeclabError: `strategy` is none, or drafts with a model and none is given. The callable raises it where
            something is asked that it cannot honour; the message names it.
    """
    if others:
        raise SettingsError(
            f"custom_generate takes a strategy and a draft, and no {next(iter(others))}: what model.generate is given "
            "is what it returns, as in custom_generate=speclab.custom_generate(speclab.DynaTree(), draft=…)."
        )
    return CustomGenerate(checked(strategy), draft)


def _holding(inside: object) -> Mapping[str, Any]:
    """Names and values in the nearest function above that was given `inside` as its `custom_generate`; or none."""
    frame = sys._getframe()
    while (above := frame.f_back) is not None:
        frame = above
        if "custom_generate" in frame.f_code.co_varnames and frame.f_locals.get("custom_generate") is inside:
            return frame.f_locals
    return {}


def _not_handed_over(inside: object) -> dict[str, Any]:
    """What `generate` was given and keeps to itself where a callable decodes, by the names of its arguments.

    transformers 5.0 to 5.23 hand a callable neither streamer nor assistant_model nor synced_gpus, and a cache whether
    it is the user's or not.

    Raises:
        SettingsError: the caller is no `generate`, or one that names them otherwise, so nobody knows what was asked.
    """
    held, names = _holding(inside), ("streamer", "assistant_model", "synced_gpus", "kwargs")
    if unknown := [name for name in names if name not in held]:
        raise SettingsError(
            f"custom_generate is for model.generate to call, and this caller (transformers {transformers.__version__}) "
            f"has no {unknown[0]} that could be honoured: pass it as custom_generate=…, with transformers 5.0 to 5.23."
        )
    return {name: held[name] for name in names[:3]} | {"past_key_values": held["kwargs"].get("past_key_values")}


class _Signature:
    """What `inspect.signature` reads from a `CustomGenerate`: the moment at which a tokenizer can be kept.

    For a callable, transformers 5.0 to 5.23 drop the tokenizer, without which they refuse stop_strings; and pass on
    those of their further arguments that the callable's signature names. So the tokenizer is put among these. Where
    that finds none, `generate` itself refuses stop_strings.
    """

    def __get__(self, instance: CustomGenerate | None, owner: type) -> inspect.Signature | None:
        if instance is None:
            return None
        held = _holding(instance)
        if (tokenizer := held.get("generation_mode_kwargs", {}).get("tokenizer")) is not None:
            held["kwargs"]["tokenizer"] = tokenizer
        return inspect.signature(instance.__call__)


class CustomGenerate:
    """See `custom_generate`; models are held weakly."""

    __signature__ = _Signature()

    def __init__(self, strategy: Strategy, draft: HeadSource | Sequence[HeadSource] | None = None) -> None:
        drafts = strategy.needs_draft or strategy.heads_needed > 0
        if strategy.by_hand:
            raise SettingsError(f"{type(strategy).__name__} waits for a person at each tree: choose another strategy")
        given = listed(draft)
        if drafts and not given:
            raise NoDraftError(
                f"{type(strategy).__name__} drafts with a model: give one, as in "
                f"custom_generate({type(strategy).__name__}(), draft=…)"
            )
        self.strategy = strategy
        self._drafts = [bare(each) for each in given] if drafts else []
        self._pairs: WeakKeyDictionary[nn.Module, ModelPair] = WeakKeyDictionary()

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        tokenizer: PreTrainedTokenizerBase | None = None,  # see `_Signature`
        **given: Any,
    ) -> Tensor | GenerateDecoderOnlyOutput:
        """Decodes one text, as `generate` calls it.

        Args:
            model: the user's; it is left as it was, and none of its weights is copied.
            input_ids: `[1, L]` int64.
            logits_processor, stopping_criteria, generation_config, given: as `generate` prepared them.

        Returns:
            `[1, L + new]` int64, or with return_dict_in_generate the library's record, in which `past_key_values` is
            None.

        Raises:
            SpeclabError: something is asked that cannot be honoured.
        """
        given |= _not_handed_over(self)
        refuse(model, input_ids, generation_config, given)
        padded = left_padding(input_ids, given)
        text = _Text(input_ids, padded, stopping_criteria, generation_config, given["streamer"])
        with borrowed([model, *(each for each in self._drafts if isinstance(each, PreTrainedModel))]):
            pair = self._pair(model)
            cost.prepare(self.strategy, pair)
            self._decode(pair.fresh(), text, logits_processor)
        return text.result()

    def _decode(self, pair: ModelPair, text: _Text, processors: LogitsProcessorList) -> None:
        config, (padding, ids) = text.config, text.ids.tensor_split([text.padded], 1)
        prompt_ids = pair.encode(ids[0].tolist())
        limit = text.criteria.max_length or config.max_length
        sampled = bool(config.do_sample)
        settings = SessionSettings(
            max_new_tokens=max(1, limit - text.ids.shape[1]),  # the library looks at the length after a token
            temperature=float(sampled),
            seed=int(torch.randint(2**63 - 1, ())) if sampled else 0,
            stop_at_eos=False,  # a criterion's to say
        )
        width = pair.target.model.config.get_text_config(decoder=True).vocab_size
        always = sampled or len(processors) > 0 or text.keeps
        decisions = Decisions(processors, settings, padding, width, always=always)
        pair.target.allow_nonfinite = config.remove_invalid_values is True
        decoding = start(pair, self.strategy, prompt_ids, settings, decisions)
        drafting = _as_sampled(settings, config) if sampled else settings

        def propose(context: Any) -> Any:  # a drafter that samples warps as the processors do
            return decoding.drafter.draft(replace(context, sampling=drafting))

        while not text.append(decoding, decisions) and decoding.room > 0:
            iterate(decoding, propose)

    def _pair(self, model: PreTrainedModel) -> ModelPair:
        """The model and its draft, prepared and probed once.

        It runs a second object on the very parts and weights of the model, so that it may be held while the model is
        not: when the user's last reference goes, everything goes.
        """
        pair = self._pairs.get(model)
        stand_in: nn.Module = type(model).__new__(type(model)) if pair is None else pair.target.model
        vars(stand_in).update(vars(model))
        for gone in vars(stand_in).keys() - vars(model).keys():
            del vars(stand_in)[gone]
        if pair is None:
            pair = self._pairs[model] = _prepared(stand_in, self._drafts, self.strategy)
        return pair


class _Text:
    """The text of one call as the library keeps it: ids, what they were chosen from, criteria, streamer.

    Attributes:
        ids: `[1, L]` int64, padding included.
        padded: ids of padding before the text.
        keeps: whether what tokens were chosen from is to come back.
    """

    def __init__(
        self, ids: Tensor, padded: int, criteria: StoppingCriteriaList, config: GenerationConfig, streamer: Any
    ) -> None:
        self.ids, self.padded, self.criteria, self.config, self._streamer = ids, padded, criteria, config, streamer
        self._dict = bool(config.return_dict_in_generate)
        self._scores: tuple[Tensor, ...] | None = () if self._dict and config.output_scores else None
        self._logits: tuple[Tensor, ...] | None = () if self._dict and config.output_logits else None
        self.keeps = self._scores is not None or self._logits is not None

    def append(self, decoding: Decoding, decisions: Decisions) -> bool:
        """Takes over what was committed, token by token; whether a criterion ended the text, which is cut there."""
        for place in range(self.ids.shape[1] - self.padded, len(decoding.tokens)):
            token = torch.tensor([decoding.tokens[place]], device=self.ids.device)
            self.ids = torch.cat((self.ids, token[None]), 1)
            if self._logits is not None:
                self._logits += (decisions.rows[place][0],)
            if self._scores is not None:
                self._scores += (decisions.rows[place][1],)
            ended = bool(self.criteria(self.ids, cast("Any", self._scores)).all())
            if self._streamer is not None:
                self._streamer.put(token.cpu())
            if ended:
                return True
        decisions.rows.clear()
        return False

    def result(self) -> Tensor | GenerateDecoderOnlyOutput:
        """What `generate` returns."""
        if self._streamer is not None:
            self._streamer.end()
        if not self._dict:
            return self.ids
        return GenerateDecoderOnlyOutput(
            sequences=cast("Any", self.ids),
            scores=cast("Any", self._scores),
            logits=cast("Any", self._logits),
        )


# What is refused


def refuse(model: PreTrainedModel, input_ids: Tensor, config: GenerationConfig, given: Mapping[str, Any]) -> None:
    """Raises for whatever would change the text or come back otherwise, by its name.

    Args:
        given: what `generate` was given beside the configuration.
    """
    name = shown_name(model)
    if model.config.is_encoder_decoder:
        raise UnsupportedModelError(
            f"{name} is an encoder-decoder, and speclab decodes with decoders alone: choose another model."
        )
    if why := unfit(model.config):
        raise UnsupportedModelError(
            f"{name} (family {model.config.model_type}) cannot verify a draft tree: {why}; choose another model."
        )
    own, prepares = type(model), model.prepare_inputs_for_generation  # peft lends it another for learned prompts
    if getattr(prepares, "__func__", None) is not getattr(own, "prepare_inputs_for_generation", None):
        raise UnsupportedModelError(
            f"{name} reads more than the text, for its prepare_inputs_for_generation was replaced, as peft does for "
            "prompt and prefix tuning: call generate without custom_generate (LoRA and IA3 decode with it)."
        )
    if given.get("assistant_model") is not None:
        raise SettingsError("custom_generate takes no assistant_model: give it as speclab.custom_generate(…, draft=…).")
    if given.get("synced_gpus"):
        raise SettingsError(f"custom_generate does not honour synced_gpus=True: {_LEFT_OUT}.")
    values = [(setting, getattr(config, setting, None), *known) for setting, known in _NEUTRAL.items()]
    for setting, value, neutral, way in values:
        if value is not None and value not in neutral:
            raise SettingsError(f"custom_generate does not honour {setting}={value!r}: {way}.")
    if (mode := config.get_generation_mode()) not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        raise SettingsError(f"custom_generate decodes greedily or samples, and the mode here is {mode}: {_LEFT_OUT}.")
    _refuse_inputs(input_ids, given)


def _refuse_inputs(input_ids: Tensor, given: Mapping[str, Any]) -> None:
    if given.get("past_key_values") is not None:
        raise SettingsError(
            "custom_generate takes no past_key_values: leave them out and give the whole text in input_ids."
        )
    known = {*_PREPARED, *_NEUTRAL, "assistant_model", "streamer", "synced_gpus"}
    if foreign := sorted(name for name, value in given.items() if value is not None and name not in known):
        raise SettingsError(f"custom_generate decodes from input_ids alone, and {foreign[0]} was given: {_LEFT_OUT}.")
    if input_ids.ndim != 2 or len(input_ids) != 1 or not input_ids.shape[1]:
        raise SettingsError(
            f"custom_generate decodes one text, and input_ids have the shape {list(input_ids.shape)}: give a batch of "
            "one, [1, tokens], and call generate once for each text."
        )


def left_padding(input_ids: Tensor, given: Mapping[str, Any]) -> int:
    """How many ids before the text are padding, which the model never sees.

    Raises:
        SettingsError: the mask hides anything else, or positions are not those of the text.
    """
    length, mask, positions = input_ids.shape[1], given.get("attention_mask"), given.get("position_ids")
    seen = torch.ones(length) if mask is None else mask[0].cpu()
    padded = int((seen != 0).long().argmax())
    if (mask is not None and mask.shape != input_ids.shape) or not bool((seen[padded:] == 1).all()):
        raise SettingsError(
            "custom_generate takes an attention_mask that hides padding before the text, and this one, which generate "
            "may have made from pad_token_id, hides other tokens: pad on the left, or pass the attention_mask."
        )
    if positions is not None:
        own, counted = positions.cpu()[..., padded:], torch.arange(length - padded)
        if own.shape[-1] != len(counted) or not bool((own == counted).all()):
            raise SettingsError(
                "custom_generate counts positions from the text's first token, and these, which generate may have made "
                "from the attention_mask, are others: leave position_ids out, and give a mask of the text's own length."
            )
    return padded


# The models


@contextmanager
def borrowed(models: Sequence[PreTrainedModel]) -> Iterator[None]:
    """Models in eval mode, with attention that takes a tree mask; put back as they were at the end."""
    training = [part for model in models for part in model.modules() if part.training]
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


def _prepared(model: Any, drafts: Sequence[Any], strategy: Strategy) -> ModelPair:
    target = Runner(model, shown_name(model), packing=False)
    check_trees(target)
    tokenizer = None
    found: list[HeadRunner | Runner] = []
    for draft in drafts:
        named = isinstance(draft, str | PathLike)
        loader = Loader(target.device, target.dtype) if named else Loader()
        runner = load_head(draft, target, loader)
        if isinstance(runner, Runner):
            tokenizer = _shared_tokenizer(target, runner, draft if named else runner.model) or tokenizer
            share_vocabulary([target, runner], tokenizer)
            check_trees(runner)
        found.append(runner)
    for head in found:
        head.vocab_size = target.vocab_size
    name = " + ".join([target.name, *(each.name for each in found)])
    if len(found) == 1 and isinstance(found[0], Runner) and not strategy.heads_needed:
        return ModelPair(target, found[0], name=name)
    return ModelPair(target, heads=tuple(found), name=name)


def _shared_tokenizer(target: Runner, draft: Runner, source: Any) -> PreTrainedTokenizerBase | None:
    """The tokenizer of both, where that of each can be found on this machine; `source`: where the draft comes from.

    Raises:
        TokenizerMismatchError: they differ, or are unknown and the models do not have as many token ids.
    """
    of_target, of_draft = _tokenizer_of(target.model), _tokenizer_of(source)
    with suppress(TokenizerMismatchError):
        if of_target is not None and of_draft is not None:
            compare(of_target, of_draft)
            return of_target
        if target.vocab_size == draft.vocab_size:
            return None
    raise TokenizerMismatchError(
        f"{draft.name} cannot draft for {target.name}, for their tokenizers or vocabularies differ "
        f"({draft.vocab_size} and {target.vocab_size} token ids): choose a draft of the model's family."
    )


def _tokenizer_of(source: Any) -> PreTrainedTokenizerBase | None:
    name = str(source.config.name_or_path) if isinstance(source, PreTrainedModel) else source
    try:
        return Loader().tokenizer(name) if name and is_here(name) else None
    except ModelNotFoundError:
        return None


def _as_sampled(settings: SessionSettings, config: GenerationConfig) -> SessionSettings:
    """Temperature, top-k and top-p of the configuration, for candidates that are drawn from a draft."""
    return settings.changed(
        temperature=min(config.temperature or 1.0, 100.0),
        top_k=config.top_k or None,
        top_p=config.top_p if config.top_p and config.top_p < 1 else None,
    )
