"""The conditions that the page can run until."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from speclab.drafters import setting_names
from speclab.errors import SettingsError
from speclab.trace.conditions import Condition, compiled

UNTIL = {"accepts_fewer": "accepted < {}", "nodes_more": "nodes > {}", "expression": "{}"}


def page_condition(kind: str, value: Any, text: Callable[[], str]) -> tuple[Condition | None, str]:
    """A condition of the page, and its description; None for "end".

    Args:
        kind: end, token, or one of `UNTIL`.
        value: the typed text.
        text: returns the text decoded so far; a match may span two iterations.

    Raises:
        SettingsError: the typed text is empty, or not a condition.
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
