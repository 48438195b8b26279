"""Who may import whom, and the house rules, read from the source."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import speclab

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "speclab"
SOURCES = sorted(PACKAGE.rglob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").rglob("*.ipynb"))

OUTSIDE = {"__init__", "bench", "cli", "host", "lab", "training", "views", "websocket"}  # every other room is engine
PLAIN_DATA = {"trace", "tree", "views"}
MODELS = {"torch", "transformers", "tokenizers", "safetensors"}
WIDGETS = {"ipywidgets", "IPython", "traitlets", "anywidget", "jupyterlab", "ipykernel"}


def _room(path: Path) -> str:
    """`speclab/models/pair.py` → `models`; `speclab/tree.py` → `tree`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if _is_type_checking(child):
            for other in child.orelse:
                yield from (other, *_running(other))
        else:
            yield child
            yield from _running(child)


def _imports(path: Path) -> set[str]:
    """Absolute dotted names that ``path`` imports at any depth, late imports included."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    names = set()
    for node in _running(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def _rooms_and_packages(path: Path) -> tuple[set[str], set[str]]:
    """Rooms of speclab that ``path`` imports, and other packages; a public name counts as its room."""
    rooms, packages = set(), set()
    for name in _imports(path):
        package, _, rest = name.partition(".")
        if package == "speclab":
            home = speclab._HOME.get(rest, name).split(".")
            rooms.add(home[1] if len(home) > 1 else "__init__")
        else:
            packages.add(package)
    return rooms, packages


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.fixture(params=SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def source(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_the_source_is_there():
    """Else the tests below would check nothing."""
    engine = {"analysis", "costs", "drafters", "engine", "models", "sources", "theory"}
    assert engine | PLAIN_DATA | {"cli", "lab"} <= {_room(path) for path in SOURCES}


def test_the_parser_sees_late_relative_and_public_imports(tmp_path, monkeypatch):
    path = tmp_path / "speclab" / "models" / "probe.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "from typing import TYPE_CHECKING\nfrom ..lab import shell\nfrom . import runner\n"
        "if TYPE_CHECKING:\n    import pandas\n"
        "def late():\n    import plotly.graph_objects\n    from speclab import Session\n    import speclab\n"
    )
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    rooms, packages = _rooms_and_packages(path)
    assert rooms == {"lab", "models", "engine", "__init__"}
    assert packages == {"typing", "plotly"}


def test_arrows(source):
    room = _room(source)
    rooms, packages = _rooms_and_packages(source)
    if room in PLAIN_DATA:
        assert not packages & MODELS, "tree, trace and views are plain data: no model library"
        assert not rooms & {"models", "engine"}, "a picture is a function of a record"
    if room not in OUTSIDE:
        assert not rooms & OUTSIDE, "the engine knows no picture, no widget, no command"
        assert not packages & {"plotly", "pandas"}
    if room == "views":
        assert not rooms & (OUTSIDE - {"views"})
        assert packages <= {"plotly", "networkx", "numpy", "resvg_py", *sys.stdlib_module_names}
    if room not in {"lab", "host"}:
        assert not packages & WIDGETS, "only lab/ imports widgets"


def test_nobody_asks_which_strategy_it_is(source):
    """No comparison with a strategy's name, and no isinstance against a strategy class."""
    names = set(speclab.strategies())
    for node in _running(ast.parse(source.read_text())):
        if isinstance(node, ast.Compare):
            texts = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
            assert not texts & names, f"{source.name}:{node.lineno}"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"isinstance", "issubclass"}:
            classes = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
            classes |= {n.attr for n in ast.walk(node.args[1]) if isinstance(n, ast.Attribute)}
            assert not classes & names, f"{source.name}:{node.lineno}"


def test_a_file_holds_one_idea_that_can_be_read(source):
    assert len(source.read_text().splitlines()) <= 450


def test_functions_stay_under_60_lines(source):
    too_long = {f.name: f.end_lineno - f.lineno + 1 for f in _functions(source) if f.end_lineno - f.lineno >= 60}
    assert too_long == {}


def _committed_texts() -> Iterator[tuple[str, str]]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        try:
            yield name, (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue


def test_no_committed_file_names_a_machine_path_or_a_registry():
    machine = re.compile(r"(?<![\w.:/\-])/(?:work|root|tmp|home|Users|opt)/[\w.-]")
    registry = re.compile(r"pypi\.org|pythonhosted\.org|registry\.npmjs\.org|deb\.debian\.org|conda\.anaconda\.org")
    found = [
        f"{name}:{number}: {line.strip()[:80]}"
        for name, text in _committed_texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if machine.search(line[:20_000]) or registry.search(line[:20_000])
    ]
    assert found == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebooks_are_short_and_carry_no_widget_state(path):
    notebook = json.loads(path.read_text())
    assert "widgets" not in notebook["metadata"]
    assert len(notebook["cells"]) <= 45
    for number, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            assert len(source.splitlines()) <= 12, f"cell {number}"
        else:
            words = re.sub(r"<[^>]*>", " ", source).split()
            assert len(words) <= 80, f"cell {number}"


def test_tests_that_need_a_kernel_or_a_browser_say_so():
    """Else the unit tier would run them."""
    for folder, marker in {"browser": "browser", "notebooks": "notebook"}.items():
        for path in (ROOT / "tests" / folder).rglob("test_*.py"):
            assert f"pytestmark = pytest.mark.{marker}" in path.read_text(), path
