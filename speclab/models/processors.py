"""What a checkpoint's generation_config asks of its text: where it ends, and its logits processors.

`model.generate` does not choose from bare logits: the generation_config may penalise repetition,
rule out tokens, or delay the end. Settings that act on one row of logits and the ids before it are
followed here with the library's own `LogitsProcessor` classes, so the target's text is the one that
`generate` writes. Other settings are named in a warning and in the records.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, cast
from warnings import warn

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel

from speclab.errors import GenerationConfigWarning, SettingsError

FOLLOWED: dict[str, object] = {
    "sequence_bias": None, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "bad_words_ids": None,
    "min_length": 0, "min_new_tokens": 0, "forced_bos_token_id": None, "forced_eos_token_id": None,
    "remove_invalid_values": False, "exponential_decay_length_penalty": None, "suppress_tokens": None,
    "begin_suppress_tokens": None, "renormalize_logits": False,
}  # fmt: skip
"""Settings whose processors act row by row, with their neutral values."""
OTHER_LOOPS: dict[str, object] = {
    "num_beams": 1, "num_return_sequences": 1, "constraints": None, "force_words_ids": None, "penalty_alpha": 0,
    "dola_layers": None, "prompt_lookup_num_tokens": None, "assistant_early_exit": None,
    "assistant_ensemble_weight": None, "speculation_type": None, "use_mtp": False,
}  # fmt: skip
"""Settings with which `generate` decodes in a loop of its own, with their neutral values."""
NOT_FOLLOWED: dict[str, object] = OTHER_LOOPS | {
    "guidance_scale": 1.0, "watermarking_config": None, "stop_strings": None, "max_time": None,
    "token_healing": False, "encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0,
}  # fmt: skip
"""Settings with which `generate` may write another text or draft in another way, with their neutral values."""

_SHORT = reprlib.Repr()
_SHORT.maxother = 60


@dataclass(frozen=True)
class GenerationRules:
    """A generation_config as it was read: `eos_ids` end a text; of the settings, those that are not neutral."""

    eos_ids: tuple[int, ...]
    followed: dict[str, Any]
    not_followed: dict[str, Any]

    @classmethod
    def of(cls, config: GenerationConfig | None) -> Self:
        """Reads it now; a model that cannot generate has None.

        Raises:
            SettingsError: its eos_token_id is not an id.
        """
        eos = getattr(config, "eos_token_id", None)
        ids: list[int] = []
        try:
            if eos is not None:
                ids = torch.as_tensor(eos, dtype=torch.long).flatten().tolist()
        except (ValueError, TypeError) as error:
            raise SettingsError(
                f"The target's generation_config has eos_token_id={eos!r}: set it to an id, a list "
                "of ids, or None."
            ) from error
        followed = _active(config, FOLLOWED)
        if getattr(config, "min_new_tokens", None) is not None:
            # as in the library: min_new_tokens takes precedence, also at 0
            followed.pop("min_length", None)
        ignored = _active(config, NOT_FOLLOWED)
        if getattr(config, "cache_implementation", None) == "quantized":
            ignored["cache_implementation"] = "quantized"  # rounded keys and values
        return cls(tuple(ids), followed, ignored)

    def describe(self) -> dict[str, str]:
        """For records: what is followed, and what is not."""
        named = {"target_processors": self.followed, "target_not_followed": self.not_followed}
        return {name: _listed(settings) for name, settings in named.items() if settings}

    def warn(self, name: str) -> None:
        """Warns of what is not followed; Python shows a warning once per place."""
        if self.not_followed:
            warn(
                f"speclab ignores {_listed(self.not_followed)} in the generation_config of {name}, "
                "so the text may "
                "differ from model.generate's; clear it in model.generation_config to silence this",
                GenerationConfigWarning,
                stacklevel=4,
            )

    def processors(
        self, model: PreTrainedModel, prompt_length: int, max_new_tokens: int
    ) -> Processors | None:
        """The processors of one text, None if there are none.

        Raises:
            SettingsError: the library refuses a value.
        """
        if not self.followed:
            return None
        try:
            config = GenerationConfig(**self.followed, max_length=prompt_length + max_new_tokens)
            config._eos_token_tensor = None
            if self.eos_ids:
                config._eos_token_tensor = torch.tensor(self.eos_ids, device=model.device)
            # The library's own list, in its order; there is no public method for it.
            run = cast("Any", model)._get_logits_processor(
                config, input_ids_seq_length=prompt_length, device=model.device
            )
        except (AttributeError, ValueError, TypeError) as error:
            raise self.refused(error) from error
        return Processors(self, run)

    def refused(self, error: Exception) -> SettingsError:
        """The error for a value that the library refuses."""
        return SettingsError(
            f"The target's generation_config is invalid ({error}): correct or clear "
            f"{_listed(self.followed)} in model.generation_config."
        )


class Processors:
    """The logits processors of one text; called with the ids before a token and its logits `[V]`."""

    def __init__(self, rules: GenerationRules, run: LogitsProcessorList) -> None:
        self._rules = rules
        self._run = cast("Any", run)

    @torch.inference_mode()
    def __call__(self, ids: Sequence[int], row: Tensor) -> Tensor:
        """The processed logits, `[V]` float32 as in the library; the input is unchanged.

        Raises:
            SettingsError: the library refuses a value of the generation_config.
        """
        before = torch.tensor([ids], dtype=torch.long, device=row.device)
        try:
            scores: Tensor = self._run(before, row.to(torch.float32, copy=True)[None])[0]
        except (ValueError, TypeError, IndexError) as error:
            raise self._rules.refused(error) from error
        if scores.amax() == -torch.inf:  # every token is ruled out: the library's argmax is id 0
            scores[0] = 0.0
        return scores


def _active(config: GenerationConfig | None, neutral: dict[str, object]) -> dict[str, Any]:
    active = {}
    for name, usual in neutral.items():
        value = getattr(config, name, None)
        if value is not None and value != usual:
            active[name] = value
    return active


def _listed(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_SHORT.repr(value)}" for name, value in settings.items())
