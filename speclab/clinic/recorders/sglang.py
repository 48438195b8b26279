"""Records SGLang, as its plugin `sglang.srt.plugins`: trees, after `eagle_sample`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from speclab.clinic.recorders.files import Requests, named, wanted
from speclab.recorder import parents, topk

SAMPLE = "sglang.srt.speculative.eagle_utils.eagle_sample"
HOOKS = "sglang.srt.plugins.hook_registry"


def register() -> None:
    """The entry point; does nothing unless `SPECLAB_RECORD` names a folder."""
    if wanted():
        named("SGLang", SAMPLE)
        hooks = named("SGLang", HOOKS)
        hooks.HookRegistry.register(SAMPLE, hook(Requests("sglang")), hooks.HookType.AFTER)


def hook(requests: Requests) -> Any:
    """What is called after `eagle_sample(verify_input, batch, logits_output, …)`."""

    def after(
        result: Any, verify_input: Any, batch: Any, logits_output: Any, *_: Any, **__: Any
    ) -> None:
        requests.safely(lambda: _record(result, verify_input, batch, logits_output, requests))

    return after


def _record(result: Any, tree: Any, batch: Any, output: Any, requests: Requests) -> None:
    predict, _, accept_index = [values.tolist() for values in result]
    count = len(batch.reqs)
    n = int(tree.draft_token_num)
    requests.keep([str(request.rid) for request in batch.reqs])
    lengths = [int(length) for length in batch.seq_lens]
    bits = np.asarray(tree.custom_mask.tolist(), dtype=bool).reshape(-1)
    whole = len(bits) == n * sum(length + n for length in lengths)
    start = 0
    for index, request in enumerate(batch.reqs):
        rows = slice(index * n, (index + 1) * n)
        path = [row - index * n for row in accept_index[index] if row >= 0]
        width = n + lengths[index] * whole
        seen = bits[start : start + n * width].reshape(-1, width)
        start += n * width
        requests.step(
            str(request.rid),
            functools.partial(_header, request, batch, index),
            prefix_length=lengths[index],
            token=tree.draft_token[rows],
            parent=parents(tree.retrieve_next_token[index], tree.retrieve_next_sibling[index]),
            position=tree.positions[rows],
            mask=seen if len(seen) == n else None,
            slot=batch.out_cache_loc[rows] if len(batch.out_cache_loc) == n * count else None,
            topk=topk(output.next_token_logits[rows]),
            accepted=path[1:],
            committed=[predict[index * n + row] for row in path],
            batch=index,
        )


def _header(request: Any, batch: Any, index: int) -> dict[str, Any]:
    info = batch.sampling_info
    greedy = bool(info.is_all_greedy)
    penalties = (getattr(info, name, None) for name in ("acc_additive_penalties", "logit_bias"))
    return {
        "prompt_ids": request.origin_input_ids,
        "temperature": 0.0 if greedy else float(info.temperatures[index]),
        "processed": any(each is not None for each in penalties),
    }
