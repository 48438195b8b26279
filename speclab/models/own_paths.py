"""Attention by own path: each row of a pass reads the keys of its own path alone, as token-by-token decoding does.

A kernel adds up the keys of a row in an order that depends on their number and places, and on the
rows beside it: under a tree's mask the last bits of a row are others than in plain decoding. Here
each row is a call of its own, and its path lies in the cache as it would in a text. Nothing of the
prefix is copied: a depth-first walk writes one key and one value per node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from speclab.tree import Bools

NAME = "speclab_own_paths"
"""What the library calls this attention while a pass runs."""
OneRow = Callable[..., Tensor]
"""Attention of query `[1, heads, 1, dim]` to keys and values `[1, shared heads, n, dim]`; a mask is optional."""


@dataclass(frozen=True)
class _Visit:
    """One row of the pass: the number of keys that it reads, and which of the pass's columns are
    written to which place before it reads."""

    row: int
    length: int
    places: tuple[int, ...]
    columns: tuple[int, ...]


class OwnPaths:
    """The paths of the rows of one pass, in the order in which they are read.

    Args:
        visible: `[m, c]` bool, which of the last `c` columns of the cache each row sees, itself
            included; it sees all earlier ones.
        total: columns after the pass.
    """

    def __init__(self, visible: Bools, total: int) -> None:
        self.total = total
        self.start = total - visible.shape[1]
        self.paths = [np.flatnonzero(row).tolist() for row in visible]
        self.moves = False
        self._visits: list[_Visit] = []
        # which column lies at each place behind the shared ones
        lies = list(range(visible.shape[1]))
        # depth first: a path's beginning lies in its place from the row before it
        for row in sorted(range(len(self.paths)), key=self.paths.__getitem__):
            path = self.paths[row]
            places = [place for place, column in enumerate(path) if lies[place] != column]
            for place in places:
                lies[place] = path[place]
            columns = tuple([path[place] for place in places])
            self._visits.append(_Visit(row, self.start + len(path), tuple(places), columns))
            self.moves = self.moves or bool(places)

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, one_row: OneRow, window: int | None
    ) -> list[Tensor]:
        """What each row reads, a list of `m` answers of `one_row`.

        Args:
            query: `[1, heads, m, dim]`.
            keys, values: `[1, shared heads, total, dim]`, views of the cache, the pass's own rows
                included; what is moved in them is put back.
            window: a row reads so many of its newest keys; None: all.
        """
        new_keys = keys[:, :, self.start :]
        new_values = values[:, :, self.start :]
        if self.moves:
            new_keys = new_keys.clone()
            new_values = new_values.clone()
        answers = [query] * query.shape[2]
        for visit in self._visits:
            for place, column in zip(visit.places, visit.columns, strict=True):
                keys.select(2, self.start + place).copy_(new_keys.select(2, column))
                values.select(2, self.start + place).copy_(new_values.select(2, column))
            first = 0
            if window is not None:
                first = max(0, visit.length - window)
            answers[visit.row] = one_row(
                query.narrow(2, visit.row, 1),
                keys.narrow(2, first, visit.length - first),
                values.narrow(2, first, visit.length - first),
            )
        if self.moves:
            keys[:, :, self.start :] = new_keys
            values[:, :, self.start :] = new_values
        return answers

    def seen(self) -> Bools:
        """`[m, total]` bool: the columns that each row reads."""
        seen = np.zeros((len(self.paths), self.total), dtype=np.bool_)
        seen[:, : self.start] = True
        for row, path in enumerate(self.paths):
            seen[row, [self.start + column for column in path]] = True
        return seen


_running: ContextVar[tuple[OwnPaths, str, list[str]] | None] = ContextVar(NAME, default=None)
"""The paths of the pass that runs now, the name of the module's own attention, and the calls of it."""


@contextmanager
def through(model: PreTrainedModel, paths: OwnPaths) -> Iterator[list[str]]:
    """While it lasts, a pass of the library's module reads by own path.

    Yields:
        a list that grows by the class of each layer's attention that did.
    """
    if NAME not in ALL_ATTENTION_FUNCTIONS:
        ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)
    config: Any = model.config.get_text_config(decoder=True)
    own = config._attn_implementation
    calls: list[str] = []
    token = _running.set((paths, own, calls))
    config._attn_implementation = NAME
    try:
        yield calls
    finally:
        config._attn_implementation = own
        _running.reset(token)


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """What the library's modules call: rows `[1, m, heads, dim]`, each by the module's own attention."""
    running = _running.get()
    if running is None:  # a pass of another thread
        answer, _ = _own(module, "sdpa")(module, query, key, value, attention_mask, **options)
        return answer, None
    paths, name, calls = running
    calls.append(type(module).__name__)
    own = _own(module, name)

    def attention(
        query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        answer: Tensor = own(module, query, keys, values, mask, **options)[0]
        return answer

    window = options.get("sliding_window")
    return torch.cat(paths.attend(query, key, value, attention, window), dim=1), None


def _own(module: Any, name: str) -> Callable[..., Any]:
    eager: Any = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    attention: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS.get_interface(name, eager)
    return attention
