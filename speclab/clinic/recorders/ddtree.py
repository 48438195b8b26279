"""Records the published code of DDTree, unpatched: trees of a block head.

with record(ddtree, "run.jsonl", input_ids[0]):
    ddtree.ddtree_generate(model, target, input_ids, …)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from speclab.clinic.recorders.functions import wrapping
from speclab.recorder import Recorder, topk


@contextmanager
def record(
    module: Any, path: str | os.PathLike[str], prompt_ids: Sequence[int], **header: Any
) -> Iterator[None]:
    """Records one call; `module` has the loop, `ddtree.py` of the repository."""
    loop = _Loop(path, prompt_ids, {"engine": "DDTree, published", **header})
    after = {
        "compile_ddtree_tree": loop.compiled,
        "sample": loop.sampled,
        "follow_verified_tree": loop.followed,
    }
    with wrapping(module, after):
        yield


class _Loop:
    """A tree is compiled, the target's logits are sampled, and the tree is followed."""

    def __init__(
        self, path: str | os.PathLike[str], prompt_ids: Sequence[int], header: dict[str, Any]
    ) -> None:
        self._file = path, prompt_ids, header
        self._recorder: Recorder | None = None
        self._line: dict[str, Any] = {}

    def compiled(self, given: dict[str, Any], result: Any) -> None:
        token, position, mask = result[:3]
        self._line = {"prefix_length": given["past_length"], "token": token[0].tolist()}
        self._line |= {"position": position[0].tolist(), "mask": mask}

    def sampled(self, given: dict[str, Any], result: Any) -> None:
        if self._recorder is None:
            path, prompt_ids, header = self._file
            temperature = float(given.get("temperature", 0.0))
            rule = {"rule": "sample_and_match"} if temperature else {}
            self._recorder = Recorder(
                path, prompt_ids, **{"temperature": temperature, **rule, **header}
            )
        self._line |= {"topk": topk(given["logits"][0]), "choice": result[0].tolist()}

    def followed(self, given: dict[str, Any], result: Any) -> None:
        assert self._recorder is not None
        rows, following = result
        token = self._line["token"]
        parent = [-1] * len(token)
        for row, children in enumerate(given["child_maps"]):
            for child in children.values():
                parent[child] = row
        committed = [*[token[row] for row in rows[1:]], following]
        self._recorder.step(**self._line, parent=parent, accepted=rows[1:], committed=committed)
