"""Records the published code of DDTree, unpatched: trees of a block head.

with record(ddtree, "run.jsonl", input_ids[0]):
    ddtree.ddtree_generate(model, target, input_ids, …)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from speclab.clinic.recorders.files import wrapping
from speclab.recorder import Recorder, topk


@contextmanager
def record(
    module: Any, path: str | os.PathLike[str], prompt_ids: Sequence[int], **header: Any
) -> Iterator[None]:
    """Records one call; `module` has the loop, `ddtree.py` of the repository: a tree is compiled,
    the target's logits are sampled, and the tree is followed."""
    recorders: list[Recorder] = []
    line: dict[str, Any] = {}

    def compile_ddtree_tree(given: dict[str, Any], result: Any) -> None:
        token, position, mask = result[:3]
        line.update(
            prefix_length=given["past_length"],
            token=token[0].tolist(),
            position=position[0].tolist(),
            mask=mask,
        )

    def sample(given: dict[str, Any], result: Any) -> None:
        if not recorders:
            temperature = float(given.get("temperature", 0.0))
            about = {"engine": "DDTree, published", "temperature": temperature}
            if temperature:
                about["rule"] = "sample_and_match"
            recorders.append(Recorder(path, prompt_ids, **about | header))
        line.update(topk=topk(given["logits"][0]), choice=result[0].tolist())

    def follow_verified_tree(given: dict[str, Any], result: Any) -> None:
        rows, following = result
        token = line["token"]
        parent = [-1] * len(token)
        for row, children in enumerate(given["child_maps"]):
            for child in children.values():
                parent[child] = row
        committed = [token[row] for row in rows[1:]] + [following]
        recorders[0].step(**line, parent=parent, accepted=rows[1:], committed=committed)

    with wrapping(module, compile_ddtree_tree, sample, follow_verified_tree):
        yield
