"""The docs name what exists, their code runs, and the table of strategies is the registry's.

`python tests/test_docs.py` writes the table anew.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import re
import tomllib
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

import speclab
from speclab.cli import app
from speclab.models.presets import PRESETS

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "strategies.md"
DOCS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "notebooks" / "glossary.md",
    *sorted((ROOT / "docs").glob("*.md")),
]

HEAD = """# Strategies

Every strategy and its settings, from `speclab.strategies()`. A symbol is the paper's.
[How a strategy is built](architecture.md#a-new-strategy). `python tests/test_docs.py` writes this page; what
is below a third-level heading of a strategy is written by hand, and kept.
"""


def _range(field: FieldInfo) -> str:
    """`1 to 16`, `0 to under 1`, `from 1`, or the choices."""
    if get_origin(field.annotation) is Literal:
        return ", ".join(map(str, get_args(field.annotation)))
    if field.annotation in {bool, str}:
        return "True, False" if field.annotation is bool else "text"
    words = {"ge": "from", "gt": "above", "le": "to", "lt": "to under"}
    marks = [(word, name, mark) for mark in field.metadata for name, word in words.items() if hasattr(mark, name)]
    bounds = " ".join(f"{word} {str(getattr(mark, name)).removesuffix('.0')}" for word, name, mark in marks)
    return bounds.removeprefix("from ") if len(marks) > 1 else bounds or "any"


def _rows(kind: type[speclab.Strategy]) -> list[str]:
    head = ["| setting | symbol | default | range | what |", "|---|---|---|---|---|"]
    cells = [
        (f"`{name}`", field.title or "", str(field.default), _range(field), field.description or "")
        for name, field in kind.model_fields.items()
    ]
    return [*head, *("| " + " | ".join(row) + " |" for row in cells)] if cells else ["No settings."]


def _presets(kind: type[speclab.Strategy]) -> list[str]:
    def changed(strategy: speclab.Strategy) -> str:
        values = strategy.model_dump()
        own = {name: value for name, value in values.items() if value != kind.model_fields[name].default}
        return ", ".join(f"`{name}={value!r}`" for name, value in own.items()) or "the defaults"

    presets = [f"- {name}: {changed(preset)}" for name, preset in kind.presets().items()]
    return ["", "Presets:", "", *presets] if presets else []


def _written_by_hand(kind: type[speclab.Strategy]) -> str:
    """What the page has under the strategy from its first third-level heading on."""
    section = TABLE.read_text(encoding="utf-8").partition(f"\n## {kind.__name__}\n")[2].partition("\n## ")[0]
    start = section.find("\n### ")
    return section[start:].rstrip() + "\n" if start >= 0 else ""


def _section(kind: type[speclab.Strategy]) -> str:
    source = " ".join((inspect.getdoc(inspect.getmodule(kind)) or "").split())
    file = Path(inspect.getfile(kind)).relative_to(ROOT)
    needs = "It drafts with a draft model or a draft head." if kind().needs_draft else "It needs no draft model."
    lines = [f"\n## {kind.__name__}\n", f"{inspect.getdoc(kind)} {needs}\n", f"[`{file}`](../{file}): {source}\n"]
    return "\n".join([*lines, *_rows(kind), *_presets(kind), ""]) + _written_by_hand(kind)


def page() -> str:
    """The text of docs/strategies.md."""
    shipped = (kind for kind in speclab.strategies().values() if kind.__module__.startswith("speclab."))
    return HEAD + "".join(map(_section, shipped))


def test_the_table_of_strategies_is_the_registry():
    assert TABLE.read_text(encoding="utf-8") == page(), "write it anew: python tests/test_docs.py"


def _values(kind: type[speclab.Strategy], field: str) -> set[str]:
    """What a setting is by default and in the strategy's presets, written as in Python."""
    every = [kind(), *kind.presets().values()]
    return {repr(strategy.model_dump()[field]) for strategy in every if field in type(strategy).model_fields}


@pytest.mark.parametrize("kind", [kind for kind in speclab.strategies().values() if _written_by_hand(kind)])
def test_what_differs_from_a_paper_names_settings_that_are_so(kind):
    """`setting=value` there is a default, or a preset has it: of this strategy, or of one that its heading names."""
    text = _written_by_hand(kind)
    kinds = [kind, *(speclab.strategies()[name] for name in re.findall(r"`(\w+)`", text.split("\n")[1]))]
    for is_table, lines in itertools.groupby(text.splitlines(), lambda line: line.startswith("|")):
        assert not is_table or len({line.count("|") for line in lines}) == 1
    for field, value in re.findall(r"`(\w+)=([^`]+)`", text):
        assert any(field in one.model_fields and value in _values(one, field) for one in kinds), (field, value)
    for preset in re.findall(r"preset “([^”]+)”", text):
        assert any(preset in one.presets() for one in kinds), preset


def _resolve(name: str) -> Any:
    """`drafters.growth.grow` → the function; raises where it does not exist."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(["speclab", *parts[:count]]))
        except ModuleNotFoundError:
            continue
        return attrgetter(".".join(parts[count:]))(module) if parts[count:] else module
    raise AttributeError(name)


def _names(text: str) -> list[str]:
    """Dotted names in backticks whose first part is a room of speclab."""
    rooms = {
        path.stem for path in (ROOT / "speclab").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    dotted = re.findall(r"`((?:\w+\.)+\w+)`", text)
    return [name for name in dotted if name.split(".")[0] in rooms and not name.endswith((".py", ".md", ".json"))]


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_name_in_the_docs_exists(path):
    for name in _names(path.read_text(encoding="utf-8")):
        _resolve(name)


def test_the_architecture_page_names_every_room_and_the_papers_settings():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = text.partition("## Rooms")[2].partition("\n## ")[0]
    rooms = {
        path.stem for path in (ROOT / "speclab").iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert rooms - set(re.findall(r"\w+", listed)) == {"__init__"}
    rows = [line.split(" | ") for line in text.partition("## Symbols")[2].splitlines() if line.count("|") == 4]
    assert len(rows) > 20
    for _, what, where in rows[2:]:
        places = [_resolve(name) for name in _names(where)]
        known = {name for place in places for name in (*dir(place), *getattr(place, "__dataclass_fields__", ()))}
        known |= {name for place in places for name in getattr(place, "model_fields", ())}
        for function in filter(inspect.isfunction, places):
            known |= set(inspect.signature(function).parameters)
        assert set(re.findall(r"`(\w+)`", what)) <= known, what


PAGES = [*DOCS, *sorted((ROOT / "speclab").rglob("*.md")), *sorted((ROOT / "notebooks").glob("*.ipynb"))]
BLOB = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"] + "/blob/main/"


def _prose(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n\n".join("".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "markdown")
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def _anchors(path: Path) -> set[str]:
    """Of a page's headings, as a repository page makes them."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"(?m)^#+ (.*)", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_links_and_pictures_lead_somewhere(path):
    """Into the clone, be they relative or the repository's address; and to a heading, where one is named."""
    for target in re.findall(r"\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)", _prose(path)):
        name, _, anchor = "".join(target).partition("#")
        if name.startswith(BLOB):
            found = ROOT / name.removeprefix(BLOB)
        elif re.match("https?:|data:|attachment:", name):
            continue
        else:
            found = (path.parent / name) if name else path
            inside = ROOT / "notebooks" if path.suffix == ".ipynb" else ROOT
            assert found.resolve().is_relative_to(inside), f"{name}: a notebook is copied without what lies beside it"
        assert found.exists(), name
        assert not anchor or found.suffix != ".md" or anchor in _anchors(found), f"{name}#{anchor}"


def test_the_index_of_the_docs_has_every_page():
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    assert sorted(["README.md", *listed]) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_files_named_in_the_docs_exist(path):
    named = re.findall(r"`((?:speclab|tests|docs|notebooks|\.ci)/[\w./-]*)`", path.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


NOT_RUN = ("meta-llama/", 'sweep(DynaTree, {"max_depth"')
"""Models that are not here, and the replays of minutes."""
LOGGED = (
    "INFO 05-18 11:19:54 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.00, Accepted: 20 tokens, "
    "Drafted: 100 tokens, Per-position acceptance rate: 0.700, 0.300, Avg Draft acceptance rate: 20.0%\n"
)


def _code(path: Path) -> list[str]:
    blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [block for block in blocks if not any(word in block for word in NOT_RUN)]


@pytest.mark.model
@pytest.mark.parametrize("path", [*filter(_code, sorted((ROOT / "docs").glob("*.md")))], ids=lambda path: path.name)
def test_the_python_of_a_page_runs_as_it_is_pasted_from_top_to_bottom(path, tmp_path, monkeypatch):
    (tmp_path / "server.log").write_text(LOGGED)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in _code(path):
        exec(code, names)


@pytest.mark.model
def test_the_readmes_python_runs(capsys):
    code = (ROOT / "README.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    assert 'load_pair("smollm2")' in code
    if PRESETS["smollm2"].missing:
        code = re.sub("^prompt = .*", "prompt = 'Once upon a time'", code.replace('"smollm2"', ""), flags=re.MULTILINE)
    exec(code, {})
    assert re.search(r"nodes, one target pass: \d+ tokens", capsys.readouterr().out)


@pytest.mark.model
def test_the_readmes_commands_run():
    lines = re.findall(r"^speclab (run|doctor)(.*)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {command for command, _ in lines} == {"run", "doctor"}
    for command, rest in lines:
        words = [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', rest.partition("#")[0])]
        done = CliRunner().invoke(app, [command, *words])
        assert done.exit_code == 0, done.output


if __name__ == "__main__":
    TABLE.write_text(page(), encoding="utf-8")
