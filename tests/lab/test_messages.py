"""Messages of the page are commands of the lab and of its features; those to the page are declared."""

from __future__ import annotations

import re
from typing import Any

import pytest

import speclab
from scripts.write_types import out_of_date
from speclab.lab._messages import messages, to_page
from speclab.lab._runs import Until
from speclab.lab.lab import every_command, from_page

COMMANDS = every_command()
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
    assert not out_of_date(), "run python scripts/write_types.py"


def test_the_page_sends_and_reads_every_message():
    page = speclab.Lab._esm
    assert set(re.findall(r'\bdo: "(\w+)"', page)) == set(COMMANDS)
    state = set(re.findall(r"\b(\w+)\b", page))
    assert {*messages()} <= state
