"""Strategies, one file each. `strategies()` finds them and those defined elsewhere."""

from __future__ import annotations

import ast
from contextlib import suppress
from functools import cache
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules
from typing import Any

from speclab.drafters.base import DEFINED, Strategy
from speclab.errors import NotRecordedError, SettingsError, meant
from speclab.trace.records import Step

__all__ = ["Strategy", "from_str", "in_force", "setting_names", "strategies"]


def strategies(*, by_hand: bool = True) -> dict[str, type[Strategy]]:
    """Every strategy by name: the registry for widgets, command line and docs.

    A class defined elsewhere, as in a notebook, is included, and replaces an earlier one of the
    same name. `by_hand`: include strategies whose trees a person builds.
    """
    _import_all()
    kinds = {}
    for name, kind in sorted(DEFINED.items()):
        private = name.startswith("_") or isabstract(kind)
        if not private and (by_hand or not kind.by_hand):
            kinds[name] = kind
    return kinds


def setting_names() -> tuple[str, ...]:
    """The settings of every strategy, including those defined outside the package."""
    names: set[str] = set()
    for kind in strategies().values():
        names.update(kind.model_fields)
    return ("strategy", *sorted(names))


def from_str(text: str) -> Strategy:
    """The strategy that `text` describes; empty parentheses may be omitted.

    Raises:
        SettingsError: there is no such strategy, or it does not have these settings.
    """
    call = text
    if "(" not in text:
        call += "()"
    name, settings = _parsed(call)
    kinds = strategies()
    if name not in kinds:
        if near := meant(name, kinds):
            raise SettingsError(f"There is no strategy {name!r}: did you mean {near}?")
        raise SettingsError(
            f"Expected a strategy such as DynaTree(base_depth=3), got {text!r}. The names are "
            f"{', '.join(kinds)}."
        )
    return kinds[name](**settings)


def in_force(step: Step) -> Strategy:
    """The strategy of a step with the settings used in it.

    Raises:
        NotRecordedError: the strategy is not defined here.
    """
    values = dict(step.settings)
    kind = strategies().get(str(values.pop("strategy", "")))
    if kind is None:
        raise NotRecordedError(
            f"No strategy is called {step.settings.get('strategy')!r} here: import or define it."
        )
    lists: dict[str, Any] = {}
    for name, value in values.items():
        if str(value)[:1] in tuple("([{"):
            with suppress(
                ValueError, SyntaxError, MemoryError, RecursionError
            ):  # then it is a text
                lists[name] = ast.literal_eval(str(value))
    return kind(**(values | lists))


@cache
def _import_all() -> None:
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def _parsed(text: str) -> tuple[str, dict[str, Any]]:
    """Name and settings of a call; an empty name if it is not a call with literal keyword arguments."""
    try:
        call = ast.parse(text, mode="eval").body
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args:
            settings = {}
            for word in call.keywords:
                settings[str(word.arg)] = ast.literal_eval(word.value)
            return call.func.id, settings
    except (SyntaxError, ValueError):
        pass
    return "", {}
