"""Records SGLang, as its plugin `sglang.srt.plugins`: trees, after `eagle_sample`.

Written after SGLang's sources, and never run on an engine.
"""

from __future__ import annotations

import os
from typing import Any

from speclab.clinic.recorders.files import VARIABLE, Requests, cuts, found, named, proposals
from speclab.recorder import parents, topk

SAMPLE = "sglang.srt.speculative.eagle_utils.eagle_sample"
HOOKS = "sglang.srt.plugins.hook_registry"
ARGMAX = ("cpu", "xpu")
"""Devices on which SGLang verifies sampled requests greedily."""


def register() -> None:
    """The entry point; does nothing unless `SPECLAB_RECORD` names a folder."""
    if os.environ.get(VARIABLE):
        named("SGLang", SAMPLE)
        hooks = named("SGLang", HOOKS)
        hooks.HookRegistry.register(SAMPLE, hook(Requests("sglang")), hooks.HookType.AFTER)


def hook(requests: Requests) -> Any:
    """What is called after `eagle_sample(verify_input, batch, logits_output, …)`."""

    def after(result: Any, tree: Any, batch: Any, output: Any, *_: Any, **__: Any) -> None:
        requests.safely(lambda: _record(result, tree, batch, output, requests))

    return after


def _record(result: Any, tree: Any, batch: Any, output: Any, requests: Requests) -> None:
    predict, _, accept_index = result
    count = len(batch.reqs)
    n = int(tree.draft_token_num)
    requests.keep([str(request.rid) for request in batch.reqs])
    before = 0  # entries of the mask that belong to other requests
    for index, request in enumerate(batch.reqs):
        length = int(batch.seq_lens[index])
        rows = slice(index * n, (index + 1) * n)
        path = accept_index[index]
        path = path[path >= 0]
        mask = _tree_mask(tree, n, before, length, index)
        before += n * (length + n)
        more = {}
        if found(tree, "draft_probs") is not None:  # [requests, steps, V], of chains
            drawn = tree.draft_probs[index, : n - 1].float().clamp_min(1e-30).log()
            more = proposals(drawn, tree.draft_token[rows].tolist())
        if len(batch.out_cache_loc) == n * count:
            more["slot"] = batch.out_cache_loc[rows]
        requests.step(
            str(request.rid),
            _header(request, tree, batch, index, length),
            prefix_length=length,
            token=tree.draft_token[rows],
            parent=parents(tree.retrieve_next_token[index], tree.retrieve_next_sibling[index]),
            position=tree.positions[rows],
            mask=mask,
            topk=topk(output.next_token_logits[rows]),
            accepted=path[1:] - index * n,
            committed=predict[path],
            batch=index,
            **more,
        )


def _tree_mask(tree: Any, n: int, before: int, length: int, index: int) -> Any:
    """`[n, n]` of the rows of one request; None for chains, whose mask no kernel reads.

    `custom_mask` is a buffer for the largest batch. Each request has n x (prefix + n) entries in
    it, or n x n where the kernel reads the tree alone.
    """
    if found(tree, "topk") == 1:
        return None
    end = before + n * (length + n)
    if len(tree.custom_mask) >= end:
        return tree.custom_mask[before:end].reshape(n, length + n)[:, length:]
    return tree.custom_mask[index * n * n : (index + 1) * n * n].reshape(n, n)


def _header(request: Any, tree: Any, batch: Any, index: int, length: int) -> dict[str, Any]:
    """Of the file; the text before the first recorded pass is the prompt."""
    info = batch.sampling_info
    prompt = list(request.origin_input_ids)
    text = prompt + list(found(request, "output_ids", ()))
    changes = ("acc_additive_penalties", "acc_scaling_penalties", "logit_bias")
    header = {
        "prompt_ids": text[: max(len(prompt), length)],
        "temperature": 0.0,
        "processed": any(found(info, change) is not None for change in changes),
        "ignore_eos": bool(found(request, "sampling_params.ignore_eos")),
    }
    if info.is_all_greedy or info.top_ks[index] == 1:  # 1: so temperature 0 is written
        return header
    header["temperature"] = float(info.temperatures[index])
    header["rule"] = "sample_and_match"
    if found(tree, "draft_probs") is not None:
        header["rule"] = "rejection"
    header |= cuts(info.top_ks[index], info.top_ps[index], info.vocab_size)
    device = str(found(batch, "device")).partition(":")[0]
    if device in ARGMAX:
        header["note"] = f"SGLang commits the argmax of sampled requests on {device}."
    return header
