"""What the page may ask of a lab: methods that are marked as commands.

A message is declared where it is handled. The method `on_save(self, what: str)` answers
`{"do": "save", "what": "page"}`; its parameters are the fields of the message and their types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import Parameter, signature
from types import FunctionType, SimpleNamespace
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

Method = TypeVar("Method", bound=Callable[..., Any])
PREFIX = "on_"


@dataclass(frozen=True)
class Command:
    """A message of the page, and the method that answers it.

    `fields`: the fields of the message. `busy`: what the page shows while the method works.
    `where`: the place in the page that shows its error. `at_once`: it does not wait for the running
    work, and must not touch a session.
    """

    method: str
    fields: type[BaseModel]
    busy: str
    where: str
    at_once: bool


def command(
    busy: str = "", where: str = "page", *, at_once: bool = False
) -> Callable[[Method], Method]:
    """Marks a method as the answer to a message; the arguments are those of `Command`."""

    def mark(method: Method) -> Method:
        method.__dict__["command"] = busy, where, at_once
        return method

    return mark


def method(busy: str = "") -> Callable[[Method], Method]:
    """Marks a method of a part that `Lab` offers in Python; `busy` is shown while it works."""

    def mark(method: Method) -> Method:
        method.__dict__["offered"] = busy
        return method

    return mark


def methods(owner: type) -> Mapping[str, str]:
    """The methods of a class that `Lab` offers, and what the page shows while they work."""
    offered = {}
    for name, function in vars(owner).items():
        if hasattr(function, "offered"):
            offered[name] = function.offered
    return offered


@cache
def commands(owner: type) -> Mapping[str, Command]:
    """The commands of a class by the names of their messages."""
    by_message = {}
    for kind in reversed(owner.__mro__):
        for name, method in vars(kind).items():
            before, prefix, message = name.partition(PREFIX)
            if before in ("", "_") and prefix and hasattr(method, "command"):
                by_message[message] = Command(name, fields_of(method), *method.command)
    return by_message


def fields_of(method: FunctionType) -> type[BaseModel]:
    """The parameters of a method as a strict model; those of `**parts: Unpack[…]` may be absent."""
    _, *parameters = signature(method).parameters.values()
    # what it returns may be of a module that only a type checker imports
    annotations = {parameter.name: parameter.annotation for parameter in parameters}
    hints = get_type_hints(SimpleNamespace(__annotations__=annotations), method.__globals__)
    fields: dict[str, Any] = {}
    for parameter in parameters:
        hint = hints[parameter.name]
        if parameter.kind is Parameter.VAR_KEYWORD:
            (parts,) = get_args(hint)
            for name, kind in get_type_hints(parts).items():
                fields[name] = (kind, None)
        elif parameter.default is Parameter.empty:
            fields[parameter.name] = (hint, ...)
        else:
            fields[parameter.name] = (hint, parameter.default)
    config = ConfigDict(extra="forbid", strict=True)
    return create_model(method.__name__, __config__=config, **fields)
