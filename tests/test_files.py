"""A file is written whole or not at all, and read only if it is a regular file of bounded size."""

import os
from pathlib import Path

import pytest
from support.refusals import refused

from speclab.errors import TraceError
from speclab.files import read_whole, write_whole


@pytest.mark.parametrize("failing", ["write_bytes", "replace"])
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "Ctrl-C"]
)
def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path, monkeypatch, failing, error):
    place = write_whole(str(tmp_path / "file"), b"first")

    def fail(self, *_):
        self.touch()
        raise error

    monkeypatch.setattr(Path, failing, fail)
    with pytest.raises((KeyboardInterrupt, TraceError)):
        write_whole(place, b"second")
    monkeypatch.undo()
    assert place.read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    assert write_whole(tmp_path / "link", b"new") == tmp_path / "link"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


@pytest.mark.parametrize("name", ["", "folder", "missing/file", "a\0b"])
def test_a_place_that_cannot_be_written_is_refused_and_stays(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    with refused(TraceError, "cannot be written"):
        write_whole(name, b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_only_regular_files_are_read_and_no_more_than_allowed(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_bytes(b"12345")
    for name, word in (("fifo", "regular"), ("", "regular"), ("file", "4 bytes"), ("a\0b", "")):
        with refused(TraceError, "cannot be read", word):
            read_whole(tmp_path / name, max_bytes=4)
    assert read_whole(tmp_path / "file", max_bytes=5) == b"12345"
