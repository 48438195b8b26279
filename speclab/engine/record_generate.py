"""Records transformers' own assisted generation, pass by pass, in the format of docs/steps.md."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import PreTrainedModel

from speclab.errors import SettingsError
from speclab.models.answer import KEPT
from speclab.recorder import Recorder


@contextmanager
def record_generate(model: PreTrainedModel, path: str | os.PathLike[str]) -> Iterator[None]:
    """Records the assisted generation of `model` (with a draft model, prompt lookup, …) to `path`.

        with speclab.record_generate(model, "run.jsonl"):
            model.generate(**inputs, assistant_model=draft)

    Raises:
        SettingsError: `generate` was called twice inside; a file holds one call.
    """
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
        config = given["generation_config"]
        temperature = config.temperature or 1.0 if config.do_sample else 0.0
        prompt = given["input_ids"][0]
        about = {
            "engine": "transformers",
            "model": module.config.name_or_path,
            "temperature": temperature,
        }
        about["dtype"] = str(module.dtype).removeprefix("torch.")
        recorders.append(Recorder(path, prompt, **about))
        _watch(generator, recorders[0], last_pass, greedy=not temperature)
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


def _watch(generator: Any, recorder: Recorder, last_pass: dict[str, Any], *, greedy: bool) -> None:
    """Remembers the candidates when they are drafted, and writes a line when the generator learns what was accepted."""
    draft = generator.get_candidates
    update = generator.update_candidate_strategy
    before = candidates = torch.empty(0)

    def get_candidates(input_ids: torch.Tensor, *rest: Any, **more: Any) -> Any:
        nonlocal before, candidates
        drafted = draft(input_ids, *rest, **more)
        before = input_ids[0]
        candidates = drafted[0][0]
        return drafted

    def update_candidate_strategy(
        input_ids: torch.Tensor, scores: torch.Tensor, matches: Any
    ) -> Any:
        prefix = len(before) - 1
        token = candidates[prefix:].tolist()
        n = len(token)
        position = last_pass["position"]
        committed = input_ids[0, len(before) :].tolist()
        accepted = int(matches)
        if token[accepted + 1 : accepted + 2] == committed[-1:]:  # the text ended inside the path
            accepted += 1
        top = last_pass["logits"][-n:].float().log_softmax(-1).topk(min(KEPT, scores.shape[-1]))
        ids = top.indices.tolist()
        values = top.values.tolist()
        recorder.step(
            prefix_length=prefix,
            token=token,
            parent=range(-1, n - 1),
            position=None if position is None else position[0, -n:],
            choice=scores[0].argmax(-1) if greedy else None,
            topk=[list(zip(*row, strict=True)) for row in zip(ids, values, strict=True)],
            accepted=range(1, accepted + 1),
            committed=committed,
        )
        return update(input_ids, scores, matches)

    generator.get_candidates = get_candidates
    generator.update_candidate_strategy = update_candidate_strategy
