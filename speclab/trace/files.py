"""Traces as files: gzipped JSON with a version, checked when it is opened.

Whatever loads can be drawn: the types of the records bound every number and text (`codecs`), the rules below compare
the fields with each other, and views rely on both.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from io import BytesIO
from itertools import chain, pairwise

from pydantic import ValidationError
from pydantic_core import from_json

from speclab.errors import INSTALL, TraceError
from speclab.files import read_whole
from speclab.trace.codecs import NODES, adapter, first_error
from speclab.trace.records import VERSION, CacheRecord, Step, Trace

MAX_BYTES = 64 << 20
"""Most bytes that a trace may unpack to, unless told otherwise: some 80,000 verified nodes."""
PROMPT = 1 << 20
"""Most tokens of a prompt."""


def load_trace(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Trace:
    """Reads a trace saved by `Trace.save`; a file of any origin may be opened, it can only be refused.

    Args:
        max_bytes: most bytes that it may unpack to.

    Raises:
        TraceError: the file is missing, too large, damaged, not a trace, or of a newer version.
    """
    return unpack_trace(read_whole(path, TraceError, max_bytes), str(path), max_bytes=max_bytes)


def unpack_trace(packed: bytes, name: str, *, max_bytes: int = MAX_BYTES) -> Trace:
    """Reads a trace from the bytes of a saved file; `name` is what errors call it."""
    raw = _json(_unpacked(packed, name, max_bytes), name)
    version = raw.get("version") if isinstance(raw, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise TraceError(
            f"{name} was saved by a newer speclab (format {version}, this one reads {VERSION}): {INSTALL} --upgrade"
        )
    try:
        trace = adapter(Trace).validate_python(raw)
        wrong = next(_contradictions(trace), None)
    except ValidationError as error:
        wrong = first_error(error)
    if wrong is not None:
        raise _no_trace(name, wrong)
    return trace


def _unpacked(packed: bytes, name: str, max_bytes: int) -> bytes:
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
    return data


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


def _contradictions(trace: Trace) -> Iterator[str]:
    """Where the fields of a trace do not belong together, as `steps.3.accepted must be …`."""
    if len(trace.prompt_ids) > PROMPT:
        yield f"prompt_ids must be at most {PROMPT} tokens"
    text = len(trace.prompt_ids) + 1
    runs = sorted((one.start, one.stop) for one in trace.messages if one.stop)
    ends = [0, *chain.from_iterable(runs), len(trace.prompt_ids)]
    if ends != sorted(ends):
        yield "messages must be of tokens of the prompt, each of its own"
    trees = {len(step.proposals) for step in trace.steps} - {0}
    if len(trees) > 1 or 1 in trees:
        yield "steps must have none or the same two or more proposals"
    for index, step in enumerate(trace.steps):
        rules = chain(_rules_of_the_tree(step, index, text), _rules_of_the_pass(step, text))
        yield from (f"steps.{index}.{field} must {must}" for field, must, holds in rules if not holds)
        text += len(step.committed)


Rules = Iterator[tuple[str, str, bool]]
"""Field, what it must, and whether it does. Only the first broken rule is told, so each may rely on those before it."""


def _rules_of_the_tree(step: Step, index: int, text: int) -> Rules:
    """`text`: tokens of the text before this step."""
    n, first, counts = len(step.tree), step.prefix_length, step.counts
    bonus = () if step.bonus is None else (step.bonus,)
    yield "index", "count the steps from 0", step.index == index
    yield "prefix_length", "be at most the tokens of the text so far", first <= text
    rows = [(node.index, node.token, node.kv_slot) for node in step.nodes]
    own = [(row, token, first + row) for row, token in enumerate(step.tree.token.tolist())]
    yield "nodes", "be the nodes of the tree, one by one, each in the slot behind the prefix", rows == own
    yield "nodes", "have the verdict root at the root alone", all(node.verdict != "root" for node in step.nodes[1:])
    yield "accepted", "be a path of the tree from its root", _is_path(step)
    accepted = step.tree.token[list(step.accepted)].tolist()
    agrees = step.committed == (*accepted, *bonus) and len(step.committed) > 0
    yield "committed", "be the accepted tokens and the bonus", agrees
    counted = (counts.iterations, counts.committed, counts.accepted)
    yield "counts", "count what was accepted and committed", counted == (1, len(step.committed), len(accepted))
    yield "mask", "have a row and a column for each node", len(step.mask) == n
    yield "events", "speak of nodes of the tree", all((event.node or 0) < n for event in step.events)
    figures = [event.values.get(name) for event in step.events for name in ("added", "branches", "dropped")]
    yield "events", "count children in numbers", not any(isinstance(figure, str) for figure in figures)


def _rules_of_the_pass(step: Step, text: int) -> Rules:
    n, prefix, left = len(step.tree), step.prefix_length, step.residual
    seen = len(step.prefix_seen) == n and max(step.prefix_seen) <= prefix
    yield "prefix_seen", "be a part of the prefix for each node", seen
    extra = len(step.extra) <= NODES and all(
        row.depth <= NODES and row.prefix_seen <= prefix and max(row.sees, default=0) < n + len(step.extra)
        for row in step.extra
    )
    yield "extra", "see rows of this pass", extra
    room = text + len(step.committed)
    yield "caches", "fit the text, and move slots they hold", all(_cache_fits(cache, room) for cache in step.caches)
    inside = left is None or ((left.node or 0) < n and all(trial.node < n for trial in left.trials))
    yield "residual", "speak of nodes of the tree", inside
    yield "proposals", "hold the tree that was verified", _proposals_fit(step)


def _is_path(step: Step) -> bool:
    """A verified root is on the accepted path, though it is not among the accepted."""
    parents = step.tree.parent
    path = ((0,) if step.nodes[0].verdict == "root" else ()) + step.accepted
    inside = all(node < len(parents) for node in path)
    return inside and all(parents[child] == parent for parent, child in pairwise((-1, *path)))


def _cache_fits(cache: CacheRecord, room: int) -> bool:
    """No longer than the text and what one pass may add to it; every slot that moved was there."""
    slots = (*cache.kept, *(slot for pair in cache.moved for slot in pair))
    fits = max(cache.before, cache.after, cache.committed) <= room and cache.written <= room + 4 * NODES
    return fits and max(slots, default=-1) < cache.before + cache.written


def _proposals_fit(step: Step) -> bool:
    """The tree that was verified is the one chosen, or a part of it; or several were merged."""
    chosen = [proposal.tree for proposal in step.proposals if proposal.chosen]
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
