"""Records vLLM's runner V2, as its plugin `vllm.general_plugins`: chains, after the rejection sampler."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from speclab.clinic.recorders.files import Requests, named, wanted
from speclab.recorder import topk

SAMPLER = "vllm.v1.worker.gpu.spec_decode.rejection_sampler:RejectionSampler"


def register() -> None:
    """The entry point; does nothing unless `SPECLAB_RECORD` names a folder."""
    if wanted():
        wrap(named("vLLM", SAMPLER), Requests("vllm"))


def wrap(sampler: type[Any], requests: Requests) -> None:
    """Records each call of the sampler class after it returned."""
    sample = sampler.__call__

    @functools.wraps(sample)
    def call(self: Any, logits: Any, input_batch: Any, *rest: Any, **more: Any) -> Any:
        raw = logits.clone()  # sampling parameters are applied in place
        output = sample(self, logits, input_batch, *rest, **more)
        requests.safely(lambda: _record(self, raw, input_batch, output, requests))
        return output

    sampler.__call__ = call


def _record(sampler: Any, logits: Any, batch: Any, output: Any, requests: Requests) -> None:
    states = sampler.req_states if hasattr(sampler, "req_states") else sampler.sampler.req_states
    rows = batch.logits_indices
    tokens = batch.input_ids[rows].tolist()
    positions = batch.positions[rows].tolist()
    counts = output.num_sampled.tolist()
    sampled = output.sampled_token_ids.tolist()
    starts = np.asarray(batch.cu_num_logits_np).tolist()
    requests.keep(states.req_id_to_index)
    for index, request in enumerate(batch.req_ids):
        count = counts[index]
        first, stop = starts[index : index + 2]
        if not count:  # a part of the prompt
            continue
        n = stop - first
        requests.step(
            request,
            functools.partial(_header, sampler, states, request),
            prefix_length=batch.num_computed_tokens_np[index],
            token=tokens[first:stop],
            parent=range(-1, n - 1),
            position=positions[first:stop],
            topk=topk(logits[first:stop]),
            accepted=range(1, count),
            committed=sampled[index][:count],
            batch=index,
        )


def _header(sampler: Any, states: Any, request: str) -> dict[str, Any]:
    index = states.req_id_to_index[request]
    length = int(_host(states.prompt_len)[index])
    every = getattr(states, "all_token_ids", None)
    tokens = _host(states.prefill_token_ids if every is None else every)
    temperature = float(_host(sampler.sampler.sampling_states.temperature)[index])
    rule = {"rule": "rejection"} if temperature else {}
    return {"prompt_ids": tokens[index][:length], "temperature": temperature, **rule}


def _host(buffer: Any) -> Any:
    """The numpy side of a buffer that has two, or a copy of what lies on the device alone."""
    staged = getattr(buffer, "gpu", None)
    if staged is not None and not hasattr(buffer, "np"):
        return staged.cpu().numpy()
    return getattr(buffer, "np", buffer)
