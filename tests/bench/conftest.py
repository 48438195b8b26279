"""What sweeps need in several files: two threads to run on, and a database that waits for no disk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy


@pytest.fixture
def swift():
    """SQLite waits for no disk: a process that is killed loses nothing by that, and here no machine is switched off."""

    def at_once(connection, _record):
        connection.execute("PRAGMA synchronous=OFF")

    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", at_once)
    yield
    sqlalchemy.event.remove(sqlalchemy.Engine, "connect", at_once)


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2) as executor:
        yield executor
