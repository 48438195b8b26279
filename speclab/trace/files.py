"""Traces as files: gzipped JSON with a version, checked when it is opened.

Any file may be opened: it loads, or one sentence says why not. Types are checked, and then what
views index by: lengths of masks and columns, and node numbers.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from io import BytesIO
from itertools import chain
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from speclab.errors import TraceError
from speclab.files import read_whole
from speclab.trace.codecs import adapter
from speclab.trace.records import VERSION, Trace

MAX_BYTES = 64 << 20
"""Most bytes that a trace may unpack to by default: about 80,000 verified nodes."""
MAX_TEXTS = 300_000
"""Most token texts of a run or a step: the largest vocabularies have 262,144 ids."""


def load_trace(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Trace:
    """Reads a trace saved by `Trace.save`.

    Args:
        max_bytes: most bytes that it may unpack to.

    Raises:
        TraceError: the file is missing, too large, damaged, not a trace, or of another version.
    """
    return unpack_trace(read_whole(path, TraceError, max_bytes), str(path), max_bytes=max_bytes)


def unpack_trace(packed: bytes, name: str, *, max_bytes: int = MAX_BYTES) -> Trace:
    """Reads a trace from the bytes of a saved file; `name` appears in errors."""
    data = _unpacked(packed, name, max_bytes)
    try:
        raw = from_json(data)
    except ValueError:
        raise TraceError(f"{name} is not a speclab trace: it is not JSON; save it again") from None
    return checked(raw, name)


def checked(raw: Any, name: str) -> Trace:
    """A trace from its JSON; `name` appears in errors. `views/page/reader.js` refuses the same in the
    same words."""
    version = raw.get("version") if isinstance(raw, dict) else None
    if isinstance(version, int) and version != VERSION:
        way_out = "upgrade speclab" if version > VERSION else "decode it again"
        raise TraceError(
            f"{name} has trace format {version}, and this speclab reads format {VERSION}: {way_out}"
        )
    try:
        trace: Trace = adapter(Trace).validate_python(raw)
        wrong = next(_wrong_fields(trace), "")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        reason = first["msg"]
        if reason.startswith("Input should be a valid"):
            reason = reason.partition(",")[0]  # JSON has nothing to parse
        place = [str(name) for name in first["loc"]]
        if place and place[-1] == "float":  # the first type of a value that has several
            place.pop()
        wrong = f"{'.'.join(place) or 'the file'}: {reason}"
    if wrong:
        raise TraceError(
            f"{name} is not a speclab trace of format {VERSION}: {wrong}; save it again"
        )
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
        raise TraceError(
            f"{name} unpacks to more than {max_bytes:,} bytes: open it in Python with "
            f"speclab.load_trace(path, max_bytes={4 * max_bytes})"
        )
    return data


def _wrong_fields(trace: Trace) -> Iterator[str]:
    most = max([len(step.texts) for step in trace.steps], default=0)
    if max(most, len(trace.texts)) > MAX_TEXTS:
        yield f"texts has more than {MAX_TEXTS:,} entries"
    for number, step in enumerate(trace.steps):
        if step.index != number:
            yield f"steps.{number}.index must be {number}"
        n = len(step.tree)
        rows = len(step.tree) + len(step.extra)
        lengths = {
            "nodes": len(step.nodes),
            "mask": len(step.mask),
            "prefix_seen": len(step.prefix_seen),
        }
        numbers = {
            "accepted": step.accepted,
            "nodes": [node.index for node in step.nodes],
            "events": [event.node or 0 for event in step.events],
            "trials": [trial.node for trial in step.trials],
            "residual": [0 if step.residual is None else step.residual.node or 0],
        }
        wrong = [field for field, length in lengths.items() if length != n]
        if len(step.gaps) not in (0, n):
            wrong.append("gaps")
        wrong += [field for field, nodes in numbers.items() if max(nodes, default=0) >= n]
        if max(chain.from_iterable(row.sees for row in step.extra), default=0) >= rows:
            wrong.append("extra")
        yield from (f"steps.{number}.{field} does not fit its tree" for field in wrong)
