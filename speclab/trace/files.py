"""Traces as files: gzipped JSON with a version, checked when it is opened.

A file of any origin may be opened: it loads, or one sentence says why not. The types of the records are checked, and
then what views index by: lengths of masks and columns, and numbers of nodes.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO
from itertools import chain
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from speclab.errors import INSTALL, TraceError
from speclab.files import read_whole
from speclab.trace.codecs import adapter
from speclab.trace.records import VERSION, Step, Trace

MAX_BYTES = 64 << 20
"""Most bytes that a trace may unpack to, unless told otherwise: some 80,000 verified nodes."""


def load_trace(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Trace:
    """Reads a trace saved by `Trace.save`.

    Args:
        max_bytes: most bytes that it may unpack to.

    Raises:
        TraceError: the file is missing, too large, damaged, not a trace, or of another version.
    """
    return unpack_trace(read_whole(path, TraceError, max_bytes), str(path), max_bytes=max_bytes)


def unpack_trace(packed: bytes, name: str, *, max_bytes: int = MAX_BYTES) -> Trace:
    """Reads a trace from the bytes of a saved file; `name` is what errors call it."""
    try:
        raw = from_json(_unpacked(packed, name, max_bytes))
    except ValueError as error:
        raise TraceError(f"{name} is not a speclab trace: {error}; save it again") from None
    version = raw.get("version") if isinstance(raw, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise TraceError(
            f"{name} was saved by a newer speclab (format {version}, this one reads {VERSION}): {INSTALL} --upgrade"
        )
    try:
        if version == 1:
            _from_version_1(raw, name)
        trace: Trace = adapter(Trace).validate_python(raw)
        wrong = next(_wrong_indices(trace), "")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        wrong = f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
    if wrong:
        raise TraceError(f"{name} is not a speclab trace of format {version}: {wrong}; save it again")
    return trace


def _unpacked(packed: bytes, name: str, max_bytes: int) -> bytes:
    if not packed.startswith(b"\x1f\x8b"):
        raise TraceError(f"{name} is not a trace: it is not gzipped; save one with trace.save()")
    try:
        with gzip.open(BytesIO(packed)) as stream:
            data = stream.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error):
        raise TraceError(f"{name} is cut short or damaged; save the trace again") from None
    if len(data) > max_bytes:
        raise TraceError(f"{name} unpacks to more than {max_bytes:,} bytes: to load it, pass max_bytes={4 * max_bytes}")
    return data


def _from_version_1(raw: dict[str, Any], name: str) -> None:
    """Format 2 calls the last phase "learn", has no typical acceptance, and no budgets by cost (left out here)."""
    steps = raw.get("steps")
    for step in steps if isinstance(steps, list) else ():
        if isinstance(step, Mapping) and step.get("rule") == "typical acceptance":
            raise TraceError(
                f"{name} has format 1 and typical acceptance, which format {VERSION} does not know: decode it again"
            )
        seconds = step.get("seconds") if isinstance(step, Mapping) else None
        if isinstance(seconds, dict) and "adapt" in seconds:
            seconds["learn"] = seconds.pop("adapt")
    raw["version"] = VERSION


def _wrong_indices(trace: Trace) -> Iterator[str]:
    for number, step in enumerate(trace.steps):
        yield from (f"steps.{number}.{field} does not fit its tree" for field in _unfit_fields(step))
        if step.index != number:
            yield f"steps.{number}.index must be {number}"


def _unfit_fields(step: Step) -> Iterator[str]:
    n, rows = len(step.tree), len(step.tree) + len(step.extra)
    lengths = {"nodes": len(step.nodes), "mask": len(step.mask), "prefix_seen": len(step.prefix_seen)}
    yield from (field for field, length in lengths.items() if length != n)
    residual = () if step.residual is None else (step.residual.node or 0, *(one.node for one in step.residual.trials))
    nodes = {
        "accepted": step.accepted,
        "nodes": [node.index for node in step.nodes],
        "events": [event.node or 0 for event in step.events],
        "residual": residual,
    }
    yield from (field for field, numbers in nodes.items() if max(numbers, default=0) >= n)
    if max(chain.from_iterable(row.sees for row in step.extra), default=0) >= rows:
        yield "extra"
