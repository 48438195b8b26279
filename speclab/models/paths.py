"""Verification by paths: for families that take no tree mask, such as state-space models, hybrids and ALiBi.

A recurrent state has seen one text, so branches cannot share it as they share keys and values under
a mask. But each root-to-leaf path is a text of its own: the cache of the committed text is copied
once per path, and the paths run as rows of a batch. What follows a short path is padding, on a copy
that is thrown away. The kept cache runs committed tokens alone, one pass more per iteration.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedConfig

from speclab.errors import UnsupportedModelError
from speclab.models.runner import Runner
from speclab.models.source import Kept
from speclab.models.transfers import to_device
from speclab.tree import Bools

_CACHES = ("past_key_values", "cache_params", "state")
"""What the library's families call their cache, in outputs and arguments."""
Path = tuple[int, ...]


class PathRunner(Runner):
    """A runner whose rows of a tree run as paths.

    Entries are the committed tokens, then the drafted ones, which are only remembered. The cache is
    the library's own, whatever its class. It cannot be cut: a text that goes back is read again.

    Attributes:
        paths: of the last tree pass, each as the drafted rows that it holds.
    """

    by_level = False
    forward_name = "by paths"

    def _read(self, watched: Sequence[int]) -> None:
        super()._read(watched)
        self.paths = ()
        self._text: list[int] = []
        self._drafted: list[int] = []
        self._seen = np.zeros((0, 0), dtype=np.bool_)
        self._before = 0  # tokens of the text at that pass
        self._forget()

    def _forget(self) -> None:
        self._held = 0  # tokens of the text that the state has read
        self._state: dict[str, Any] = {}  # the library's cache, by its name

    @property
    def capacity(self) -> int:
        return max(self.kept.before, self.length)

    @property
    def slot_bytes(self) -> int:
        """Bytes of the library's cache by tokens, although a recurrent state does not grow."""
        sizes: list[int] = []
        walked(self._state, lambda tensor: sizes.append(tensor.nbytes))
        return sum(sizes) // max(self._held, 1)

    def _mask(self, positions: Tensor, visible: Bools | None) -> Any:
        """The path of each row; None for rows that continue the text."""
        # a prompt whose every row is read is a text, too
        if visible is None or (not self.length and (visible == np.tri(len(visible))).all()):
            return None
        return self._paths_of(positions.tolist(), visible)

    def _pass(
        self, tokens: Tensor, positions: Tensor, mask: Any, *, last_only: bool
    ) -> tuple[Tensor, None]:
        if mask is None:
            self._drafted = []
            self._text = self._text + tokens.tolist()
            logits = self._catch_up(every=not last_only)
        else:
            self._catch_up()
            self._drafted = self._drafted + tokens.tolist()
            logits = self._by_paths(mask)
        self.rows -= len(tokens)  # they were counted as they ran
        return logits, None

    def _catch_up(self, *, every: bool = False) -> Tensor:
        """Reads the tokens of the text that the cache lacks; logits `[m, V]` of all, or of the last."""
        held = self._held
        new = self._text[held:]
        rows = torch.empty(1, 1, 0)
        step = len(new)
        if self.by_level and held:  # from an empty cache every family reads a whole text
            step = 1
        parts: Sequence[Tensor] = ()
        if new:
            parts = to_device(new, self.device).split(step)
        for part in parts:
            self._held = 0  # a pass that fails may have changed the state in place
            rows, states, self._state = self._run(
                part[None], self._state, self.cache.watched, last_only=not every
            )
            if states is not None and self.hidden is not None:
                # a text that is read again has its states
                self.hidden.append(states[max(self.hidden.length - held, 0) :])
            held += len(part)
            self._held = held
        self.rows += len(new)
        return rows[0]

    def _paths_of(self, positions: Sequence[int], visible: Bools) -> list[Path]:
        """The path of each new row: the drafted rows that it sees, and itself."""
        start = len(self._text)
        # [m, text + drafted + m]: what came before the last columns is seen by all
        seen = np.ones((len(positions), self.length + len(positions)), dtype=np.bool_)
        seen[:, -visible.shape[1] :] = visible
        paths = [tuple(np.flatnonzero(row).tolist()) for row in seen[:, start:]]
        ends = [(start + len(path) - 1, path[-1] + start) for path in paths]
        rows = [(position, self.length + row) for row, position in enumerate(positions)]
        if ends != rows or not seen[:, :start].all():
            raise UnsupportedModelError(
                f"{self.name} verifies by paths, and a row of this pass does not see a path from the "
                "text to itself: choose another strategy."
            )
        self._seen = seen[:, start:]
        self._before = start
        return paths

    def _by_paths(self, paths: list[Path]) -> Tensor:
        """Logits of each row, `[m, V]`, from the first path that holds it."""
        inner = {path[:-1] for path in paths}  # a row's parent is a row, too
        leaves = [path for path in dict.fromkeys(paths) if path not in inner]
        first = len(self._drafted) - len(paths)
        new_rows = []
        for leaf in leaves:
            new_rows.append(tuple([slot - first for slot in leaf if slot >= first]))
        self.paths = tuple(new_rows)
        tokens = to_device(self._drafted, self.device)
        # [leaves, deepest], padded on the right: no row of a path reads what follows it
        ids = pad_sequence([tokens[list(leaf)] for leaf in leaves], batch_first=True)
        # the kept cache has read the text alone, so every path begins from a copy of it
        state = repeated(self._state, len(leaves))
        out = []
        step = ids.shape[1]
        if self.by_level:
            step = 1
        for part in ids.split(step, dim=1):
            rows, _, state = self._run(part, state)
            out.append(rows)
        self.rows += ids.numel()
        logits = torch.cat(out, dim=1)  # [leaves, deepest, V]
        holder: dict[Path, int] = {}
        for row, leaf in enumerate(leaves):
            for end in range(1, len(leaf) + 1):
                holder.setdefault(leaf[:end], row)
        return logits[[holder[path] for path in paths], [len(path) - 1 for path in paths]]

    def _run(
        self,
        ids: Tensor,
        state: dict[str, Any],
        layers: Sequence[int] = (),
        *,
        last_only: bool = False,
    ) -> tuple[Tensor, Tensor | None, dict[str, Any]]:
        """As `_call`: logits `[B, T, V]`, states, and the cache."""
        out, states = self._call(ids, last_only=last_only, layers=layers, **state)
        state = {}
        for name in _CACHES:
            cache = getattr(out, name, None)
            if cache is not None:
                state[name] = cache
        if not state:
            raise RuntimeError("it returns no cache")
        return out.logits, states, state

    @torch.inference_mode()
    def keep(self, prefix: int, slots: Sequence[int]) -> None:
        """As in `Runner`: the kept drafted tokens run on the kept cache."""
        # drafted tokens ran on copies alone: what is kept of them runs on the kept cache now
        every = self._text + self._drafted
        self.kept = Kept(self.length, prefix, tuple(slots))
        with self.whole_pass(len(slots), prefix):
            self._become(every[:prefix] + [every[slot] for slot in slots])
            if self._held < self.length:
                self._catch_up()
                self.calls += 1

    def crop(self, length: int) -> None:
        """As in `Runner`; a text that is cut is read again by the next pass."""
        self.kept = Kept(self.length, length, ())
        self._become(self._text[:length], self._drafted[: max(length - len(self._text), 0)])

    def _become(self, text: list[int], drafted: Sequence[int] = ()) -> None:
        same = 0
        while same < min(len(self._text), len(text)) and self._text[same] == text[same]:
            same += 1
        # a recurrent state cannot go back, and what a pass left that failed is none
        if not 0 < self._held <= same:
            self._forget()
        if self.hidden is not None:
            self.hidden.length = min(same, self.hidden.length)
        self._text = text
        self._drafted = list(drafted)
        self.length = len(text) + len(drafted)

    def fork(self, length: int = 0, target: Runner | None = None, *, lean: bool = True) -> Runner:
        fork = super().fork(length, target, lean=lean)
        assert isinstance(fork, PathRunner)
        if fork.state is self.state:
            fork._become(self._text[:length])
            fork._state = repeated(fork._state, 1)
        return fork

    def mask_given(self) -> tuple[Bools, list[int]]:
        """What each row of the last tree pass saw: its path, after the whole text."""
        rows = len(self._seen)
        before = self._seen.shape[1] - rows
        return self._seen[:, before:], (self._before + self._seen[:, :before].sum(1)).tolist()


class LevelRunner(PathRunner):
    """Paths token by token, for families whose passes over several tokens ignore the state before them."""

    by_level = True
    forward_name = "by paths, level by level"


def repeated(state: Any, count: int) -> Any:
    """A copy of a cache with `count` rows in place of one."""

    def copied(tensor: Tensor) -> Tensor:
        if tensor.ndim:
            return tensor.repeat_interleave(count, 0)
        return tensor.clone()

    return walked(state, copied)


def walked(state: Any, change: Callable[[Tensor], Any]) -> Any:
    """A copy of a cache, whatever its class, with all its tensors changed."""
    if isinstance(state, Tensor):
        return change(state)
    if isinstance(state, list | tuple):
        return type(state)([walked(part, change) for part in state])
    if isinstance(state, dict):
        return {name: walked(part, change) for name, part in state.items()}
    if not hasattr(state, "__dict__") or isinstance(state, type | PreTrainedConfig):
        return state
    copied = copy.copy(state)
    vars(copied).update(walked(vars(state), change))
    return copied
