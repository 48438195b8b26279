"""The folder of a sweep: whose it is while it runs, and one sentence where it cannot be written or read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speclab.bench.sweeping.rows import PARTS
from speclab.errors import MeasurementError

STUDY = "study.db"


def locked(folder: Path) -> Any:
    """Makes the folder and holds it until `.release()`, or until this process ends.

    Raises:
        MeasurementError: another sweep holds it, or it cannot be made.
    """
    from filelock import FileLock, Timeout

    try:
        (folder / PARTS).mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise MeasurementError(f"{folder} is in use by another sweep: wait for it, or choose another --out") from None
    except OSError as error:
        raise MeasurementError(f"{folder} cannot be made ({error.strerror or error}): choose another --out") from None
    return lock


@contextmanager
def stored(folder: Path) -> Iterator[None]:
    """Says in one sentence why the study cannot be written or read."""
    import sqlite3

    try:
        import sqlalchemy.exc
        from optuna.exceptions import OptunaError
    except ImportError:
        yield
        return
    try:
        yield
    except (OptunaError, sqlalchemy.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
        cause = error.__cause__ or error
        first = str(getattr(cause, "orig", cause)).splitlines()[0][:160]
        raise MeasurementError(
            f"{folder / STUDY} cannot be written or read ({first}): make room or choose another folder; "
            "what is done is kept, and --resume goes on"
        ) from None
