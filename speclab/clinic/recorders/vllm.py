"""Records vLLM's runner V2, as its plugin `vllm.general_plugins`: chains, after both samplers.

Written after vLLM's sources, and never run on an engine.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np

from speclab.clinic.recorders.files import VARIABLE, Requests, cuts, found, named, proposals
from speclab.recorder import topk

SAMPLERS = (
    "vllm.v1.worker.gpu.spec_decode.rejection_sampler:RejectionSampler",
    "vllm.v1.worker.gpu.sample.sampler:Sampler",  # of passes without drafts
)


def register() -> None:
    """The entry point; does nothing unless `SPECLAB_RECORD` names a folder."""
    if os.environ.get(VARIABLE):
        samplers = [named("vLLM", path) for path in SAMPLERS]
        requests = Requests("vllm")
        for sampler in samplers:
            wrap(sampler, requests)


def wrap(sampler: type[Any], requests: Requests) -> None:
    """Records each call of the sampler class after it returned."""
    sample = sampler.__call__

    @functools.wraps(sample)
    def call(self: Any, logits: Any, input_batch: Any, draft_logits: Any = None) -> Any:
        raw = logits.clone()  # sampling parameters are applied in place
        drafts = () if draft_logits is None else (draft_logits,)
        output = sample(self, logits, input_batch, *drafts)
        requests.safely(lambda: _record(self, raw, input_batch, draft_logits, output, requests))
        return output

    sampler.__call__ = call


def _record(
    sampler: Any, logits: Any, batch: Any, drafts: Any, output: Any, requests: Requests
) -> None:
    own = getattr(sampler, "sampler", sampler)  # a rejection sampler has the plain one
    states = own.req_states
    rows = batch.logits_indices
    tokens = batch.input_ids[rows].tolist()
    positions = batch.positions[rows].tolist()
    sampled = output.sampled_token_ids.tolist()
    # the numpy side lacks adaptive verification
    starts = found(batch, "cu_num_logits", batch.cu_num_logits_np).tolist()
    counts = found(output, "num_sampled", np.ones(len(batch.req_ids), int)).tolist()
    requests.keep(states.req_id_to_index)
    for index, (request, count) in enumerate(zip(batch.req_ids, counts, strict=True)):
        first, stop = starts[index : index + 2]
        while stop > first + 1 and tokens[stop - 1] < 0:  # padding of drafts
            stop -= 1
        state = states.req_id_to_index.get(request)  # a dummy run has no request
        prompt = positions[stop - 1] + 1 < batch.prefill_len_np[index]  # a part of it
        if state is None or prompt or not count:
            continue
        token = tokens[first:stop]
        header = _header(sampler, own, state, positions[first], drafts)
        more = {}
        if drafts is not None and len(token) > 1:
            # [requests, steps, V], before temperature
            drawn = drafts[state, : len(token) - 1].float() / (header["temperature"] or 1.0)
            more = proposals(drawn.log_softmax(-1), token)
        requests.step(
            request,
            header,
            prefix_length=positions[first],  # `num_computed_tokens_np` is only an upper bound
            token=token,
            parent=range(-1, len(token) - 1),
            position=positions[first:stop],
            topk=topk(logits[first:stop]),
            accepted=range(1, count),
            committed=sampled[index][:count],
            batch=index,
            **more,
        )


def _header(sampler: Any, own: Any, state: int, first: int, drafts: Any) -> dict[str, Any]:
    """Of the file; the text before the first recorded pass is the prompt."""
    tokens = _host(own.req_states.all_token_ids)[state]
    prompt_length = int(_host(own.req_states.prompt_len)[state])
    given = own.sampling_states
    temperature = float(_host(given.temperature)[state])
    changes = ("penalties_state.use_penalty", "logit_bias_state.use_logit_bias")
    header = {
        "prompt_ids": tokens[: max(prompt_length, first)],
        "temperature": temperature,
        "processed": any(bool(found(own, each, {state: False})[state]) for each in changes),
    }
    if temperature:
        header["rule"] = "sample_and_match"
        header["min_p"] = float(_host(given.min_p)[state])
        header |= cuts(_host(given.top_k)[state], _host(given.top_p)[state], given.vocab_size)
        if drafts is not None:
            header["rule"] = "rejection"
            header["draft_temperature"] = temperature
        if found(sampler, "use_block_verification"):
            header["rule"] = "block"
    if found(sampler, "synthetic_conditional_rates") is not None:
        header["rule"] = ""
        header["note"] = "synthetic: not the target's text"
    return header


def _host(buffer: Any) -> Any:
    """The numpy side of a buffer that has two, or a copy of what lies on the device alone."""
    if hasattr(buffer, "np"):
        return buffer.np
    if hasattr(buffer, "gpu"):
        return buffer.gpu.cpu().numpy()
    return np.asarray(buffer)
