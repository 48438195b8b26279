"""A runner without a model: next-token distributions come from a function of the visible tokens.

It keeps slots of (token, position) and sees only what the mask shows it, so a wrong mask, position
or kept slot raises or changes the answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np
import torch

from speclab.models.answer import Answer
from speclab.models.runner import Runner
from speclab.models.source import DraftSource, Kept, State, TreeRows
from speclab.pair import ModelPair

DistributionFn = Callable[[tuple[int, ...]], Sequence[float]]


def random_probs(vocab_size, seed, low=0.3, high=5.0):
    """A distribution without ties, the same for the same path, from nearly flat to nearly certain."""
    seen: dict[tuple[int, ...], np.ndarray] = {}

    def probs(path):
        if path not in seen:
            noise = random.Random(repr((seed, path)))
            scale = noise.uniform(low, high)
            weights = np.exp([scale * noise.gauss(0, 1) for _ in range(vocab_size)])
            seen[path] = weights / weights.sum()
        return seen[path]

    return probs


def mixed_probs(one, other, share):
    """`share` of the second distribution in the first: a draft that agrees with its target most of the time."""
    return lambda path: (1 - share) * np.asarray(one(path)) + share * np.asarray(other(path))


class TableRunner(DraftSource):
    """The contract of `speclab.models.runner.Runner`, over a distribution instead of a model."""

    family = "table"
    forward_name = "probs"
    device = torch.device("cpu")
    dtype = torch.float32
    slot_bytes = 16
    state = State(None, admitted=True)
    after_text = Runner.after_text
    after_nodes = Runner.after_nodes
    keep_path = Runner.keep_path
    fill = Runner.fill
    run_rows = Runner.run_rows
    _tree = TreeRows()

    def __init__(self, probs, vocab_size, context=None, eos=None):
        self.probs = probs
        self.vocab_size = self.known = vocab_size
        self.context = context
        self.eos = eos
        self.name = "table"
        self.model = _model(eos)
        self.slots: list[tuple[int, int]] = []
        self.kept = Kept(0, 0, ())
        self.calls = 0
        self.rows = 0
        self._given: tuple[np.ndarray, list[int]] = (np.ones((0, 0), bool), [])

    @property
    def length(self):
        return len(self.slots)

    @property
    def capacity(self):
        return -(-len(self.slots) // 64) * 64

    @property
    def tokens(self):
        """The text in the cache; every slot must hold its own position."""
        assert [position for _, position in self.slots] == list(range(len(self.slots)))
        return [token for token, _ in self.slots]

    def logits(self, tokens, positions=None, visible=None, *, topk=0):
        length = len(self.slots)
        count = len(tokens)
        if positions is None:
            causal = np.tri(count, dtype=bool)
            return Answer(self._pass(tokens, range(length, length + count), causal)[-1:])
        answer = Answer(self._pass(tokens, positions, visible))
        self._given = (self._whole[:, length:].copy(), self._whole[:, :length].sum(axis=1).tolist())
        return answer

    def _pass(self, tokens, positions, visible):
        tokens = [int(t) for t in tokens]
        positions = [int(p) for p in positions]
        visible = np.asarray(visible)
        length = len(self.slots)
        count = len(tokens)
        columns = visible.shape[1]
        assert visible.dtype == np.bool_
        assert count == len(positions) == visible.shape[0] > 0
        assert count <= columns <= length + count, "the mask's columns end at the last new row"
        assert all(0 <= token < self.vocab_size for token in tokens)
        assert self.context is None or max(positions) < self.context
        slots = self.slots + list(zip(tokens, positions, strict=True))
        self._whole = np.ones((count, length + count), bool)
        self._whole[:, length + count - columns :] = visible
        rows = [self._row(slots, self._whole[row], length + row) for row in range(count)]
        self.slots = slots
        self.calls += 1
        self.rows += count
        with np.errstate(divide="ignore"):
            return torch.tensor(np.log(np.array(rows)), dtype=torch.float32)

    def _row(self, slots, visible, own):
        assert visible[own], "a row sees itself"
        assert not visible[own + 1 :].any(), "no row sees a later one"
        seen = sorted((slots[slot][1], slots[slot][0]) for slot in np.flatnonzero(visible).tolist())
        assert [position for position, _ in seen] == list(range(len(seen))), (
            "a path has one token a position"
        )
        assert seen[-1] == (slots[own][1], slots[own][0]), "a row is the last of its path"
        return self.probs(tuple(token for _, token in seen))

    def keep(self, prefix, slots):
        slots = [int(slot) for slot in slots]
        assert 0 <= prefix <= len(self.slots)
        assert all(prefix <= slot < len(self.slots) for slot in slots)
        assert slots == sorted(set(slots)), "slots to keep are increasing"
        self.kept = Kept(len(self.slots), prefix, tuple(slots))
        self.slots = self.slots[:prefix] + [self.slots[slot] for slot in slots]
        assert self.tokens is not None

    def crop(self, length):
        assert 0 <= length <= len(self.slots)
        self.kept = Kept(len(self.slots), length, ())
        self.slots = self.slots[:length]

    def fork(self, length=0, target=None, *, lean=True):
        other = type(self)(self.probs, self.vocab_size, self.context, self.eos)
        other.slots = self.slots[:length]
        return other

    def check_unchanged(self, whole=False):
        pass

    def watch(self, layers):
        assert not layers, "it has no hidden states"

    def mask_given(self):
        return self._given


def _model(eos):
    """What a pair asks a module about."""
    config = SimpleNamespace(eos_token_id=eos, _attn_implementation="table")
    config.get_text_config = lambda decoder: config
    return SimpleNamespace(
        config=config, generation_config=config, num_parameters=lambda: 0, parameters=list
    )


def table_pair(target, draft, vocab_size, context=None, eos=None):
    """A pair of table runners, without a tokenizer."""
    runners = [probs and TableRunner(probs, vocab_size, context, eos) for probs in (target, draft)]
    return ModelPair(*runners, name="tables")
