"""Messages keep to the list in views/messages.json."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import speclab.lab
from speclab.lab.messages import from_page, listed, to_page

NODES = [
    node
    for path in sorted(Path(speclab.lab.__file__).parent.glob("*.py"))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize(
    "content",
    [
        None,
        "hello",
        {},
        {"do": 3},
        {"do": "predict", "node": 1},
        {"do": "prune"},
        {"do": "prune", "node": True},
        {"do": "step", "form": "start"},
        {"do": "compare", "names": "DynaTree"},
    ],
)
def test_other_messages_of_a_page_are_refused(content):
    with pytest.raises(ValueError, match=r"page|message|field|must be"):
        from_page(content)


def test_other_messages_to_a_page_are_refused():
    with pytest.raises(ValueError, match="parts"):
        to_page("parts", tab="settings")
    with pytest.raises(ValueError, match="sentence"):
        to_page("hint", sentence=3)


def test_python_sends_and_reads_every_message():
    sent = {
        ast.literal_eval(node.args[0])
        for node in NODES
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "to_page"
    }
    assert sent == set(listed()["to_page"])
    matched = {
        ast.literal_eval(case.pattern.value)
        for node in NODES
        if isinstance(node, ast.Match)
        for case in node.cases
        if isinstance(case.pattern, ast.MatchValue)
    }
    queued = {
        ast.literal_eval(key)
        for node in NODES
        if isinstance(node, ast.FunctionDef) and node.name == "_commanded"
        for part in ast.walk(node)
        if isinstance(part, ast.Dict)
        for key in part.keys
    }
    assert matched | queued == set(listed()["to_kernel"])


def test_the_page_sends_and_reads_every_message():
    page = speclab.Lab._esm
    sent = set(re.findall(r'\bdo: "(\w+)"', page))
    assert sent == set(listed()["to_kernel"])
    read = set(re.findall(r'case "(\w+)":', page)) | set(re.findall(r'type === "(\w+)"', page))
    assert set(listed()["to_page"]) | set(listed()["from_host"]) <= read
