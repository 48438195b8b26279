"""What may be wrong with the rows of a pass: changes to try, and scans that measure which one fits a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from speclab.clinic._faults import NO_WINDOW, final_norm, without_final_norm
from speclab.clinic._passes import UNCHANGED, Change, ChangedPasses
from speclab.clinic._plain import FLOOR, Measured, Oracle, gap_of
from speclab.models.masks import Mask, MaskPlan
from speclab.models.runner import Runner
from speclab.trace.records import Step
from speclab.tree import Bools

ALMOST_ONE = 1 - 1e-6
"""A probability that a model's own answer hardly has."""
SCAN = 4096
"""Most copies of rows that one scan runs."""
NEAR = 17
"""Positions around its own that are tried for each wrong row."""
MARKS = 40
"""Ends of hidden ranges of the prefix that are tried first."""
PADS = range(1, 17)
SOFT = (-1.0, -2.0, -4.0, -8.0)
"""What a mask may add instead of minus infinity; -1 as a boolean mask that is added does."""
BOTH = "keys values"
MOST = 64
"""Most sets of rows of one kind that are tried."""


class Search(ChangedPasses):
    """Changes of the pass of one wrong iteration."""

    def __init__(self, oracle: Oracle, measured: Measured, before: Step | None = None) -> None:
        super().__init__(oracle, measured.step, before)
        self.measured = measured
        self.wrong = list(measured.wrong)
        self.shown = self.entries

    def simple(self) -> Iterator[Change]:
        """Changes of all rows alike; the first wrong row tells the amount."""
        yield from self._answers()
        yield from self._positions()
        for says, tree in self._masks().items():
            fault = "sibling visible" if "siblings" in says else ""
            yield Change("mask", says, tree=tree, fault=fault)
        yield from self._prefix()
        if self.before is not None:
            yield from self._kept_rows()

    # Answers.

    def _answers(self) -> Iterator[Change]:
        logits = self.logits()
        taken = self.tokens[1] if self.n > 1 else None
        top = self.step.nodes[0].target_top
        if taken is not None and top and top[0][0] == taken and top[0][1] >= ALMOST_ONE:
            says = "the root answers with the first drafted token"
            fault = "unverified first token"
            yield Change("choice", says, after=lambda rows: _one_hot(rows, taken), fault=fault)
        yield from self._other_rows("answer", logits, "of this pass")
        if self.rejected is not None:
            yield from self._other_rows("stale_logits", self.rejected, "of the pass before")
        heat = self._heat(logits)
        if heat and abs(heat - 1) > 0.01:
            says = f"the logits are at temperature {heat:.3g}"
            yield Change("temperature", says, after=lambda rows: rows / heat)

    def _other_rows(self, kind: str, logits: Tensor, whose: str) -> Iterator[Change]:
        """Each wrong row with the best of these answers."""
        order = {}
        for row in self.wrong:
            top = self.step.nodes[row].target_top
            rows = self.oracle.log_probs(self.step, logits, [row] * len(logits))
            if top:
                order[row] = int(np.argmin([gap_of(top, other) for other in rows]))
        if all(row == other for row, other in order.items()) and kind == "answer":
            return
        which = ", ".join(f"row {row} with row {other}" for row, other in [*order.items()][:3])

        def after(rows: Tensor) -> Tensor:
            changed = rows.clone()
            changed[list(order)] = logits[list(order.values())].to(rows.dtype)
            return changed

        says = f"rows answer with other rows {whose} ({which})"
        yield Change(kind, says, after=after, weight=0.1 * len(order))

    def _heat(self, logits: Tensor) -> float:
        """The temperature that fits the recorded log-probabilities of the wrong rows best."""
        own = self.oracle.log_probs(self.step, logits)
        ratios = []
        for row in self.wrong:
            top = self.step.nodes[row].target_top
            recorded = np.log([max(prob, 1e-9) for _, prob in top])
            expected = own[row][[token for token, _ in top]].double().numpy()
            known = (recorded > FLOOR) & (expected > FLOOR)
            if known.sum() > 2:
                ratios.append(expected[known].std() / max(recorded[known].std(), 1e-9))
        return float(np.median(ratios)) if ratios else 0.0

    # Positions.

    def _positions(self) -> Iterator[Change]:
        """Along the rows, as recorded, or off by what fits the first wrong row best."""
        own = np.array(self.positions)
        wrong = "wrong positions"
        rows = np.arange(self.n)
        yield self._at(own[0] + rows, "positions are counted along the rows", wrong)
        if self.step.position:
            yield self._at(self.step.position, "the recorded positions are the real ones", wrong)
        row = self.wrong[0]
        end = min(self.most, self.positions[0] + 2 * self.n + 16)
        gaps = self.copies(row, "positions", range(end))
        for place in np.argsort(gaps)[:3].tolist():
            shift = place - int(own[row])
            which = f"positions are {abs(shift)} too {'high' if shift > 0 else 'low'}"
            yield self._at(own + shift, f"all {which}", "padded positions")
            yield self._at(own + shift * (rows > 0), f"drafted {which}", wrong)

    def _at(self, positions: Iterable[int], says: str, fault: str) -> Change:
        places = tuple([int(place) for place in positions])
        return Change("position", says, positions=places, fault=fault)

    # Masks.

    def _masks(self) -> dict[str, Bools]:
        """Wrong masks by what they do."""
        own = self.tree
        n = self.n
        rows = np.arange(n)
        parent = self.step.tree.parent
        depth = self.step.tree.depth
        eye = np.eye(n, dtype=np.bool_)
        above = (parent[:, None] == rows[None]) & (rows[:, None] > 0)
        siblings = parent[:, None] == parent[None]
        root = np.tile(rows == 0, (n, 1))
        named = {
            "rows see the siblings before them": own | np.tril(siblings),
            "rows see all of their siblings": own | siblings,
            "rows see all rows of lower depth": (depth[:, None] > depth[None]) | eye,
            "rows see all rows before them, as in a chain": np.tri(n, dtype=np.bool_),
            "rows see only their parent": eye | above,
            "rows see only their parent and the root": eye | above | root,
            "rows see no other row": eye,
            "no row sees the root": own & ~(root & ~eye),
            "drafted rows do not see themselves": own & ~(eye & ~root),
            "rows see all rows": root | ~root,
            "the mask is transposed": own.T,
            "the mask is one column off": np.roll(own, 1, 1) | eye | root,
            "the recorded mask is the real one": self.step.mask,
        }
        if self.before is not None:
            old = eye.copy()
            earlier = self.before.tree.ancestor_mask()[:n, :n]
            old[: len(earlier), : len(earlier)] = earlier
            named["rows have the mask of the iteration before"] = old
        row = self.wrong[0]
        for other in np.flatnonzero(depth == depth[row]).tolist():
            order = rows.copy()
            order[[row, other]] = other, row
            named[f"the masks of rows {row} and {other} are exchanged"] = own[order]
        return named

    # The prefix, and the rows kept of the iteration before.

    def _prefix(self) -> Iterator[Change]:
        """The range of the prefix that the first wrong row does not see: coarse, then each end."""
        length = len(self.kept)
        row = self.wrong[0]
        stride = max(1, length // MARKS)
        ranges = [*combinations([*range(0, length, stride), length], 2)]
        for _ in range(3):
            ranges = [(a, b) for a, b in ranges if 0 <= a < b <= length and b - a < length]
            if not ranges:
                return
            gaps = self.copies(row, "entries", [self._without(*ends) for ends in ranges])
            best = ranges[int(np.argmin(gaps))]
            near = range(-stride, stride + 1)
            ranges = [(best[0] + move, best[1]) for move in near]
            ranges += [(best[0], best[1] + move) for move in near]
        if min(gaps) >= self.measured.gaps[row] / 2:
            return
        first, stop = best
        hidden = self._without(first, stop)
        what = f"entries {first} to {stop - 1} of the prefix"
        groups = {
            f"no row sees {what}": list(range(self.n)),
            f"drafted rows do not see {what}": list(range(1, self.n)),
            f"wrong rows do not see {what}": self.wrong,
        }
        for says, rows in groups.items():
            entries = np.tile(self.shown, (self.n, 1))
            entries[rows] = hidden
            yield Change("prefix", says, entries=entries)
        if stop == length:
            short = tuple([place - (stop - first) for place in self.positions])
            says = f"the prefix ends {stop - first} entries earlier"
            yield Change("prefix", says, entries=hidden, positions=short)

    def _without(self, first: int, stop: int) -> Bools:
        entries = self.shown.copy()
        entries[self.kept[first:stop]] = False
        return entries

    def _kept_rows(self) -> Iterator[Change]:
        """Rejected rows of the iteration before that stayed, or took the place of kept ones."""
        iteration = self.step.index
        path = self.path
        rejected = [row for row in range(self.right.length - self.start) if row not in path]
        for stale in rejected[:MOST]:
            says = f"rejected row {stale} of iteration {iteration} stays in the cache"
            entries = self._with([*path, stale])
            change = Change("prefix", says, entries=entries, fault="phantom KV rows", weight=0.2)
            yield from (change, self.moved(change, 1))
        for gone, other in [*product(path, rejected)][:MOST]:
            kept = sorted({*path, other} - {gone})
            says = f"iteration {iteration} kept rows {kept} instead of {path}"
            yield Change("order", says, entries=self._with(kept), weight=0.2)

    def _with(self, rows: Iterable[int]) -> Bools:
        """Of the iteration before, these rows."""
        start = self.start
        entries = self.shown.copy()
        entries[start:] = False
        entries[[start + row for row in rows]] = True
        return entries

    # Row by row.

    def scanned(self) -> Iterator[Change]:
        """Changes that scans put together row by row: positions, masks, tokens."""
        own = self.positions
        near = {row: range(max(0, own[row] - NEAR), own[row] + NEAR) for row in self.wrong}
        places = {row: sorted({0, own[0], *range_}) for row, range_ in near.items()}
        values = self._scan("positions", own, places)
        moved = [row for row in self.wrong if values[row] != own[row]]
        at = [f"row {row} at {values[row]} instead of {own[row]}" for row in moved]
        if moved:
            says = f"rows have wrong positions ({', '.join(at[:3])})"
            yield self._at(values, says, "")._replace(weight=0.3 * len(moved))
        yield from self._scanned_masks()
        texts = self.oracle.pair.token_texts
        tokens = self._scan("tokens", self.tokens, self._token_options())
        moved = [row for row in self.wrong if tokens[row] != self.tokens[row]]
        if moved:
            has = [f"row {row} has {texts([tokens[row]])[tokens[row]]!r}" for row in moved[:3]]
            says = f"rows have other tokens ({', '.join(has)})"
            yield Change("token", says, tokens=tuple(tokens), weight=0.4 * len(moved))

    def _scan(
        self, what: str, own: Iterable[Any], options: Mapping[int, Sequence[Any]]
    ) -> list[Any]:
        """For each row, the option that cuts its gap to a third, given the choices for earlier rows."""
        values = list(own)
        for row, choices in options.items():
            given: dict[str, Any] = {what: tuple(values)}
            gaps = self.copies(row, what, choices, UNCHANGED._replace(**given))
            if min(gaps) < self.measured.gaps[row] / 3:
                values[row] = choices[int(np.argmin(gaps))]
        return values

    def _scanned_masks(self) -> Iterator[Change]:
        """What each wrong row sees: one row more or less, or as in a wrong mask."""
        own = self.tree
        rows = np.arange(self.n)
        shapes = [*self._masks().values()]
        options = {
            row: [
                own[row],
                *[own[row] ^ (rows == at) for at in rows],
                *[shape[row] for shape in shapes],
            ]
            for row in self.wrong[: SCAN // self.n]
        }
        tree = np.array(self._scan("tree", own, options))
        changed = np.argwhere(tree != own).tolist()
        if changed:
            sees = {True: "sees", False: "does not see"}
            which = [f"row {row} {sees[bool(tree[row, at])]} row {at}" for row, at in changed[:3]]
            weight = 0.3 * len({row for row, _ in changed})
            says = f"the mask is wrong ({', '.join(which)})"
            yield Change("mask", says, tree=tree, weight=weight)

    def _token_options(self) -> dict[int, list[int]]:
        own = self.tokens
        size = self.oracle.pair.target.vocab_size
        known = {*own, *self.oracle.text[-8:], 0, size - 1}
        if self.before is not None:
            known |= {*self.before.tree.token.tolist()}
        return {
            row: sorted(known | {max(own[row] - 1, 0), min(own[row] + 1, size - 1)})
            for row in self.wrong
        }


def _one_hot(rows: Tensor, token: int) -> Tensor:
    changed = rows.clone()
    changed[0] = -torch.inf
    changed[0, token] = 0
    return changed


@dataclass(frozen=True)
class SoftPlan(MaskPlan):
    """A mask that adds `hidden` instead of the lowest number."""

    hidden: float = 0.0

    def build(self, *given: Any) -> Mask:
        mask = super().build(*given)
        if isinstance(mask, dict):
            return {kind: rows.clamp_min(self.hidden) for kind, rows in mask.items()}
        assert mask is not None
        return mask.clamp_min(self.hidden)


def variants(passes: ChangedPasses) -> Iterator[Change]:
    """Changes of the cache's contents, of the mask's numbers and of the model."""
    target = passes.oracle.pair.target
    if target.plan.window is not None:
        fault = "window run as full attention"
        wide = partial(ChangedPasses.fresh, window=NO_WINDOW)
        yield Change("window", "the model ignores its sliding window", make=wide, fault=fault)
        tree = partial(_planned, window=NO_WINDOW)
        yield Change("window", "only the tree's pass ignores the sliding window", make=tree)
    longer = partial(ChangedPasses.fresh, text=[*passes.text, passes.tokens[0]])
    twice = Change("prefix", "the prefix contains the root too", make=longer)
    yield from (twice, passes.moved(twice, 1))
    if passes.before is not None:
        yield from _caches(passes)
    for hidden in SOFT:
        says = f"hidden rows are masked by {hidden:.3g} instead of minus infinity"
        yield Change("mask", says, make=partial(_planned, plan=SoftPlan, hidden=hidden))
    if final_norm(passes.oracle.model):
        yield Change("norm", "the final norm is left out", make=_without_norm)
    if passes.step.index == 0:
        yield from _prompts(passes)
    if passes.oracle.drafts:
        hidden_entry = passes.entries
        hidden_entry[passes.kept[-1]] = False
        says = "the draft does not see the newest token"
        tokens = (passes.text[-1], *passes.tokens[1:])
        yield passes.moved(Change("token", says, tokens=tokens, entries=hidden_entry), -1)


def _planned(passes: ChangedPasses, plan: type[MaskPlan] = MaskPlan, **values: Any) -> Runner:
    """With other masks of the tree's pass alone."""
    runner = passes.copied()
    runner.plan = plan(**{"window": runner.plan.window, "kinds": runner.plan.kinds, **values})
    return runner


def _without_norm(passes: ChangedPasses) -> Runner:
    return passes.fresh(without_final_norm(passes.oracle.model))


def _prompts(passes: ChangedPasses) -> Iterator[Change]:
    """The prompt with padding before it, or with one token too many or too few."""
    text = list(passes.text)
    for pads in PADS:
        places = [*[0] * pads, *range(len(text))]
        make = partial(ChangedPasses.fresh, text=[*[0] * pads, *text], places=places)
        yield Change("prefix", f"rows see {pads} padding tokens before the prompt", make=make)
    start = getattr(passes.oracle.pair.tokenizer, "bos_token_id", None) or 0
    others = {
        "the prompt begins with one start token more": [start, *text],
        "the prompt's first token is missing": text[1:],
        "the token before the root is in the cache twice": [*text, *text[-1:]],
    }
    for says, tokens in others.items():
        change = Change("prefix", says, make=partial(ChangedPasses.fresh, text=tokens))
        yield change
        yield passes.moved(change, len(tokens) - len(text))


def _caches(passes: ChangedPasses) -> Iterator[Change]:
    """Entries of the iteration before that are empty, or those of other rows."""
    for part in ("keys", BOTH):
        says = f"the newest {part.replace(' ', ' and ')} of the cache are empty"
        yield Change("cache", says, make=partial(_emptied, part))
    path = passes.path
    n = passes.right.length - passes.start
    orders = {
        "the first rows": list(range(len(path))),
        "the last rows": list(range(n - len(path), n)),
        "the rows after the right ones": [min(row + (row > 0), n - 1) for row in path],
        "the right rows with the root in place of the last": [*path[:-1], 0],
        "the root twice": [0, *path],
        "all rows": list(range(n)),
    }
    for what, rows in orders.items():
        if rows == path or len(rows) > n:
            continue
        kept = f"kept {what}"
        make = partial(_written, rows, BOTH)
        says = f"iteration {passes.step.index} {kept}"
        if len(rows) > len(path):
            change = Change("prefix", says, make=make)
            yield from (change, passes.moved(change, len(rows) - len(path)))
            continue
        yield Change("order", says, make=make)
        for which in BOTH.split():
            says = f"only the {which} of the cache are those of {what}"
            yield Change("cache", says, make=partial(_written, rows, which))
        for layer in range(len(passes.right.cache.layers)):
            make = partial(_written, rows, BOTH, only=layer)
            yield Change("cache", f"layer {layer} {kept}", make=make)


@torch.inference_mode()
def _emptied(which: str, passes: ChangedPasses) -> Runner:
    runner = passes.copied()
    for layer in runner.cache.layers:
        for part in which.split():
            getattr(layer, part)[:, :, -1] = 0
    return runner


@torch.inference_mode()
def _written(
    rows: Sequence[int], which: str, passes: ChangedPasses, only: int | None = None
) -> Runner:
    """With other rows' keys or values of the step before, in all layers or one."""
    start = passes.start
    runner = passes.right.fork(passes.right.length, lean=False)
    runner.keep(start, range(start, start + len(rows)))  # so many entries; their contents follow
    layers = zip(runner.cache.layers, passes.right.cache.layers, strict=True)
    for index, (layer, right) in enumerate(layers):
        for part in BOTH.split():
            changed = part in which and only in (None, index)
            source = [start + row for row in (rows if changed else passes.path)]
            getattr(layer, part)[:, :, start:] = getattr(right, part)[:, :, source]
    return runner
