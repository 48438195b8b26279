"""A stranger's changes, made in a copy as CONTRIBUTING says: they work, and pass the gates."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support.checkout import copy_or_link
from support.processes import python

pytestmark = pytest.mark.model
ROOT = Path(__file__).parents[1]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ECHO = re.search(r"## A new strategy\n.*?```python\n(.*?)```", CONTRIBUTING, re.DOTALL).group(1)
STRATEGY = {
    "speclab/drafters/echo.py": [("", f'"""Echo."""\n\n{ECHO}')],
    "speclab/__init__.pyi": [("\n\n", "\n\nfrom speclab.drafters.echo import Echo as Echo\n")],
}
MARGIN = """
def _margin(step: Step, node: int) -> Value:
    top = step.nodes[node].target_top
    return top[0][1] - top[1][1]


COLUMNS = (
    Column("margin", "float64", "between the target's best two tokens", _margin, "margin", ".3f"),
"""
MARGIN_TESTED = """
def test_the_margin_is_between_the_targets_best_two_tokens():
    frame = speclab.nodes(RUNS["verified"])
    step = RUNS["verified"].steps[0]
    margins = [node.target_top[0][1] - node.target_top[1][1] for node in step.nodes]
    assert frame[frame.iteration == 0].margin.tolist() == margins[1:]
    assert "margin" in call("nodeRows", step)["columns"]


def test_kinds"""
COLUMN = {
    "speclab/trace/columns.py": [("\nCOLUMNS = (\n", MARGIN)],
    "tests/trace/test_columns.py": [("\ndef test_kinds", MARGIN_TESTED)],
}
TESTED = """
import speclab
from support.table_runner import random_probs, table_pair


def test_echo_repeats_the_newest_token():
    pair = table_pair(random_probs(9, 3), random_probs(9, 4), 9)
    tree = speclab.Session(pair, speclab.Echo(), [1, 2]).step().tree
    assert len(set(tree.token.tolist())) == 1
"""
PLACE = r"(?ms)^`(speclab/features/\w+/[\w.]+)`.*?^```\w+\n(.*?)^```"
"""A file of the feature in CONTRIBUTING, and its text."""
FEATURE = {name: [("", text)] for name, text in re.findall(PLACE, CONTRIBUTING)}
FEATURE["tests/features/surprise/test_surprise.py"] = [
    (
        "",
        """
def test_the_surprise_is_a_command_and_a_tab(page, tmp_path):
    page.do("surprise")
    assert not page.lab.state.step.accepted or page.lab.session.done
    script = page.lab.export(tmp_path / "run.html").read_text(encoding="utf-8")
    assert 'name: "surprise"' in script
""",
    )
]
LISTED = {"speclab/features/__init__.py": [("FEATURES = (\n", 'FEATURES = (\n    "surprise",\n')]}
LAYOUT_TEST = "tests/heads/test_heads_mlp_speculator.py"
LAYOUT_FILES = ("speclab/heads/mlp_speculator.py", LAYOUT_TEST)
LAYOUT_ROW = {
    "speclab/heads/layouts.py": [
        ("\n\nLAYOUTS", "\nfrom speclab.heads.mlp_speculator import MLP\n\nLAYOUTS"),
        ("    MEDUSA,\n", "    MEDUSA,\n    MLP,\n"),
    ]
}
"""A layout that the package has: the copy loses it, and a stranger adds it again."""
TESTS = (
    LAYOUT_TEST,
    "tests/test_tried.py",
    "tests/features/surprise",
    "tests/trace/test_columns.py",
    "tests/lab/test_messages.py",
)
COMMITTED = "test_no_committed_file_names_a_machine_path_or_a_registry"


def _without_layout(copy: Path) -> None:
    """Takes the layout out of a copy, in which no other file knows it."""
    for name in LAYOUT_FILES:
        (copy / name).unlink()
    for name, edits in LAYOUT_ROW.items():
        text = (copy / name).read_text(encoding="utf-8")
        for old, new in edits:
            assert new in text, f"{name} has no {new!r}"
            text = text.replace(new, old)
        (copy / name).write_text(text, encoding="utf-8")
    knows = re.compile("mlp.?speculator", re.IGNORECASE)
    for folder in ("speclab", "tests", "scripts"):
        for path in (copy / folder).rglob("*.py"):
            if path.name != Path(__file__).name:
                assert not knows.search(path.read_text(encoding="utf-8")), path


def test_a_strangers_changes_work_and_pass_the_gates(tmp_path):
    for folder in ("speclab", "tests", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder, copy_function=copy_or_link)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    _without_layout(tmp_path)
    for name in LAYOUT_FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    for name, edits in (STRATEGY | COLUMN | FEATURE | LISTED | LAYOUT_ROW).items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for old, new in edits:
            assert old in text, f"{name} has no {old!r}"
            text = text.replace(old, new, 1)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "tests/test_tried.py").write_text(TESTED)
    place = {"folder": tmp_path, "PYTHONPATH": str(tmp_path)}
    python("scripts/write_types.py", **place)
    types = (tmp_path / "speclab/records.d.ts").read_text(encoding="utf-8")
    assert "margin?: (number | null)[];" in types
    gates = ["tests/test_architecture.py", "--deselect", f"tests/test_architecture.py::{COMMITTED}"]
    python("-m", "pytest", "-q", "-p", "no:nbval", *TESTS, *gates, **place)
