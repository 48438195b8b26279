"""Records transformers' own assisted generation, pass by pass, in the format of docs/steps.md."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessorList, PreTrainedModel
from transformers.generation.candidate_generator import AssistedCandidateGenerator

from speclab.clinic.recorders.files import proposals
from speclab.errors import SettingsError, TraceError
from speclab.models.answer import KEPT
from speclab.recorder import Recorder, topk

WARPERS = {
    "TemperatureLogitsWarper",
    "TopKLogitsWarper",
    "TopPLogitsWarper",
    "MinPLogitsWarper",
}
"""Processors that do what the header's temperature, top_k, top_p and min_p say."""
CUTS = ("top_k", "top_p", "min_p")


@contextmanager
def record_generate(model: PreTrainedModel, path: str | os.PathLike[str]) -> Iterator[None]:
    """Records the assisted generation of `model` (with a draft model, prompt lookup, …) to `path`.

        with speclab.record_generate(model, "run.jsonl"):
            model.generate(**inputs, assistant_model=draft)

    Padding on the left is left out. What the draft proposed its tokens from is written unless other
    processors than temperature and cuts change it. A warning says so if nothing was recorded.

    Raises:
        SettingsError: `generate` was called twice inside; a file holds one call.
        TraceError: the folder of `path` is missing or read-only.
    """
    if not os.access(Path(path).absolute().parent, os.W_OK):
        raise TraceError(
            f"{path} cannot be written: choose a file in a folder that exists and is writable."
        )
    module: Any = model
    candidate_generator = module._get_candidate_generator
    calls: list[_Call] = []
    last_pass: dict[str, Any] = {}

    def on_forward(_: object, __: object, inputs: dict[str, Any], output: Any) -> None:
        # A copy: float32 logits are processed in place.
        last_pass.update(logits=output.logits[0].clone(), position=inputs.get("position_ids"))

    def make_generator(**given: Any) -> Any:
        if calls:
            raise SettingsError(
                "A file holds one call of generate: open another record_generate for the next."
            )
        generator = candidate_generator(**given)
        calls.append(_Call(path, module, generator, given, last_pass))
        return generator

    hook = model.register_forward_hook(on_forward, with_kwargs=True)
    module._get_candidate_generator = make_generator
    try:
        yield
    finally:
        del module._get_candidate_generator
        hook.remove()
        for call in calls:
            call.recorder.close()
    if not calls:
        warnings.warn(
            f"{path} was not written: no assisted generation ran. Call model.generate with "
            "assistant_model=… or prompt_lookup_num_tokens=….",
            stacklevel=3,
        )


class _Call:
    """One call of `generate`: remembers the candidates when they are drafted, and writes a line
    when the generator learns what was accepted.

    Args:
        given: the arguments of the generator. last_pass: logits and positions of the model's newest
            pass.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        module: Any,
        generator: Any,
        given: Mapping[str, Any],
        last_pass: Mapping[str, Any],
    ) -> None:
        mask = given["model_kwargs"].get("attention_mask")
        self.pads = 0
        if mask is not None and mask.ndim == 2:
            self.pads = int((mask[0].cumsum(0) == 0).sum())
        self.header = _header(module, generator, given)
        self.recorder = Recorder(path, given["input_ids"][0, self.pads :], **self.header)
        self.last_pass = last_pass
        self.draft = generator.get_candidates
        self.update = generator.update_candidate_strategy
        generator.get_candidates = self.get_candidates
        generator.update_candidate_strategy = self.update_candidate_strategy

    def get_candidates(self, input_ids: torch.Tensor, *rest: Any, **more: Any) -> Any:
        drafted = self.draft(input_ids, *rest, **more)
        self.length = input_ids.shape[1]  # of the text before
        self.candidates = drafted[0][0]
        self.logits = drafted[1]
        return drafted

    def update_candidate_strategy(
        self, input_ids: torch.Tensor, scores: torch.Tensor, matches: Any
    ) -> Any:
        prefix = self.length - 1
        token = self.candidates[prefix:].tolist()
        n = len(token)
        committed = input_ids[0, self.length :].tolist()
        accepted = int(matches)
        if token[accepted + 1 : accepted + 2] == committed[-1:]:  # the text ended inside the path
            accepted += 1
        optional: dict[str, Any] = {}
        if self.last_pass["position"] is not None:
            optional["position"] = self.last_pass["position"][0, -n:]
        if not self.header["temperature"]:
            optional["choice"] = scores[0].argmax(-1)
        if self.logits is not None and not self.header["processed"]:
            optional |= proposals(self.logits[0].float().log_softmax(-1), token)
        self.recorder.step(
            prefix_length=prefix - self.pads,
            token=token,
            parent=range(-1, n - 1),
            topk=topk(self.last_pass["logits"][-n:], KEPT),
            accepted=range(1, accepted + 1),
            committed=committed,
            **optional,
        )
        return self.update(input_ids, scores, matches)


def _header(module: Any, generator: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    config = given["generation_config"]
    kinds = {type(each).__name__ for each in given["logits_processor"]}
    eos = config.eos_token_id
    header: dict[str, Any] = {
        "engine": "transformers",
        "model": module.config.name_or_path,
        "dtype": str(module.dtype).removeprefix("torch."),
        "temperature": 0.0,
        "processed": not kinds <= WARPERS,
        "eos_ids": [] if eos is None else np.atleast_1d(eos),
        "ignore_eos": eos is None,
    }
    if config.do_sample:
        header["temperature"] = config.temperature or 1.0
        header["rule"] = "sample_and_match"
        for name in CUTS:
            if getattr(config, name) is not None:
                header[name] = getattr(config, name)
        if hasattr(generator, "assistant_model") or hasattr(generator, "mtp_model"):
            header["rule"] = "rejection"
            header |= _draft_sampling(generator)
    return header


def _draft_sampling(generator: Any) -> dict[str, Any]:
    """How the draft samples: by the target's warpers, and the library adds them once more."""
    warpers = LogitsProcessorList(getattr(generator, "logits_processor", None) or [])
    if isinstance(generator, AssistedCandidateGenerator):
        draft: Any = generator.assistant_model
        config = generator.generation_config
        warpers = draft._get_logits_processor(config, 1, logits_processor=warpers)
    settings = {}
    for name in ("temperature", *CUTS):
        values = [getattr(warper, name) for warper in warpers if hasattr(warper, name)]
        if values and name in ("temperature", "top_p"):
            settings[f"draft_{name}"] = prod(values)
        elif values:
            settings[f"draft_{name}"] = values[0]
    return settings
