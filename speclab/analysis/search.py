"""What may be wrong with the rows of a pass: changes to try, and scans that measure which one fits a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import exp, inf, log
from typing import Any

import numpy as np
import torch
from torch import Tensor

from speclab.analysis.detectors import path_of
from speclab.analysis.measure import Measured
from speclab.analysis.oracle import FLOOR, gap_of
from speclab.analysis.passes import Bench, Change, Variant
from speclab.tree import Bools

ALMOST_ONE = 1 - 1e-6
"""A probability that a model's own answer hardly has."""
SCAN = 4096
"""Most copies of rows that one scan runs."""
SHIFTS = tuple(shift for near in range(1, 17) for shift in (near, -near))
STALE = 3
"""Most rejected rows that a scan looks for."""


class Search:
    """Changes of the pass of one wrong iteration."""

    def __init__(self, bench: Bench, measured: Measured, base: Change) -> None:
        self.bench = bench
        self.step = measured.step
        self.measured = measured
        self.base = base
        self.wrong = list(measured.wrong)
        self.shown = bench.entries

    def simple(self) -> Iterator[Change]:
        """Changes that need only passes behind the right cache, or none."""
        yield from self._answers()
        yield from self._positions()
        yield from self._masks()
        yield from self._tokens()
        yield from self._kept_rows()

    def scanned(self) -> Iterator[Change]:
        """Changes that scans put together row by row."""
        for scan in (self._scan_positions, self._scan_prefix, self._scan_masks, self._scan_tokens):
            yield from scan()

    # Answers.

    def _answers(self) -> Iterator[Change]:
        logits = self.bench.logits(self.base._replace(after=None))
        taken = self.bench.tokens[1] if self.bench.n > 1 else None
        top = self.step.nodes[0].target_top
        if taken is not None and top and top[0][0] == taken and top[0][1] >= ALMOST_ONE:
            says = "the root answers with the first drafted token"
            yield Change(
                "choice",
                says,
                after=lambda rows: _one_hot(rows, taken),
                fault="unverified first token",
            )
        yield from self._other_rows("answer", logits, "of this pass")
        for roll in (1, -1):
            says = f"each row answers with the row {'before' if roll > 0 else 'after'} it"
            yield Change("answer", says, after=partial(torch.roll, shifts=roll, dims=0))
        if self.bench.right.rejected is not None:
            yield from self._other_rows(
                "stale_logits", self.bench.right.rejected, "of the pass before"
            )
        heat = self._heat(logits)
        if heat and abs(heat - 1) > 0.01:
            yield Change(
                "temperature",
                f"the logits are at temperature {heat:.3g}",
                after=lambda rows: rows / heat,
            )

    def _other_rows(self, kind: str, logits: Tensor, whose: str) -> Iterator[Change]:
        """Each wrong row with the best of these answers."""
        order = {}
        for row in self.wrong:
            top = self.step.nodes[row].target_top
            if not top:
                continue
            rows = self.bench.oracle.log_probs(self.step, logits, [row] * len(logits))
            order[row] = int(np.argmin([gap_of(top, other) for other in rows]))
        if not order or (all(row == other for row, other in order.items()) and kind == "answer"):
            return
        which = ", ".join(f"row {row} with row {other}" for row, other in [*order.items()][:3])
        says = f"rows answer with other rows {whose} ({which})"

        def after(rows: Tensor) -> Tensor:
            changed = rows.clone()
            changed[list(order)] = logits[list(order.values())].to(rows.dtype)
            return changed

        yield Change(kind, says, after=after, weight=0.1 * len(order))

    def _heat(self, logits: Tensor) -> float:
        """The temperature that fits the recorded log-probabilities of the wrong rows best."""
        own = self.bench.oracle.log_probs(self.step, logits)
        products = squares = 0.0
        for row in self.wrong:
            known = [
                (log(prob), float(own[row][token]))
                for token, prob in self.step.nodes[row].target_top
                if prob > exp(FLOOR) and own[row][token] > FLOOR
            ]
            if len(known) > 2:
                recorded, expected = np.array(known).T
                products += float((recorded - recorded.mean()) @ (expected - expected.mean()))
                squares += float(((expected - expected.mean()) ** 2).sum())
        return squares / products if products > 0 else 0.0

    # Positions.

    def _positions(self) -> Iterator[Change]:
        own = np.array(self.bench.positions)
        depth = own - own[0]
        rows = np.arange(self.bench.n)
        drafted = rows > 0
        leaf = ~np.isin(rows, self.step.tree.parent)
        yield self._at(own[0] + rows, "positions are counted along the rows", "wrong positions")
        for shift in SHIFTS:
            which = f"{abs(shift)} too {'high' if shift > 0 else 'low'}"
            yield self._at(own + shift, f"all positions are {which}", "padded positions")
            yield self._at(
                own + shift * drafted, f"drafted positions are {which}", "wrong positions"
            )
        named = {
            "all rows have the root's position": 0 * rows + own[0],
            "depths count twice": own + depth,
            "positions start at 0": depth,
            "drafted positions start at 1": np.where(drafted, depth, own),
            "drafted positions start at 0": np.where(drafted, depth - 1, own),
            "drafted rows have position 0": np.where(drafted, 0, own),
            "leaves have position 0": np.where(leaf, 0, own),
            "the recorded positions are the real ones": self.step.position or own,
        }
        for power in range(3, 15):
            named[f"positions start again at 0 after {1 << power}"] = own % (1 << power)
        for says, places in named.items():
            if (places != own).any():
                yield self._at(places, says)

    def _at(
        self, positions: Iterable[int], says: str, fault: str = "", weight: float = 0.0
    ) -> Change:
        places = tuple([int(place) for place in positions])
        return Change("position", says, positions=places, fault=fault, weight=weight)

    def _scan_positions(self) -> Iterator[Change]:
        """The best position of each wrong row: the first ones over all, the others near their own."""
        own = self.bench.positions
        end = min(self.bench.most, own[0] + 2 * self.bench.n + 16)
        near = {
            row: sorted({0, own[0], *[own[row] + shift for shift in SHIFTS]}) for row in self.wrong
        }
        every = self.wrong[: max(1, SCAN // end)]
        options = {row: list(range(end)) if row in every else near[row] for row in self.wrong}
        places = self._scanned("positions", own, options)
        moved = [row for row in self.wrong if places[row] != own[row]]
        if moved:
            which = ", ".join(
                f"row {row} at {places[row]} instead of {own[row]}" for row in moved[:3]
            )
            yield self._at(places, f"rows have wrong positions ({which})", weight=0.3 * len(moved))
            shift = places[moved[0]] - own[moved[0]]
            yield self._at([place + shift for place in own], f"all positions are {shift:+d} off")
            drafted = [own[0], *[place + shift for place in own[1:]]]
            yield self._at(drafted, f"drafted positions are {shift:+d} off")

    def _scanned(
        self, what: str, own: Iterable[Any], options: Mapping[int, Sequence[Any]]
    ) -> list[Any]:
        """For each row the option that brings its gap to a third, with those of the rows before it."""
        values = list(own)
        if getattr(self.base, what) is None:
            for row, choices in options.items():
                given: dict[str, Any] = {what: tuple(values)}
                base = self.base._replace(**given)
                gaps = self.bench.copies(row, base, what, choices)
                if min(gaps) < self.measured.gaps[row] / 3:
                    values[row] = choices[int(np.argmin(gaps))]
        return values

    # Masks.

    def _masks(self) -> Iterator[Change]:
        own = self.bench.tree
        n = self.bench.n
        rows = np.arange(n)
        parent = self.step.tree.parent
        depth = np.array(self.bench.depth)
        eye = np.eye(n, dtype=np.bool_)
        above = (parent[:, None] == rows[None]) & (rows[:, None] > 0)
        siblings = parent[:, None] == parent[None]
        same = depth[:, None] == depth[None]
        root = np.tile(rows == 0, (n, 1))
        right = np.roll(own, 1, 1)
        left = np.roll(own, -1, 1)
        named = {
            "rows see the siblings before them": own | np.tril(siblings),
            "rows see all of their siblings": own | siblings,
            "rows see all rows of their depth": own | same,
            "rows see all rows of lower depth": (depth[:, None] > depth[None]) | eye,
            "rows see all rows of lower depth and their own": depth[:, None] >= depth[None],
            "rows see all rows before them, as in a chain": np.tri(n, dtype=np.bool_),
            "rows see all rows": own | True,
            "rows see only their parent": eye | above,
            "rows see only their parent and the root": eye | above | root,
            "rows see no other row": eye,
            "no row sees the root": own & ~(root & ~eye),
            "rows do not see themselves": own & ~eye,
            "rows do not see their parent": own & ~above,
            "the mask is transposed": own.T,
            "rows see their descendants too": own.T | own,
            "the mask is shifted by one column": right,
            "the mask is shifted by one column, and rows see the root": right | eye | root,
            "the mask is shifted by one column to the left": left,
            "the mask is shifted by one row": np.roll(own, 1, 0),
            "the recorded mask is the real one": self.step.mask,
        }
        if self.bench.before is not None:
            old = eye.copy()
            earlier = self.bench.before.tree.ancestor_mask()[:n, :n]
            old[: len(earlier), : len(earlier)] = earlier
            named["rows have the mask of the iteration before"] = old
        for row in self.wrong[:1]:
            for other in np.flatnonzero(same[row] & (rows != row)).tolist():
                order = rows.copy()
                order[[row, other]] = other, row
                named[f"the masks of rows {row} and {other} are exchanged"] = own[order]
        for says, tree in named.items():
            fault = "sibling visible" if "siblings" in says else ""
            if (tree != own).any():
                yield Change("mask", says, tree=tree, fault=fault)

    def _scan_masks(self) -> Iterator[Change]:
        """What each wrong row sees: one row more or less, all rows, those before it, those up to its
        depth; in two rounds, for deeper rows too."""
        rows = np.arange(self.bench.n)
        depth = np.array(self.bench.depth)
        own = tree = self.bench.tree
        gaps = list(self.measured.gaps)
        for _ in range(2):
            options = {}
            for row in self.wrong[: SCAN // self.bench.n]:
                if gaps[row] > 2 * self.measured.levels[row]:
                    others = [tree[row] ^ (rows == other) for other in rows if other != row]
                    shapes = rows >= 0, rows <= row, depth <= depth[row]
                    options[row] = [*others, *[shape | (rows == row) for shape in shapes]]
            tree = np.array(self._scanned("tree", tree, options))
            gaps = self.bench.gaps([self.base._replace(tree=tree)])[0]
        changed = np.argwhere(tree != own).tolist()
        if changed:
            which = ", ".join(
                f"row {row} {'sees' if tree[row, other] else 'does not see'} row {other}"
                for row, other in changed[:3]
            )
            weight = 0.3 * len({row for row, _ in changed})
            yield Change("mask", f"the mask is wrong ({which})", tree=tree, weight=weight)

    # The prefix, and the rows kept of the iteration before.

    def _scan_prefix(self) -> Iterator[Change]:
        """The range of the prefix that the first wrong row does not see."""
        if self.base.entries is not None or self.base.variant.name or not self.wrong:
            return
        kept = self.bench.right.kept
        length = len(kept)
        row = self.wrong[0]
        stride = max(1, length // 40)
        marks = [*range(0, length, stride), length]
        ranges = {(a, b) for a in marks for b in marks if a < b and b - a < length}
        best, least = (0, 0), inf
        tried: set[tuple[int, int]] = set()
        while ranges - tried:
            options = sorted(ranges - tried)
            tried |= ranges
            gaps = self.bench.copies(
                row, self.base, "entries", [self._without(*one) for one in options]
            )
            if min(gaps) < least:
                least = min(gaps)
                best = options[int(np.argmin(gaps))]
            if stride == 1:
                break
            stride = max(1, stride // 2)
            steps = (-stride, 0, stride)
            ranges = {
                (a, b)
                for a in [max(0, best[0] + step) for step in steps]
                for b in [min(length, best[1] + step) for step in steps]
                if a < b
            }
        if least >= self.measured.gaps[row] / 2:
            return
        first, stop = best
        hidden = self._without(first, stop)
        what = (
            f"entries {first} to {stop - 1} of the prefix"
            if stop - first > 1
            else f"entry {first} of the prefix"
        )
        every = np.tile(hidden, (self.bench.n, 1))
        groups = {
            f"no row sees {what}": list(range(self.bench.n)),
            f"drafted rows do not see {what}": list(range(1, self.bench.n)),
            f"wrong rows do not see {what}": self.wrong,
            f"row {row} does not see {what}": [row],
        }
        for says, rows in groups.items():
            entries = np.tile(self.shown, (self.bench.n, 1))
            entries[rows] = every[rows]
            yield Change("prefix", says, entries=entries)
        if stop == length:
            short = tuple([place - (stop - first) for place in self.bench.positions])
            yield Change(
                "prefix",
                f"the prefix ends {stop - first} entries earlier",
                entries=every,
                positions=short,
            )

    def _without(self, first: int, stop: int) -> Bools:
        entries = self.shown.copy()
        entries[self.bench.right.kept[first:stop]] = False
        return entries

    def _kept_rows(self) -> Iterator[Change]:
        """Rejected rows of the iteration before that stayed, or took the place of kept ones."""
        held = self.bench.step.prefix_length
        shorter = tuple([place - 1 for place in self.bench.positions])
        yield Change(
            "prefix",
            "the prefix ends one entry earlier",
            entries=self._without(held - 1, held),
            positions=shorter,
        )
        yield Change(
            "prefix",
            "no row sees the last entry of the prefix",
            entries=self._without(held - 1, held),
        )
        yield Change(
            "prefix", "no row sees the first entry of the prefix", entries=self._without(0, 1)
        )
        for shift in (0, 1):
            places = tuple([place + shift for place in self.bench.positions])
            says = "the prefix contains the root too" + ", with positions one further" * shift
            yield Change("prefix", says, positions=places, variant=Variant("root twice", longer=1))
        before = self.bench.before
        if before is None or self.base.entries is not None or self.base.variant.name:
            return
        start = before.prefix_length
        path = list(path_of(before))[: len(before.committed)]
        first = list(range(len(path)))
        rejected = [row for row in range(len(before.tree)) if row not in path]
        if path != first:
            says = f"iteration {before.index + 1} kept rows {first} instead of {path}"
            yield Change("order", says, entries=self._with(start, first))
        for row in self.wrong[:1]:
            yield from self._scan_kept(row, start, path, rejected)

    def _scan_kept(
        self, row: int, start: int, path: Sequence[int], rejected: Sequence[int]
    ) -> Iterator[Change]:
        iteration = self.step.index
        for shifted in (False, True):
            stale: list[int] = []
            for count in range(1, STALE + 1):
                options = [[*stale, other] for other in rejected if other not in stale]
                if not options:
                    break
                shift = count * shifted
                places = tuple([place + shift for place in self.bench.positions])
                base = self.base if not shifted else self.base._replace(positions=places)
                shown = [self._with(start, [*path, *more]) for more in options]
                gaps = self.bench.copies(row, base, "entries", shown)
                stale = options[int(np.argmin(gaps))]
                rows = ", ".join(map(str, sorted(stale)))
                says = f"rejected rows of iteration {iteration} stay in the cache (row {rows})"
                yield Change(
                    "prefix",
                    says,
                    entries=self._with(start, [*path, *stale]),
                    positions=places if shifted else None,
                    fault="phantom KV rows",
                    weight=0.2 * count,
                )
        swaps = [
            [*[each for each in path if each != gone], other] for gone in path for other in rejected
        ]
        if swaps:
            gaps = self.bench.copies(
                row, self.base, "entries", [self._with(start, kept) for kept in swaps]
            )
            for index in np.argsort(gaps)[:3]:
                kept = swaps[int(index)]
                says = f"iteration {iteration} kept rows {sorted(kept)} instead of {list(path)}"
                yield Change("order", says, entries=self._with(start, kept), weight=0.2)

    def _with(self, start: int, rows: Iterable[int]) -> Bools:
        """Of the iteration before, these rows."""
        entries = self.shown.copy()
        entries[start:] = False
        entries[[start + row for row in rows]] = True
        return entries

    # Tokens.

    def _tokens(self) -> Iterator[Change]:
        own = self.bench.tokens
        most = self.bench.oracle.pair.target.vocab_size - 1
        for shift in (1, -1):
            moved = tuple([min(max(token + shift, 0), most) for token in own])
            yield Change("token", f"ids are off by {shift}", tokens=moved)
            yield Change("token", f"drafted ids are off by {shift}", tokens=(own[0], *moved[1:]))
        yield Change(
            "token", "each row has the token of the row before it", tokens=(own[0], *own[:-1])
        )
        yield Change(
            "token",
            "each row has the token of its parent",
            tokens=tuple([own[max(parent, 0)] for parent in self.step.tree.parent.tolist()]),
        )
        yield Change("token", "drafted rows have token 0", tokens=(own[0], *[0] * (len(own) - 1)))
        if self.bench.before is not None:
            old = [*self.bench.before.tree.token.tolist(), *own[len(self.bench.before.tree) :]][
                : len(own)
            ]
            yield Change("token", "rows have the tokens of the iteration before", tokens=tuple(old))
            yield Change(
                "token",
                "drafted rows have the tokens of the iteration before",
                tokens=(own[0], *old[1:]),
            )

    def _scan_tokens(self) -> Iterator[Change]:
        own = self.bench.tokens
        size = self.bench.oracle.pair.target.vocab_size
        known = {*own, *self.bench.oracle.text[-8:], 0, size - 1}
        if self.bench.before is not None:
            known |= {*self.bench.before.tree.token.tolist()}
        if size * len(self.wrong) <= SCAN:
            known = {*range(size)}
        near = {row: {own[row] - 1, own[row] + 1} for row in self.wrong}
        options = {
            row: sorted(token for token in known | near[row] if 0 <= token < size)
            for row in self.wrong
        }
        tokens = self._scanned("tokens", own, options)
        moved = [row for row in self.wrong if tokens[row] != own[row]]
        if moved:
            texts = self.bench.oracle.pair.token_texts([tokens[row] for row in moved])
            which = ", ".join(f"row {row} has {texts[tokens[row]]!r}" for row in moved[:3])
            says = f"rows have other tokens ({which})"
            yield Change("token", says, tokens=tuple(tokens), weight=0.4 * len(moved))


def _one_hot(rows: Tensor, token: int) -> Tensor:
    changed = rows.clone()
    changed[0] = -torch.inf
    changed[0, token] = 0
    return changed
