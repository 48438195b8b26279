"""Read whole files, write whole files or nothing, and format sizes."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from speclab.errors import SpeclabError, TraceError


def opened(
    path: str | os.PathLike[str],
    kind: type[SpeclabError] = TraceError,
    max_bytes: int | None = None,
) -> BinaryIO:
    """A regular file, open for reading.

    Raises:
        SpeclabError: of class `kind`: the file is missing, not a regular file, unreadable, or
            larger than `max_bytes`.
    """
    try:
        file = Path(path)
        if file.exists() and not file.is_file():  # a pipe has no end
            raise ValueError("it is not a regular file")
        if max_bytes is not None and file.stat().st_size > max_bytes:
            raise ValueError(
                f"{file.stat().st_size:,} bytes are more than the {max_bytes:,} allowed"
            )
        return file.open("rb")
    except (OSError, TypeError, ValueError) as error:
        raise kind(f"{path} cannot be read ({_reason(error)}); check the path") from None


def read_whole(
    path: str | os.PathLike[str],
    kind: type[SpeclabError] = TraceError,
    max_bytes: int | None = None,
) -> bytes:
    """The bytes of a regular file; raises as `opened`."""
    with opened(path, kind, max_bytes) as file:
        return file.read()


def write_whole(path: str | os.PathLike[str], data: bytes) -> Path:
    """Replaces a file with `data` once all of it is written; returns the path. A symbolic link is
    followed.

    Raises:
        TraceError: the folder is missing, read-only or full, or the path is not a regular file.
    """
    partial: Path | None = None
    try:
        goal = Path(os.path.realpath(path))
        if goal.exists() and not goal.is_file():
            raise ValueError("it is not a regular file")
        partial = goal.parent / f".{token_hex(8)}.partial"
        partial.write_bytes(data)
        if goal.exists():  # a private file stays private
            partial.chmod(goal.stat().st_mode)
        partial.replace(goal)
    except BaseException as error:
        if partial is not None:
            partial.unlink(missing_ok=True)
        if not isinstance(error, OSError | ValueError):
            raise
        raise TraceError(
            f"{path} cannot be written ({_reason(error)}): choose another folder or name."
        ) from None
    return Path(path)


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def byte_count(count: float) -> str:
    """Format bytes: `512 B`, `1.2 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
