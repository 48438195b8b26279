"""Writes the verification passes of a decoder as `speclab.steps/1`, one JSON line each;
docs/steps.md has the format.

This file needs only the standard library and numpy, and may be copied into an engine:

    recorder = Recorder("run.jsonl", prompt_ids, engine="my engine 0.3", model="org/name")
    recorder.step(prefix_length=70, token=[5, 9, 2], parent=[-1, 0, 0], accepted=[2], committed=[2,
    8])

`speclab.load_steps("run.jsonl")` opens the file.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

FORMAT = "speclab.steps/1"
OPTIONAL = (
    "position",
    "hidden_prefix",
    "slot",
    "log_prob",
    "choice",
    "topk",
    "kept_slots",
    "seconds",
)


class Recorder:
    """One request's file: a header, then a line for each verification pass. A line is written whole
    or not at all.

    Args:
        path: the file; it is replaced.
        prompt_ids: token ids of the prompt.
        header: `engine`, `model`, `tokenizer`, `temperature`, `note`, all optional.
    """

    def __init__(
        self, path: str | os.PathLike[str], prompt_ids: Sequence[int], **header: Any
    ) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        self._write({"format": FORMAT, "prompt_ids": _plain(prompt_ids), **header})

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
        """Writes one verification pass of `n` rows; row 0 is the root.

        Args:
            prefix_length: entries in the cache before the pass.
            token: `[n]` ids. `parent`: `[n]` rows, -1 for the root; parents come before their
                children.
            accepted: rows of the accepted path, without the root. `committed`: ids that joined the
                text.
            mask: `[n, n]` bool, which rows each row saw.
            optional: `position`, `slot`, `log_prob`, `choice` (`[n]` each), `topk` (`[n]` lists of
                [id, log-prob]), `hidden_prefix` ([row, first, last] of prefix entries that a row
                did not see), `kept_slots`, `seconds`.
        """
        unknown = sorted(optional.keys() - set(OPTIONAL))
        if unknown:
            raise TypeError(
                f"a step has no field {unknown[0]!r}: the optional fields are {', '.join(OPTIONAL)}"
            )
        line = {
            "prefix_length": int(prefix_length),
            "token": _plain(token),
            "parent": _plain(parent),
        }
        if mask is not None:
            bits = np.packbits(np.asarray(mask, dtype=bool), axis=1)
            line["mask"] = base64.b64encode(bits.tobytes()).decode("ascii")
        line |= {name: _plain(value) for name, value in optional.items() if value is not None}
        self._write({**line, "accepted": _plain(accepted), "committed": _plain(committed)})

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, (json.dumps(line, separators=(",", ":")) + "\n").encode())


def _plain(value: Any) -> Any:
    """Arrays and tensors as lists; anything else as it is."""
    return (
        value.tolist()
        if hasattr(value, "tolist")
        else list(value)
        if isinstance(value, tuple | range)
        else value
    )
