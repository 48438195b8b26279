"""What may be wrong with the rows of a pass: changes of all rows alike, and scans that measure which
change fits each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
from torch import Tensor, inf

from speclab.clinic._faults import NO_WINDOW
from speclab.clinic._passes import UNCHANGED, Change, ChangedPasses
from speclab.clinic._plain import Measured, Oracle, gap_of
from speclab.clinic._variants import variants
from speclab.trace.records import Step
from speclab.tree import Bools

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
        self.first = self.wrong[0]

    def tries(self) -> Iterator[Iterator[Change]]:
        """All changes, the fastest first."""
        yield self.simple()
        yield self.scanned()
        yield variants(self)

    def simple(self) -> Iterator[Change]:
        """Changes of all rows alike; the first wrong row tells the amount."""
        yield from self._answers()
        yield from self._positions()
        for says, tree in self._masks().items():
            fault = "sibling visible" if "siblings" in says else ""
            yield Change("mask", says, {"tree": tree}, fault=fault)
        yield from self._prefix()
        if self.before is not None:
            yield from self._kept_rows()

    # Answers.

    def _answers(self) -> Iterator[Change]:
        logits = self.logits(UNCHANGED)
        says = "the root answers with the first drafted token"
        yield Change("choice", says, after=self._unverified, fault="unverified first token")
        yield self._other_rows("answer", logits, "of this pass")
        if self.rejected is not None:
            yield self._other_rows("stale_logits", self.rejected, "of the pass before")
        top = self.step.nodes[self.first].target_top
        off = top[0][0] - int(logits[self.first].argmax())
        drafted = self.step.tree.depth > 0
        given = {"tokens": (self.own["tokens"] - off * drafted) % logits.shape[-1]}
        says = f"token ids are {off:+d} off: look at the map from the draft's vocabulary"
        yield Change("ids", says, given, after=lambda rows: rows.roll(off, -1))
        tokens, probs = zip(*top, strict=True)
        spread = torch.tensor(probs).clamp_min(1e-30).log().std(correction=0)
        heat = float(logits[self.first, list(tokens)].std(correction=0) / spread)
        says = f"the logits are at temperature {heat:.3g}"
        yield Change("temperature", says, after=lambda rows: rows / heat)

    def _unverified(self, rows: Tensor) -> Tensor:
        changed = rows.clone()
        changed[0] = -inf
        changed[0, self.own["tokens"][1:2].tolist()] = 0
        return changed

    def _other_rows(self, kind: str, logits: Tensor, whose: str) -> Change:
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
        return Change(kind, says, after=after, weight=0.1 * len(order))

    # Positions.

    def _positions(self) -> Iterator[Change]:
        """Along the rows, what fits row by row, and all off by what fits the first wrong row."""
        own = self.own["positions"]
        along = {"positions": own[0] + np.arange(self.n)}
        says = "positions are counted along the rows"
        yield Change("position", says, along, fault="wrong positions")
        most = self.right.context or NO_WINDOW
        near = {
            row: [0, own[0], *range(max(0, own[row] - NEAR), min(own[row] + NEAR, most))]
            for row in self.wrong
        }
        values, moved = self._scan("positions", near)
        which = [f"row {row} at {values[row]} instead of {own[row]}" for row in moved[:3]]
        says = f"rows have wrong positions ({', '.join(which)})"
        yield Change("position", says, {"positions": values}, weight=0.3 * len(moved))
        shift = int((values - own)[self.first])
        off = f"positions are {abs(shift)} too {'high' if shift > 0 else 'low'}"
        for rows, from_row in (("all", 0), ("drafted", 1)):
            positions = {"positions": own + shift * (np.arange(self.n) >= from_row)}
            fault = "wrong positions" if from_row else "padded positions"
            yield Change("position", f"{rows} {off}", positions, fault=fault)

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
            "rows see no other row": eye,
            "no row sees the root": own & ~(root & ~eye),
            "drafted rows do not see themselves": own & ~(eye & ~root),
            "rows see all rows": root | ~root,
            "the mask is transposed": own.T,
            "the mask is one column off": np.roll(own, 1, 1) | eye,
        }
        if self.before is not None:
            old = eye.copy()
            earlier = self.before.tree.ancestor_mask()[:n, :n]
            old[: len(earlier), : len(earlier)] = earlier
            named["rows have the mask of the iteration before"] = old
        for other in np.flatnonzero(depth == depth[self.first]).tolist():
            order = rows.copy()
            order[[self.first, other]] = other, self.first
            named[f"the masks of rows {self.first} and {other} are exchanged"] = own[order]
        return named

    # The prefix, and the rows kept of the iteration before.

    def _prefix(self) -> Iterator[Change]:
        """The range of the prefix that the first wrong row does not see: coarse, then each end."""
        length = len(self.text)
        stride = max(1, length // MARKS)
        near = range(-stride, stride + 1)
        ranges = [*combinations([*range(0, length, stride), length], 2)]
        for _ in range(3):
            ranges = [(a, b) for a, b in ranges if 0 <= a < b <= length and b - a < length]
            if not ranges:
                return
            hidden = [self._without(*ends) for ends in ranges]
            gaps = self.copies(self.first, "entries", hidden, {})
            first, stop = ranges[int(np.argmin(gaps))]
            ranges = [(first + move, stop) for move in near]
            ranges += [(first, stop + move) for move in near]
        entries = np.tile(self.own["entries"], (self.n, 1))
        entries[self.wrong] = self._without(first, stop)
        rows = "no row sees" if len(self.wrong) == self.n else "wrong rows do not see"
        says = f"{rows} entries {first} to {stop - 1} of the prefix"
        yield Change("prefix", says, {"entries": entries})
        if stop == length:
            says = f"the prefix ends {stop - first} entries earlier"
            short = Change("prefix", says, {"entries": self._without(first, stop)})
            yield self.moved(short, first - stop)

    def _without(self, first: int, stop: int) -> Bools:
        entries: Bools = self.own["entries"].copy()
        entries[np.flatnonzero(entries)[first:stop]] = False
        return entries

    def _kept_rows(self) -> Iterator[Change]:
        """Rejected rows of the iteration before that stayed, or took the place of kept ones."""
        path = self.path
        m = len(path)
        every = [*range(self.right.length - self.start)]
        rejected = [row for row in every if row not in path]
        shifted = [min(row + (row > 0), every[-1]) for row in path]
        orders = [every, every[:m], every[-m:], [0, *path], [*path[:-1], 0], shifted]
        orders += [[*path, row] for row in rejected[:MOST]]
        pairs = [*product(path, rejected)][:MOST]
        orders += [sorted({*path, other} - {gone}) for gone, other in pairs]
        for rows in [rows for rows in orders if len(rows) <= len(every)]:
            more = len(rows) - m
            says = f"iteration {self.step.index} kept rows {rows} instead of {path}"
            kind, fault = ("prefix", "phantom KV rows") if more else ("order", "")
            make = partial(self.written, rows)
            change = Change(kind, says, make=make, fault=fault, weight=0.2)
            yield from (change, *[self.moved(change, more)] * (more > 0))

    # Row by row.

    def scanned(self) -> Iterator[Change]:
        """Changes that scans put together row by row: masks, tokens."""
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
            gaps = self.copies(row, what, choices, {what: values})
            if min(gaps) < self.measured.gaps[row] / 3:
                values[row] = choices[int(np.argmin(gaps))]
        return values, [row for row in options if np.any(values[row] != self.own[what][row])]

    def _scanned_masks(self) -> Change:
        """What each wrong row sees: one row more or less, or as in a wrong mask."""
        own = self.own["tree"]
        shapes = [*self._masks().values()]
        one = np.eye(self.n, dtype=np.bool_)
        options = {
            # a copy always sees itself
            row: one[row] | [own[row], *(own[row] ^ one), *[shape[row] for shape in shapes]]
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
        """For each wrong row, tokens nearby in the text, the tree, the step before and the vocabulary."""
        own = self.own["tokens"].tolist()
        last = self.oracle.pair.target.vocab_size - 1
        known = {*own, *self.oracle.text[-8:], 0, last}
        if self.before is not None:
            known |= {*self.before.tree.token.tolist()}
        return {
            row: sorted({*known, max(own[row] - 1, 0), min(own[row] + 1, last)})
            for row in self.wrong
        }
