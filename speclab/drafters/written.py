"""A strategy as text and back: `DynaTree(base_depth=3)`. So a strategy can be a setting of another one."""

from __future__ import annotations

import ast

from speclab.drafters.base import Strategy
from speclab.errors import SettingsError


def written(strategy: Strategy) -> str:
    """Its name, and the settings that are not the defaults."""
    kind, values = type(strategy), strategy.model_dump()
    changed = (name for name, value in values.items() if value != kind.model_fields[name].default)
    return f"{kind.__name__}({', '.join(f'{name}={values[name]!r}' for name in changed)})"


def read(text: str) -> Strategy:
    """The strategy that `text` names; the parentheses may be left out.

    Raises:
        SettingsError: there is no such strategy, or it does not have these settings.
    """
    from speclab.drafters import strategies

    try:
        call = ast.parse(text if "(" in text else f"{text}()", mode="eval").body
        kind = strategies()[call.func.id]  # type: ignore[attr-defined]
        given = {word.arg: ast.literal_eval(word.value) for word in call.keywords}  # type: ignore[attr-defined]
    except (SyntaxError, ValueError, KeyError, AttributeError) as error:
        raise SettingsError(
            f"{text!r} is no strategy: write it as DynaTree(base_depth=3), with a name from {', '.join(strategies())}"
        ) from error
    return kind(**{str(name): value for name, value in given.items()})
