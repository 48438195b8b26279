"""Messages between the page and the kernel, checked against the list in views/messages.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

Message = dict[str, Any]
Group = Literal["to_kernel", "to_page", "from_host"]
_TYPES: dict[str, tuple[type, ...]] = {
    "any": (object,),
    "bool": (bool,),
    "int": (int,),
    "list": (list, tuple),
    "node": (int, str),
    "number": (int, float),
    "object": (dict,),
    "text": (str,),
}


@cache
def listed() -> dict[Group, dict[str, dict[str, str]]]:
    """All messages: the type of each field, by group and name; `?` after a field: may be absent."""
    text = files("speclab.views").joinpath("messages.json").read_text(encoding="utf-8")
    messages: dict[Group, dict[str, dict[str, str]]] = json.loads(text)
    return messages


def to_page(name: str, /, **fields: Any) -> Message:
    """A message to the page.

    Raises:
        ValueError: the list has no such message, or not with these fields.
    """
    _check("to_page", name, fields)
    return {"type": name, **fields}


def from_page(content: Any) -> tuple[str, Message]:
    """The name and the fields of a message from the page.

    Raises:
        ValueError: the list has no such message, or not with these fields.
    """
    if not isinstance(content, dict) or not isinstance(content.get("do"), str):
        raise ValueError(f"the page sent {content!r}")
    fields = {name: value for name, value in content.items() if name != "do"}
    _check("to_kernel", content["do"], fields)
    return content["do"], fields


def _check(group: Group, name: str, fields: Mapping[str, Any]) -> None:
    types = listed()[group].get(name)
    if types is None:
        raise ValueError(f"no message {group} is called {name!r}")
    known = {field.removesuffix("?") for field in types}
    if unknown := set(fields) - known:
        raise ValueError(f"{name} has no field {', '.join(sorted(unknown))}")
    for field, kind in types.items():
        value = fields.get(field.removesuffix("?"))
        if value is None and (field.endswith("?") or kind == "any"):
            continue
        wrong_bool = isinstance(value, bool) and kind not in {"bool", "any"}
        if wrong_bool or not isinstance(value, _TYPES[kind]):
            raise ValueError(f"{name}: {field} must be {kind}, not {value!r}")


EMPTY = {
    "preview": to_page("preview", index=-1, what_if=None),
    "curve": to_page("curve", name="", values=[], points=[], plain={}, here=None),
    "redone": to_page("redone", index=-1, old=None, changes=[]),
    "pinned": to_page("pinned", step=None),
    "diffed": to_page("diffed", diff=None),
}
"""The messages that clear a panel."""
