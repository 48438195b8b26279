"""Draft heads at work: a head on its target, with its own cache.

A head (`speclab.heads.eagle`) proposes from the target's hidden states. After a drafted token,
where the target has not run, it reads its own output instead.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from speclab.heads.eagle import Angles, DraftModule, rotary
from speclab.models.answer import Answer, Ids
from speclab.models.cache import KVCache
from speclab.models.fingerprint import Fingerprint
from speclab.models.runner import Runner
from speclab.models.source import Columns, DraftSource, Kept, State, TreeRows
from speclab.models.transfers import check_finite, to_device
from speclab.tree import Bools


class HeadRows(NamedTuple):
    """The input of a head's pass: `m` rows."""

    tokens: Sequence[int]  # m ids
    features: Tensor  # [m, …]; the target's states, or the head's own output at each row's parent
    positions: Sequence[int]  # m positions; that of the newest committed entry is `length - 1`
    visible: Bools | None = None  # [m, c] as in `Runner.logits`; None: causal order


class HeadRunner(DraftSource):
    """A draft head with its own cache, batch 1, on the target's device and in its dtype.

    Entry `i` of the cache belongs to token `i + 1` of the text and the target's hidden state at
    position `i`, so an up-to-date head has as many entries as its target. Entries depend on the
    committed text alone: all heads share the same prefix, whichever drafted (Dual-Draft Routing,
    section 7).

    Attributes:
        vocab_size, device, dtype: the target's.
        known: rows of its smallest table of embeddings; without one of its own, the target's ids.
        context: its own, or the target's if that is shorter.
    """

    kinds: ClassVar[dict[type[DraftModule], type[HeadRunner]]] = {}
    """The runner of each kind of head; of any other, this class."""

    def __init_subclass__(cls, runs: type[DraftModule] | None = None) -> None:
        if runs is not None:
            HeadRunner.kinds[runs] = cls

    def __init__(self, head: DraftModule, target: Runner) -> None:
        self.model: Any = head.to(device=target.device, dtype=target.dtype).eval()
        self.config: Any = head.config
        self.name = head.config.name
        self.family = "draft head"
        self.vocab_size = target.vocab_size
        tables = [len(part.weight) for part in head.modules() if isinstance(part, nn.Embedding)]
        self.known = min(tables, default=target.vocab_size)
        bounds = (head.config.context, target.context)
        self.context = min([bound for bound in bounds if bound is not None], default=None)
        self.device = target.device
        self.dtype = target.dtype
        self.cache = KVCache()
        self.length = 0
        self.calls = self.rows = 0
        self.kept = Kept(0, 0, ())
        self.layers = head.config.layers
        self._target = target
        self._tree = TreeRows()
        self._gained: dict[
            int, int
        ] = {}  # tokens beside the draft vocabulary, and where they begin
        self._scanned = 0
        self._feature: dict[int, Tensor] = {}
        self.state = State(Fingerprint(self.model))
        self._embed = self.model.embed_tokens or target.model.get_input_embeddings()
        self._angles = self._angles_to(0)

    def after_text(self, tokens: Sequence[int], topk: int = 0, node: int = 0) -> Answer:
        self._gain(tokens)
        last = len(tokens) - 1
        # a fork may have the last position, but not its output
        self.crop(min(self.length, last - 1))
        answer, feature = self.extend(tokens[self.length + 1 :], self._states(last), topk)
        self._feature = {node: feature}
        self._tree = TreeRows(last, node)
        return answer

    def after_nodes(self, tree: Columns, nodes: Sequence[int], topk: int = 0) -> Answer:
        tokens, positions, visible = self._tree.add(tree, nodes, self.length)
        above = torch.stack([self._feature[tree.parent[node]] for node in nodes])
        answer, features = self.forward(HeadRows(tokens, above, positions, visible), topk)
        self._feature.update(zip(nodes, features, strict=True))
        return answer

    def keep_path(self, path: Sequence[int]) -> None:
        """Drops the whole tree; the next pass runs the committed tokens on the target's hidden states."""
        self.crop(self._tree.prefix)

    def extend(self, tokens: Sequence[int], states: Tensor, topk: int = 0) -> tuple[Answer, Tensor]:
        """Appends `m` committed tokens; returns an answer of one row after the last, and the head's
        feature `[hidden]`.

        `states`: `[m, layers * states_size]`, the target's hidden states at the positions before
        the tokens. `topk`: as in `Runner.logits`.
        """
        answer, features = self.after_each(tokens, states, topk, last_only=True)
        return answer, features[-1]

    def after_each(
        self, tokens: Sequence[int], states: Tensor, topk: int = 0, *, last_only: bool = False
    ) -> tuple[Answer, Tensor]:
        """As `extend`, but after each of the `m` tokens: an answer of `m` rows, and features `[m, hidden]`."""
        positions = range(self.length, self.length + len(tokens))
        visible = np.tri(len(tokens), dtype=np.bool_) if len(tokens) > 1 and self.length else None
        rows = HeadRows(tokens, states, positions, visible)
        return self._pass(rows, topk, fuse=True, last_only=last_only)

    def forward(self, rows: HeadRows, topk: int = 0) -> tuple[Answer, Tensor]:
        """A pass over rows of a tree, appended to the cache: an answer of `m` rows, and features `[m, hidden]`."""
        return self._pass(rows, topk)

    def _fill(self, entries: int) -> None:
        self._feature = {0: self.extend([0] * entries, self._no_states(entries))[1]}

    def _run(self, rows: int) -> Answer:
        above = self._feature[0].expand(rows, -1)
        visible = np.eye(rows, dtype=np.bool_)
        return self.forward(HeadRows([0] * rows, above, [self.length] * rows, visible))[0]

    def _states(self, end: int) -> Tensor:
        """The target's hidden states from `length` to `end`."""
        assert self._target.hidden is not None
        return self._target.hidden.rows(self.length, end, self.layers)

    def _no_states(self, rows: int) -> Tensor:
        width = self.config.states_size * len(self.layers)
        return torch.zeros((rows, width), dtype=self.dtype, device=self.device)

    def crop(self, length: int) -> None:
        self.kept = Kept(self.length, length, ())
        self.cache.shorten(length)
        self.length = length

    @torch.inference_mode()
    def fork(self, length: int = 0, target: Runner | None = None) -> HeadRunner:
        """A runner of the same head with a copy of the first `length` entries.

        `target`: what it drafts for. If the target or the head was changed, the copy has no
        entries.
        """
        target = target or self._target
        same = target.state is self._target.state
        if not (same and self.state.fingerprint.holds(self.model)):
            fresh = type(self)(self.model, target)
            fresh.unknown = self.unknown
            return fresh
        fork = copy.copy(self)
        fork._target = target
        fork.cache = self.cache.copy(length)
        fork.length = length
        fork._scanned = min(self._scanned, length)
        fork._gained = {t: place for t, place in self._gained.items() if place < length}
        fork.calls = fork.rows = 0
        return fork

    @torch.inference_mode()
    def _pass(
        self, rows: HeadRows, topk: int, *, fuse: bool = False, last_only: bool = False
    ) -> tuple[Answer, Tensor]:
        """`fuse`: features are the target's states.

        `last_only`: return only the logits of the last row.
        """
        rows = rows._replace(features=rows.features.to(self.dtype))
        try:
            logits, out = self._rows(rows, fuse=fuse, last_only=last_only)
            answer = self._answer(logits, topk)
        except BaseException:
            self.cache.shorten(self.length)
            raise
        self._count(len(rows.tokens))
        return answer, out

    def _count(self, rows: int) -> None:
        self.calls += 1
        self.rows += rows
        self.length += rows

    def _rows(self, rows: HeadRows, *, fuse: bool, last_only: bool) -> tuple[Tensor, Tensor]:
        """Logits of the rows, or of the last, and features of all."""
        features = self.model.fused(rows.features) if fuse else rows.features
        embedded = self._embed(to_device(self.shown(rows.tokens), self.device))
        mask = self._mask(rows.visible, len(rows.tokens))
        angles = self._angles_at(rows.positions)
        out: Tensor = self.model(embedded[None], features[None], angles, mask, self.cache)[0]
        return self._logits_of(self.model.read_out(out[-1:] if last_only else out)), out

    def _logits_of(self, read: Tensor) -> Tensor:
        """Logits of the draft vocabulary, then of the tokens that it gained."""
        layer, drafted = self._output
        logits: Tensor = layer(read)[:, : self.vocab_size if drafted is None else None]
        if not self._gained:
            return logits
        whole = self._target.model.get_output_embeddings()
        ids = to_device([*self._gained], self.device)
        bias = None if whole.bias is None else whole.bias[ids]
        return torch.cat((logits, functional.linear(read, whole.weight[ids], bias)), dim=-1)

    def _gain(self, tokens: Sequence[int]) -> None:
        """Adds the text's tokens to the draft vocabulary; of a longer text that was left, it forgets them."""
        if not self.config.gains_tokens or self._output[1] is None:
            return
        self._gained = {t: place for t, place in self._gained.items() if place < len(tokens)}
        for place in range(min(self._scanned, len(tokens)), len(tokens)):
            if tokens[place] not in self._drafted:
                self._gained.setdefault(tokens[place], place)
        self._scanned = len(tokens)

    @cached_property
    def _drafted(self) -> frozenset[int]:
        ids = self._output[1]
        return frozenset() if ids is None else frozenset(ids.tolist())

    def _answer(self, logits: Tensor, topk: int) -> Answer:
        ids = self._output[1]
        if ids is not None and self._gained:
            ids = np.append(ids, [*self._gained])
        return check_finite(logits, topk, self.name, ids=ids, vocab_size=self.vocab_size)

    @cached_property
    def _output(self) -> tuple[Callable[[Tensor], Tensor], Ids | None]:
        """The output layer, and the target's id of each of its columns (None: its own); once for all forks.

        Ids that the target lacks are left out of a draft vocabulary.
        """
        layer: Any = self.model.lm_head or self._target.model.get_output_embeddings()
        ids = self.model.token_ids
        if ids is None:
            rows = self.vocab_size if self.model.lm_head is None else len(layer.weight)
            return layer, None if rows >= self.vocab_size else np.arange(rows)
        with torch.inference_mode(mode=False):
            known = ids < self.vocab_size
            ids = ids[known]
            layer = _selected(layer, ids if self.model.lm_head is None else known)
        return layer, ids.cpu().numpy()

    def _angles_to(self, positions: int) -> Angles:
        cos, sin = rotary(self.config, torch.arange(positions, device=self.device))
        return cos.to(self.dtype), sin.to(self.dtype)

    def _angles_at(self, positions: Sequence[int]) -> Angles:
        """The angles of positions; those of one position if all are the same, as in a level of a tree."""
        first = positions[0]
        highest = max(positions)
        if highest >= len(self._angles[0]):
            self._angles = self._angles_to(2 * highest + 256)
        cos, sin = self._angles
        if isinstance(positions, range):
            return cos[first : highest + 1], sin[first : highest + 1]
        if min(positions) == highest:
            return cos[first : first + 1], sin[first : first + 1]
        rows = to_device(positions, self.device)
        return cos[rows], sin[rows]

    def _mask(self, visible: Bools | None, rows: int) -> Tensor | None:
        """`[rows, length + rows]` bool, or None if every row sees all, or the cache is empty."""
        if visible is None or (rows == 1 and visible.all()):
            return None
        mask = torch.ones((rows, self.length + rows), dtype=torch.bool, device=self.device)
        mask[:, mask.shape[1] - visible.shape[1] :] = to_device(visible, self.device)
        return mask


def _selected(layer: nn.Linear, rows: Tensor) -> nn.Linear:
    weights = {name: weight.detach()[rows] for name, weight in layer.named_parameters()}
    part = nn.Linear(
        layer.in_features, len(weights["weight"]), bias="bias" in weights, device="meta"
    )
    part.load_state_dict(weights, assign=True)
    return part.requires_grad_(requires_grad=False)
