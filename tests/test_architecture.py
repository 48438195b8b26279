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

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "speclab"
SOURCES = sorted(PACKAGE.rglob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").rglob("*.ipynb"))

ENGINE = {
    "acceptance",
    "decoder",
    "drafters",
    "metrics",
    "models",
    "sampling",
    "session",
    "theory",
    "trace",
    "tree",
}
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
    """The rooms of speclab that ``path`` imports, and the packages outside it."""
    parts = [name.split(".") for name in _imports(path)]
    rooms = {p[1] for p in parts if p[0] == "speclab" and len(p) > 1}
    return rooms, {p[0] for p in parts} - {"speclab"}


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.fixture(params=SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def source(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_the_source_is_there():
    assert {_room(path) for path in SOURCES} >= ENGINE - {"theory"} | {"cli", "errors", "lab", "views"}


def test_arrows(source):
    room = _room(source)
    rooms, packages = _rooms_and_packages(source)
    if room in PLAIN_DATA:
        assert not packages & MODELS, "tree, trace and views are plain data: no model library"
        assert not rooms & {"models", "drafters", "decoder", "session"}, "a picture is a function of a record"
    if room in ENGINE:
        assert not rooms & {"views", "lab", "bench", "cli", "training"}, (
            "the engine knows no picture and no widget"
        )
        assert not packages & {"plotly", "pandas"}
    if room not in {"lab", "host"}:
        assert not packages & WIDGETS, "only lab/ imports widgets"
    if room == "views":
        assert packages & {"plotly", "networkx", "numpy", "pandas"} <= {"plotly", "networkx", "numpy"}
        assert not rooms & {"lab", "bench", "cli", "training"}


def test_views_draw_with_plotly_networkx_and_numpy_only():
    allowed = {"plotly", "networkx", "numpy", *sys.stdlib_module_names}
    for path in SOURCES:
        if _room(path) == "views":
            assert _rooms_and_packages(path)[1] <= allowed, path


def test_nobody_asks_which_strategy_it_is(source):
    """No comparison of a strategy's name, and no isinstance against a strategy class."""
    if _room(source) in {"cli", "__init__"}:
        return
    from speclab import strategies

    names = set(strategies())
    for node in _running(ast.parse(source.read_text())):
        if isinstance(node, ast.Compare):
            texts = {
                n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            }
            assert not texts & names, f"{source.name}:{node.lineno}"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"isinstance", "issubclass"}:
            classes = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
            classes |= {n.attr for n in ast.walk(node.args[1]) if isinstance(n, ast.Attribute)}
            assert not classes & names, f"{source.name}:{node.lineno}"


def test_files_stay_under_250_lines(source):
    assert len(source.read_text().splitlines()) <= 250


def test_functions_stay_under_40_lines(source):
    too_long = {
        f.name: f.end_lineno - f.lineno + 1 for f in _functions(source) if f.end_lineno - f.lineno >= 40
    }
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
    registry = re.compile(
        r"pypi\.org|pythonhosted\.org|registry\.npmjs\.org|deb\.debian\.org|conda\.anaconda\.org"
    )
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
            assert len(source.splitlines()) <= 10, f"cell {number}"
        else:
            words = re.sub(r"<[^>]*>", " ", source).split()
            assert len(words) <= 80, f"cell {number}"


def test_tests_that_need_a_kernel_or_a_browser_say_so():
    """Else the unit tier would run them."""
    for folder, marker in {"browser": "browser", "notebooks": "notebook"}.items():
        for path in (ROOT / "tests" / folder).rglob("test_*.py"):
            assert f"pytestmark = pytest.mark.{marker}" in path.read_text(), path
