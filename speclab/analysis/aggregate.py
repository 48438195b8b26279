"""What became of every drafted node of many runs: counted by depth, rank, source, entropy and token kind; calibration.

From records alone: needs no torch.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speclab.costs.budget import sibling_ranks
from speclab.errors import SettingsError
from speclab.files import write_table
from speclab.trace.records import Step, Trace
from speclab.tree import Bools, Floats, Ints

if TYPE_CHECKING:
    from speclab.engine.session import Session

Strings = NDArray[np.str_]
Rows = dict[str, NDArray[Any]]
KINDS = ("word start", "continuation", "digits", "punctuation", "white space", "special", "other")
"""Kinds of tokens, see `token_kind`."""
_SPECIAL = re.compile(r"(?i)<\|.*\|>|</?(s|unk|pad|bos|eos|mask|cls|sep)>|\[(UNK|PAD|CLS|SEP|MASK|BOS|EOS)\]")
Z = 1.96
"""Standard deviations of a 95% interval."""


@lru_cache(maxsize=8192)
def token_kind(text: str) -> str:
    r"""The kind of a token by its text alone, the first that fits.

    "special": written like `<|end|>` or `</s>`; "white space": nothing else in it, line ends included; "digits":
    only digits, perhaps after white space; "punctuation": no letter and no digit; "word start": white space, then a
    letter; "continuation": begins with a letter, so also a word at the beginning of a line or after a bracket;
    "other": the rest, such as a part of a character (`<0xE2>`).

    >>> [token_kind(text) for text in (" the", "ing", " 12", ").", "\n", "</s>", "<0xE2>")]
    ['word start', 'continuation', 'digits', 'punctuation', 'white space', 'special', 'other']
    """
    if _SPECIAL.fullmatch(text):
        return "special"
    bare = text.strip()
    if not bare:
        return "white space" if text else "other"
    if bare.isdecimal():
        return "digits"
    if all(unicodedata.category(char)[0] in "PS" for char in bare if not char.isspace()):
        return "punctuation"
    if bare[0].isalpha():
        return "word start" if text[0].isspace() else "continuation"
    return "other"


def _of(dtype: type, description: str, unit: str = "") -> dict[str, Any]:
    return {"dtype": dtype, "description": description, "unit": unit}


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """One row per drafted node, of all iterations of all runs, in their order; each column an array `[rows]`.

    What the rates mean. Acceptance can only be seen where a node was *tried*: its parent was accepted, and the rule
    came to it. So every rate is conditional on that. A node at depth 5 is tried only where four tokens before it were
    right, that is in text that is easy to guess: its rate is not that of any drafted node at depth 5, and the rates of
    depths multiply to the length of a path for this draft's trees alone. Nodes that were not tried are in the table
    (`tried` is False) and in no rate.

    What counts as tried depends on the rule. At temperature 0, and where the target samples once and a child matches
    (`rule` "greedy", "sample and match"), one choice of the target judges all children of a node together: all are
    tried, at most one is accepted. By rejection sampling ("independent draws", "draws without replacement") children
    are tried in turn until one is accepted: those behind it are not tried, and the rate of the second is that after a
    rejection of the first. In typical acceptance all are tried, and one that is probable enough but not on the longest
    path counts as not accepted; so does the second copy of a token that merged trees hold twice under one parent.
    Nodes below the one with which the text ended are not tried.

    `entropy` and `target_prob` are of the distribution that the target decides by: its own at temperature 0, else
    after temperature, top-k and top-p.
    """

    run: Ints = field(metadata=_of(int, "number of the run among those that were given, from 0"))
    iteration: Ints = field(metadata=_of(int, "iteration of the run, from 0"))
    node: Ints = field(metadata=_of(int, "number of the node in its draft tree"))
    depth: Ints = field(metadata=_of(int, "drafted tokens on its path, itself included, from 1", "tokens"))
    rank: Ints = field(metadata=_of(int, "place among its siblings, from 1 for the first child"))
    draft_prob: Floats = field(metadata=_of(float, "probability at its parent, as its source states it", "0 to 1"))
    path_prob: Floats = field(metadata=_of(float, "product of the stated ones from the root to it", "0 to 1"))
    entropy: Floats = field(metadata=_of(float, "of the target at its parent; missing for a drafted root", "nats"))
    target_prob: Floats = field(metadata=_of(float, "the target's probability of the token at its parent", "0 to 1"))
    reached: Bools = field(metadata=_of(bool, "whether its parent lies on the accepted path"))
    tried: Bools = field(metadata=_of(bool, "whether acceptance came to it: every rate is over these rows"))
    accepted: Bools = field(metadata=_of(bool, "whether it was accepted"))
    source: Strings = field(metadata=_of(str, "which part of the drafter proposed it"))
    kind: Strings = field(metadata=_of(str, "kind of token by its text: " + ", ".join(KINDS)))
    strategy: Strings = field(metadata=_of(str, "strategy of the run"))
    rule: Strings = field(metadata=_of(str, "acceptance rule of the iteration"))

    def __len__(self) -> int:
        return len(self.run)

    def select(self, keep: Bools | Ints) -> Aggregate:
        """The rows for which `keep` `[rows]` is true, or those of these numbers."""
        return Aggregate(**{name: column[keep] for name, column in self.columns().items()})

    def columns(self) -> Rows:
        """Every column by its name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def rate(self) -> float:
        """Accepted / tried over all rows, 0…1; NaN where none was tried."""
        return float(self.accepted[self.tried].mean()) if self.tried.any() else float("nan")

    def group(self, by: str, by2: str | None = None) -> Cells:
        """Tried and accepted nodes by one or two of `DIMENSIONS`.

        Raises:
            SettingsError: there is no such dimension.
        """
        names = (by,) if by2 is None else (by, by2)
        unknown = [name for name in names if name not in DIMENSIONS]
        if unknown:
            raise SettingsError(f"Nodes cannot be grouped by {unknown[0]!r}: choose one of {', '.join(DIMENSIONS)}.")
        return _cells(self, [DIMENSIONS[name] for name in names])

    def calibration(self, bins: int = 10, *, first: bool = True) -> Calibration:
        """How often nodes are accepted that the draft gave such a probability, in bins of equal width.

        A draft is calibrated where its stated probability is the rate. That is no merit in itself: at temperature 0
        acceptance is agreement with the target's most probable token, not probability mass. A draft that is the target
        itself is always right, and lies far above the diagonal; a calibrated one is right as often as it says it is,
        which is what a choice of depth or of a budget by path probability takes for granted. Where the target samples
        once and a child matches, a node is accepted with the target's probability of it: there a draft that is the
        target lies on the diagonal. By rejection sampling it is always accepted, and the diagonal means nothing.
        A token that was copied has no probability, and counts as stated to be sure: `select` the sources to look at.

        Args:
            first: of first children alone, one guess at a place; else of all that were tried.

        Raises:
            SettingsError: there are no bins.
        """
        if bins < 1:
            raise SettingsError(f"{bins} bins hold nothing: choose at least 1.")
        rows = self.select(self.rank == 1) if first else self
        cells = _cells(rows, [Dimension("draft probability", "draft_prob", tuple(np.linspace(0, 1, bins + 1)[:-1]))])
        stated = np.array([rows.draft_prob[members].mean() if len(members) else np.nan for members in cells.rows])
        gaps = np.abs(cells.rate[:, 0] - stated)[cells.tried[:, 0] > 0]
        total = int(cells.tried.sum())
        weights = cells.tried[:, 0][cells.tried[:, 0] > 0] / max(total, 1)
        return Calibration(cells, stated, float((weights * gaps).sum()) if total else float("nan"))

    def to_parquet(self, path: str | os.PathLike[str]) -> Path:
        """Writes all rows as one parquet file, whole or not at all; returns the path.

        Each field's metadata holds its description and unit; what is missing (NaN here) is null there.

        Raises:
            SpeclabError: pyarrow is not installed, or the file cannot be written.
        """
        about = {one.name: {key: one.metadata[key] for key in ("description", "unit")} for one in fields(self)}
        return write_table(path, self.columns(), about)


def aggregate(runs: Trace | Session | Iterable[Trace | Session]) -> Aggregate:
    """Every drafted node of one run or of many: traces or sessions, as far as they were decoded.

    Raises:
        SettingsError: one of them is neither.
    """
    given = list(runs) if isinstance(runs, Iterable) else [runs]
    traces: list[Any] = [getattr(one, "trace", one) for one in given]
    wrong = [one for one in traces if not isinstance(one, Trace)]
    if wrong:
        kind = type(wrong[0]).__name__
        raise SettingsError(f"A {kind} is no run: give traces (speclab.load_trace reads a file) or sessions.")
    return _stacked([_rows(run, trace, step) for run, trace in enumerate(traces) for step in trace.steps])


def joined(runs: Sequence[Aggregate]) -> Aggregate:
    """Aggregates of one run each as one, the runs numbered in this order."""
    return _stacked([one.columns() | {"run": np.full(len(one), run)} for run, one in enumerate(runs)])


def _stacked(tables: Sequence[Rows]) -> Aggregate:
    none = {one.name: np.empty(0, one.metadata["dtype"]) for one in fields(Aggregate)}
    return Aggregate(**{name: np.concatenate([none[name], *[rows[name] for rows in tables]]) for name in none})


def _rows(run: int, trace: Trace, step: Step) -> Rows:
    """The drafted nodes of one iteration: all but a verified root."""
    tree, first = step.tree, int(step.root_choice is None)
    nodes, parent = step.nodes[first:], tree.parent[first:]
    on_path = np.zeros(len(tree) + 1, np.bool_)
    on_path[[*step.accepted, -1, *[0] * first]] = True  # -1: what a drafted root hangs on
    entropy = np.array([*[node.entropy for node in step.nodes], np.nan])
    verdicts = np.array([node.verdict for node in nodes], str)
    last = step.accepted[-1] if step.bonus is None else len(tree)  # the text ended there: what follows was not judged
    count = len(nodes)
    return {
        "run": np.full(count, run),
        "iteration": np.full(count, step.index),
        "node": np.arange(first, len(tree)),
        "depth": tree.depth[first:] + 1 - first,
        "rank": sibling_ranks(tree.parent)[first:] + 1,
        "draft_prob": np.exp(tree.log_prob[first:]),
        "path_prob": np.exp(tree.path_log_prob[first:]),
        "entropy": entropy[parent],
        "target_prob": np.array([node.target_prob for node in nodes], float),  # None: NaN
        "reached": on_path[parent],
        "tried": (verdicts != "not reached") & (parent != last),
        "accepted": verdicts == "accepted",
        "source": np.array(tree.source[first:], str),
        "kind": np.array([token_kind(step.texts.get(node.token, "")) for node in nodes], str),
        "strategy": np.full(count, str(trace.settings.get("strategy", ""))),
        "rule": np.full(count, step.rule),
    }


# Cells


class Dimension(NamedTuple):
    """What nodes are grouped by: a column, in words, and how its values become groups.

    `edges`: lower bounds of bins. `most`: of whole numbers from 1 the last of its own; larger ones count with it.
    `order`: of names that have one.
    """

    title: str
    column: str
    edges: tuple[float, ...] = ()
    most: int = 0
    order: tuple[str, ...] = ()

    def codes(self, rows: Aggregate) -> tuple[Ints, tuple[str, ...]]:
        """`[rows]` number of the group that each is in, -1 for none, and the names of the groups."""
        values = getattr(rows, self.column)
        if self.edges:
            codes = np.where(np.isnan(values), 0, np.searchsorted(self.edges, values, side="right")) - 1
            ends = [f" to {end:.3g}" for end in self.edges[1:]]
            names = [f"{low:.3g}{end}" for low, end in zip(self.edges, [*ends, " and more"], strict=True)]
            if self.column.endswith("prob"):
                names[-1] = f"{self.edges[-1]:.3g} to 1"
            return codes, tuple(names[: codes.max(initial=-1) + 1])
        if self.most:
            codes = np.minimum(values, self.most) - 1
            names = [str(number) for number in range(1, self.most)] + [f"{self.most} and more"]
            return codes, tuple(names[: codes.max(initial=-1) + 1])
        found, codes = np.unique(values, return_inverse=True)  # sorted
        known = [found.tolist().index(name) for name in self.order if name in found] or list(range(len(found)))
        return np.argsort(known)[codes], tuple([str(found[at]) for at in known])


STATED = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95)
DIMENSIONS = {
    "depth": Dimension("depth", "depth", most=8),
    "rank": Dimension("rank among siblings", "rank", most=4),
    "source": Dimension("source", "source"),
    "kind": Dimension("token kind", "kind", order=KINDS),
    "entropy": Dimension("target's entropy, nats", "entropy", (0.0, 0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0)),
    "draft_prob": Dimension("stated probability", "draft_prob", STATED),
    "path_prob": Dimension("path probability", "path_prob", STATED),
    "strategy": Dimension("strategy", "strategy"),
    "rule": Dimension("acceptance rule", "rule"),
    "run": Dimension("run", "run"),
}
"""What nodes can be grouped by, by the name that `Aggregate.group` takes."""


class Place(NamedTuple):
    """Where a node is: the run, the iteration of it, and the node of its tree."""

    run: int
    iteration: int
    node: int


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Nodes that were tried, by one dimension (one column of cells) or two (rows and columns).

    `tried`, `accepted`: `[rows, columns]` counts. `names`: of the rows and of the columns. `rows`: for each cell, row
    by row, the rows of the aggregate in it. The interval takes tries as independent; those of one iteration or of one
    text are not, so the true uncertainty is somewhat larger.
    """

    of: Aggregate
    dimensions: tuple[Dimension, ...]
    names: tuple[tuple[str, ...], tuple[str, ...]]
    tried: Ints
    accepted: Ints
    rows: tuple[Ints, ...]

    @property
    def rate(self) -> Floats:
        """`[rows, columns]` accepted / tried, 0…1; NaN where none was tried."""
        return np.where(self.tried > 0, self.accepted / np.maximum(self.tried, 1), np.nan)

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """`[rows, columns]` lower and upper end of Wilson's 95% interval of the rate; NaN where none was tried."""
        return wilson(self.accepted, self.tried)

    def members(self, row: int, column: int = 0) -> list[Place]:
        """The nodes in a cell, in the order they were drafted."""
        found, of = self.rows[row * len(self.names[1]) + column], self.of
        return [Place(*at) for at in np.stack([of.run[found], of.iteration[found], of.node[found]], 1).tolist()]


def wilson(accepted: Ints, tried: Ints, z: float = Z) -> tuple[Floats, Floats]:
    """Lower and upper end of Wilson's score interval of accepted / tried; NaN where none was tried."""
    n = np.where(tried > 0, tried, np.nan)
    rate, spread = accepted / n, z * z / n
    middle, half = rate + spread / 2, np.sqrt(rate * (1 - rate) * spread + spread**2 / 4)
    return (middle - half) / (1 + spread), (middle + half) / (1 + spread)


def _cells(rows: Aggregate, dimensions: Sequence[Dimension]) -> Cells:
    tested = np.flatnonzero(rows.tried)
    codes, names = zip(*[dimension.codes(rows.select(tested)) for dimension in dimensions], strict=True)
    if len(codes) == 1:
        codes, names = (codes[0], np.zeros(len(tested), np.int64)), (names[0], ("",))
    shape = len(names[0]), len(names[1])
    known = (codes[0] >= 0) & (codes[1] >= 0)
    counted, cell = tested[known], codes[0][known] * shape[1] + codes[1][known]
    order = np.argsort(cell, kind="stable")
    tried = np.bincount(cell, minlength=shape[0] * shape[1])
    accepted = np.bincount(cell[rows.accepted[counted]], minlength=shape[0] * shape[1])
    held = np.split(counted[order], tried.cumsum()[:-1]) if tried.size else []
    return Cells(rows, tuple(dimensions), names, tried.reshape(shape), accepted.reshape(shape), tuple(held))


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Stated probability against acceptance.

    `cells`: a row per bin of stated probability. `stated`: `[bins]` mean stated probability of those tried in it, NaN
    where none was. `error`: expected calibration error, the mean of |rate − stated| over bins, weighted by tries.
    """

    cells: Cells
    stated: Floats
    error: float
