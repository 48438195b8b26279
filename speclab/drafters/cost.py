"""`node_budget="auto"`: the number of rows that commits most tokens per second on this machine.

The tokens of n rows are those of the best tree of n nodes whose children are accepted as often as
on the shipped pairs, corrected by what this pair accepted of the strategy's last trees (`Yields`);
the seconds are those of the target's pass and of the draft's, about one per level, and what the
last iterations took besides.
Passes are timed once per machine and model; the times are kept in the user's cache directory for a
month. Times that were taken beside other work are not kept, and taken again a minute later.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from threading import Lock
from time import perf_counter, process_time, time
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from annotated_types import Ge, Le
from pydantic import Field

from speclab.drafters.base import NODES, Strategy
from speclab.files import measured_file, read_measured, write_measured
from speclab.tree import DraftTree, Floats

if TYPE_CHECKING:
    from speclab.models.source import DraftSource
    from speclab.pair import ModelPair

PREFIX = 128
"""Cache entries before a timed pass, or half of a shorter context."""
LEAST = 4
MOST = 64
ACCEPTED = (0.61, 0.15, 0.06, 0.03)
"""How often the child of each rank is accepted, once its parent is: on both shipped pairs, about."""
LEVELS = 8
ROWS = (1, 4, 6, 8, 12, 16, 24, 32, 48, 64)
ROUNDS = 7
QUIET = 1.25
"""Median over fastest pass; above this the machine was busy, and the times are not kept on disk."""
AGAIN = 60.0
"""Seconds until times of a busy machine are taken again."""
RECENT = 512
"""Trees of a strategy whose counts are kept; beyond, they are halved."""
DOUBT = 24.0
"""Trees for which the expected rates stand."""
QUICK = 64
"""Iterations whose quick ones say what one takes besides its passes."""
KEEP = 5.0
"""Seconds between two writes of the counts."""
OLD = 30 * 24 * 3600.0
"""Seconds until other times are taken again."""

NodeBudget = Annotated[
    Annotated[int, Ge(1), Le(1024)] | Literal["auto"],
    NODES,
    Field(
        description="maximum nodes of a tree, root included; auto (not in the paper): as many, from 4 to 64, as "
        "commit most tokens per second, by the times of passes on this machine",
    ),
]
S = TypeVar("S", bound=Strategy)
Times = tuple[float, ...]


class _Measured(NamedTuple):
    """Fastest passes, and until when they hold, in seconds since the epoch."""

    times: Times
    until: float


_known: WeakKeyDictionary[Any, dict[tuple[str, ...], _Measured]] = WeakKeyDictionary()
"""By module, then by the other conditions of a measurement."""
_one_at_a_time = Lock()


def with_node_budget(strategy: S, pair: ModelPair) -> S:
    """The strategy with a number in place of `node_budget="auto"`."""
    if not strategy.is_auto:
        return strategy
    return strategy.model_copy(update={"node_budget": node_budget(strategy, pair)})


def node_budget(strategy: Strategy, pair: ModelPair) -> int:
    """The number of rows, from 4 to 64, that commits most tokens per second of an iteration's passes.

    A text and its forks keep the number that they began with.
    """
    key = repr(strategy)
    if key not in pair.budgets:
        pair.budgets[key] = _best_budget(strategy, pair)
    return pair.budgets[key]


def _best_budget(strategy: Strategy, pair: ModelPair) -> int:
    rows = np.arange(LEAST, MOST + 1)
    passes = _pass_seconds_of_trees(pair, drafting(strategy, pair))
    counted = yields(type(strategy).__name__, pair)
    counted.passes = passes
    return int(rows[np.argmax(counted.tokens()[rows - 1] / (passes + counted.besides))])


def _pass_seconds_of_trees(pair: ModelPair, drafts: Sequence[DraftSource]) -> Floats:
    """`[MOST - LEAST + 1]`: seconds of all passes of an iteration, by its nodes, from `LEAST` on."""
    rows = np.arange(LEAST, MOST + 1)
    spent = np.interp(rows, ROWS, pass_seconds(pair.target))
    for draft in drafts:
        # a pass per level, about twice as many nodes in each; a block is one pass
        passes = np.log2(rows)
        if draft.reach:
            passes = np.ones(len(rows))
        spent += passes * np.interp(rows / passes, ROWS, pass_seconds(draft))
    return spent


def drafting(strategy: Strategy, pair: ModelPair) -> Sequence[DraftSource]:
    """What drafts for a strategy: its drafter knows."""
    return strategy.changed(node_budget=MOST).drafter(pair.fresh()).runners


def iteration_seconds(
    strategy: Strategy, pair: ModelPair, drafts: Sequence[DraftSource], nodes: int
) -> float:
    """Seconds of an iteration with a tree of so many nodes, from `LEAST` to `MOST`: its passes, as
    measured, and what the last iterations took besides.

    `drafts`: of `drafting`, which copies the pair.
    """
    passes = _pass_seconds_of_trees(pair, drafts)
    besides = yields(type(strategy).__name__, pair).besides
    return float(passes[max(nodes, LEAST) - LEAST]) + besides


# What the last trees gave


class Yields:
    """How often the k-th node of a strategy's trees was accepted, the best first, on one pair.

    Attributes:
        trials, hits: `[MOST]`, of the k-th node: trees that had one, and those of which it was
            accepted. Node 0 is the root, which commits the bonus token.
        passes: `[MOST - LEAST + 1]`, seconds of all passes of an iteration by its nodes, from
            `LEAST` on; None: no budget was asked for.
        besides: seconds of an iteration without its passes, a quarter of the last ones took less.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = time()
        self.trials, self.hits, self.besides = _load_yields(path)
        self.passes: Floats | None = None
        self._excess: deque[float] = deque(maxlen=QUICK)

    def add(self, tree: DraftTree, accepted: Collection[int], seconds: float) -> None:
        """Counts one tree.

        Args:
            accepted: its nodes that the target accepted.
            seconds: of its iteration.
        """
        scores = tree.log_prob.astype(np.float64)
        for node in range(1, len(tree)):  # a node is at most as probable as its parent
            scores[node] += scores[tree.parent[node]]
        scores[0] = np.inf
        best = np.argsort(-scores, kind="stable")[:MOST]
        self.trials[: len(best)] += 1
        self.hits[: len(best)] += np.isin(best, list(accepted))
        if self.trials[0] > RECENT:  # the last texts count most
            self.trials *= 0.5
            self.hits *= 0.5
        if self.passes is not None and LEAST <= len(tree) <= MOST:
            self._excess.append(float(seconds - self.passes[len(tree) - LEAST]))
            # other work makes iterations longer: the quick ones count, half of the passes at most
            quick = sorted(self._excess)[len(self._excess) // 4]
            self.besides = min(max(quick, 0.0), float(self.passes[0]) / 2)
        if time() > self._last + KEEP:
            self._last = time()
            counts = {
                "trials": self.trials.tolist(),
                "hits": self.hits.tolist(),
                "besides": self.besides,
            }
            write_measured(self._path, counts)

    def tokens(self) -> Floats:
        """Tokens that a pass of 1, 2, … nodes commits: the expected ones as far as nothing was seen."""
        expected = np.diff(expected_tokens(), prepend=0)
        # nodes that were never drafted: as much more or less than expected as those that were
        tried = float((expected[1:] * self.trials[1:]).sum())
        seen = float(self.hits[1:].sum())
        ratio = (seen + DOUBT) / (tried + DOUBT)
        gains = (self.hits + DOUBT * ratio * expected) / (self.trials + DOUBT)
        gains[0] = 1
        return np.minimum(gains, 1).cumsum()


def _load_yields(path: Path) -> tuple[Floats, Floats, float]:
    with suppress(ValueError, TypeError, KeyError):  # a damaged file
        counts: Any = read_measured(path)
        trials = np.array(counts["trials"], dtype=np.float64)
        hits = np.array(counts["hits"], dtype=np.float64)
        besides = float(counts["besides"])
        right = (hits <= trials).all() and (hits >= 0).all() and besides >= 0
        if trials.shape == hits.shape == (MOST,) and right:
            return trials, hits, besides
    return np.zeros(MOST), np.zeros(MOST), 0.0


def yields(name: str, pair: ModelPair) -> Yields:
    """Of the strategy of that name: from memory, disk, or empty."""
    drafts = [source.name for source in (pair.draft, *pair.heads) if source is not None]
    conditions = ("yields", name, pair.target.name, *drafts)
    if conditions not in pair.shared_state:
        pair.shared_state[conditions] = Yields(_path(pair.target, conditions))
    kept: Yields = pair.shared_state[conditions]
    return kept


def observe(
    strategy: Strategy,
    pair: ModelPair,
    tree: DraftTree,
    accepted: Collection[int],
    seconds: float,
) -> None:
    """Counts a tree of a strategy with a node budget, for the budgets of later texts.

    `seconds`: of its iteration.
    """
    if hasattr(strategy, "node_budget") and len(tree) > 1:
        yields(type(strategy).__name__, pair).add(tree, accepted, seconds)


@cache
def expected_tokens() -> Floats:
    """Tokens that a pass of the best tree of 1, 2, … nodes commits, root and bonus token included.

    A node adds the product of the rates on its path. It adds at most as much as its parent and its
    better siblings, so the nodes that add most always form a tree.
    """
    levels = [np.ones(1)]
    for _ in range(LEVELS):
        levels.append(_largest(np.outer(levels[-1], ACCEPTED).ravel()))
    return _largest(np.concatenate(levels)).cumsum()


def _largest(values: Floats) -> Floats:
    """The `MOST` largest, in descending order."""
    return np.sort(values)[::-1][:MOST]


def seconds(runner: DraftSource, rows: int) -> float:
    """Seconds of a pass of so many rows, interpolated between measured sizes and extrapolated beyond the largest."""
    times = pass_seconds(runner)
    beyond = max(rows - ROWS[-1], 0) * (times[-1] - times[-2]) / (ROWS[-1] - ROWS[-2])
    return float(np.interp(rows, ROWS, times)) + beyond


def pass_seconds(runner: DraftSource) -> Times:
    """Seconds of a pass for each number in `ROWS`, never falling: from memory, disk, or a new measurement."""
    conditions = _conditions(runner)
    with _one_at_a_time:
        before = _known.get(runner.model, {}).get(conditions)
        now = before or _load(_path(runner, conditions))
        if now is None or now.until < time():
            now = _measure(runner, _path(runner, conditions))
            # other work only makes a pass slower, so the faster time is the better one
            if before is not None:
                now = _Measured(tuple(map(min, before.times, now.times)), now.until)
        _known.setdefault(runner.model, {})[conditions] = now
        return now.times


def is_timed(runner: DraftSource) -> bool:
    """Whether `pass_seconds` knows its passes, so that it measures nothing."""
    conditions = _conditions(runner)
    known = _known.get(runner.model, {}).get(conditions) or _load(_path(runner, conditions))
    return known is not None and known.until >= time()


def _conditions(runner: DraftSource) -> tuple[str, ...]:
    """Under which its passes take as long."""
    import torch

    return (
        runner.name,
        getattr(runner, "forward_name", "lean"),
        str(runner.dtype),
        str(runner.device),
        str(torch.get_num_threads()),
    )


def _measure(runner: DraftSource, path: Path) -> _Measured:
    """The fastest pass of each size, written to `path` if the machine was quiet; the runner's cache
    is unchanged.

    Sizes alternate, so that a slow moment affects all of them.
    """
    timed = partial(_timed, runner.fork())
    passes: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for rows in ROWS:
        timed(rows)  # warm up: buffers grow
    for _ in range(ROUNDS):
        for rows in ROWS:
            passes[rows].append(timed(rows))
    fastest = [min(passes[rows]) for rows in ROWS]
    times = tuple(np.minimum.accumulate(fastest[::-1])[::-1].tolist())  # fewer rows never cost more
    if median(median(passes[rows]) / min(passes[rows]) for rows in ROWS) > QUIET:
        return _Measured(times, time() + AGAIN)
    write_measured(path, {"seconds": times})
    return _Measured(times, time() + OLD)


def _timed(runner: DraftSource, rows: int) -> float:
    """Seconds of a pass of so many rows after some entries; an empty cache gets them first.

    On a busy CPU, time spent waiting for the processor does not count.
    """
    if not runner.length:
        longest = runner.context or 2 * PREFIX
        runner.fill(max(1, min(PREFIX, longest // 2)))
    length = runner.length
    began = perf_counter()
    worked = process_time()
    answer = runner.run_rows(rows)
    assert len(answer.choice)  # read, as in decoding: on CUDA this waits for the pass
    took = perf_counter() - began
    if runner.device.type == "cpu":
        took = min(took, process_time() - worked)  # process_time adds up threads
    runner.crop(length)
    return took


def _path(runner: DraftSource, conditions: tuple[str, ...]) -> Path:
    """The file of these conditions in the cache."""
    versions = version("torch") + version("transformers")
    model = (platform.node(), versions, repr(runner.model.config))
    return measured_file("costs", conditions + model)


def _load(path: Path) -> _Measured | None:
    with suppress(OSError, ValueError, KeyError, TypeError):  # none yet, or a damaged file
        times = tuple(map(float, read_measured(path)["seconds"]))
        if len(times) == len(ROWS) and min(times) > 0:
            return _Measured(times, path.stat().st_mtime + OLD)
    return None
