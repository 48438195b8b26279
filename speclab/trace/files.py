"""Traces as files: gzipped JSON with a version, checked when it is opened.

Whatever loads can be drawn: the types of the records bound every number and text (`packing`), the rules below hold the
fields against each other, and views rely on both.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import pairwise
from typing import NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json

from speclab.costs.curve import Curve
from speclab.errors import TraceError
from speclab.files import read_whole
from speclab.trace.codecs import NODES, adapter, first_error
from speclab.trace.records import VERSION, BudgetRecord, CacheRecord, Event, Step, Trace

MAX_BYTES = 64 << 20
"""Most bytes that a trace may unpack to, unless told otherwise: some 80,000 verified nodes."""
PROMPT = 1 << 20
"""Most tokens of a prompt."""


def load_trace(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Trace:
    """Reads a trace saved by `Trace.save`; a file of any origin may be opened, it can only be refused.

    Args:
        path: of the file.
        max_bytes: most bytes that it may unpack to.

    Raises:
        TraceError: the file is missing, too large, damaged, not a trace, or of a newer version.
    """
    return unpack_trace(read_whole(path, TraceError, max_bytes), str(path), max_bytes=max_bytes)


def unpack_trace(packed: bytes, name: str, *, max_bytes: int = MAX_BYTES) -> Trace:
    """Reads a trace from the bytes of a saved file; `name` is what errors call it."""
    if not packed.startswith(b"\x1f\x8b"):
        raise TraceError(f"{name} is not a trace: it is not gzipped; save one with trace.save()")
    try:
        with gzip.open(BytesIO(packed)) as stream:
            data = stream.read(max_bytes + 1)
    except gzip.BadGzipFile as error:
        what = "holds something after its end" if str(error).startswith("Not a gz") else "is damaged"
        raise TraceError(f"{name} {what}; save the trace again") from None
    except (EOFError, zlib.error):
        raise TraceError(f"{name} is cut short or damaged; save the trace again") from None
    if len(data) > max_bytes:
        raise TraceError(
            f"{name} unpacks to more than {max_bytes:,} bytes: to load it all the same, pass max_bytes={4 * max_bytes}"
        )
    return parse_trace(data, name)


def parse_trace(data: bytes, name: str) -> Trace:
    """Reads a trace from JSON bytes; `name` is what errors call it."""
    raw = _json(data, name)
    version = raw.get("version") if isinstance(raw, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise TraceError(f"{name} was saved by a newer speclab (format {version}, this one reads {VERSION}): upgrade")
    try:
        trace = adapter(Trace).validate_python(raw)
        wrong = next(_contradictions(trace), None)
    except ValidationError as error:
        wrong = first_error(error)
    if wrong is not None:
        raise _no_trace(name, wrong)
    return trace


def _json(data: bytes, name: str) -> object:
    # As a value a bracket would be a hundred times larger; of a trace, every fortieth byte is one.
    if data.count(b"[") + data.count(b"{") > len(data) // 16 + 1000:
        raise _no_trace(name, "it holds hardly anything but brackets")
    try:
        return from_json(data)
    except ValueError as error:
        raise _no_trace(name, str(error)) from None


def _no_trace(name: str, why: str) -> TraceError:
    return TraceError(f"{name} is not a speclab trace: {why}; save it again")


class _At(NamedTuple):
    """A step and what came before it: its place in the run, and the tokens of the text."""

    step: Step
    place: int
    text: int


def _contradictions(trace: Trace) -> Iterator[str]:
    """Where the fields of a trace do not belong together, as `steps.3.accepted must be …`."""
    if len(trace.prompt_ids) > PROMPT:
        yield f"prompt_ids must be at most {PROMPT} tokens"
    text = len(trace.prompt_ids) + 1
    trees = {len(step.proposals) for step in trace.steps} - {0}
    if len(trees) > 1 or 1 in trees:
        yield "steps must have none or the same two or more proposals"
    for place, step in enumerate(trace.steps):
        at = _At(step, place, text)
        yield from (f"steps.{place}.{field} must {must}" for field, must, holds in _RULES if not holds(at))
        text += len(step.committed)


def _path(at: _At) -> tuple[int, ...]:
    """The accepted path from the root: a verified root is on it, though it is not among the accepted."""
    verified = at.step.nodes[0].verdict == "root"
    return ((0,) if verified else ()) + at.step.accepted


def _is_path(at: _At) -> bool:
    parents, path = at.step.tree.parent, _path(at)
    inside = all(node < len(parents) for node in path)
    return inside and all(parents[child] == parent for parent, child in pairwise((-1, *path)))


def _nodes_agree(at: _At) -> bool:
    step = at.step
    expected = zip(range(len(step.tree)), step.tree.token.tolist(), strict=True)
    return [(node.index, node.token) for node in step.nodes] == list(expected) and all(
        node.kv_slot == step.prefix_length + node.index for node in step.nodes
    )


def _committed_agrees(at: _At) -> bool:
    step = at.step
    own = () if step.bonus is None else (step.bonus,)
    return step.committed == (*step.tree.token[list(step.accepted)].tolist(), *own) and len(step.committed) > 0


def _counts_agree(at: _At) -> bool:
    counts, step = at.step.counts, at.step
    return (counts.iterations, counts.committed, counts.accepted) == (1, len(step.committed), len(step.accepted))


def _event_reads(event: Event) -> bool:
    """Whether the figures that are counted are numbers."""
    return not any(isinstance(event.values.get(name), str) for name in ("added", "branches", "dropped"))


def _extra_rows_fit(at: _At) -> bool:
    step, rows = at.step, len(at.step.tree) + len(at.step.extra)
    return len(step.extra) <= NODES and all(
        row.depth <= NODES and row.prefix_seen <= step.prefix_length and max(row.sees, default=0) < rows
        for row in step.extra
    )


def _cache_fits(cache: CacheRecord, at: _At) -> bool:
    """No longer than the text and what one pass may add to it; every slot that moved was there."""
    room = at.text + len(at.step.committed)
    held = cache.before + cache.written
    slots = (*cache.kept, *(slot for pair in cache.moved for slot in pair))
    fits = max(cache.before, cache.after, cache.committed) <= room and cache.written <= room + 4 * NODES
    return fits and max(slots, default=-1) < held


def _residual_fits(at: _At) -> bool:
    n, left = len(at.step.tree), at.step.residual
    return left is None or ((left.node or 0) < n and all(one.node < n for one in left.trials))


def _proposals_fit(at: _At) -> bool:
    """The tree that was verified is the one chosen, or a part of it; or several were merged."""
    step = at.step
    chosen = [one.tree for one in step.proposals if one.chosen]
    if len(chosen) != 1:
        return len(chosen) > 1 or not step.proposals
    tree, place = chosen[0], [0]
    for node in range(1, len(step.tree)):
        children = tree.children[place[int(step.tree.parent[node])]]
        found = [child for child in children if tree.token[child] == step.tree.token[node]]
        if not found:
            return False
        place.append(found[0])
    return True


def _budget_fits(at: _At) -> bool:
    record: BudgetRecord | None = at.step.budget
    if record is None:
        return True
    try:
        Curve(name="target", rows=record.rows, seconds=record.seconds, prefix=0, rounds=1)
    except ValidationError:
        return False
    drafted = len(record.probabilities) + record.verified_root
    return 1 <= record.verified <= drafted <= 16 * NODES and record.extra <= NODES and record.rows[-1] <= 16 * NODES


_RULES: tuple[tuple[str, str, Callable[[_At], bool]], ...] = (
    ("index", "count the steps from 0", lambda at: at.step.index == at.place),
    ("prefix_length", "be at most the tokens of the text so far", lambda at: at.step.prefix_length <= at.text),
    ("nodes", "be the nodes of the tree, one by one, each in the slot behind the prefix", _nodes_agree),
    (
        "nodes",
        "have the verdict root at the root alone",
        lambda at: all(n.verdict != "root" for n in at.step.nodes[1:]),
    ),
    ("accepted", "be a path of the tree from its root", _is_path),
    ("committed", "be the accepted tokens and the bonus", _committed_agrees),
    ("counts", "count what was accepted and committed", _counts_agree),
    ("mask", "have a row and a column for each node", lambda at: len(at.step.mask) == len(at.step.tree)),
    (
        "prefix_seen",
        "be a part of the prefix for each node",
        lambda at: len(at.step.prefix_seen) == len(at.step.tree) and max(at.step.prefix_seen) <= at.step.prefix_length,
    ),
    ("extra", "see rows of this pass", _extra_rows_fit),
    (
        "events",
        "speak of nodes of the tree",
        lambda at: all((event.node or 0) < len(at.step.tree) for event in at.step.events),
    ),
    ("events", "count children in numbers", lambda at: all(map(_event_reads, at.step.events))),
    (
        "caches",
        "fit the text, and move slots they hold",
        lambda at: all(_cache_fits(one, at) for one in at.step.caches),
    ),
    ("residual", "speak of nodes of the tree", _residual_fits),
    ("proposals", "hold the tree that was verified", _proposals_fit),
    ("budget", "be a choice among the drafted nodes, by a cost curve", _budget_fits),
)
"""Field, what it must, and whether it does; each rule may rely on those before it."""
