"""Messages keep to the list in views/messages.json."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import pytest

import speclab
from speclab.lab._state import from_page, to_page

LISTED = json.loads(files("speclab.views").joinpath("messages.json").read_text(encoding="utf-8"))
VALUES = {"int": 0, "str": "x", "dict": {"kind": "end"}, "list": [], "bool": False}


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
    with pytest.raises((TypeError, KeyError, ValueError)):
        from_page(content)


def test_other_messages_to_a_page_are_refused():
    for name, fields in (("parts", {"tab": "settings"}), ("runs", {"runs": 3}), ("runs", {})):
        with pytest.raises((KeyError, ValueError)):
            to_page(name, **fields)


def test_python_answers_every_message(page, caplog):
    for name, kinds in LISTED["to_kernel"].items():
        fields = {field: VALUES[kind] for field, kind in kinds.items() if kind in VALUES}
        page.do(name, **fields)
        assert "inside speclab" not in ((page.error or {}).get("sentence") or ""), name
    assert not caplog.records


def test_the_page_sends_and_reads_every_message():
    page = speclab.Lab._esm
    assert set(re.findall(r'\bdo: "(\w+)"', page)) == set(LISTED["to_kernel"])
    read = set(re.findall(r'case "(\w+)":', page)) | set(re.findall(r'type === "(\w+)"', page))
    assert set(LISTED["to_page"]) | set(LISTED["from_host"]) <= read
