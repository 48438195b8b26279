"""What may be wrong with the rows of a pass: changes to try, and scans that measure which one fits a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from speclab.clinic._detectors import path_of
from speclab.clinic._measure import Measured
from speclab.clinic._oracle import FLOOR, gap_of
from speclab.clinic._passes import UNCHANGED, Bench, Change, Variant
from speclab.models.runner import Runner
from speclab.tree import Bools

ALMOST_ONE = 1 - 1e-6
"""A probability that a model's own answer hardly has."""
SCAN = 4096
"""Most copies of rows that one scan runs."""
NEAR = 17
"""Positions around its own that are tried for each wrong row."""
STALE = 3
"""Most rejected rows that a scan looks for."""


class Search:
    """Changes of the pass of one wrong iteration."""

    def __init__(self, bench: Bench, measured: Measured) -> None:
        self.bench = bench
        self.step = measured.step
        self.measured = measured
        self.wrong = list(measured.wrong)
        self.shown = bench.entries

    def simple(self) -> Iterator[Change]:
        """Changes of all rows; scans of one row measure by how much."""
        yield from self._answers()
        yield from self._positions()
        yield from self._masks()
        yield from self._prefix()
        yield from self._kept_rows()

    def scanned(self) -> Iterator[Change]:
        """Changes that scans put together row by row."""
        for scan in (self._scan_positions, self._scan_masks, self._scan_tokens):
            yield from scan()

    # Answers.

    def _answers(self) -> Iterator[Change]:
        logits = self.bench.logits(UNCHANGED)
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
        if self.bench.rejected is not None:
            yield from self._other_rows("stale_logits", self.bench.rejected, "of the pass before")
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
        """As many positions off as fits the first wrong row best; along the rows; as recorded."""
        own = np.array(self.bench.positions)
        wrong = "wrong positions"
        yield self._at(
            own[0] + np.arange(self.bench.n), "positions are counted along the rows", wrong
        )
        if self.step.position:
            yield self._at(self.step.position, "the recorded positions are the real ones", wrong)
        row = self.wrong[0]
        end = min(self.bench.most, self.bench.positions[0] + 2 * self.bench.n + 16)
        gaps = self.bench.copies(row, "positions", range(end))
        for place in np.argsort(gaps)[:3].tolist():
            shift = place - int(own[row])
            which = f"positions are {abs(shift)} too {'high' if shift > 0 else 'low'}"
            yield self._at(own + shift, f"all {which}", "padded positions")
            drafted = own + shift * (np.arange(self.bench.n) > 0)
            yield self._at(drafted, f"drafted {which}", wrong)

    def _at(
        self, positions: Iterable[int], says: str, fault: str = "", weight: float = 0.0
    ) -> Change:
        places = tuple([int(place) for place in positions])
        return Change("position", says, positions=places, fault=fault, weight=weight)

    def _scan_positions(self) -> Iterator[Change]:
        """The best position of each wrong row near its own, 0, or the root's."""
        own = self.bench.positions
        near = {row: range(max(0, own[row] - NEAR), own[row] + NEAR) for row in self.wrong}
        options = {row: sorted({0, own[0], *places}) for row, places in near.items()}
        places = self._scanned("positions", own, options)
        moved = [row for row in self.wrong if places[row] != own[row]]
        if moved:
            which = ", ".join(
                f"row {row} at {places[row]} instead of {own[row]}" for row in moved[:3]
            )
            yield self._at(places, f"rows have wrong positions ({which})", weight=0.3 * len(moved))

    def _scanned(
        self, what: str, own: Iterable[Any], options: Mapping[int, Sequence[Any]]
    ) -> list[Any]:
        """For each row the option that brings its gap to a third, with those of the rows before it."""
        values = list(own)
        for row, choices in options.items():
            given: dict[str, Any] = {what: tuple(values)}
            gaps = self.bench.copies(row, what, choices, UNCHANGED._replace(**given))
            if min(gaps) < self.measured.gaps[row] / 3:
                values[row] = choices[int(np.argmin(gaps))]
        return values

    # Masks.

    def _shapes(self) -> dict[str, Bools]:
        """Wrong masks by what they do."""
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
        named = {
            "rows see the siblings before them": own | np.tril(siblings),
            "rows see all of their siblings": own | siblings,
            "rows see all rows of their depth": own | same,
            "rows see all rows of lower depth": (depth[:, None] > depth[None]) | eye,
            "rows see all rows before them, as in a chain": np.tri(n, dtype=np.bool_),
            "rows see only their parent": eye | above,
            "rows see only their parent and the root": eye | above | root,
            "rows see no other row": eye,
            "no row sees the root": own & ~(root & ~eye),
            "rows do not see themselves": own & ~eye,
            "drafted rows do not see themselves": own & ~(eye & ~root),
            "rows see all rows": root | ~root,
            "rows have the mask of the row before": own[np.maximum(rows - 1, 0)],
            "the mask is transposed": own.T,
            "the mask is shifted by one column, and rows see the root": np.roll(own, 1, 1)
            | eye
            | root,
            "the recorded mask is the real one": self.step.mask,
        }
        if self.bench.before is not None:
            old = eye.copy()
            earlier = self.bench.before.tree.ancestor_mask()[:n, :n]
            old[: len(earlier), : len(earlier)] = earlier
            named["rows have the mask of the iteration before"] = old
        return named

    def _masks(self) -> Iterator[Change]:
        own = self.bench.tree
        named = self._shapes()
        depth = np.array(self.bench.depth)
        row = self.wrong[0]
        for other in np.flatnonzero(depth == depth[row]).tolist():
            order = np.arange(self.bench.n)
            order[[row, other]] = other, row
            named[f"the masks of rows {row} and {other} are exchanged"] = own[order]
        for says, tree in named.items():
            fault = "sibling visible" if "siblings" in says else ""
            if (tree != own).any():
                yield Change("mask", says, tree=tree, fault=fault)

    def _scan_masks(self) -> Iterator[Change]:
        """What each wrong row sees: one row more or less, or as in a wrong mask; in two rounds, for
        deeper rows too."""
        rows = np.arange(self.bench.n)
        shapes = [*self._shapes().values()]
        own = tree = self.bench.tree
        gaps = list(self.measured.gaps)
        for _ in range(2):
            options = {}
            for row in self.wrong[: SCAN // self.bench.n]:
                if gaps[row] > 2 * self.measured.levels[row]:
                    others = [tree[row] ^ (rows == other) for other in rows if other != row]
                    options[row] = [
                        tree[row],
                        *others,
                        rows >= 0,
                        *[shape[row] for shape in shapes],
                    ]
            tree = np.array(self._scanned("tree", tree, options))
            gaps = self.bench.gaps([UNCHANGED._replace(tree=tree)])[0]
        changed = np.argwhere(tree != own).tolist()
        if changed:
            which = ", ".join(
                f"row {row} {'sees' if tree[row, other] else 'does not see'} row {other}"
                for row, other in changed[:3]
            )
            weight = 0.3 * len({row for row, _ in changed})
            yield Change("mask", f"the mask is wrong ({which})", tree=tree, weight=weight)

    # The prefix, and the rows kept of the iteration before.

    def _prefix(self) -> Iterator[Change]:
        """The range of the prefix that the first wrong row does not see."""
        length = len(self.bench.kept)
        row = self.wrong[0]
        stride = max(1, length // 40)
        marks = [*range(0, length, stride), length]
        ranges = {(a, b) for a in marks for b in marks if a < b and b - a < length}
        best, least = (0, 0), inf
        tried: set[tuple[int, int]] = set()
        while ranges - tried:
            options = sorted(ranges - tried)
            tried |= ranges
            shown = [self._without(first, stop) for first, stop in options]
            gaps = self.bench.copies(row, "entries", shown)
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
        what = f"entries {first} to {stop - 1} of the prefix"
        groups = {
            f"no row sees {what}": list(range(self.bench.n)),
            f"drafted rows do not see {what}": list(range(1, self.bench.n)),
            f"wrong rows do not see {what}": self.wrong,
            f"row {row} does not see {what}": [row],
        }
        for says, rows in groups.items():
            entries = np.tile(self.shown, (self.bench.n, 1))
            entries[rows] = hidden
            yield Change("prefix", says, entries=entries)
        if stop == length:
            short = tuple([place - (stop - first) for place in self.bench.positions])
            yield Change(
                "prefix",
                f"the prefix ends {stop - first} entries earlier",
                entries=hidden,
                positions=short,
            )

    def _without(self, first: int, stop: int) -> Bools:
        entries = self.shown.copy()
        entries[self.bench.kept[first:stop]] = False
        return entries

    def _kept_rows(self) -> Iterator[Change]:
        """Rejected rows of the iteration before that stayed, or took the place of kept ones."""
        for shift in (0, 1):
            places = tuple([place + shift for place in self.bench.positions])
            says = "the prefix contains the root too" + ", with positions one further" * shift
            yield Change("prefix", says, positions=places, variant=Variant("root twice", _longer))
        before = self.bench.before
        if before is None:
            return
        row = self.wrong[0]
        iteration = self.step.index
        path = list(path_of(before))[: len(before.committed)]
        rejected = [node for node in range(len(before.tree)) if node not in path]
        for shifted in (False, True):
            stale: list[int] = []
            for count in range(1, min(STALE, len(rejected)) + 1):
                options = [[*stale, other] for other in rejected if other not in stale]
                places = tuple([place + count * shifted for place in self.bench.positions])
                others = UNCHANGED._replace(positions=places) if shifted else UNCHANGED
                shown = [self._with([*path, *more]) for more in options]
                best = int(np.argmin(self.bench.copies(row, "entries", shown, others)))
                stale = options[best]
                says = f"rejected rows of iteration {iteration} stay in the cache ({sorted(stale)})"
                yield Change(
                    "prefix",
                    says,
                    entries=shown[best],
                    positions=places if shifted else None,
                    fault="phantom KV rows",
                    weight=0.2 * count,
                )
        swaps = [
            [*[each for each in path if each != gone], other] for gone in path for other in rejected
        ]
        shown = [self._with(kept) for kept in swaps]
        for index in np.argsort(self.bench.copies(row, "entries", shown))[:3].tolist():
            says = f"iteration {iteration} kept rows {sorted(swaps[index])} instead of {path}"
            yield Change("order", says, entries=shown[index], weight=0.2)

    def _with(self, rows: Iterable[int]) -> Bools:
        """Of the iteration before, these rows."""
        start = self.bench.start
        entries = self.shown.copy()
        entries[start:] = False
        entries[[start + row for row in rows]] = True
        return entries

    # Tokens.

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


def _longer(bench: Bench) -> Runner:
    """With the root in the cache, too."""
    return bench.fresh(text=[*bench.text, bench.tokens[0]])


def _one_hot(rows: Tensor, token: int) -> Tensor:
    changed = rows.clone()
    changed[0] = -torch.inf
    changed[0, token] = 0
    return changed
