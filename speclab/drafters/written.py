"""A strategy as text and back: `DynaTree(base_depth=3)`. So a strategy can be a setting of another one."""

from __future__ import annotations

import ast
from typing import Any

from speclab.drafters.base import Strategy
from speclab.errors import SettingsError


def written(strategy: Strategy) -> str:
    """Its name, and the settings that are not the defaults."""
    kind, values = type(strategy), strategy.describe()
    changed = (name for name, field in kind.model_fields.items() if values[name] != field.default)
    return f"{kind.__name__}({', '.join(f'{name}={values[name]!r}' for name in changed)})"


def read(text: str) -> Strategy:
    """The strategy that `text` names; the parentheses may be left out.

    Raises:
        SettingsError: there is no such strategy, or it does not have these settings.
    """
    from speclab.drafters import strategies

    name, given = _parsed(text if "(" in text else f"{text}()")
    if name not in strategies():
        raise SettingsError(
            f"{text!r} is no strategy: write it as DynaTree(base_depth=3), with a name from {', '.join(strategies())}"
        )
    return strategies()[name](**given)


def _parsed(text: str) -> tuple[str, dict[str, Any]]:
    """Name and settings of a call; no name where it is none, or holds anything but plain values by name."""
    try:
        call = ast.parse(text, mode="eval").body
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args:
            return call.func.id, {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError):
        pass
    return "", {}
