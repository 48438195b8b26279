"""Strategies: one file each. `strategies()` finds them, and those defined elsewhere; nothing lists them."""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules
from typing import Any

from speclab.drafters.base import DEFINED, Strategy
from speclab.errors import SettingsError

__all__ = ["Strategy", "from_str", "setting_names", "strategies", "to_str"]


def strategies(*, by_hand: bool = True) -> dict[str, type[Strategy]]:
    """Every strategy by name: the registry that widgets, command line and docs read.

    A class that is defined elsewhere, as in a notebook, is one of them, and takes the place of an earlier one of its
    name. `by_hand`: whether those are among them that a person hands each tree to.
    """
    _import_all()
    known = [(name, kind) for name, kind in sorted(DEFINED.items()) if by_hand or not kind.by_hand]
    return {name: kind for name, kind in known if not (name.startswith("_") or isabstract(kind))}


def setting_names() -> tuple[str, ...]:
    """The settings of every strategy, those defined outside the package included."""
    return ("strategy", *sorted({name for kind in strategies().values() for name in kind.model_fields}))


def to_str(strategy: Strategy) -> str:
    """`DynaTree(base_depth=3)`: its name, and the settings that are not the defaults; as Python, it gives it again."""
    kind, values = type(strategy), strategy.describe()
    changed = [name for name, field in kind.model_fields.items() if values[name] != field.default]
    return f"{kind.__name__}({', '.join(f'{name}={values[name]!r}' for name in changed)})"


def from_str(text: str) -> Strategy:
    """The strategy that `text` names; the parentheses may be left out.

    Raises:
        SettingsError: there is no such strategy, or it does not have these settings.
    """
    name, given = _parsed(text if "(" in text else f"{text}()")
    known = strategies()
    if name not in known:
        raise SettingsError(
            f"{text!r} is no strategy: write it as DynaTree(base_depth=3), with a name from {', '.join(known)}"
        )
    return known[name](**given)


@cache
def _import_all() -> None:
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def _parsed(text: str) -> tuple[str, dict[str, Any]]:
    """Name and settings of a call; no name where it is none, or holds anything but plain values by name."""
    try:
        call = ast.parse(text, mode="eval").body
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args:
            return call.func.id, {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError):
        pass
    return "", {}
