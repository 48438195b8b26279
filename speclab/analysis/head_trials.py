"""A draft head run over texts of its target, as it is loaded and otherwise: how often its guesses are right.

A text is the target's own: prompt and greedy continuation. At every place of the continuation a draft may begin, so a
text of a hundred tokens gives nearly a hundred chains: the first guess reads the target's states, each later one the
head's own output, behind the text's own tokens (n-α of EAGLE, Li et al. 2024, table 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from speclab.analysis.faults import final_norm
from speclab.models.forward import ModuleForward
from speclab.models.heads import HeadRunner
from speclab.models.probe import sharing_weights
from speclab.models.runner import Runner
from speclab.tree import Bools, Floats

DEPTH = 5
"""Drafted tokens in a row that are looked at."""
MOST_NATS = 12.0
"""What a token counts that a head cannot propose, or never would: one such place must not outweigh a hundred."""


class Text(NamedTuple):
    """Token ids of a text, of which the first `prompt` were given; `kind`: of its prompt."""

    tokens: tuple[int, ...]
    prompt: int
    kind: str

    @property
    def own(self) -> tuple[int, ...]:
        """What the target wrote."""
        return self.tokens[self.prompt :]


class States:
    """What the target makes of a text.

    Attributes:
        given: `[n, layers * hidden]`, what decoding hands the head.
        layers: by place in `hidden_states`, 0 the embeddings, each `[n, hidden]`.
        raw: the last layer's before the final norm; None where the target has no such norm.
        norm: that norm.
        probs: `[n, V]` float32, the distribution of the token after each place.
    """

    @torch.inference_mode()
    def __init__(self, target: Runner, wanted: Sequence[int], tokens: Sequence[int]) -> None:
        count, run = len(tokens), target.fork()
        run.watch(wanted)
        rows = run.forward(tokens, range(count), np.tri(count, dtype=np.bool_))
        self.probs = rows.float().softmax(-1)
        assert run.hidden is not None
        self.given = run.hidden.rows(0, count, wanted)
        # Of a copy: the library leaves hooks in a module whose hidden states are asked for, and lean passes give way.
        module, plain, raw = sharing_weights(target.model), target.fork(), list[Tensor]()
        plain.implementation = ModuleForward(module)
        plain.watch(range(depth_of(target) + 1))
        name = final_norm(module)
        self.norm: nn.Module | None = module.get_submodule(name) if name else None
        if self.norm is not None:
            self.norm.register_forward_pre_hook(lambda _, given: raw.append(given[0]))
        plain.extend(tokens)
        assert plain.hidden is not None
        self.layers = [plain.hidden.rows(0, count, [layer]) for layer in range(depth_of(target) + 1)]
        self.raw = raw[0].reshape(count, -1) if raw else None

    def at(self, layers: Sequence[int]) -> Tensor:
        """`[n, layers * hidden]`, those of some layers side by side."""
        return torch.cat([self.layers[layer] for layer in layers], dim=-1)


def depth_of(target: Runner) -> int:
    """Layers of the target."""
    return int(target.model.config.get_text_config(decoder=True).num_hidden_layers)


@dataclass(frozen=True)
class Way:
    """A way to run a head.

    Attributes:
        cause: what is wrong with the head as it is loaded, if this way is right.
        how: in a few words.
        runner: the head, perhaps changed.
        states: what it reads of a text, `[n, layers * hidden]`.
        out: what to do about it, where this way is right.
        depth: of the guess that it changes: 1 the first, which reads the target's states, 2 the one behind it.
    """

    cause: str
    how: str
    runner: HeadRunner
    states: Callable[[States], Tensor] = lambda states: states.given
    out: str = ""
    depth: int = 1


@dataclass(frozen=True)
class Guesses:
    """Guesses at places of texts: one row a place where a draft may begin, one column a depth, `[places, depth]`.

    Attributes:
        right: whether the first guess is the target's token, whatever became of the guesses before it.
        nats: -ln of the probability of the target's token, at most `MOST_NATS`.
        confidence: the head's probability of its first guess.
        target: the target's probability of it.
        known: whether the text goes on for so long.
    """

    right: Bools
    nats: Floats
    confidence: Floats
    target: Floats
    known: Bools

    @classmethod
    def joined(cls, parts: Sequence[Guesses]) -> Guesses:
        """Those of several texts, one after the other."""
        return cls(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)))

    @property
    def alive(self) -> Bools:
        """Whether every guess of the chain so far is right."""
        return np.logical_and.accumulate(self.right & self.known, axis=1)


@torch.inference_mode()
def guesses(way: Way, text: Text, states: States, depth: int = 1) -> Guesses:
    """What a head guesses at every place of a text where a draft may begin.

    Place `i` reads token `i + 1` and the state at `i`, and guesses token `i + 2`. Behind a drafted token a row reads
    the head's output of the row before it, and sees the places up to the first and its own ancestors.
    """
    runner, tokens, count = way.runner.fork(), text.tokens, len(text.tokens) - 2
    logits, features = runner.after_each(tokens[1:], way.states(states)[:-1])
    first = max(text.prompt - 1, 0)
    starts, rows, features = np.arange(first, count), logits.rows[first:count], features[first:count]
    found = Guesses(*(np.zeros((len(starts), depth), kind) for kind in (bool, float, float, float, bool)))
    own: list[NDArray[np.int64]] = []
    for level in range(min(depth, count - first)):
        if level:
            starts, features, held = starts[: count - level - first], features[: count - level - first], runner.length
            own = [each[: len(starts)] for each in own] + [held + np.arange(len(starts))]
            visible = np.arange(held + len(starts)) <= starts[:, None]
            for each in own:
                visible[np.arange(len(starts)), each] = True
            fed = [tokens[start + level + 1] for start in starts]
            logits, features = runner.forward(fed, features, (starts + level).tolist(), visible)
            rows = logits.rows
        wanted, here = torch.tensor(tokens)[starts + level + 2], slice(len(starts))
        found.known[here, level] = True
        judged = _judged(rows, logits.ids, wanted, states.probs[starts + level + 1].cpu())
        for column, values in zip((found.right, found.nats, found.confidence, found.target), judged, strict=True):
            column[here, level] = values
    return found


def _judged(rows: Tensor, ids: NDArray[np.int64] | None, wanted: Tensor, probs: Tensor) -> tuple[Tensor, ...]:
    """Whether the best of each row is `wanted`, whose nats, the probability of the best, and the target's of it."""
    log_probs = rows.float().log_softmax(-1).cpu()
    best = log_probs.max(-1)
    chosen = best.indices if ids is None else torch.from_numpy(ids)[best.indices]
    column = wanted
    if ids is not None:
        columns = torch.full((max(probs.shape[-1], int(ids.max()) + 1),), -1)
        columns[ids] = torch.arange(len(ids))
        column = columns[wanted]
    nats = -log_probs.gather(1, column.clamp(min=0)[:, None])[:, 0]
    nats[column < 0] = MOST_NATS
    theirs = probs.gather(1, chosen[:, None])[:, 0]
    return chosen == wanted, nats.clamp(max=MOST_NATS), best.values.exp(), theirs


@torch.inference_mode()
def row_offset(head: HeadRunner, text: Text, states: States) -> int | None:
    """How many positions too far drafted rows stand; None where they answer otherwise than any position gives.

    The last places of a text, run as drafted rows on the same states, must answer as they do when committed.
    """
    places = len(text.tokens) - 1
    rows = min(8, places // 2)
    start, fed = places - rows, text.tokens[places - rows + 1 :]
    committed, _ = head.fork().after_each(text.tokens[1:], states.given[:-1])
    wanted = committed.rows[start:].float().softmax(-1)
    features = head.model.fused(states.given[start:-1].to(head.dtype))
    for offset in (0, 1, -1, 2, -2, 64, -64):
        runner = head.fork()
        runner.after_each(text.tokens[1 : start + 1], states.given[:start])
        positions = [max(start + row - offset, 0) for row in range(rows)]
        drafted, _ = runner.forward(fed, features, positions, np.tri(rows, dtype=np.bool_))
        if float((drafted.rows.float().softmax(-1) - wanted).abs().max()) < _SAME[head.dtype.itemsize]:
            return offset
    return None


_SAME = {8: 1e-3, 4: 1e-3, 2: 0.03}
"""Difference of two probabilities, by bytes a number, that rounding may make."""
