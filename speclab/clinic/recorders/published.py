"""Records the published code of EAGLE and Medusa, unpatched: trees.

with record(eagle.model.ea_model, "run.jsonl"):
    model.eagenerate(ids)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from speclab.clinic.recorders.files import wrapping
from speclab.recorder import Recorder, parents, topk


@contextmanager
def record(module: Any, path: str | os.PathLike[str], **header: Any) -> Iterator[None]:
    """Records one call; `module` has the loop: `eagle.model.ea_model`, `medusa.model.medusa_model`.

    A line is written when the next pass shows the token that followed the path; the last one is
    written without that token.
    """
    recorders: list[Recorder] = []
    line: dict[str, Any] = {}

    def write(following: list[int]) -> None:
        if "accepted" in line:
            committed = [line["token"][row] for row in line["accepted"]]
            recorders[0].step(**line, committed=committed + following)
        line.clear()

    def tree_decoding(given: dict[str, Any], result: Any) -> None:
        token = given["tree_candidates"].reshape(-1).tolist()
        if not recorders:
            ids = given["input_ids"][0]
            recorders.append(Recorder(path, ids, **{"engine": "published", **header}))
        write(token[:1])
        prefix = int(given["input_ids"].shape[1])
        paths = given["retrieve_indices"]
        logits = next(each for each in result if getattr(each, "shape", ())[:2] == paths.shape)
        answers = dict(zip(paths.flatten().tolist(), topk(logits.flatten(0, 1)), strict=True))
        position = next(given[name] for name in given if name.endswith("position_ids"))
        line.update(
            prefix_length=prefix,
            token=token,
            parent=parents(paths),
            position=position.reshape(-1) + prefix,
            topk=[answers[row] for row in range(len(token))],
        )

    def update_inference_inputs(given: dict[str, Any], _: Any) -> None:
        best = given["retrieve_indices"][int(given["best_candidate"])].tolist()
        line["accepted"] = best[1 : int(given["accept_length"]) + 1]

    try:
        with wrapping(module, tree_decoding, update_inference_inputs):
            yield
    finally:
        write([])
