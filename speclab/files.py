"""Read whole files, write whole files or nothing, and format sizes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from stat import S_IMODE, S_ISREG
from typing import Any, BinaryIO

from platformdirs import user_cache_path

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
    with _one_sentence(path, "read", kind):
        file = Path(path)
        if file.exists() and not file.is_file():  # a pipe has no end
            raise ValueError("it is not a regular file")
        if max_bytes is not None and file.stat().st_size > max_bytes:
            raise ValueError(f"it has more than the {max_bytes:,} bytes allowed")
        return file.open("rb")


def read_whole(
    path: str | os.PathLike[str],
    kind: type[SpeclabError] = TraceError,
    max_bytes: int | None = None,
) -> bytes:
    """The bytes of a regular file; raises as `opened`."""
    with opened(path, kind, max_bytes) as file, _one_sentence(path, "read", kind):
        return file.read()


def write_whole(path: str | os.PathLike[str], data: bytes) -> Path:
    """Replaces a file with `data` once all of it is written; returns the path. A symbolic link is
    followed.

    Raises:
        TraceError: the folder is missing, read-only or full, or the file is read-only or a pipe.
    """
    with _one_sentence(path, "written", TraceError):
        goal = Path(path).resolve()
        partial = goal.parent / f".{token_hex(8)}.partial"
        try:
            mode = None
            if goal.exists():
                mode = goal.stat().st_mode
                # root may write any file, so its mode decides, too
                if not (S_ISREG(mode) and mode & 0o222 and os.access(goal, os.W_OK)):
                    raise ValueError("it is read-only, or not a regular file")
                partial.touch(S_IMODE(mode))  # a private file is private from the start
            partial.write_bytes(data)
            if mode is not None:
                partial.chmod(S_IMODE(mode))  # touch heeds the umask
            partial.replace(goal)
        finally:
            partial.unlink(missing_ok=True)
    return Path(path)


@contextmanager
def _one_sentence(
    path: str | os.PathLike[str], done: str, kind: type[SpeclabError]
) -> Iterator[None]:
    try:
        yield
    except (
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:  # Python 3.11: RuntimeError for a loop
        reason = getattr(error, "strerror", None) or error
        raise kind(
            f"{path} cannot be {done} ({reason}): check the path, or choose another."
        ) from None


def cache_folder() -> Path:
    """Holds fetched and converted models and measured times: `SPECLAB_CACHE`, or the user's cache."""
    folder = os.environ.get("SPECLAB_CACHE")
    if folder:
        return Path(folder)
    try:
        return user_cache_path("speclab")
    except RuntimeError:  # HOME is not set, and the user has no entry in passwd
        return Path(tempfile.gettempdir()) / f"speclab-{os.getuid()}"


def create_in_cache(folder: Path) -> None:
    """Creates a folder of the cache.

    Raises:
        SpeclabError: the cache is read-only or full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpeclabError(
            f"{folder} cannot be created ({error.strerror}): set SPECLAB_CACHE to a folder that "
            "can be written."
        ) from None


def measured_file(folder: str, conditions: object) -> Path:
    """Where the cache keeps what was measured under these conditions."""
    return cache_folder() / folder / f"{sha256(repr(conditions).encode()).hexdigest()[:24]}.json"


def read_measured(path: Path) -> Any:
    """The value in such a file; None if it is missing or damaged."""
    with suppress(OSError, ValueError):
        return json.loads(path.read_bytes())
    return None


def write_measured(path: Path, value: object) -> None:
    """Writes a value; where the cache is read-only, it lasts as long as the process."""
    with suppress(OSError, SpeclabError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(value).encode())


def byte_count(count: float) -> str:
    """Format bytes: `512 B`, `1.2 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    if unit == "B":
        return f"{count:.0f} B"
    return f"{count:.1f} {unit}"
