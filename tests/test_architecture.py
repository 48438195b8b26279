"""Who may import whom, and the house rules, read from the source."""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path

import networkx as nx
import tree_sitter_javascript
from support.checkout import kept
from support.density import COUNTED, too_dense
from tree_sitter import Language, Parser

import speclab

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "speclab"
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

GROUND = {"recorder", "display", "errors", "settings", "files", "tree", "prompts", "features"}
MODELS = GROUND | {"models", "loading", "heads", "pair"}
ENGINE = MODELS | {"trace", "theory", "sampling", "drafters", "engine"}
ARROWS = {
    "errors": set(),
    "course": {"errors", "host", "trace"},
    "recorder": set(),
    "display": {"errors"},
    "features": set(),
    "tree": {"display", "errors"},
    "settings": {"errors"},
    "files": {"errors"},
    "prompts": {"errors"},
    "trace": GROUND,
    "theory": GROUND,
    "models": GROUND,
    "sampling": GROUND | {"models"},
    "loading": GROUND | {"models"},
    "heads": GROUND | {"models", "loading"},
    "pair": MODELS - {"pair"},
    "drafters": ENGINE - {"drafters", "engine"},
    "engine": ENGINE,
    "clinic": ENGINE,
    "views": ENGINE - MODELS - {"engine", "sampling"} | GROUND,
    "lab": ENGINE | {"views"},
    "feature": ENGINE | {"clinic", "views", "lab"},
    "live": {"errors", "files", "prompts", "loading", "drafters", "views"},
    "bench": ENGINE | {"views", "host", "__init__"},
    "rows": MODELS | {"views"},
    "host": {"errors", "files", "__init__"},
    "cli": GROUND - {"tree"}
    | {"__init__", "host", "bench", "rows", "loading", "drafters", "course", "feature"},
    "__init__": {"errors", "lab", "display", "features"},
    "__main__": {"cli"},
}
"""The rooms that a room may import from, itself apart."""

TABLES = {
    "speclab",  # its public names
    "speclab.clinic",  # its public names
    "speclab.drafters",  # a strategy is a file
    "speclab.lab._parts",  # the parts of features
    "speclab.views",  # the pictures of features
}
"""Modules that import others by a table of names."""

WHOLE = {"speclab": 180_000, "tests": 188_000}
"""Most tokens of Python: one thermometer without shares, so that a room grows where it must."""
SCRIPTS = {"page and lab": 58_500, "live": 12_500}
"""Most tokens of JavaScript, import and export aside."""
LONGEST = 60
"""Most lines of a function, in Python and in JavaScript."""

PLAIN_DATA = {"trace", "tree", "views", "theory", "errors", "settings", "files", "prompts"}
MODEL_LIBRARIES = {"torch", "transformers", "tokenizers", "safetensors"}
PICTURES = {"plotly", "kaleido"}
WIDGETS = {"ipywidgets", "IPython", "traitlets", "anywidget", "jupyterlab", "ipykernel"}


def _running(node):
    """Every node but those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            for other in child.orelse:
                yield from (other, *_running(other))
        else:
            yield child
            yield from _running(child)


@cache
def _nodes(path):
    return tuple(_running(ast.parse(path.read_text())))


@cache
def _imports(module, path):
    """Absolute dotted names that a module imports at any depth, late imports included; a public name by its home."""
    package = module.split(".") if path.stem == "__init__" else module.split(".")[:-1]
    names = set()
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names |= {
                f"{speclab._HOME[alias.name]}.{alias.name}"
                if source == "speclab" and alias.name in speclab._HOME
                else f"{source}.{alias.name}"
                for alias in node.names
            }
    return names


def _room(module):
    """`speclab.models.cache` → `models`; the list of features and a feature are two rooms."""
    room = [*module.split("."), "__init__"][1]
    return "feature" if module.startswith("speclab.features.") else room


def _module(name):
    """The module of speclab that holds a dotted name."""
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def _graph():
    """An edge from each module of speclab to each that it imports."""
    graph = nx.DiGraph()
    for module, path in MODULES.items():
        names = [name for name in _imports(module, path) if name.partition(".")[0] == "speclab"]
        wanted = {_module(name) for name in names}
        graph.add_edges_from((module, other) for other in wanted - {module})
    return graph


def test_no_circle_of_imports():
    """Late imports count too: two modules that need each other are one."""
    circles = [
        sorted(circle) for circle in nx.strongly_connected_components(_graph()) if len(circle) > 1
    ]
    assert circles == []


def test_arrows():
    assert {_room(module) for module in MODULES} <= set(ARROWS), (
        "name a new room, and what it may import"
    )
    wrong = [
        f"{a} → {b}" for a, b in _graph().edges if _room(b) not in ARROWS[_room(a)] | {_room(a)}
    ]
    assert wrong == []


def test_no_room_knows_a_feature():
    """Nor does a feature know another one; the command line imports what a command asks for."""
    found = []
    for module, other in _graph().edges:
        feature = other.partition("speclab.features.")[2].partition(".")[0]
        if feature and module.partition("speclab.features.")[2].partition(".")[0] != feature:
            found.append(f"{module} → {other}")
    assert [arrow for arrow in found if not arrow.startswith("speclab.cli ")] == []


def test_modules_are_named_in_strings_by_tables_alone():
    """What is imported by its name in a string is an arrow that nobody sees."""
    found = set()
    for module, path in MODULES.items():
        if any(_called(node) == "import_module" for node in _nodes(path)):
            found.add(module)
    assert found <= TABLES


def _called(node):
    """The name of the function that a node calls."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def test_packages():
    """A saved trace opens without torch, the engine runs without plotly and Jupyter."""
    allowed = {
        "plotly",
        "networkx",
        "numpy",
        "pandas",
        "quickjs",
        "speclab",
        *sys.stdlib_module_names,
    }
    for module, path in MODULES.items():
        packages = {name.partition(".")[0] for name in _imports(module, path)}
        room = _room(module)
        assert room not in PLAIN_DATA or not packages & MODEL_LIBRARIES, module
        assert (
            room in {"views", "lab", "bench", "rows", "host", "feature"} or not packages & PICTURES
        ), module
        assert room in {"lab", "host", "__init__"} or not packages & WIDGETS, module
        assert room != "views" or packages <= allowed, module


def test_nobody_asks_which_strategy_it_is():
    """No comparison with a strategy's name, and no isinstance against a strategy class."""
    names = set(speclab.strategies())
    for path in MODULES.values():
        for node in _nodes(path):
            asked = set()
            if isinstance(node, ast.Compare):
                asked = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {
                "isinstance",
                "issubclass",
            }:
                asked = set(re.findall(r"\w+", ast.unparse(node.args[1])))
            assert not asked & names, f"{path}:{node.lineno}"


def _tokens(text):
    """Names, operators, numbers and strings; docstrings and comments are not counted."""
    owners = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    bodies = [node.body for node in ast.walk(ast.parse(text)) if isinstance(node, owners)]
    first = {body[0].lineno for body in bodies if body}
    return sum(
        token.type in COUNTED - {tokenize.STRING}
        or (token.type == tokenize.STRING and token.start[0] not in first)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def test_package_and_tests_keep_to_their_size():
    """Tokens are counted, not lines: a line that is easier to read costs nothing."""
    tokens = Counter[str]()
    for folder in WHOLE:
        for path in (ROOT / folder).rglob("*.py*"):
            if path.suffix in (".py", ".pyi"):
                tokens[folder] += _tokens(path.read_text(encoding="utf-8"))
    assert {name: count for name, count in tokens.items() if count > WHOLE[name]} == {}


def test_lines_are_not_packed():
    """Density is a habit: the same code written plainly is no larger."""
    texts = [path.read_text(encoding="utf-8") for path in MODULES.values()]
    assert too_dense(texts) == {}


def _leaves(node):
    if node.type not in {"comment", "import_statement", "export"}:
        if not node.children:
            yield node
        for child in node.children:
            yield from _leaves(child)


def _script_functions(node):
    """The name and the lines of each function below a node of a script."""
    if re.fullmatch(
        "function_declaration|function_expression|arrow_function|method_definition", node.type
    ):
        name = node.child_by_field_name("name")
        yield name and name.text, node.end_point.row - node.start_point.row + 1
    for child in node.children:
        yield from _script_functions(child)


def _script(path):
    return Parser(Language(tree_sitter_javascript.language())).parse(path.read_bytes()).root_node


def test_scripts_stay_small():
    tokens = Counter[str]()
    for path in sorted(PACKAGE.rglob("*.js")):
        place = "live" if path.is_relative_to(PACKAGE / "live") else "page and lab"
        tokens[place] += sum(1 for _ in _leaves(_script(path)))
    assert {place: count for place, count in tokens.items() if count > SCRIPTS[place]} == {}


def test_no_function_is_longer_than_a_screen():
    long = []
    for path in MODULES.values():
        for node in _nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                long.append((path.name, node.name, node.end_lineno - node.lineno + 1))
    for path in sorted(PACKAGE.rglob("*.js")):
        long += [(path.name, *each) for each in _script_functions(_script(path))]
    assert [each for each in long if each[-1] > LONGEST] == []


def test_no_committed_file_names_a_machine_path_or_a_registry():
    machine = r"(?<![\w.:/\-])/(?:work|root|tmp|home|Users|opt)/[\w.-]"
    registry = (
        r"pypi\.org|pythonhosted\.org|registry\.npmjs\.org|deb\.debian\.org|conda\.anaconda\.org"
    )
    wrong = re.compile(rf"^.*(?:{machine}|{registry}).{{,60}}", re.MULTILINE)
    found = {}
    for name in kept():
        with suppress(UnicodeDecodeError):
            found[name] = wrong.findall((ROOT / name).read_text(encoding="utf-8"))
    assert {name: lines for name, lines in found.items() if lines} == {}
