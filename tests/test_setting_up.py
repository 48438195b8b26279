"""`make setup`: the pins fit each promised Python, an old environment is seen, and where torch comes from."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from speclab.loading.presets import find

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
OLDEST = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]


def test_every_pin_allows_the_oldest_python_that_is_promised():
    """As far as this environment has what is pinned."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    oldest = OLDEST.removeprefix(">=") + ".0"
    compared = 0
    wrong = []
    for found in distributions():
        name = canonicalize_name(found.metadata["Name"])
        if found.version.partition("+")[0] != pins.get(name):
            continue
        compared += 1
        needs = found.metadata.get("Requires-Python", "")
        if not SpecifierSet(needs).contains(oldest):
            wrong.append(f"{name} {found.version} needs Python {needs}")
    assert wrong == []
    assert compared > 50


def test_every_place_that_names_the_oldest_python_names_the_same():
    version = OLDEST.removeprefix(">=")
    assert f"Python {version} or newer" in README
    for text in (MAKEFILE, (ROOT / "scripts/stale_environment.sh").read_text()):
        assert set(re.findall(r"version_info < \((\d+), (\d+)\)", text)) == {
            tuple(version.split("."))
        }
        assert set(re.findall(r"Python (\d\.\d+) or newer", text)) == {version}


def test_readme_names_the_programs_and_the_download():
    for program in ("git", "make", "plotly_get_chrome"):
        assert f"`{program}`" in README
    assert f"{find('smollm2').download / 1e6:.0f} MB" in README


PYTHON = """#!/bin/sh
case "$2" in *exit*) exit {status};; esac
echo {version}
"""
"""Of an environment; it answers what it is asked about its version."""


@pytest.fixture
def clone(tmp_path):
    """A folder with the Makefile and an environment that is ready, of this Python; its name has a space."""
    if shutil.which("make") is None:
        pytest.skip("no make")
    folder = tmp_path / "a clone"
    (folder / "scripts").mkdir(parents=True)
    for name in ("Makefile", "scripts/stale_environment.sh"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("pyproject.toml", "constraints.txt"):
        (folder / name).touch()
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "pip").write_text(f"#!{programs.resolve()}/python\n")
    _put_python(folder, 0, "{} {}".format(*sys.version_info))
    (folder / ".venv" / ".ready").touch()
    return folder


def _put_python(folder, status, version):
    python = folder / ".venv" / "bin" / "python"
    python.write_text(PYTHON.format(status=status, version=version))
    python.chmod(0o755)


def _removed(folder, *words):
    """Whether `make setup` would remove the environment that is there, and make another."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTHON"))
    }
    command = ["make", "-n", "setup", *words]
    done = subprocess.run(
        command, cwd=folder, env=kept, capture_output=True, text=True, check=True, timeout=60
    )
    removed = "rm -rf .venv\n" in done.stdout.partition("-m venv")[0]
    assert removed == ("-m venv" in done.stdout), done.stdout
    return removed


def test_an_environment_that_can_be_used_is_kept(clone):
    assert not _removed(clone)
    assert not _removed(clone, f"PYTHON={sys.executable}")


def test_an_environment_of_an_old_python_is_made_again(clone):
    _put_python(clone, 1, "3 10")
    assert _removed(clone)


def test_an_environment_whose_python_is_gone_is_made_again(clone):
    (clone / ".venv" / "bin" / "python").unlink()
    assert _removed(clone)


def test_an_environment_of_another_python_than_asked_for_is_made_again(clone):
    _put_python(clone, 0, "3 99")
    assert not _removed(clone)
    assert _removed(clone, f"PYTHON={sys.executable}")


def test_an_environment_of_a_moved_folder_is_made_again(clone):
    assert _removed(clone.rename(clone.with_name("moved")))


@pytest.fixture
def installing(monkeypatch):
    """scripts/install_torch.py, with programs that succeed if one of the words is among theirs."""
    path = ROOT / "scripts" / "install_torch.py"
    spec = importlib.util.spec_from_file_location("install_torch", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def install(*words):
        calls = []

        def run(command, **_):
            calls.append(command)
            return SimpleNamespace(returncode=int(not {*words} & {*command}))

        monkeypatch.setattr(module.subprocess, "run", run)
        return module.install(), calls

    return install


def test_a_build_of_torch_on_this_machine_is_taken_without_a_network(installing):
    done, calls = installing("--no-index")
    assert done
    assert len(calls) == 1


def test_without_one_uv_looks_for_a_gpu_and_takes_the_build_for_it(installing):
    done, calls = installing("--target", "--torch-backend")
    assert done
    assert "auto" in calls[-1]
    assert len(calls) == 3


@pytest.mark.parametrize("there", [(), ("--target",)], ids=["no uv", "uv reaches no index"])
def test_the_package_indexs_torch_is_the_last_way(installing, there):
    done, calls = installing(*there)
    assert not done
    assert "-m" in calls[-1]
    assert {"--no-index", "--target"}.isdisjoint(calls[-1])
    assert all("torch" in call for call in (calls[0], calls[-1]))
