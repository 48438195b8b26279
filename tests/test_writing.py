"""A file is written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import refused

from speclab.errors import TraceError
from speclab.writing import write_whole


def test_what_was_there_is_replaced(tmp_path):
    for data in (b"first", b"second"):
        assert write_whole(str(tmp_path / "file"), data) == tmp_path / "file"
        assert (tmp_path / "file").read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("failing", ["write_bytes", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "Ctrl-C"])
def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path, monkeypatch, failing, error):
    place = write_whole(tmp_path / "file", b"first")

    def fail(self: Path, *_: object) -> None:
        self.touch()
        raise error

    monkeypatch.setattr(Path, failing, fail)
    with pytest.raises(KeyboardInterrupt) if isinstance(error, KeyboardInterrupt) else refused(TraceError, "No space"):
        write_whole(place, b"second")
    monkeypatch.undo()
    assert place.read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["", "folder", "missing/file"])
def test_a_place_that_is_no_file_is_one_sentence(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with refused(TraceError, "cannot be written", "choose another folder"):
        write_whole(name, b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
