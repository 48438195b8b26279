"""What the page can run until, as conditions on a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from speclab.drafters import setting_names
from speclab.errors import SettingsError
from speclab.trace.conditions import Condition, compiled

UNTIL = {"accepts_fewer": "accepted < {}", "nodes_more": "nodes > {}", "expression": "{}"}


def page_condition(kind: str, value: Any, text: Callable[[], str]) -> tuple[Condition | None, str]:
    """A condition of the page, and what it is in words; "end" is none.

    Args:
        kind: end, token, or one of `UNTIL`.
        value: what a person typed.
        text: the text decoded so far; asked now, and after each iteration for a token or text that may span two.

    Raises:
        SettingsError: nothing was typed, or what was typed is not a condition.
    """
    if kind == "end":
        return None, ""
    if value in ("", None):
        raise SettingsError("Enter what to run until.")
    if kind == "token":
        wanted = str(value)
        start = max(0, len(text()) - len(wanted) + 1)
        return lambda _: wanted in text()[start:], f"“{wanted}” came"
    expression = UNTIL[kind].format(value)
    compiled(expression, setting_names())
    return expression, expression
