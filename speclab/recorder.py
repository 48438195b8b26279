"""Writes the verification passes of a decoder as `speclab.steps/1`, one JSON line each;
docs/steps.md has the format.

This file needs only the standard library and numpy, and may be copied into an engine:

    recorder = Recorder("run.jsonl", prompt_ids, engine="my engine 0.3", model="org/name")
    recorder.step(prefix_length=70, token=[5, 9, 2], parent=[-1, 0, 0], accepted=[2], committed=[2,
    8])

`speclab.load_steps("run.jsonl")` opens the file. `parents`, `visible` and `topk` convert what engines
hold into the format's fields.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

FORMAT: Final = "speclab.steps/1"
OPTIONAL = (
    "position",
    "hidden_prefix",
    "slot",
    "log_prob",
    "draft_topk",
    "choice",
    "topk",
    "kept_slots",
    "seconds",
    "request",
    "batch",
)


class Recorder:
    """One request's file: a header, then a line for each verification pass. A line is written whole
    or not at all.

    The first step raises if it is wrong. Later steps never raise inside the engine: the recording
    stops with one warning, and the file stays readable.

    Args:
        path: the file; it is replaced. A name that ends with `.gz` is compressed.
        prompt_ids: token ids of the prompt.
        header: `engine`, `model`, `tokenizer`, `dtype`, `temperature`, `note` and the other fields
            of docs/steps.md, all optional.
    """

    def __init__(
        self, path: str | os.PathLike[str], prompt_ids: Sequence[int], **header: Any
    ) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        self._zipped = os.fspath(path).endswith(".gz")
        self._steps = 0
        self.stopped = False
        self._write({"format": FORMAT, "prompt_ids": prompt_ids} | header)

    def step(
        self,
        *,
        prefix_length: int,
        token: Sequence[int],
        parent: Sequence[int],
        accepted: Sequence[int],
        committed: Sequence[int],
        mask: Any = None,
        **optional: Any,
    ) -> None:
        """Writes one verification pass of `n` rows; row 0 is the root. Values may be lists, arrays,
        tensors and their scalars.

        Args:
            prefix_length: entries in the cache before the pass.
            token: `[n]` ids. `parent`: `[n]` rows, -1 for the root; parents come before their
                children.
            accepted: rows of the accepted path, without the root. `committed`: ids that joined the
                text.
            mask: which rows each row saw: `[n, n]` bool, or the model's own mask, bool or additive,
                whose first `prefix_length` columns are the prefix.
            optional: `position`, `slot`, `log_prob`, `choice` (`[n]` each), `topk` and `draft_topk`
                (`[n]` lists of [id, log-prob]), `hidden_prefix` ([row, first, last] of prefix
                entries that a row did not see), `kept_slots`, `seconds`, `request`,
                `batch`.
        """
        if self.stopped:
            return
        try:
            unknown = sorted(optional.keys() - set(OPTIONAL))
            if unknown:
                names = ", ".join(OPTIONAL)
                raise TypeError(
                    f"a step has no field {unknown[0]!r}: the optional fields are {names}"
                )
            line = {"prefix_length": int(prefix_length), "token": token, "parent": parent}
            if mask is not None:
                count = len(token)
                # a static cache has room behind the tree
                seen = visible(mask)[:, : max(int(prefix_length) + count, count)]
                if len(seen) != count:
                    raise ValueError(f"the mask has {len(seen)} rows, but the pass has {count}")
                prefix = seen.shape[1] - count
                bits = np.packbits(seen[:, prefix:], axis=1)
                line["mask"] = base64.b64encode(bits.tobytes()).decode("ascii")
                if not seen[:, :prefix].all():
                    optional.setdefault("hidden_prefix", _hidden(seen[:, :prefix]))
            for name, value in optional.items():
                if value is not None:
                    line[name] = value
            self._write(line | {"accepted": accepted, "committed": committed})
        except Exception as error:
            if self._steps == 0:
                raise
            self.stopped = True
            warnings.warn(
                f"The recording stopped after {self._steps} passes: {error}", stacklevel=2
            )
        self._steps += 1

    def close(self) -> None:
        """Closes the file; further steps are ignored."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        self.stopped = True

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        text = (json.dumps(line, default=_plain, separators=(",", ":")) + "\n").encode()
        if self._zipped:
            text = gzip.compress(text, mtime=0)
        os.write(self._file, text)


def _plain(value: Any) -> Any:
    """What JSON lacks: arrays, tensors and their scalars, and other iterables, as lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value)


def parents(first: Any, second: Any = None) -> list[int]:
    """The parent of each row, -1 for the root.

    Args:
        first: `retrieve_indices` `[leaves, depth]` of EAGLE and Medusa, filled with -1 or repeated
            rows; or, with `second`, `next_token` `[n]`, the first child of each row, -1 if none.
        second: `next_sibling` `[n]`, the next child of the same parent, -1 if none.
    """
    if second is None:
        paths = _plain(first)
        result = [-1] * (1 + max(map(max, paths)))
        for path in paths:
            for above, row in pairwise(path):
                if row > above >= 0:
                    result[row] = above
        return result
    sibling = _plain(second)
    result = [-1] * len(sibling)
    for row, child in enumerate(_plain(first)):
        while 0 < child < len(result) and result[child] < 0:
            result[child] = row
            child = sibling[child]
    return result


def visible(mask: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """`[n, columns]` bool of a model's mask: bool, 0 and 1, or additive (0 is visible, a large
    negative number hidden), with leading axes of length 1."""
    if hasattr(mask, "detach"):
        mask = mask.detach().cpu()
        if mask.is_floating_point():
            mask = mask.float()
    values = np.asarray(mask)
    values = values.reshape(values.shape[-2:])
    if values.dtype.kind == "f" and not (values > 0).any():
        return values > -1
    return values.astype(bool)


def topk(logits: Any, k: int = 16) -> list[list[tuple[int, float]]]:
    """The `k` most probable tokens of each row of raw logits `[n, V]`, as [id, log-prob]."""
    if hasattr(logits, "log_softmax"):
        top = logits.detach().float().log_softmax(-1).topk(min(k, logits.shape[-1]))
        ids = top.indices.tolist()
        values = top.values.tolist()
    else:
        scores = np.asarray(logits, dtype=np.float64)
        scores = scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)
        order = np.argsort(-scores, axis=-1, kind="stable")[:, :k]
        ids = order.tolist()
        values = np.take_along_axis(scores, order, -1).tolist()
    rows = []
    for tokens, log_probs in zip(ids, values, strict=True):
        rows.append(list(zip(tokens, log_probs, strict=True)))
    return rows


def _hidden(seen: np.ndarray[Any, np.dtype[np.bool_]]) -> list[tuple[int, int, int]]:
    """[row, first, last] of the entries that are hidden, from `[n, entries]` bool."""
    # -1 where a range begins, 1 after its end
    turns = np.diff(np.pad(seen, ((0, 0), (1, 1)), constant_values=True).astype(np.int8), axis=1)
    begins = np.argwhere(turns < 0)
    lasts = np.argwhere(turns > 0)[:, 1:] - 1
    ranges: list[tuple[int, int, int]] = np.hstack((begins, lasts)).tolist()
    return ranges
