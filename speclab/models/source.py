"""What drafts: a draft model, or a head on its target, behind one contract.

A source has a cache of the committed text. Each iteration `after_text` brings it up to date,
`after_nodes` runs the nodes of a growing tree level by level, and `keep_path` leaves the committed
ones. A new kind of draft is one class that implements them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from speclab.display import line
from speclab.errors import ChangedModelError, OutOfMemoryError
from speclab.models.answer import Answer, Ids
from speclab.models.cache import KVCache
from speclab.models.fingerprint import Fingerprint
from speclab.models.lean import LeanForward
from speclab.models.transfers import is_out_of_memory
from speclab.tree import Bools


class Columns(Protocol):
    """A tree under construction: parents come before their children, and node 0 has the parent -1."""

    @property
    def token(self) -> Sequence[int]: ...
    @property
    def parent(self) -> Sequence[int]: ...
    @property
    def depth(self) -> Sequence[int]: ...


class TreeRows:
    """Where the nodes of one tree are in a cache, after `prefix` entries of committed text."""

    def __init__(self, prefix: int = 0, node: int = -1, *path: int) -> None:
        self.prefix = prefix
        self._path: dict[int, tuple[int, ...]] = {node: path}
        """For each node that ran: the slots of its ancestors and its own, counted from the prefix."""

    def add(
        self, tree: Columns, nodes: Sequence[int], length: int
    ) -> tuple[list[int], list[int], Bools]:
        """Tokens, positions, and which slots after the prefix each row sees, `[rows, length - prefix + rows]` bool."""
        start = length - self.prefix
        visible = np.zeros((len(nodes), start + len(nodes)), dtype=np.bool_)
        for row, node in enumerate(nodes):
            self._path[node] = self._path.get(tree.parent[node], ()) + (start + row,)
            visible[row, self._path[node]] = True
        positions = [self.prefix + len(self._path[node]) - 1 for node in nodes]
        return [tree.token[node] for node in nodes], positions, visible

    def slots(self, path: Sequence[int]) -> list[int]:
        """The slots of those nodes of a path that ran."""
        slots = []
        for node in path:
            columns = self._path.get(node)
            if columns:
                slots.append(self.prefix + columns[-1])
        return slots


class Kept(NamedTuple):
    """What the last keep or crop left of `before` entries: the first `prefix`, then those of `slots`."""

    before: int
    prefix: int
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Bits:
    """Whether the rows of a tree pass have the bits of one-row passes, as measured (`speclab.models.bits`).

    Attributes:
        rows: most rows of a pass that has them; 0 if no pass of several rows has.
        reason: what changes the bits, or "".
        threads: torch's, when it was measured: other threads divide a product in other ways.
    """

    rows: int
    reason: str
    threads: int

    def __str__(self) -> str:
        if self.rows:
            return f"bit for bit, {self.rows} rows at a time"
        return f"within rounding: {self.reason}"


@dataclass
class State:
    """A module as it was at one moment, and what was prepared from it.

    Attributes:
        lean: its lean pass; None if passes go through the module.
        admitted: the probe has admitted it.
        bits: whether its tree passes have the bits of plain decoding; None if nobody asked.
    """

    fingerprint: Fingerprint
    lean: LeanForward | None = None
    admitted: bool = False
    bits: Bits | None = None


class WholePass:
    """Surrounds a pass of `rows` after the first `length` entries of a cache. If an error or an
    interrupt stops it, only those entries stay. On a GPU, attention runs without cuDNN.

    Raises:
        OutOfMemoryError: the pass does not fit.
    """

    def __init__(self, source: DraftSource, rows: int, length: int) -> None:
        self._source = source
        self._rows = rows
        self._length = length

    def __enter__(self) -> None:
        # cuDNN compiles a plan for every shape, and a tree's is seldom the same
        on_gpu = self._source.device.type == "cuda"
        self._switched = on_gpu and torch.backends.cuda.cudnn_sdp_enabled()
        if self._switched:
            torch.backends.cuda.enable_cudnn_sdp(False)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._switched:
            torch.backends.cuda.enable_cudnn_sdp(True)
        if error is None:
            return
        source = self._source
        source.crop(self._length)
        if is_out_of_memory(error):
            raise OutOfMemoryError(
                f"{source.name} ran out of memory on {source.device} at "
                f"{self._length + self._rows} tokens: use a shorter prompt, a smaller tree, "
                "float16, or a smaller model."
            ) from None


class Target(Protocol):
    """What the decoding loop asks of a target: passes over a text, and a cache of their rows.

    `length`: entries in the cache. `calls`, `rows`: passes so far, and rows of all of them.
    """

    length: int
    calls: int
    rows: int
    vocab_size: int
    context: int | None

    def logits(
        self,
        tokens: Sequence[int],
        positions: Sequence[int] | None = None,
        visible: Bools | None = None,
        *,
        topk: int = 0,
    ) -> Answer: ...

    def keep(self, prefix: int, slots: Sequence[int]) -> None: ...

    def crop(self, length: int) -> None: ...


class DraftSource(ABC):
    """The contract of what drafts, batch 1.

    Attributes:
        reach: depth that one pass answers for, whatever the number of nodes; None: a pass answers
            for its own rows.
        spare: newest entries that a pass of the text runs again; a fork does not copy them.
        layers: of the target, whose hidden states it reads.
        paths: rows of each path of the last pass, if it verifies by paths.
        length: entries in the cache. `kept`: what the last `keep` or `crop` left, for records.
        state: of the module when the text began.
        calls, rows: passes so far, and rows of all of them.
        context: positions that the model was trained for; None if unbounded.
        vocab_size: ids of a text, so columns of every answer; those that it lacks are -inf.
        known: ids that it has. It reads `unknown` in the place of another.
    """

    reach: int | None = None
    spare: int = 0
    layers: Sequence[int] = ()
    paths: tuple[tuple[int, ...], ...] = ()
    model: Any
    name: str
    family: str
    vocab_size: int
    known: int
    unknown: int = 0
    context: int | None
    device: torch.device
    dtype: torch.dtype
    cache: KVCache
    state: State
    length: int
    kept: Kept
    calls: int
    rows: int

    @property
    def bits(self) -> Bits | None:
        """Whether tree passes have the bits of plain decoding; None if nobody asked."""
        return self.state.bits

    @property
    def own_rows(self) -> int:
        """Most rows of a pass that reads by own path; 0: rows read under a mask."""
        if self.state.bits is None:
            return 0
        return self.state.bits.rows

    def __repr__(self) -> str:
        return line(type(self).__name__, self.name, length=self.length)

    def shown(self, tokens: Sequence[int]) -> Sequence[int]:
        """Tokens of a text as it reads them: `unknown` for an id that it lacks."""
        if self.known >= self.vocab_size:
            return tokens
        return [token if token < self.known else self.unknown for token in tokens]

    @property
    def proposes(self) -> Collection[int]:
        """The ids of a text that it can propose."""
        return range(min(self.known, self.vocab_size))

    def ids_below(self, count: int) -> Ids | None:
        """The ids of `count` columns of logits in order; None: they are all ids of a text."""
        if count >= self.vocab_size:
            return None
        return np.arange(count)

    @property
    def capacity(self) -> int:
        return self.cache.capacity

    @property
    def slot_bytes(self) -> int:
        return self.cache.slot_bytes

    @abstractmethod
    def after_text(self, tokens: Sequence[int], topk: int = 0, node: int = 0) -> Answer:
        """Runs the committed tokens that the cache lacks; the answer has one row, after the last.

        Args:
            tokens: the whole committed text.
            topk: most probable tokens that the host will read.
            node: the node that the last token is: 0, or -1 before a drafted root.
        """

    @abstractmethod
    def after_nodes(self, tree: Columns, nodes: Sequence[int], topk: int = 0) -> Answer:
        """Runs `nodes`, whose parents ran before; the answer has a row for each."""

    @abstractmethod
    def keep_path(self, path: Sequence[int]) -> None:
        """Leaves the committed text in the cache; `path`: the committed nodes, from the root down."""

    @property
    def conditions(self) -> bool:
        """Whether, within its reach, the next tokens depend on the node's own."""
        return False

    def at_depths(self, depths: Sequence[int], tokens: Sequence[int] | None, topk: int) -> Answer:
        """With a `reach`: the next tokens after nodes of these depths, from the last pass alone.

        `tokens`: of the nodes, if the next ones depend on them; None: whatever they are.
        """
        raise NotImplementedError

    @abstractmethod
    def fork(self, length: int = 0, target: Any = None) -> DraftSource:
        """The same model with a copy of the first `length` entries; `target`: what it drafts for."""

    def check_unchanged(self, *, whole: bool) -> None:
        """Raises `ChangedModelError` if the model was changed after the text began; `whole`: by all
        values."""
        if not self.state.fingerprint.holds(self.model, whole=whole):
            raise ChangedModelError(
                f"{self.name} was changed after this text began: start a new session (Reset in the "
                "lab), or fork this one, to decode with the changed model."
            )

    def whole_pass(self, rows: int, length: int | None = None) -> WholePass:
        """Every change of the cache by a model or in place runs in it; `length`: by default all entries."""
        if length is None:
            length = self.length
        return WholePass(self, rows, length)

    def crop(self, length: int) -> None:
        """Drops the entries from `length` on; moves nothing."""
        self.kept = Kept(self.length, length, ())
        self.cache.shorten(length)
        self.length = length

    @abstractmethod
    def fill(self, entries: int) -> None:
        """Puts entries into an empty cache."""

    @abstractmethod
    def run_rows(self, rows: int) -> Answer:
        """A pass of so many rows."""
