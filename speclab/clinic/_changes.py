"""What may be wrong with a pass: hypotheses, each with the pass that it would be.

The same changes are tried for the target and for a draft.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
from torch import Tensor, inf

from speclab.clinic._faults import NO_WINDOW, final_norm, without_final_norm
from speclab.clinic._passes import BOTH, Passes
from speclab.clinic._plain import HeadReading
from speclab.models.masks import MaskPlan
from speclab.models.runner import Runner
from speclab.tree import Bools

LEAST_RANKS = 4
"""Recorded tokens of a row from which on their probabilities tell it apart from other rows."""
SCAN = 4096
"""Most copies of rows that one scan runs: a second on a laptop."""
NEAR = 17
"""Positions around its own that are tried for each wrong row: padding is seldom wider."""
MARKS = 40
"""Ends of hidden ranges of the prefix that are tried first, before the best range's own ends."""
MOST = 64
"""Most sets of kept rows of one kind that are tried."""
SHORT = range(1, 5)
"""Entries by which a prefix may end too early."""
PADS = range(1, 17)
"""Padding tokens before a prompt."""
SHOWN = 3
"""Rows that a sentence names."""

MIXED_IDS = "probabilities are right and ids are not ({}): look at the map of ids"
OTHER_IDS = "token ids are {:+d} off: look at the map from the draft's vocabulary"
OTHER_POSITIONS = "rows have wrong positions ({})"
OTHER_ROWS = "rows answer with other rows {} ({})"
OTHER_TOKENS = "rows have other tokens ({})"
PARTLY_KEPT = "{} of the cache kept the first rows"
REREAD = "the cache kept rows {} of iteration {}, and the committed tokens were read behind them"
UNREAD = "the draft has not read the newest token"
FOLLOWING = ", and positions follow its own cache"


@dataclass(frozen=True)
class Change:
    """A hypothesis: what the engine did, and what it would have answered.

    `kind`: of the finding. `says`: a clause for a sentence. `run`: logits `[n, V]`. `fault`: the name
    in `clinic.FAULTS`, if any. `weight`: how much better it must fit than a simpler one, in nats.
    `ranks`: compare the recorded probabilities in their order, whatever tokens they belong to.
    """

    kind: str
    says: str
    run: Callable[[], Tensor]
    fault: str = ""
    weight: float = 0.0
    ranks: bool = False


def _pass(
    passes: Passes, make: Callable[[], Runner] | None = None, shift: int = 0, **given: Any
) -> Callable[[], Tensor]:
    """A pass whose rows are given other tokens, positions, entries or tree; on the runner that `make`
    makes, with all positions shifted."""
    rows = replace(passes.own, **given)
    return partial(passes.run, replace(rows, positions=rows.positions + shift), make)


def answers(passes: Passes) -> Iterator[Change]:
    """The pass was right, and its answers were taken wrongly."""
    logits = passes.logits
    root = logits.clone()
    root[0] = -inf
    root[0, passes.step.tree.token[1:2].tolist()] = 0
    says = "the root answers with the first drafted token"
    yield Change("choice", says, lambda: root, "unverified first token")
    yield _other_rows(passes, "answer", logits, "of this pass")
    if passes.rejected is not None:
        yield _other_rows(passes, "stale_logits", passes.rejected, "of the pass before")
    top = dict(passes.step.nodes[passes.first].target_top)
    tokens = list(top)
    off = tokens[0] - int(logits[passes.first].argmax())
    yield Change("ids", OTHER_IDS.format(off), lambda: logits.roll(off, -1))
    says = MIXED_IDS.format(_mixed_ids(passes))
    yield Change("ids", says, lambda: logits, weight=1.0, ranks=True)
    if len(top) > 2:  # two values fit some temperature, whatever they are
        given = torch.tensor(list(top.values())).clamp_min(1e-30).log()
        spread = logits[passes.first, tokens].std(correction=0) / given.std(correction=0)
        heat = float(spread)
        says = f"the logits are at temperature {heat:.3g}"
        yield Change("temperature", says, lambda: logits / heat * passes.oracle.heat)


def _other_rows(passes: Passes, kind: str, logits: Tensor, whose: str) -> Change:
    """Each wrong row with the best of these answers."""
    changed = passes.logits.clone()
    which = []
    for row in passes.wrong:
        node = passes.step.nodes[row]
        others = passes.oracle.log_probs(passes.step, logits, [row] * len(logits))
        best = int(np.argmin([passes.oracle.gap(node, other) for other in others]))
        changed[row] = logits[best]
        which.append(f"row {row} with row {best}")
    says = OTHER_ROWS.format(whose, ", ".join(which[:SHOWN]))
    return Change(kind, says, lambda: changed, weight=0.1 * len(which))


def _mixed_ids(passes: Passes) -> str:
    """Recorded ids beside those that have their ranks, where they differ."""
    pairs: dict[int, int] = {}
    for row in passes.wrong:
        recorded = dict(passes.step.nodes[row].target_top)
        if len(recorded) >= LEAST_RANKS:
            best = passes.logits[row].topk(len(recorded)).indices.tolist()
            for given, own in zip(recorded, best, strict=True):
                if given != own:
                    pairs.setdefault(given, own)
    which = [f"{given} in the place of {own}" for given, own in pairs.items()]
    return ", ".join(which[:SHOWN])


def states(passes: Passes) -> Iterator[Change]:
    """Other states that a head may have read."""
    oracle = passes.oracle
    assert oracle.head is not None
    for which, reading in oracle.head.others(oracle.runner):
        says = f"the head {reading.head.name} reads the states of the {which}"
        yield Change("states", says, partial(_other_states, passes, reading))


def _other_states(passes: Passes, reading: HeadReading) -> Tensor:
    return passes.oracle.passes("float32", head=reading)(passes.step)


def positions(passes: Passes) -> Iterator[Change]:
    """Along the rows, what fits row by row, and all off by what fits the first wrong row."""
    own = passes.own.positions
    along = own[0] + np.arange(passes.n)
    says = "positions are counted along the rows"
    yield Change("position", says, _pass(passes, positions=along), "wrong positions")
    most = passes.right.context or NO_WINDOW
    near = {}
    for row in passes.wrong:
        around = range(max(0, own[row] - NEAR), min(own[row] + NEAR, most))
        near[row] = [0, int(own[0])] + list(around)
    rows, moved = passes.best("positions", near)
    values = rows.positions
    which = [f"row {row} at {values[row]} instead of {own[row]}" for row in moved[:SHOWN]]
    says = OTHER_POSITIONS.format(", ".join(which))
    yield Change("position", says, partial(passes.run, rows), weight=0.3 * len(moved))
    shift = int(values[passes.first] - own[passes.first])
    off = f"positions are {abs(shift)} too {'high' if shift > 0 else 'low'}"
    yield Change("position", f"all {off}", _pass(passes, shift=shift), "padded positions")
    drafted = own.copy()
    drafted[1:] += shift
    run = _pass(passes, positions=drafted)
    yield Change("position", f"drafted {off}", run, "wrong positions")


def masks(passes: Passes) -> Iterator[Change]:
    """All rows see too much or too little of the tree."""
    for says, tree in _wrong_masks(passes).items():
        fault = "sibling visible" if "siblings" in says else ""
        yield Change("mask", says, _pass(passes, tree=tree), fault)


def _wrong_masks(passes: Passes) -> dict[str, Bools]:
    """Wrong masks by what they do."""
    own = passes.own.tree
    n = passes.n
    rows = np.arange(n)
    parent = passes.step.tree.parent
    depth = passes.step.tree.depth
    eye = np.eye(n, dtype=np.bool_)
    above = (parent[:, None] == rows[None]) & (rows[:, None] > 0)
    siblings = parent[:, None] == parent[None]
    root = np.tile(rows == 0, (n, 1))
    named = {
        "rows see the siblings before them": own | np.tril(siblings),
        "rows see all of their siblings": own | siblings,
        "rows see all rows of lower depth": (depth[:, None] > depth[None]) | eye,
        "rows see all rows of their own and of lower depth": depth[:, None] >= depth[None],
        "rows see all rows before them, as in a chain": np.tri(n, dtype=np.bool_),
        "rows see only their parent": eye | above,
        "rows see no other row": eye,
        "no row sees the root": own & ~(root & ~eye),
        "drafted rows do not see themselves": own & ~(eye & ~root),
        "rows see all rows": np.ones((n, n), dtype=np.bool_),
        "the mask is transposed": own.T,
        "the mask is one column off": np.roll(own, 1, 1) | eye,
    }
    if passes.before is not None:
        old = eye.copy()
        earlier = passes.before.tree.ancestor_mask()[:n, :n]
        old[: len(earlier), : len(earlier)] = earlier
        named["rows have the mask of the iteration before"] = old
    for other in np.flatnonzero(depth == depth[passes.first]).tolist():
        order = rows.copy()
        order[[passes.first, other]] = other, passes.first
        named[f"the masks of rows {passes.first} and {other} are exchanged"] = own[order]
    return named


def prefixes(passes: Passes) -> Iterator[Change]:
    """The range of the prefix that the first wrong row does not see: coarse, then each end."""
    length = len(passes.text)
    for short in SHORT:
        if short < length:
            entries = np.tile(_without(passes, length - short, length), (passes.n, 1))
            says = f"the prefix ends {short} entries earlier"
            yield Change("prefix", says, _pass(passes, entries=entries, shift=-short))
    stride = max(1, length // MARKS)
    marks = list(range(0, length, stride)) + [length]
    ranges = list(combinations(marks, 2))
    first = stop = 0
    for _ in range(3):
        hidden = {}
        for start, end in ranges:
            if 0 <= start < end <= length and end - start < length:
                hidden[start, end] = _without(passes, start, end)
        if not hidden:
            return
        gaps = passes.copies(passes.first, "entries", list(hidden.values()), passes.own)
        first, stop = list(hidden)[int(np.argmin(gaps))]
        ranges = []
        for move in range(-stride, stride + 1):
            ranges.append((first + move, stop))
            ranges.append((first, stop + move))
    entries = passes.own.entries.copy()
    entries[passes.wrong] = _without(passes, first, stop)
    says = f"wrong rows do not see entries {first} to {stop - 1} of the prefix"
    if len(passes.wrong) == passes.n:
        says = f"no row sees entries {first} to {stop - 1} of the prefix"
    yield Change("prefix", says, _pass(passes, entries=entries))


def _without(passes: Passes, first: int, stop: int) -> Bools:
    """The entries `[c]` that a row sees if a range of the prefix is hidden."""
    entries: Bools = passes.own.entries[0].copy()
    entries[np.flatnonzero(entries)[first:stop]] = False
    return entries


def kept_rows(passes: Passes) -> Iterator[Change]:
    """Rejected rows of the iteration before that stayed, or took the place of kept ones."""
    if passes.before is None:
        return
    count = passes.right.length - passes.start
    for rows in _kept(passes.path, count):
        if len(rows) > count or rows == passes.path:
            continue
        says = f"iteration {passes.step.index} kept rows {rows} instead of {passes.path}"
        make = partial(passes.written, rows)
        more = len(rows) - len(passes.path)
        if not more:
            yield Change("order", says, _pass(passes, make), weight=0.2)
            continue
        for shift in (0, more):
            run = _pass(passes, make, shift)
            yield Change("prefix", says, run, "phantom KV rows", 0.2)


def reread(passes: Passes) -> Iterator[Change]:
    """Rows of the iteration before that stayed in a draft's cache, which reads committed tokens again."""
    if passes.before is None or not passes.oracle.drafts:
        return
    count = passes.right.length - passes.start
    stale = [[row] for row in range(1, count)]
    stale += [list(range(1, stop)) for stop in range(3, count + 1)]
    for rows in stale[:MOST]:
        says = REREAD.format(rows, passes.step.index)
        yield Change("prefix", says, _pass(passes, partial(passes.reread, rows)), weight=0.2)
        # positions follow the cache
        more = len(rows)
        make = partial(passes.reread, rows, more)
        yield Change("prefix", says + FOLLOWING, _pass(passes, make, more), weight=0.2)


def unread(passes: Passes) -> Iterator[Change]:
    """A draft that lags one token behind: its root answers as the row before, and no row sees the root."""
    length = len(passes.text)
    if not passes.oracle.drafts or not length:
        return
    given = deepcopy(passes.own)
    given.tokens[0] = passes.text[-1]
    given.positions[0] -= 1
    given.entries[0] = _without(passes, length - 1, length)
    given.tree[1:, 0] = False
    yield Change("prefix", UNREAD, partial(passes.run, given))
    following = deepcopy(given)
    following.positions[1:] -= 1
    yield Change("prefix", UNREAD + FOLLOWING, partial(passes.run, following))


def _kept(path: list[int], count: int) -> Iterator[list[int]]:
    """Rows that may have been kept of so many, in the place of those of the path."""
    every = list(range(count))
    rejected = [row for row in every if row not in path]
    for held in range(2, len(path) + 1):
        # a draft keeps the rows that it ran, and runs the rest of the path again
        yield every[:held] + path[held:]
    yield every
    yield every[-len(path) :]
    yield [0] + path
    yield path[:-1] + [0]
    yield path[:1] + [min(row + 1, count - 1) for row in path[1:]]
    for row in rejected[:MOST]:
        yield path + [row]
    for gone, other in list(product(path, rejected))[:MOST]:
        yield sorted(set(path) - {gone} | {other})


def seen_rows(passes: Passes) -> Iterator[Change]:
    """Which rows a row sees, put together row by row."""
    own = passes.own.tree
    shapes = _wrong_masks(passes).values()
    one = np.eye(passes.n, dtype=np.bool_)
    options: dict[int, Sequence[Any]] = {}
    for row in passes.wrong[: SCAN // passes.n]:
        seen = [own[row]]
        seen += list(own[row] ^ one)  # one row more, or less
        seen += [shape[row] for shape in shapes]
        options[row] = list(np.array(seen) | one[row])  # a copy always sees itself
    rows, moved = passes.best("tree", options)
    which = []
    for row, other in np.argwhere(rows.tree != own)[:SHOWN].tolist():
        verb = "sees" if rows.tree[row, other] else "does not see"
        which.append(f"row {row} {verb} row {other}")
    says = f"the mask is wrong ({', '.join(which)})"
    yield Change("mask", says, partial(passes.run, rows), weight=0.3 * len(moved))


def tokens(passes: Passes) -> Iterator[Change]:
    """Other tokens, put together row by row: those of this pass, of the one before, and of the text."""
    ids = passes.own.tokens.tolist()
    last = passes.oracle.pair.vocab_size - 1
    near = {0, last}.union(ids, passes.oracle.text[-8:])
    if passes.before is not None:
        near.update(passes.before.tree.token.tolist())
    options = {}
    for row in passes.wrong:
        options[row] = list(near) + [max(ids[row] - 1, 0), min(ids[row] + 1, last)]
    rows, moved = passes.best("tokens", options)
    texts = passes.oracle.pair.token_texts(rows.tokens[moved[:SHOWN]].tolist())
    which = [f"row {row} has {texts[int(rows.tokens[row])]!r}" for row in moved[:SHOWN]]
    says = OTHER_TOKENS.format(", ".join(which))
    yield Change("token", says, partial(passes.run, rows), weight=0.4 * len(moved))


def texts(passes: Passes) -> Iterator[Change]:
    """Another text in the cache; in the first iteration another prompt, or padding before it."""
    text = list(passes.text)
    others = {"the prefix contains the root too": text + [int(passes.own.tokens[0])]}
    if passes.oracle.drafts:
        others["the token before the newest one is missing in the draft's cache"] = text[:-1]
    if passes.step.index == 0:
        start = getattr(passes.oracle.pair.tokenizer, "bos_token_id", None) or 0
        others["the prompt begins with one start token more"] = [start] + text
        others["the prompt's first token is in the cache twice"] = text[:1] + text
        others["the prompt's first token is missing"] = text[1:]
        others["the token before the root is in the cache twice"] = text + text[-1:]
        for pads in PADS:
            padding = [0] * pads
            places = padding + list(range(len(text)))
            make = partial(passes.fresh, padding + text, places=places)
            says = f"rows see {pads} padding tokens before the prompt"
            yield Change("prefix", says, _pass(passes, make))
    for says, other in others.items():
        make = partial(passes.fresh, other)
        for shift in (0, len(other) - len(text)):
            yield Change("prefix", says, _pass(passes, make, shift))


def caches(passes: Passes) -> Iterator[Change]:
    """Keys, values or a layer in which the first rows of the step before stayed, uncopied."""
    if passes.before is None:
        return
    rows = range(len(passes.path))
    for part in BOTH:
        make = partial(passes.written, rows, (part,))
        yield Change("cache", PARTLY_KEPT.format(f"only the {part}"), _pass(passes, make))
    for layer in range(len(passes.right.cache.layers)):
        make = partial(passes.written, rows, only=layer)
        yield Change("cache", PARTLY_KEPT.format(f"layer {layer}"), _pass(passes, make))


def models(passes: Passes) -> Iterator[Change]:
    """The window and the final norm."""
    plan = passes.right.plan
    if plan.window is not None:
        says = "the model ignores its sliding window"
        make = partial(passes.fresh, passes.text, window=NO_WINDOW)
        yield Change("window", says, _pass(passes, make), "window run as full attention")
        says = "only the tree's pass ignores the sliding window"
        runner = passes.written(passes.path)
        runner.plan = MaskPlan(NO_WINDOW, plan.kinds)
        yield Change("window", says, _pass(passes, lambda: runner))
    if final_norm(passes.oracle.model):
        model = without_final_norm(passes.oracle.model)
        make = partial(passes.fresh, passes.text, model=model)
        yield Change("norm", "the final norm is left out", _pass(passes, make))


GROUPS = (
    (answers, positions, masks, prefixes, kept_rows, reread, unread),
    (seen_rows, tokens),
    (texts, caches, models),
)
"""All changes, the fastest first."""
OF_HEADS = ((answers, states),)
"""Those of a head, which runs no trees by itself."""
