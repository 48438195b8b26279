"""A file is written whole or not at all, and read only if it is a regular file of bounded size."""

import os
from pathlib import Path

import pytest
from support.refusals import refused

from speclab import load_steps
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


@pytest.mark.parametrize("kind", ["pipe", "read-only", "loop"])
def test_what_is_no_file_to_replace_is_refused_and_stays(tmp_path, kind):
    place = tmp_path / "place"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "loop":
        place.symlink_to("place")
    else:
        place.write_bytes(b"first")
        place.chmod(0o444)
    before = place.lstat()
    with refused(TraceError, "place cannot be written", kind if kind == "read-only" else ""):
        write_whole(place, b"second")
    assert place.lstat() == before
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_what_is_written_over_a_private_file_is_private_from_the_start(tmp_path, monkeypatch):
    place = write_whole(tmp_path / "file", b"first")
    place.chmod(0o600)
    modes = []
    write = Path.write_bytes

    def written(self, data):
        count = write(self, data)
        modes.append(self.stat().st_mode & 0o777)
        return count

    monkeypatch.setattr(Path, "write_bytes", written)
    write_whole(place, b"second")
    assert modes == [place.stat().st_mode & 0o777] == [0o600]


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="Linux")
def test_a_file_whose_reading_fails_is_refused():
    for read, words in ((read_whole, "cannot be read"), (load_steps, "")):
        with refused(TraceError, "/proc/self/mem", words):
            read("/proc/self/mem")


def test_only_regular_files_are_read_and_no_more_than_allowed(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_bytes(b"12345")
    for name, word in (("fifo", "regular"), ("", "regular"), ("file", "4 bytes"), ("a\0b", "")):
        with refused(TraceError, "cannot be read", word):
            read_whole(tmp_path / name, max_bytes=4)
    assert read_whole(tmp_path / "file", max_bytes=5) == b"12345"
