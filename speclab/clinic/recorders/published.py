"""Records the published code of EAGLE and Medusa, unpatched: trees.

with record(eagle.model.ea_model, "run.jsonl"):
    model.eagenerate(ids)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from speclab.clinic.recorders.functions import wrapping
from speclab.recorder import Recorder, parents, topk

NAMES = ("tree_decoding", "update_inference_inputs")


@contextmanager
def record(module: Any, path: str | os.PathLike[str], **header: Any) -> Iterator[None]:
    """Records one call; `module` has the loop: `eagle.model.ea_model`, `medusa.model.medusa_model`."""
    loop = _Loop(path, {"engine": "published", **header})
    try:
        with wrapping(module, {name: getattr(loop, name) for name in NAMES}):
            yield
    finally:
        loop.write()


class _Loop:
    """A line is written when the next pass shows the token that followed the path."""

    def __init__(self, path: str | os.PathLike[str], header: dict[str, Any]) -> None:
        self._file = path, header
        self._recorder: Recorder | None = None
        self._line: dict[str, Any] = {}

    def tree_decoding(self, given: dict[str, Any], result: Any) -> None:
        token = given["tree_candidates"].reshape(-1).tolist()
        if self._recorder is None:
            self._recorder = Recorder(self._file[0], given["input_ids"][0], **self._file[1])
        self.write(token[:1])
        prefix = int(given["input_ids"].shape[1])
        paths = given["retrieve_indices"]
        logits = next(each for each in result if getattr(each, "shape", ())[:2] == paths.shape)
        answers = dict(zip(paths.flatten().tolist(), topk(logits.flatten(0, 1)), strict=True))
        position = next(given[name] for name in given if name.endswith("position_ids"))
        self._line = {"prefix_length": prefix, "token": token, "parent": parents(paths)}
        self._line["position"] = position.reshape(-1) + prefix
        self._line["topk"] = [answers[row] for row in range(len(token))]

    def update_inference_inputs(self, given: dict[str, Any], _: Any) -> None:
        path = given["retrieve_indices"][int(given["best_candidate"])].tolist()
        self._line["accepted"] = path[1 : int(given["accept_length"]) + 1]

    def write(self, following: tuple[int, ...] | list[int] = ()) -> None:
        """The last pass is written without the token that follows, which no pass shows."""
        if self._recorder is not None and "accepted" in self._line:
            path = [self._line["token"][row] for row in self._line["accepted"]]
            self._recorder.step(**self._line, committed=[*path, *following])
        self._line = {}
