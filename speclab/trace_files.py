"""Traces as files: gzipped JSON with a version, checked when it is opened."""

from __future__ import annotations

import gzip
import os
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from speclab.errors import TraceError
from speclab.trace import VERSION, Trace
from speclab.writing import write_whole


def write(trace: Trace, place: Path) -> Path:
    """Writes a trace, whole or not at all; what `Trace.save` does."""
    return write_whole(place, gzip.compress(_adapter().dump_json(trace), mtime=0))


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[Trace]:
    return TypeAdapter(Trace)


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Reads a trace saved by `Trace.save`.

    Raises:
        TraceError: the file is missing, damaged, not a trace, or of a newer version.
    """
    try:
        packed = Path(path).read_bytes()
    except OSError as error:
        raise TraceError(f"{path} cannot be read ({error.strerror or error}); check the path") from None
    return unpack_trace(packed, str(path))


def unpack_trace(packed: bytes, name: str) -> Trace:
    """Reads a trace from the bytes of a saved file; `name` is what errors call it."""
    try:
        data = gzip.decompress(packed)
    except gzip.BadGzipFile:
        raise TraceError(f"{name} is not a trace: it is not gzipped; save one with trace.save()") from None
    except (EOFError, zlib.error):
        raise TraceError(f"{name} is cut short or damaged; save the trace again") from None
    return parse_trace(data, name)


def parse_trace(data: bytes, name: str) -> Trace:
    """Reads a trace from JSON bytes; `name` is what errors call it."""
    try:
        version = TypeAdapter(dict[str, Any]).validate_json(data).get("version")
        if isinstance(version, int) and version > VERSION:
            raise TraceError(
                f"{name} was saved by a newer speclab (format {version}, this one reads {VERSION}): upgrade"
            )
        return _adapter().validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise TraceError(f"{name} is not a speclab trace: {where}: {first['msg']}; save it again") from None
