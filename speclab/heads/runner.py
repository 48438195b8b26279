"""Draft heads at work: a head on its target, with its own cache.

A head (`speclab.heads.eagle`) proposes from the target's hidden states. After a drafted token,
where the target has not run, it reads its own output instead.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from functools import cache, cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from speclab.heads.eagle import Angles, DraftModule, rotary
from speclab.heads.packed import with_packed
from speclab.models.answer import Answer, Ids
from speclab.models.cache import KVCache
from speclab.models.fingerprint import Fingerprint
from speclab.models.lean import Linear
from speclab.models.runner import Runner
from speclab.models.source import Columns, DraftSource, Kept, State, TreeRows
from speclab.models.transfers import check_finite, to_device
from speclab.tree import Bools


class HeadRows(NamedTuple):
    """The input of a head's pass: `m` rows, of the text or of a tree."""

    tokens: Sequence[int]  # m ids
    features: Tensor  # [m, …]; the target's states, or the head's own output at each row's parent
    positions: Sequence[int]  # m positions; that of the newest committed entry is `length - 1`
    visible: Bools | None = None  # [m, c] as in `Runner.logits`; None: causal order
    depths: Sequence[int] | None = None  # m, of drafted tokens below the text; None: of the text


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

    spare = 1  # its output, from which a tree begins, is not in the cache
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
        self._feature: dict[int, Tensor] = {}
        self.state = State(Fingerprint(self.model), admitted=True)
        # made by the first pass, once for all forks
        self._packed = cache(partial(with_packed, self.model))
        self._output = cache(self._output_layer)
        self._embed = self.model.embed_tokens or target.model.get_input_embeddings()
        self._angles: Angles = (torch.empty(0), torch.empty(0))

    @cached_property
    def proposes(self) -> Collection[int]:
        ids = self._output()[1]
        return range(self.vocab_size) if ids is None else set(ids.tolist())

    def after_text(self, tokens: Sequence[int], topk: int = 0, node: int = 0) -> Answer:
        last = len(tokens) - 1
        self.crop(min(self.length, last - self.spare))  # the same text again
        answer, features = self.extend(tokens[self.length + 1 :], self._states(last), topk)
        self._feature = {node: features[-1]}
        self._tree = TreeRows(last, node)
        return answer

    def after_nodes(self, tree: Columns, nodes: Sequence[int], topk: int = 0) -> Answer:
        tokens, positions, visible = self._tree.add(tree, nodes, self.length)
        above = torch.stack([self._feature[tree.parent[node]] for node in nodes])
        depths = [position + 1 - self._tree.prefix for position in positions]
        answer, features = self.forward(HeadRows(tokens, above, positions, visible, depths), topk)
        self._feature.update(zip(nodes, features, strict=True))
        return answer

    def keep_path(self, path: Sequence[int]) -> None:
        """Drops the whole tree; the next pass runs the committed tokens on the target's hidden states."""
        self.crop(self._tree.prefix)

    def extend(
        self, tokens: Sequence[int], states: Tensor, topk: int = 0, *, last_only: bool = True
    ) -> tuple[Answer, Tensor]:
        """Appends `m` committed tokens: an answer after the last, or after each, and features `[m, hidden]`.

        `states`: `[m, layers * states_size]`, the target's hidden states at the positions before
        the tokens. `topk`: as in `Runner.logits`.
        """
        positions = range(self.length, self.length + len(tokens))
        visible = None
        if len(tokens) > 1 and self.length:
            visible = np.tri(len(tokens), dtype=np.bool_)
        rows = HeadRows(tokens, states, positions, visible)
        return self.forward(rows, topk, last_only=last_only)

    @torch.inference_mode()
    def forward(
        self, rows: HeadRows, topk: int = 0, *, last_only: bool = False
    ) -> tuple[Answer, Tensor]:
        """A pass over rows, appended to the cache: an answer of `m` rows, and features `[m, hidden]`.

        `last_only`: answer for the last row alone.
        """
        rows = rows._replace(features=rows.features.to(self.dtype))
        with self.whole_pass(len(rows.tokens)):
            logits, out = self._rows(rows, last_only=last_only)
            answer = self._answer(logits, topk)
        self._count(len(rows.tokens))
        return answer, out

    def fill(self, entries: int) -> None:
        self._feature = {0: self.extend([0] * entries, self._no_states(entries))[1][-1]}

    def run_rows(self, rows: int) -> Answer:
        above = self._feature[0].expand(rows, -1)
        visible = np.eye(rows, dtype=np.bool_)
        return self.forward(HeadRows([0] * rows, above, [self.length] * rows, visible, [1] * rows))[
            0
        ]

    def _states(self, end: int) -> Tensor:
        """The target's hidden states from `length` to `end`."""
        assert self._target.hidden is not None
        return self._target.hidden.rows(self.length, end, self.layers)

    def _no_states(self, rows: int) -> Tensor:
        width = self.config.states_size * len(self.layers)
        return torch.zeros((rows, width), dtype=self.dtype, device=self.device)

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
        fork.calls = fork.rows = 0
        return fork

    def _count(self, rows: int) -> None:
        self.calls += 1
        self.rows += rows
        self.length += rows

    def _rows(self, rows: HeadRows, *, last_only: bool) -> tuple[Tensor, Tensor]:
        """Logits of the rows, or of the last, and features of all."""
        features = rows.features
        if rows.depths is None:
            features = self.model.fused(features)
        embedded = self._embed(to_device(self.shown(rows.tokens), self.device))
        mask = self._mask(rows.visible, len(rows.tokens))
        angles = self._angles_at(rows.positions)
        out: Tensor = self._packed()(embedded[None], features[None], angles, mask, self.cache)[0]
        last = out[-1:] if last_only else out
        return self._logits_of(self.model.read_out(last)), out

    def _logits_of(self, read: Tensor) -> Tensor:
        """Logits of the draft vocabulary."""
        layer, drafted = self._output()
        return layer(read)[:, : self.vocab_size if drafted is None else None]

    def _answer(self, logits: Tensor, topk: int) -> Answer:
        ids = self._output()[1]
        return check_finite(logits, topk, self.name, ids=ids, vocab_size=self.vocab_size)

    def _output_layer(self) -> tuple[Callable[[Tensor], Tensor], Ids | None]:
        """The output layer, and the target's id of each of its columns (None: its own).

        Ids that the target lacks are left out of a draft vocabulary.
        """
        own: Any = self.model.lm_head
        layer = own or self._target.model.get_output_embeddings()
        ids = self.model.token_ids
        if ids is None:
            rows = self.vocab_size if own is None else len(own.weight)
            if own is None and self._target.lean is not None:
                layer = self._target.lean.output
            return layer, None if rows >= self.vocab_size else np.arange(rows)
        known = ids < self.vocab_size
        columns = ids[known] if own is None else known
        chosen = nn.Linear(layer.in_features, len(columns), layer.bias is not None, device="meta")
        for name, weights in layer.named_parameters():
            setattr(chosen, name, nn.Parameter(weights.detach()[columns], requires_grad=False))
        return Linear(chosen), ids[known].cpu().numpy()

    def _angles_at(self, positions: Sequence[int]) -> Angles:
        """The angles of positions, from tables that grow by doubling."""
        highest = max(positions)
        if highest >= len(self._angles[0]):
            every = torch.arange(2 * highest + 256, device=self.device)
            cos, sin = rotary(self.config, every)
            self._angles = cos.to(self.dtype), sin.to(self.dtype)
        rows = to_device(positions, self.device)
        return self._angles[0][rows], self._angles[1][rows]

    def _mask(self, visible: Bools | None, rows: int) -> Tensor | None:
        """`[rows, length + rows]` bool, or None if every row sees all, or the cache is empty."""
        if visible is None or (rows == 1 and visible.all()):
            return None
        mask = torch.ones((rows, self.length + rows), dtype=torch.bool, device=self.device)
        mask[:, mask.shape[1] - visible.shape[1] :] = to_device(visible, self.device)
        return mask
