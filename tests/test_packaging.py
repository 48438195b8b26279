"""The three lists of packages agree, nothing names a registry, and importing speclab is cheap."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import speclab

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONDA_NAMES = {"pytorch": "torch"}
NOT_OURS = {"python", "pip"}


def _ranges(lines: list[str]) -> dict[str, str]:
    requirements = [Requirement(line) for line in lines]
    named = {CONDA_NAMES.get(r.name, canonicalize_name(r.name)): str(r.specifier) for r in requirements}
    assert len(named) == len(requirements), "a package is named twice"
    return named


def _pyproject() -> dict[str, str]:
    project = PYPROJECT["project"]
    extras = [line for extra in project["optional-dependencies"].values() for line in extra]
    return _ranges(project["dependencies"] + extras)


def _environment() -> dict[str, str]:
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (by_pip,) = [entry["pip"] for entry in listed if isinstance(entry, dict)]
    assert "-e ." in by_pip
    return _ranges([e for e in listed if isinstance(e, str)] + [e for e in by_pip if e != "-e ."])


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return _ranges([line for line in lines if not line.startswith("#")])


def test_environment_and_pyproject_name_the_same_packages_and_ranges():
    environment = _environment()
    assert environment.pop("python") == PYPROJECT["project"]["requires-python"]
    assert {name: spec for name, spec in environment.items() if name not in NOT_OURS} == _pyproject()


def test_every_pin_is_exact_and_every_package_is_pinned_within_its_range():
    pins = _pins()
    assert [name for name, spec in pins.items() if not spec.startswith("==")] == []
    for name, spec in _pyproject().items():
        version = pins[name].removeprefix("==")
        assert Requirement(name + spec).specifier.contains(version), f"{name} {version} is outside {spec}"


def test_torch_is_pinned_without_a_build_suffix():
    assert "+" not in _pins()["torch"]


def test_no_install_file_names_a_registry():
    for name in ("pyproject.toml", "constraints.txt", "environment.yml", "Makefile"):
        text = (ROOT / name).read_text()
        assert "://" not in text, name
        assert "index-url" not in text, name


def test_ci_runs_the_two_targets():
    script = ROOT / ".ci/run"
    assert script.stat().st_mode & 0o111
    assert [line for line in script.read_text().splitlines() if line.startswith("make ")] == [
        "make check",
        "make test",
    ]


@pytest.mark.parametrize(("ci", "status"), [("true", 1), ("", 0)])
def test_without_a_browser_its_tier_fails_in_ci_and_is_skipped_aloud_elsewhere(tmp_path, ci, status):
    """On a machine that has neither a browser nor a way to install one."""
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    (tmp_path / "cat").symlink_to(shutil.which("cat"))
    script = [shutil.which("sh"), str(ROOT / "tests/browser/chromium.sh"), "no-python"]
    done = subprocess.run(script, env={"PATH": str(tmp_path), "CI": ci}, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert "NO BROWSER TIER" in done.stderr


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["speclab", "speclab.cli", "speclab.trace.records", "speclab.tree"])
def test_import_leaves_heavy_packages_alone(module):
    heavy = "{'torch', 'transformers', 'ipywidgets', 'plotly', 'IPython', 'pandas'}"
    assert _python(f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))").strip() == "[]"


def test_import_takes_less_than_300_ms():
    """The least of several runs: a busy machine delays some of them, never speeds one up."""
    timer = "import time; t = time.perf_counter(); import speclab; print(time.perf_counter() - t)"
    assert min(float(_python(timer)) for _ in range(5)) < 0.3


ABSENT = """
import importlib, importlib.abc, pkgutil, sys

class Absent(importlib.abc.MetaPathFinder):
    names = {"plotly", "ipywidgets", "IPython", "ipykernel", "traitlets", "jupyterlab", "jupyter_client"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import speclab
rooms = {"lab", "views", "bench"}
names = [m.name for m in pkgutil.walk_packages(speclab.__path__, "speclab.", onerror=lambda name: None)
         if m.name.split(".")[1] not in rooms]
for name in names:
    importlib.import_module(name)
print(*names, sep="\\n")
"""


def test_the_engine_imports_where_plotly_and_jupyter_are_absent():
    imported = _python(ABSENT).split()
    assert {"speclab.tree", "speclab.engine.decode", "speclab.engine.session", "speclab.models.pair"} <= set(imported)


def test_public_names_exist_and_type_checkers_see_the_same():
    """The lazy table, the block that editors read, and the modules agree."""
    tree = ast.parse((ROOT / "speclab/__init__.py").read_text())
    seen = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    modules = {name: f"{home}.{name}" for name, home in seen.items() if name in speclab._MODULES}
    seen = {name: home for name, home in seen.items() if name not in modules}
    assert modules == speclab._MODULES
    assert seen == speclab._HOME
    errors = {name for name, kind in vars(speclab.errors).items() if isinstance(kind, type)}
    assert sorted(speclab.__all__) == sorted({*seen, *errors, *modules, "__version__"})
    for name in [*seen, *errors]:
        assert getattr(speclab, name).__name__ == name


@pytest.mark.parametrize("name", ["attribution", "prompts", "routing", "theory"])
def test_a_module_is_there_once_it_is_named_and_not_before(name):
    home = speclab._MODULES[name]
    code = f"m = '{home}' in sys.modules; print(m, speclab.{name}.__name__, 'torch' in sys.modules)"
    assert _python(f"import sys, speclab; {code}").split() == ["False", home, "False"]


def test_every_strategy_is_a_public_name():
    for name, settings in speclab.strategies().items():
        assert getattr(speclab, name) is settings


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = speclab.Nonsense


def test_a_missing_extra_is_one_sentence_with_the_way_out():
    attempt = "\ntry:\n    speclab.Lab\nexcept speclab.SpeclabError as error:\n    print(error)"
    blocked = ABSENT.partition("rooms =")[0]
    assert _python(blocked + attempt).strip().endswith("pip install 'speclab[lab]'.")
