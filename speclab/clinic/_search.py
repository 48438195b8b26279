"""What may be wrong with the rows of a pass: changes of all rows alike, and scans that measure which
change fits each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
from torch import Tensor, inf

from speclab.clinic._passes import Change, ChangedPasses
from speclab.clinic._plain import FLOOR, Measured, Oracle, gap_of
from speclab.trace.records import Step
from speclab.tree import Bools

UNCHANGED = Change("answer", "")
"""The right pass."""
SCAN = 4096
"""Most copies of rows that one scan runs."""
NEAR = 17
"""Positions around its own that are tried for each wrong row."""
MARKS = 40
"""Ends of hidden ranges of the prefix that are tried first."""
MOST = 64
"""Most sets of rows of one kind that are tried."""


class Search(ChangedPasses):
    """Changes of the pass of one wrong iteration."""

    def __init__(self, oracle: Oracle, measured: Measured, before: Step | None = None) -> None:
        super().__init__(oracle, measured.step, before)
        self.measured = measured
        self.wrong = list(measured.wrong)

    def simple(self) -> Iterator[Change]:
        """Changes of all rows alike; the first wrong row tells the amount."""
        yield from self._answers()
        yield from self._positions()
        for says, tree in self._masks().items():
            fault = "sibling visible" if "siblings" in says else ""
            yield Change("mask", says, {"tree": tree}, fault=fault)
        yield from self._prefix()
        yield from self._kept_rows()

    # Answers.

    def _answers(self) -> Iterator[Change]:
        logits = self.logits(UNCHANGED)
        says = "the root answers with the first drafted token"
        yield Change("choice", says, after=self._unverified, fault="unverified first token")
        yield from self._other_rows("answer", logits, "of this pass")
        if self.rejected is not None:
            yield from self._other_rows("stale_logits", self.rejected, "of the pass before")
        row = self.wrong[0]
        off = self.step.nodes[row].target_top[0][0] - int(logits[row].argmax())
        drafted = self.step.tree.depth > 0
        given = {"tokens": (self.own["tokens"] - off * drafted) % logits.shape[-1]}
        says = f"token ids are {off:+d} off: look at the map from the draft's vocabulary"
        yield Change("ids", says, given, after=lambda rows: rows.roll(off, -1))
        heat = self._heat(logits)
        says = f"the logits are at temperature {heat:.3g}"
        yield Change("temperature", says, after=lambda rows: rows / heat)

    def _unverified(self, rows: Tensor) -> Tensor:
        changed = rows.clone()
        changed[0] = -inf
        changed[0, self.own["tokens"][1:2].tolist()] = 0
        return changed

    def _other_rows(self, kind: str, logits: Tensor, whose: str) -> Iterator[Change]:
        """Each wrong row with the best of these answers."""
        order = {}
        for row in self.wrong:
            top = self.step.nodes[row].target_top
            rows = self.oracle.log_probs(self.step, logits, [row] * len(logits))
            order[row] = int(np.argmin([gap_of(top, other) for other in rows]))
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
        ratios = [1.0]
        for row in self.wrong:
            tokens, probs = zip(*self.step.nodes[row].target_top, strict=True)
            recorded = np.log(np.maximum(probs, 1e-9))
            expected = own[row, list(tokens)].double().numpy()
            likely = (recorded > FLOOR) & (expected > FLOOR)
            if likely.sum() > 2:
                ratios.append(expected[likely].std() / max(recorded[likely].std(), 1e-9))
        return float(np.median(ratios[1:] or ratios))

    # Positions.

    def _positions(self) -> Iterator[Change]:
        """Along the rows, as recorded, or off by what fits the first wrong row best."""
        own = self.own["positions"]
        wrong = "wrong positions"
        rows = np.arange(self.n)
        yield self._at(own[0] + rows, "positions are counted along the rows", wrong)
        if self.step.position:
            yield self._at(self.step.position, "the recorded positions are the real ones", wrong)
        row = self.wrong[0]
        end = min(self.most, int(own[0]) + 2 * self.n + 16)
        gaps = self.copies(row, "positions", range(end), UNCHANGED)
        for place in np.argsort(gaps)[:3].tolist():
            shift = place - int(own[row])
            which = f"positions are {abs(shift)} too {'high' if shift > 0 else 'low'}"
            yield self._at(own + shift, f"all {which}", "padded positions")
            yield self._at(own + shift * (rows > 0), f"drafted {which}", wrong)

    def _at(self, positions: Any, says: str, fault: str = "", weight: float = 0.0) -> Change:
        given = {"positions": np.array(positions)}
        return Change("position", says, given, fault=fault, weight=weight)

    # Masks.

    def _masks(self) -> dict[str, Bools]:
        """Wrong masks by what they do."""
        own = self.own["tree"]
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
            "the mask is one column off": np.roll(own, 1, 1) | eye,
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
        length = len(self.text)
        row = self.wrong[0]
        stride = max(1, length // MARKS)
        near = range(-stride, stride + 1)
        ranges = [*combinations([*range(0, length, stride), length], 2)]
        for _ in range(3):
            ranges = [(a, b) for a, b in ranges if 0 <= a < b <= length and b - a < length]
            if not ranges:
                return
            hidden = [self._without(*ends) for ends in ranges]
            gaps = self.copies(row, "entries", hidden, UNCHANGED)
            first, stop = ranges[int(np.argmin(gaps))]
            ranges = [(first + move, stop) for move in near]
            ranges += [(first, stop + move) for move in near]
        if min(gaps) >= self.measured.gaps[row] / 2:
            return
        what = f"see entries {first} to {stop - 1} of the prefix"
        groups: dict[str, Any] = {
            f"no row {what.replace('see', 'sees')}": slice(None),
            f"drafted rows do not {what}": slice(1, None),
            f"wrong rows do not {what}": self.wrong,
        }
        for says, rows in groups.items():
            entries = np.tile(self.shown, (self.n, 1))
            entries[rows] = self._without(first, stop)
            yield Change("prefix", says, {"entries": entries})
        if stop == length:
            says = f"the prefix ends {stop - first} entries earlier"
            short = Change("prefix", says, {"entries": self._without(first, stop)})
            yield self.moved(short, first - stop)

    def _without(self, first: int, stop: int) -> Bools:
        entries = self.shown.copy()
        entries[np.flatnonzero(entries)[first:stop]] = False
        return entries

    def _kept_rows(self) -> Iterator[Change]:
        """Rejected rows of the iteration before that stayed, or took the place of kept ones."""
        iteration = self.step.index
        path = self.path
        rejected = [row for row in range(self.right.length - self.start) if row not in path]
        for stale in rejected[:MOST]:
            says = f"rejected row {stale} of iteration {iteration} stays in the cache"
            given = {"entries": self.keeping([*path, stale])}
            change = Change("prefix", says, given, fault="phantom KV rows", weight=0.2)
            yield from (change, self.moved(change, 1))
        for gone, other in [*product(path, rejected)][:MOST]:
            kept = sorted({*path, other} - {gone})
            says = f"iteration {iteration} kept rows {kept} instead of {path}"
            yield Change("order", says, {"entries": self.keeping(kept)}, weight=0.2)

    # Row by row.

    def scanned(self) -> Iterator[Change]:
        """Changes that scans put together row by row: positions, masks, tokens."""
        own = self.own["positions"].tolist()
        near = {row: range(max(0, own[row] - NEAR), own[row] + NEAR) for row in self.wrong}
        values, moved = self._scan("positions", {row: [0, own[0], *near[row]] for row in near})
        at = [f"row {row} at {values[row]} instead of {own[row]}" for row in moved[:3]]
        yield self._at(values, f"rows have wrong positions ({', '.join(at)})", "", 0.3 * len(moved))
        yield self._scanned_masks()
        tokens, moved = self._scan("tokens", self._token_options())
        texts = self.oracle.pair.token_texts(tokens[moved[:3]].tolist())
        has = [f"row {row} has {texts[int(tokens[row])]!r}" for row in moved[:3]]
        says = f"rows have other tokens ({', '.join(has)})"
        yield Change("token", says, {"tokens": tokens}, weight=0.4 * len(moved))

    def _scan(self, what: str, options: Mapping[int, Sequence[Any]]) -> tuple[Any, list[int]]:
        """For each row, the option that cuts its gap to a third, given the choices for earlier rows;
        and the changed rows."""
        values = self.own[what].copy()
        for row, choices in options.items():
            gaps = self.copies(row, what, choices, Change("", "", {what: values}))
            if min(gaps) < self.measured.gaps[row] / 3:
                values[row] = choices[int(np.argmin(gaps))]
        return values, [row for row in options if np.any(values[row] != self.own[what][row])]

    def _scanned_masks(self) -> Change:
        """What each wrong row sees: one row more or less, or as in a wrong mask."""
        own = self.own["tree"]
        shapes = [*self._masks().values()]
        one_off = np.eye(self.n, dtype=np.bool_)
        options = {
            row: [own[row], *(own[row] ^ one_off), *[shape[row] for shape in shapes]]
            for row in self.wrong[: SCAN // self.n]
        }
        tree, moved = self._scan("tree", options)
        sees = {True: "sees", False: "does not see"}
        which = [
            f"row {row} {sees[bool(tree[row, at])]} row {at}"
            for row, at in np.argwhere(tree != own)[:3].tolist()
        ]
        says = f"the mask is wrong ({', '.join(which)})"
        return Change("mask", says, {"tree": tree}, weight=0.3 * len(moved))

    def _token_options(self) -> dict[int, list[int]]:
        own = self.own["tokens"].tolist()
        size = self.oracle.pair.target.vocab_size
        known = {*own, *self.oracle.text[-8:], 0, size - 1}
        if self.before is not None:
            known |= {*self.before.tree.token.tolist()}
        return {
            row: sorted(known | {max(own[row] - 1, 0), min(own[row] + 1, size - 1)})
            for row in self.wrong
        }
