"""Messages keep to the list in views/messages.json."""

from __future__ import annotations

import pytest

from speclab.lab.messages import from_page, listed, to_page


def test_messages_in_the_list_pass():
    assert to_page("hint", sentence="") == {"type": "hint", "sentence": ""}
    assert to_page("status", busy=None) == {"type": "status", "busy": None}
    shown = {"do": "shown", "cursor": 1, "phase": "all", "node": "own", "tab": "node"}
    assert from_page(shown) == ("shown", {k: v for k, v in shown.items() if k != "do"})


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
        {"do": "prune", "node": None},
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


def test_every_field_has_a_known_type():
    for messages in listed().values():
        for fields in messages.values():
            for kind in fields.values():
                assert kind in {"any", "bool", "int", "list", "node", "number", "object", "text"}
