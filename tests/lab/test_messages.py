"""Messages of the page are commands of the lab; those to the page keep to the list in views/messages.json."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import pytest

import speclab
from scripts.write_types import as_written
from speclab.lab._commands import commands
from speclab.lab._runs import Until
from speclab.lab._state import to_page
from speclab.lab._tasks import Tasks
from speclab.lab.lab import from_page

LISTED = json.loads(files("speclab.views").joinpath("messages.json").read_text(encoding="utf-8"))
COMMANDS = {**commands(Tasks), **commands(speclab.Lab)}
VALUES = {int: 0, str: "x", list[str]: [], list[Any]: [], bool | int: False, Until: {"kind": "end"}}


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
    for name, command in COMMANDS.items():
        fields = {}
        for field, info in command.fields.model_fields.items():
            if info.is_required():
                fields[field] = VALUES[info.annotation]
        page.do(name, **fields)
        assert "inside speclab" not in ((page.error or {}).get("sentence") or ""), name
    assert not caplog.records


def test_the_scripts_know_the_types_of_every_message():
    assert as_written(), "run python scripts/write_types.py"


def test_the_page_sends_and_reads_every_message():
    page = speclab.Lab._esm
    assert set(re.findall(r'\bdo: "(\w+)"', page)) == set(COMMANDS)
    read = set(re.findall(r'case "(\w+)":', page)) | set(re.findall(r'type === "(\w+)"', page))
    assert set(LISTED["to_page"]) | set(LISTED["from_host"]) <= read
