"""The docs name what exists, their code runs, and the table of strategies is the registry's."""

from __future__ import annotations

import json
import pkgutil
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.command import speclab_command

import speclab
from scripts.write_strategies import TABLE, page, written_by_hand
from speclab.loading.presets import PRESETS

ROOT = Path(__file__).parents[1]
DOCS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "notebooks" / "glossary.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def test_the_table_of_strategies_is_the_registry():
    assert TABLE.read_text(encoding="utf-8") == page(), "run python scripts/write_strategies.py"


@pytest.mark.parametrize("kind", [*filter(written_by_hand, speclab.strategies().values())])
def test_what_differs_from_a_paper_names_settings_that_are_so(kind):
    """`setting=value` there is a default, or a preset has it: of this strategy, or of one that its heading names."""
    text = written_by_hand(kind)
    names = re.findall(r"`(\w+)`", text.split("\n")[1])
    kinds = [kind, *(speclab.strategies()[name] for name in names)]
    presets = {name: preset for one in kinds for name, preset in one.presets().items()}
    shown = [one.model_dump() for one in (*(one() for one in kinds), *presets.values())]
    for field, value in re.findall(r"`(\w+)=([^`]+)`", text):
        assert value in {repr(values[field]) for values in shown if field in values}, field
    assert {*re.findall(r"preset “([^”]+)”", text)} <= presets.keys()


ROOMS = {
    path.stem
    for path in (ROOT / "speclab").iterdir()
    if path.suffix == ".py" or (path / "__init__.py").is_file()
}


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_names_and_files_in_the_docs_exist(path):
    """Dotted names in backticks whose first part is a room of speclab, such as `drafters.grow.grow`."""
    text = path.read_text(encoding="utf-8")
    for room, rest in re.findall(r"`(\w+)\.((?:\w+\.)*\w+)`", text):
        if room in ROOMS and not rest.endswith(("py", "md", "json")):
            pkgutil.resolve_name(f"speclab.{room}.{rest}")
    files = re.findall(r"`((?:speclab|tests|docs|notebooks|\.ci)/[\w./-]*)`", text)
    made = re.compile("/surprise/")  # what a reader of CONTRIBUTING makes
    missing = [name for name in files if not (ROOT / name).exists()]
    assert [name for name in missing if not made.search(name)] == []


def test_the_architecture_page_names_every_room():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = text.partition("## Rooms")[2].partition("\n## ")[0]
    assert ROOMS - set(re.findall(r"\w+", listed)) == {"__init__", "__main__"}


PAGES = [
    *DOCS,
    *sorted((ROOT / "speclab").rglob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
]
BLOB = (
    tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
    + "/blob/main/"
)


def _prose(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n\n".join(
            "".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "markdown"
        )
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def _anchors(path):
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
            assert found.resolve().is_relative_to(inside), (
                f"{name}: a notebook is copied without what lies beside it"
            )
        assert found.exists(), name
        assert not anchor or found.suffix != ".md" or anchor in _anchors(found), f"{name}#{anchor}"


def test_readme_lists_every_page():
    listed = re.findall(r"\]\(docs/([\w-]+\.md)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert set(listed) == {path.name for path in (ROOT / "docs").glob("*.md")}


NOT_RUN = ("meta-llama/",)
"""Models that are not here."""


def _code(path):
    blocks = re.findall(
        r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    return [block for block in blocks if not any(word in block for word in NOT_RUN)]


@pytest.mark.model
@pytest.mark.parametrize(
    "path", [*filter(_code, sorted((ROOT / "docs").glob("*.md")))], ids=lambda path: path.name
)
def test_the_python_of_a_page_runs_as_it_is_pasted_from_top_to_bottom(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in _code(path):
        exec(code, names)


@pytest.mark.model
def test_the_readmes_python_and_commands_run(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    assert 'load_pair("smollm2")' in code
    shown = re.search(r"It prints `(\d+ tokens in \d+ passes of the target)`, where", text)[1]
    if PRESETS["smollm2"].missing:
        shown = "passes of the target"
        code = re.sub(
            "^prompt = .*",
            "prompt = 'Once upon a time'",
            code.replace('"smollm2"', ""),
            flags=re.MULTILINE,
        )
    exec(code, {})
    assert shown in capsys.readouterr().out.splitlines()[0]
    lines = re.findall(r"^speclab (run|doctor)(.*)$", text, re.MULTILINE)
    assert {command for command, _ in lines} == {"run", "doctor"}
    for command, rest in lines:
        done = speclab_command(command, *shlex.split(rest, comments=True))
        assert done.exit_code == 0, done.output
    for fact in ("torch", "cores", "jupyter", "target_forward"):  # the doctor
        assert fact in done.output
