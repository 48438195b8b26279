"""Writes a file whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from speclab.errors import TraceError


def write_whole(path: str | os.PathLike[str], data: bytes) -> Path:
    """Puts `data` in the place of what is there, only when all of it is written; returns the path.

    Raises:
        TraceError: the folder is missing, read-only or full.
    """
    place = Path(path)
    partial = place.parent / f".{place.name}.{os.getpid()}.partial"
    try:
        partial.write_bytes(data)
        partial.replace(place)
    except OSError as error:
        raise TraceError(f"{place} cannot be written ({error.strerror or error}): choose another folder.") from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return place
