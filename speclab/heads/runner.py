"""Draft heads at work: a head on its target, with its own cache.

A head proposes from the target's hidden states. After a drafted token, where the target has not
run, it reads its own output instead.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from speclab.heads.layout import DraftModule
from speclab.models.answer import Answer, Ids
from speclab.models.cache import KVCache
from speclab.models.fingerprint import Fingerprint
from speclab.models.lean import Linear
from speclab.models.runner import Runner
from speclab.models.source import Columns, DraftSource, Kept, State, TreeRows
from speclab.models.transfers import check_finite
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
    section 7). A head that runs the nodes of a tree implements `compute`; one that drafts them all in
    one pass derives from `MarginalRunner`.

    Attributes:
        vocab_size, device, dtype: the target's.
        known: rows of its smallest table of embeddings; without one of its own, the target's ids.
        context: its own, or the target's if that is shorter.
    """

    spare = 1  # its output, from which a tree begins, is not in the cache

    def __init_subclass__(cls, runs: type[DraftModule] | None = None) -> None:
        if runs is not None:
            runs.runner = cls

    def __init__(self, head: DraftModule, target: Runner) -> None:
        self.model: Any = head.to(device=target.device, dtype=target.dtype).eval()
        self.config: Any = head.config
        self.name = head.config.name
        self.family = "draft head"
        self.vocab_size = target.vocab_size
        tables = [len(part.weight) for part in head.modules() if isinstance(part, nn.Embedding)]
        self.known = min(tables, default=target.vocab_size)
        self.context = head.config.context
        if target.context is not None:
            self.context = min(self.context or target.context, target.context)
        self.device = target.device
        self.dtype = target.dtype
        self.cache = KVCache()
        self.length = 0
        self.calls = 0
        self.rows = 0
        self.kept = Kept(0, 0, ())
        self.layers = head.config.layers
        self._target = target
        self._tree = TreeRows()
        self._feature: dict[int, Tensor] = {}
        self.state = State(Fingerprint(self.model), admitted=True)
        # made by the first pass, once for all forks
        self.packed = cache(partial(with_packed, self.model))
        self._output = cache(self._output_layer)
        self._embed = self.model.embed_tokens or target.model.get_input_embeddings()

    def compute(self, rows: HeadRows, *, last_only: bool) -> tuple[Tensor, Tensor]:
        """Logits of the rows, or of the last, `[m or 1, proposed]`, and features of all `[m, …]`.

        A head that keeps keys and values appends those of the rows to `cache`.
        """
        raise NotImplementedError

    @cached_property
    def proposes(self) -> Collection[int]:
        ids = self._ids()
        if ids is None:
            return range(self.vocab_size)
        return set(ids.tolist())

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
        """Appends `m` committed tokens: an answer after the last, or after each, and features `[m, …]`.

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
        """A pass over rows, appended to the cache: an answer of `m` rows, and features `[m, …]`.

        `last_only`: answer for the last row alone.
        """
        rows = rows._replace(features=rows.features.to(self.dtype))
        with self.whole_pass(len(rows.tokens)):
            logits, features = self.compute(rows, last_only=last_only)
            answer = self._answer(logits, topk)
        self._count(len(rows.tokens))
        return answer, features

    def fill(self, entries: int) -> None:
        _, features = self.extend([0] * entries, self._no_states(entries))
        self._feature = {0: features[-1]}

    def run_rows(self, rows: int) -> Answer:
        above = self._feature[0].expand(rows, -1)
        visible = np.eye(rows, dtype=np.bool_)
        level = HeadRows([0] * rows, above, [self.length] * rows, visible, [1] * rows)
        answer, _ = self.forward(level)
        return answer

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
        fork.calls = 0
        fork.rows = 0
        return fork

    def keep_nothing(self, rows: int) -> None:
        """Appends entries of no width, for a head without attention: records count them as any."""
        entries = torch.empty((1, 1, rows, 0), dtype=self.dtype, device=self.device)
        self.cache.update(entries, entries, 0)

    def _count(self, rows: int) -> None:
        self.calls += 1
        self.rows += rows
        self.length += rows

    def _answer(self, logits: Tensor, topk: int) -> Answer:
        return check_finite(logits, topk, self.name, ids=self._ids(), vocab_size=self.vocab_size)

    def _ids(self) -> Ids | None:
        """The target's id of each column of the logits; None: its own ids in order."""
        return self._output()[1]

    def _logits_of(self, rows: Tensor) -> Tensor:
        """Logits of the draft vocabulary, `[m, proposed]`, of rows `[m, hidden]`."""
        layer, ids = self._output()
        logits: Tensor = layer(rows)
        if ids is None:
            return logits[:, : self.vocab_size]
        return logits

    def _output_layer(self) -> tuple[Callable[[Tensor], Tensor], Ids | None]:
        """The head's output layer or the target's, and the id of each of its columns.

        Ids that the target lacks are left out of a draft vocabulary.
        """
        layer: Any = self.model.lm_head or self._target.model.get_output_embeddings()
        ids = self.model.token_ids
        if ids is not None:
            shared = ids < self.vocab_size
            rows = shared  # the head's own layer has a row for each of its ids
            if self.model.lm_head is None:
                rows = ids[shared]  # the target's has one for every id
            part = nn.Linear(layer.in_features, len(rows), layer.bias is not None, device="meta")
            for name, weights in layer.named_parameters():
                selected = nn.Parameter(weights.detach()[rows], requires_grad=False)
                setattr(part, name, selected)
            return Linear(part), ids[shared].cpu().numpy()
        if self.model.lm_head is not None:
            return layer, self.ids_below(len(layer.weight))
        if self._target.lean is not None:
            layer = self._target.lean.output
        return layer, None


def with_packed(module: nn.Module) -> nn.Module:
    """A copy of a module that multiplies by packed weights, and shares all other tensors and its
    `lm_head`."""
    copies: dict[int, Any] = {}
    for tensor in module.state_dict(keep_vars=True).values():
        copies[id(tensor)] = tensor
    for name, part in module.named_modules():
        if type(part) is nn.Linear and name != "lm_head":
            copies[id(part)] = Linear(part)
    return copy.deepcopy(module, copies)
