"""One model and its cache: every pass of a target or draft model goes through a `Runner`."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from speclab.errors import UnsupportedModelError
from speclab.models.answer import Answer
from speclab.models.cache import FIRST_CAPACITY, HiddenStates, KVCache
from speclab.models.fingerprint import Fingerprint
from speclab.models.lean import lean_forward
from speclab.models.masks import Mask, MaskPlan, read_back
from speclab.models.own_paths import OwnPaths, through
from speclab.models.source import Columns, DraftSource, Kept, State, TreeRows
from speclab.models.transfers import check_finite, check_placed, to_device
from speclab.tree import Bools

_CONTEXT_FIELDS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length")


class Runner(DraftSource):
    """One model and its KV cache, batch 1, on the module's device: the committed tokens, then one
    row per node that ran.

    Every method runs in inference mode. A pass that fails (out of memory, an interrupt) leaves the
    cache unchanged; a `keep` that fails leaves its prefix.

    Args:
        model: a causal language model of `transformers`, which is set to eval mode and, if its
            attention takes no tree mask, to sdpa or eager, for good.
        name: in errors and pictures; by default the family.
        plan: how masks are made; by default from the config.
        lean: use the lean pass (`speclab.models.lean`) if the family has one.

    Attributes:
        vocab_size: ids of a text, by default the model's own; in a pair those of the target.
        context: positions that the model is made for (`trained_positions`); None if unbounded.
        lean: the lean pass; None if passes go through the module.
        takes_last: its module computes the logits of the last row alone if asked.
        allow_nonfinite: accept logits that are not finite, because their reader replaces them.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        name: str = "",
        plan: MaskPlan | None = None,
        *,
        lean: bool = True,
    ) -> None:
        self.model: Any = model
        self.name = name or model.config.get_text_config(decoder=True).model_type
        self.calls = self.rows = 0
        self.allow_nonfinite = False
        self._lean = lean
        # shared by all forks: the first state of the module, and the latest
        self._states: list[State] = []
        self.state = self._current()
        self.state.admitted = True
        self.lean = self.state.lean
        self._plan = plan
        self.takes_last = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._read(())
        self.vocab_size = self.known
        self._tree = TreeRows()

    def after_text(self, tokens: Sequence[int], topk: int = 0, node: int = 0) -> Answer:
        self._tree = TreeRows(len(tokens), node)
        if node == 0:  # the last token is in the tree
            self._tree = TreeRows(len(tokens) - 1, node, 0)
        return self.logits(tokens[self.length :], topk=topk)

    def after_nodes(self, tree: Columns, nodes: Sequence[int], topk: int = 0) -> Answer:
        tokens, positions, visible = self._tree.add(tree, nodes, self.length)
        return self.logits(tokens, positions, visible, topk=topk)

    def keep_path(self, path: Sequence[int]) -> None:
        self.keep(self._tree.prefix, self._tree.slots(path))

    def fill(self, entries: int) -> None:
        self.logits([0] * entries)

    def run_rows(self, rows: int) -> Answer:
        return self.logits([0] * rows, [self.length] * rows, np.eye(rows, dtype=np.bool_))

    def _read(self, watched: Sequence[int]) -> None:
        """Reads the module's properties; the cache is then empty and stores hidden states of `watched`."""
        config = self.text_config
        self.family: str = config.model_type
        self.device = self.model.device
        self.dtype = self.model.dtype
        self.context = _context(config)
        self.plan = self._plan or MaskPlan.of(config)
        self.cache = KVCache(watched)
        self.length = 0
        self.kept = Kept(0, 0, ())
        self._given: tuple[Mask | list[OwnPaths], int, int] = (None, 0, 0)
        # slot numbers; the position of each slot
        self._slots = self._columns = torch.arange(0, device=self.device)
        self.known = config.vocab_size

    @property
    def text_config(self) -> Any:
        """The config of the decoder that writes the text."""
        return self.model.config.get_text_config(decoder=True)

    @property
    def forward_name(self) -> str:
        """What computes a pass, for records: "module", "lean", or "lean, packed"; ", by own path"."""
        name = "module"
        if self.lean is not None:
            name = "lean"
            if self.lean.packed:
                name += ", packed"
        if self.own_rows:
            name += ", by own path"
        return name

    @property
    def hidden(self) -> HiddenStates | None:
        """Hidden states of every entry, None without `watch`."""
        return self.cache.hidden

    def extend(self, tokens: Sequence[int]) -> Tensor:
        """A causal pass: appends `tokens` from position `length` on; logits `[V]` after the last."""
        return self.logits(tokens).row(-1)

    @torch.inference_mode()
    def logits(
        self,
        tokens: Sequence[int],
        positions: Sequence[int] | None = None,
        visible: Bools | None = None,
        *,
        topk: int = 0,
    ) -> Answer:
        """A pass whose rows are appended to the cache; without `positions` it is causal and answers
        for the last row.

        Args:
            tokens: `m` ids.
            positions: `m` positions; a tree node has prefix length + depth.
            visible: `[m, c]` bool, which of the last `c` columns (cache slots, then the new rows)
                each row sees; earlier columns are visible to all, so the host's work does not grow
                with the prefix.
            topk: most probable tokens per row that the host will read; on CUDA they come in the
                pass's only transfer.

        Raises:
            OutOfMemoryError: the pass does not fit; the cache is unchanged.
            LogitsError: the logits have a NaN; the cache is unchanged.
        """
        total = self.length + len(tokens)
        with self.whole_pass(len(tokens)):
            self._reserve(total)
            if positions is None:
                row_positions = self._slots[self.length : total]
            else:
                row_positions = to_device(positions, self.device)
            ids = to_device(self.shown(tokens), self.device)
            passes = 1
            if self.own_rows and not self._is_prompt(len(tokens), visible):
                rows = self._by_own_path(ids, row_positions, visible)
                passes = ceil(len(tokens) / self.own_rows)
                if positions is None:
                    rows = rows[-1:]
            else:
                mask = self._mask(row_positions, visible)
                rows = self._stored(ids, row_positions, mask, last_only=positions is None)
                if visible is not None:
                    self._given = (mask, len(tokens), total)
            answer = self._answer(rows, topk)
        self.calls += passes
        self.rows += len(tokens)
        self.length = total
        return answer

    def _stored(self, tokens: Tensor, positions: Tensor, mask: Any, *, last_only: bool) -> Tensor:
        """As `_pass`, without the states, which are stored."""
        rows, states = self._pass(tokens, positions, mask, last_only=last_only)
        if self.hidden is not None and states is not None:
            self.hidden.append(states)
        return rows

    def _is_prompt(self, rows: int, visible: Bools | None) -> bool:
        """Whether a pass of several rows is a whole prompt, which is computed as `generate` does."""
        if self.length or rows == 1:
            return False
        return visible is None or bool((visible == np.tri(rows)).all())

    def _by_own_path(self, tokens: Tensor, positions: Tensor, visible: Bools | None) -> Tensor:
        """Logits `[m, V]` of rows that read by own path, in passes of at most `own_rows`."""
        count = len(tokens)
        causal = visible is None
        if visible is None:
            visible = np.tri(count, dtype=np.bool_)
        before = visible.shape[1] - count  # columns of drafted rows that ran before
        parts: list[Tensor] = []
        paths: list[OwnPaths] = []
        for start in range(0, count, self.own_rows):
            stop = min(start + self.own_rows, count)
            own = OwnPaths(visible[start:stop, : before + stop], self.length + stop)
            paths.append(own)
            parts.append(
                self._stored(tokens[start:stop], positions[start:stop], own, last_only=False)
            )
        if not causal:  # what is read back is a tree's
            self._given = (paths, count, self.length + count)
        return torch.cat(parts)

    def _answer(self, rows: Tensor, topk: int) -> Answer:
        """From logits `[m, columns]`, which may have padding."""
        return check_finite(
            rows[:, : min(self.known, self.vocab_size)],
            topk,
            self.name,
            allow_nonfinite=self.allow_nonfinite,
            ids=self.ids_below(self.known),
            vocab_size=self.vocab_size,
        )

    def _pass(
        self, tokens: Tensor, positions: Tensor, mask: Mask | OwnPaths, *, last_only: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Logits `[m, V]`, or at least those of the last row, and hidden states of the watched layers."""
        layers = self.cache.watched
        if self.lean is not None and not isinstance(mask, dict):
            return self.lean(
                tokens, positions, mask, self.cache, last_only=last_only, layers=layers
            )
        call = partial(
            self._call,
            tokens[None],
            position_ids=positions[None],
            past_key_values=self.cache,
        )
        if isinstance(mask, OwnPaths):
            with through(self.model, mask):
                output, states = call(last_only=False, layers=layers)
            return output.logits[0], states
        output, states = call(last_only=last_only, layers=layers, attention_mask=mask)
        logits: Tensor = output.logits[0]
        if self.own_rows and not last_only and len(tokens) > 1:
            # a whole prompt: as in `generate`, the last row is a product of its own
            self.cache.shorten(0)
            last, _ = call(last_only=True, layers=(), attention_mask=mask)
            logits = torch.cat((logits[:-1], last.logits[0, -1:]))
        return logits, states

    def _call(
        self, ids: Tensor, *, last_only: bool, layers: Sequence[int], **options: Any
    ) -> tuple[Any, Tensor | None]:
        """What the module returns for ids `[B, T]`, and states `[T, layers, hidden]` of the first row."""
        if last_only and self.takes_last:
            options["logits_to_keep"] = 1
        if layers:
            options["output_hidden_states"] = True
        output = self.model(ids, use_cache=True, **options)
        if not layers:
            return output, None
        states = [output.hidden_states[layer][0] for layer in layers]
        return output, torch.stack(states, dim=1)

    def watch(self, layers: Sequence[int]) -> None:
        """Also stores the hidden states of `layers` from now on; entries without them are dropped."""
        wanted = tuple(sorted(set(self.cache.watched).union(layers)))
        if wanted != self.cache.watched:
            self.cache.watch(wanted)
            self.crop(0)

    @torch.inference_mode()
    def keep(self, prefix: int, slots: Sequence[int]) -> None:
        """Keeps the first `prefix` entries, then those of `slots` (absolute, increasing), gathered
        in place.

        Entry `i` of the cache then has position `i`: the slots must be a path whose positions
        follow the prefix.
        """
        self.kept = Kept(self.length, prefix, tuple(slots))
        with self.whole_pass(len(slots), prefix):
            self.cache.keep(prefix, slots)
            self.length = prefix + len(slots)
            if self.plan.window is not None:
                self._columns[prefix : self.length] = self._slots[prefix : self.length]

    @torch.inference_mode()
    def fork(self, length: int = 0, target: Runner | None = None, *, lean: bool = True) -> Runner:
        """A runner of the same module with a copy of the first `length` entries, without a model
        call.

        Every text starts with a fork, so the module is compared here with what it was. If it has
        changed, the lean pass is built anew, and the old entries are not copied.

        Args:
            target: of a head; a model has none.
            lean: False: every pass of the copy goes through the module, and it stores no hidden
                states.

        Raises:
            UnsupportedModelError: its vocabulary has changed, or it was offloaded.
        """
        assert 0 <= length <= self.length
        fork = copy.copy(self)
        fork.calls = fork.rows = 0
        fork._given = (None, 0, 0)
        fork.state = self._current()
        fork.lean = fork.state.lean
        if fork.state is not self.state:
            fork._read(self.cache.watched)
            if fork.known != self.known:
                raise UnsupportedModelError(
                    f"The vocabulary of {self.name} has changed from {self.known} to "
                    f"{fork.known} token ids: load the pair again."
                )
        else:
            fork.cache = self.cache.copy(length)
            fork.length = length
            fork._columns = self._columns.clone()
        if not lean:
            fork.lean = None
            fork.cache.watch(())
        return fork

    def beside(
        self, model: PreTrainedModel, kind: type[Runner] | None = None, **plan: Any
    ) -> Runner:
        """An empty runner of another module in this one's place, through the module; `plan`: of its masks."""
        runner = (kind or type(self))(model, self.name, replace(self.plan, **plan), lean=False)
        runner.vocab_size = self.vocab_size
        runner.unknown = self.unknown
        return runner

    def _current(self) -> State:
        """The state of the module as it is now: a known one, or a new one."""
        self.model.eval()
        use_maskable_attention(self.model)
        for state in self._states:
            if state.fingerprint.holds(self.model):
                return state
        check_placed(self.model, self.name)
        new = State(Fingerprint(self.model))
        hooks = new.fingerprint.marks.hooks
        for state in self._states:
            # a hook that was registered is not probed: it would see passes that are not the text's
            if hooks and state.fingerprint.holds(self.model, hooks=False):
                again = Fingerprint(self.model, state.fingerprint.moving)
                new = State(again, admitted=state.admitted, bits=state.bits)
        if self._lean and not hooks:
            new.lean = lean_forward(self.model)
        self._states[1:] = [new]
        return new

    @torch.inference_mode()
    def settle(self) -> None:
        """Learns by a pass what every pass changes in the module, such as a counter of its calls."""
        before = Fingerprint(self.model)
        self.model(torch.tensor([[0]], device=self.device), use_cache=False)
        self.state.fingerprint = before.after_a_pass(self.model)
        self.state.admitted = True

    @torch.inference_mode()
    def mask_given(self) -> tuple[Bools, list[int]]:
        """What the last tree pass let each row see, read back from the mask that the model got (`read_back`)."""
        given, rows, total = self._given
        if not isinstance(given, list):
            return read_back(given, rows, total)
        seen = np.zeros((rows, total), dtype=np.bool_)
        row = 0
        for paths in given:
            part = paths.seen()
            seen[row : row + len(part), : part.shape[1]] = part
            row += len(part)
        return seen[:, total - rows :], seen[:, : total - rows].sum(1).tolist()

    def _mask(self, positions: Tensor, visible: Bools | None) -> Mask:
        rows = len(positions)
        total = self.length + len(positions)
        if self.own_rows:
            return None  # a whole prompt: the module's own way, windows included
        if self.plan.window is not None:
            self._columns[self.length : total] = positions
        elif visible is None and rows == total:
            return None  # a prompt into an empty cache: the module's own causal way is fastest
        elif rows == 1 and (visible is None or visible.all()):
            return None
        if visible is None:
            hidden = torch.ones((rows, rows), dtype=torch.bool, device=self.device).triu_(1)
        else:
            hidden = to_device(np.logical_not(visible), self.device)
        return self.plan.build(hidden, positions, self._columns[:total], self.dtype)

    def _reserve(self, total: int) -> None:
        """Allocates slot numbers in advance: a pass of one token takes a slice."""
        if total > len(self._slots):
            size = max(FIRST_CAPACITY, 2 * total)
            slots = torch.arange(size, device=self.device)
            columns = slots.clone()
            columns[: self.length] = self._columns[: self.length]
            self._columns = columns
            self._slots = slots  # last, since its length stands for both


def use_maskable_attention(model: PreTrainedModel) -> None:
    """Switches to attention that takes a tree mask, if the model's own does not."""
    if model.config._attn_implementation in {"sdpa", "eager"}:
        return
    try:
        model.set_attn_implementation("sdpa")
    except ValueError:  # the family has none
        model.set_attn_implementation("eager")


def _context(config: Any) -> int | None:
    """Positions that a model is made for; None if unbounded."""
    bounds = [getattr(config, field, None) for field in _CONTEXT_FIELDS]
    first = next((bound for bound in bounds if isinstance(bound, int)), None)
    rope = getattr(config, "rope_parameters", None) or {}
    # some families have settings for each kind of layer
    kinds = list(rope.values())
    if not kinds or not all(isinstance(kind, dict) for kind in kinds):
        kinds = [rope]
    reached = [trained_positions(kind.get("rope_type"), kind, first) for kind in kinds]
    return min([reach for reach in reached if reach is not None], default=None)


def trained_positions(kind: str | None, rope: Mapping[str, Any], longest: int | None) -> int | None:
    """Positions that scaled rotary angles are made for; `longest`: max_position_embeddings.

    yarn and linear stretch the positions by their factor. longrope changes all angles at its
    border, which a text must not cross. llama3's `longest` is stretched already. dynamic would
    stretch by the longest position of a pass, so a tree would get other angles than plain decoding:
    it ends where the angles begin to change.
    """
    original = rope.get("original_max_position_embeddings") or longest
    stretched = {"yarn": original, "linear": longest}.get(str(kind))
    if stretched and rope.get("factor"):
        return int(stretched * rope["factor"])
    if original and kind == "longrope":
        return min(longest or original, original)
    return longest
