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

WARPERS = tuple([f"{cut}LogitsWarper" for cut in ("Temperature", "TopK", "TopP", "MinP")])
"""Processors that do what the header's temperature, top_k, top_p and min_p say."""


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
    recorders: list[Recorder] = []
    last_pass: dict[str, Any] = {}

    def on_forward(_: object, __: object, inputs: dict[str, Any], output: Any) -> None:
        # A copy: float32 logits are processed in place.
        last_pass.update(logits=output.logits[0].clone(), position=inputs.get("position_ids"))

    def make_generator(**given: Any) -> Any:
        if recorders:
            raise SettingsError(
                "A file holds one call of generate: open another record_generate for the next."
            )
        generator = candidate_generator(**given)
        mask = given["model_kwargs"].get("attention_mask")
        pads = 0 if mask is None or mask.ndim != 2 else int((mask[0].cumsum(0) == 0).sum())
        about = _header(module, generator, given)
        recorders.append(Recorder(path, given["input_ids"][0, pads:], **about))
        _watch(generator, recorders[0], last_pass, about, pads)
        return generator

    hook = model.register_forward_hook(on_forward, with_kwargs=True)
    module._get_candidate_generator = make_generator
    try:
        yield
    finally:
        del module._get_candidate_generator
        hook.remove()
        for recorder in recorders:
            recorder.close()
    if not recorders:
        warnings.warn(
            f"{path} was not written: no assisted generation ran. Call model.generate with "
            "assistant_model=… or prompt_lookup_num_tokens=….",
            stacklevel=3,
        )


def _header(module: Any, generator: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    config = given["generation_config"]
    processed = any(type(each).__name__ not in WARPERS for each in given["logits_processor"])
    sampling: dict[str, Any] = {"temperature": 0.0}
    if config.do_sample:
        names = [name for name in ("top_k", "top_p", "min_p") if getattr(config, name) is not None]
        sampling = {name: getattr(config, name) for name in names}
        sampling["temperature"] = config.temperature or 1.0
        drawn = any(hasattr(generator, name) for name in ("assistant_model", "mtp_model"))
        if drawn:
            sampling |= _draft_sampling(generator)
        sampling["rule"] = "rejection" if drawn else "sample_and_match"
    eos = config.eos_token_id
    return {
        "engine": "transformers",
        "model": module.config.name_or_path,
        "dtype": str(module.dtype).removeprefix("torch."),
        "processed": processed,
        "eos_ids": [] if eos is None else np.atleast_1d(eos),
        "ignore_eos": eos is None,
        **sampling,
    }


def _draft_sampling(generator: Any) -> dict[str, Any]:
    """By what the draft samples: the library gives it the target's warpers, and then adds them once more."""
    warpers = LogitsProcessorList(getattr(generator, "logits_processor", None) or [])
    if isinstance(generator, AssistedCandidateGenerator):
        draft: Any = generator.assistant_model
        config = generator.generation_config
        warpers = draft._get_logits_processor(config, 1, logits_processor=warpers)
    settings = {}
    for name in ("temperature", "top_k", "top_p", "min_p"):
        values = [getattr(warper, name) for warper in warpers if hasattr(warper, name)]
        if values:
            settings[f"draft_{name}"] = values[0] if name in ("top_k", "min_p") else prod(values)
    return settings


def _watch(
    generator: Any,
    recorder: Recorder,
    last_pass: dict[str, Any],
    header: Mapping[str, Any],
    pads: int,
) -> None:
    """Remembers the candidates when they are drafted, and writes a line when the generator learns what was accepted."""
    draft = generator.get_candidates
    update = generator.update_candidate_strategy
    before = candidates = torch.empty(0)
    logits: torch.Tensor | None = None

    def get_candidates(input_ids: torch.Tensor, *rest: Any, **more: Any) -> Any:
        nonlocal before, candidates, logits
        drafted = draft(input_ids, *rest, **more)
        before = input_ids[0]
        candidates, logits = drafted[0][0], drafted[1]
        return drafted

    def update_candidate_strategy(
        input_ids: torch.Tensor, scores: torch.Tensor, matches: Any
    ) -> Any:
        prefix = len(before) - 1 - pads
        token = candidates[len(before) - 1 :].tolist()
        n = len(token)
        position = last_pass["position"]
        committed = input_ids[0, len(before) :].tolist()
        accepted = int(matches)
        if token[accepted + 1 : accepted + 2] == committed[-1:]:  # the text ended inside the path
            accepted += 1
        more = {}
        if logits is not None and not header["processed"]:
            more = proposals(logits[0].float().log_softmax(-1), token)
        recorder.step(
            prefix_length=prefix,
            token=token,
            parent=range(-1, n - 1),
            position=None if position is None else position[0, -n:],
            choice=None if header["temperature"] else scores[0].argmax(-1),
            topk=topk(last_pass["logits"][-n:], KEPT),
            accepted=range(1, accepted + 1),
            committed=committed,
            **more,
        )
        return update(input_ids, scores, matches)

    generator.get_candidates = get_candidates
    generator.update_candidate_strategy = update_candidate_strategy
