"""What may be wrong with a pass: changes to try, and scans that measure which one fits a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import exp, inf, log, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from speclab.analysis.detectors import path_of
from speclab.analysis.faults import NO_WINDOW, final_norm, without_final_norm
from speclab.analysis.measure import Measured
from speclab.analysis.oracle import FLOOR, gap_of
from speclab.analysis.passes import Bench, Change, Rewrite, Variant
from speclab.models.probe import sharing_weights
from speclab.tree import Bools

ALMOST_ONE = 1 - 1e-6
"""A probability that a model's own answer hardly has."""
SCAN = 4096
"""Most copies of rows that one scan runs."""
SHIFTS = tuple(shift for near in range(1, 17) for shift in (near, -near))
PADS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
STALE = 3
"""Most rejected rows that a scan looks for."""
FACTORS = {
    "scaling": ("scale", "attention scores"),
    "inv_freq": ("position", "rotary frequencies"),
}
"""Numbers of a model that an engine may have otherwise."""
SOFT = (-1.0, -2.0, -4.0, -8.0)
"""What a mask may add instead of minus infinity; -1 as a boolean mask that is added does."""
KNOBS = (0.25, 0.5, 0.7071, 0.8, 0.9, 1.1, 1.25, 1.4142, 2.0, 4.0)


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


# What computes the pass.


def variants(bench: Bench, measured: Measured) -> Iterator[Change]:
    """Changes of the cache's contents, of the mask's numbers and of the model."""
    plan = bench.oracle.pair.target.plan
    if plan.window is not None:
        wide = {"window": NO_WINDOW}
        fault = "window run as full attention"
        yield _made("window", "the model ignores its sliding window", fault, whole_plan=wide)
        yield _made("window", "only the tree's pass ignores the sliding window", plan=wide)
        for window in (plan.window - 1, plan.window + 1):
            says = f"the sliding window of the tree's pass is {window}"
            yield _made("window", says, plan={"window": window})
    yield from _caches(bench)
    for hidden in SOFT:
        yield turn(bench, "hidden", hidden)
    yield from _models(bench)
    if measured.step.index == 0:
        for pads, counted in product(PADS, (False, True)):
            says = f"rows see {pads} padding tokens before the prompt" + ", which count" * counted
            yield _made("prefix", says, pads=pads, counted=counted)


def _made(kind: str, says: str, fault: str = "", **what: Any) -> Change:
    return Change(kind, says, variant=Variant(says, **what), fault=fault)


def _caches(bench: Bench) -> Iterator[Change]:
    before = bench.before
    if before is None:
        return
    yield _made("cache", "the newest entry of the cache is empty", cache=_emptied)
    path = list(path_of(before))[: len(before.committed)]
    first = list(range(len(path)))
    last = len(before.tree) - 1
    orders = {
        "the first rows": first,
        "the kept rows in reverse": path[::-1],
        "the rows after them": [min(row + 1, last) for row in path],
    }
    for what, rows in orders.items():
        if rows == path:
            continue
        for which in ("keys", "values"):
            says = f"only the {which} of the cache are those of {what}"
            yield _made("cache", says, cache=_written(rows, which))
        for layer in range(len(bench.right.runner.cache.layers)):
            says = f"layer {layer} kept {what}"
            yield _made("cache", says, cache=_written(rows, "keys values", layer))
        if rows != first:
            says = f"iteration {before.index + 1} kept {what}"
            yield _made("order", says, cache=_written(rows, "keys values"))


def _emptied(_: int, keys: Tensor, values: Tensor, *__: Tensor) -> None:
    keys[:, :, -1] = 0
    values[:, :, -1] = 0


def _written(rows: Sequence[int], which: str, only: int | None = None) -> Rewrite:
    """Writes other rows' keys or values, in all layers or one."""

    def write(
        layer: int, old_keys: Tensor, old_values: Tensor, keys: Tensor, values: Tensor
    ) -> None:
        if only not in (None, layer):
            return
        if "keys" in which:
            old_keys.copy_(keys[:, :, rows])
        if "values" in which:
            old_values.copy_(values[:, :, rows])

    return write


def _models(bench: Bench) -> Iterator[Change]:
    model = bench.oracle.model
    norms = [name for name, part in model.named_modules() if "norm" in type(part).__name__.lower()]
    if final_norm(model):
        yield _made("norm", "the final norm is left out", model=partial(without_final_norm, model))
    for only, of in ((False, ""), (True, " of the tree's pass")):
        if norms and norms[0] != final_norm(model):
            without = partial(_without, model, norms[0])
            yield _made("norm", f"the first norm{of} is left out", model=without, tree_only=only)
        for index in range(len(_layers(model))):
            skipping = partial(_skipping, model, index)
            yield _made("layer", f"layer {index}{of} is left out", model=skipping, tree_only=only)
    width = model.get_input_embeddings().embedding_dim
    for scale in (sqrt(width), 1 / sqrt(width)):
        scaled = partial(_scaled, model, scale)
        yield _made("scale", f"embeddings are scaled by {scale:.3g}", model=scaled)
    for what in FACTORS:
        if any(isinstance(getattr(part, what, None), float | Tensor) for part in model.modules()):
            for factor in KNOBS:
                yield turn(bench, what, factor)


def turn(bench: Bench, what: str, factor: float) -> Change:
    """A change of a number of the model or of its mask."""
    if what == "hidden":
        plan = {"shown": 0.0, "hidden": factor}
        says = f"hidden rows are masked by {factor:.3g} instead of minus infinity"
        return Change("mask", says, variant=Variant(f"hidden {factor}", plan=plan), factor=factor)
    kind, says = FACTORS[what]
    variant = Variant(f"{what} {factor}", model=partial(_turned, bench.oracle.model, what, factor))
    return Change(kind, f"{says} are scaled by {factor:.3g}", variant=variant, factor=factor)


def _layers(model: PreTrainedModel) -> nn.ModuleList:
    count = model.config.get_text_config(decoder=True).num_hidden_layers
    lists = [
        part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) == count
    ]
    return lists[0] if lists else nn.ModuleList()


def _without(model: PreTrainedModel, name: str) -> PreTrainedModel:
    twin = sharing_weights(model)
    twin.set_submodule(name, nn.Identity())
    return twin


def _scaled(model: PreTrainedModel, scale: float) -> PreTrainedModel:
    twin = sharing_weights(model)
    twin.get_input_embeddings().register_forward_hook(lambda _, __, rows: rows * scale)
    return twin


def _skipping(model: PreTrainedModel, index: int) -> PreTrainedModel:
    def skip(_: Any, given: Any, named: Any, output: Any) -> Any:
        states = given[0] if given else named["hidden_states"]
        return (states, *output[1:]) if isinstance(output, tuple) else states

    twin = sharing_weights(model)
    _layers(twin)[index].register_forward_hook(skip, with_kwargs=True)
    return twin


def _turned(model: PreTrainedModel, name: str, factor: float) -> PreTrainedModel:
    """With a number of every module that has it times a factor."""
    twin = sharing_weights(model)
    for part in twin.modules():
        value = getattr(part, name, None)
        if isinstance(value, float | Tensor):
            setattr(part, name, value * factor)
    return twin
