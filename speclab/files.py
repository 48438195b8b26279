"""Reads a file whole, writes one (or a table) whole or not at all, and says how large things are."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from speclab.errors import SpeclabError, TraceError


def opened(
    path: str | os.PathLike[str], kind: type[SpeclabError] = TraceError, max_bytes: int | None = None
) -> BinaryIO:
    """A regular file, open for reading; those that are none, such as a pipe, might have no end.

    Raises:
        SpeclabError: of class `kind`: it is missing, no regular file, not to be read, or larger than `max_bytes`.
    """
    try:
        place = Path(path)
        size = _regular(place.stat()).st_size
        if max_bytes is None or size <= max_bytes:
            return place.open("rb")
        reason = f"{size:,} bytes are more than the {max_bytes:,} allowed"
    except TypeError:
        reason = "it is no path"
    except (OSError, ValueError) as error:
        reason = reason_of(error)
    raise kind(f"{path} cannot be read ({reason}); check the path")


def read_whole(
    path: str | os.PathLike[str], kind: type[SpeclabError] = TraceError, max_bytes: int | None = None
) -> bytes:
    """The bytes of a regular file.

    Raises:
        SpeclabError: of class `kind`, as `opened`, or where the disk fails.
    """
    with opened(path, kind, max_bytes) as file:
        try:
            return file.read()
        except OSError as error:
            raise kind(f"{path} cannot be read ({reason_of(error)}); check the path") from None


def write_whole(path: str | os.PathLike[str], data: bytes) -> Path:
    """Puts `data` in the place of what is there, only when all of it is on the disk; returns the path.

    A link stays, and what it leads to is replaced; a new file has the mode of the one it replaces.

    Raises:
        TraceError: the folder is missing, read-only or full, or what is there is no regular file.
    """
    place = Path(path)
    partial = None
    try:
        goal = Path(os.path.realpath(place))
        old = _regular(goal.stat()) if goal.exists() else None
        partial = goal.parent / f".{token_hex(8)}.partial"
        with partial.open("xb") as file:
            if old is not None:
                partial.chmod(stat.S_IMODE(old.st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # the name must not outlive a power cut without the bytes
        partial.replace(goal)
    except (OSError, ValueError) as error:
        raise TraceError(f"{place} cannot be written ({reason_of(error)}): choose another folder or name.") from None
    finally:
        if partial is not None:
            with suppress(OSError, ValueError):
                partial.unlink(missing_ok=True)
    return place


def reason_of(error: OSError | ValueError) -> str:
    """Why a path cannot be used, such as one that is missing, too long, or holds a NUL."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _regular(found: os.stat_result) -> os.stat_result:
    if stat.S_ISREG(found.st_mode):
        return found
    raise ValueError("it is a folder" if stat.S_ISDIR(found.st_mode) else "it is no regular file")


def byte_count(count: float) -> str:
    """Bytes in words: `512 B`, `1.2 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
