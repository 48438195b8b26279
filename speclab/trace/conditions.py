"""Conditions to run until: functions of a step, or expressions over its fields such as `accepted <
2 and entropy > 3`.

An expression is Python syntax, restricted to numbers, texts in quotes, lists, `+ - * /`,
comparisons, `in`, `and`, `or`, `not`, and names: those of `STEP_FIELDS`, settings of strategies
(`settings.depth` if a field has the same name), and `seconds.verify`. A comparison with a missing
value is false, and so is one with a text or a list times a number.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from numbers import Real
from types import CodeType
from typing import Any

from speclab.errors import ExpressionError, SettingsError, meant
from speclab.trace.records import PHASES, Step

Condition = Callable[[Step], bool] | str
"""A function of a step, or an expression."""
LONGEST = 500
"""Most characters of an expression."""
EXAMPLE = "accepted < 2 and entropy > 3"
_ALLOWED = (
    ast.Constant, ast.Tuple, ast.List, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div,
    ast.BoolOp, ast.And, ast.Or, ast.Compare, ast.cmpop, ast.Load, ast.Expression,
)  # fmt: skip


def _value(step: Step, kind: str, name: str) -> Any:
    for event in step.events:
        if event.kind == kind and name in event.values:
            return event.values[name]
    return None


def _changed(step: Step) -> list[str]:
    before = step.adaptation.before
    after = step.adaptation.after
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


STEP_FIELDS: dict[str, Callable[[Step], Any]] = {
    "iteration": lambda step: step.index + 1,  # from 1, as the lab counts
    "index": lambda step: step.index,  # from 0
    "prefix": lambda step: step.prefix_length,
    "nodes": lambda step: len(step.tree),  # root included
    "depth": lambda step: int(step.tree.depth.max()),
    "drafted": lambda step: step.counts.drafted,
    "accepted": lambda step: step.counts.accepted,
    "rejected": lambda step: [node.verdict for node in step.nodes].count("rejected"),
    "committed": lambda step: len(step.committed),  # the bonus token included
    "acceptance": lambda step: (
        step.counts.accepted / step.counts.drafted if step.counts.drafted else None
    ),
    # on the path; nats
    "entropy": lambda step: max((step.nodes[node].entropy for node in step.path), default=None),
    "confidence": lambda step: _value(step, "expand", "confidence"),  # at the first node expanded
    "target_calls": lambda step: step.counts.target_calls,
    "draft_calls": lambda step: step.counts.draft_calls,
    "seconds": lambda step: sum(step.seconds.values()),
    "text": lambda step: "".join(step.texts.get(token, "") for token in step.committed),
    "bonus": lambda step: None if step.bonus is None else step.texts.get(step.bonus, ""),
    "route": lambda step: _value(step, "route", "route"),
    "note": lambda step: step.note,
    "tokens": lambda step: step.committed,
    "verdicts": lambda step: [node.verdict for node in step.nodes],
    "sources": lambda step: step.tree.source,
    "changed": _changed,  # settings that the drafter changed for the next iteration
    "adapted": lambda step: bool(_changed(step)),
    "mask_differs": lambda step: bool((step.mask != step.tree.ancestor_mask()).any()),
}


@dataclass(frozen=True)
class Expression:
    """A parsed expression."""

    text: str
    code: CodeType
    readers: Mapping[str, Callable[[Step], Any]]

    def __call__(self, step: Step) -> bool:
        values = {name: read(step) for name, read in self.readers.items()}
        try:
            # only nodes of _ALLOWED
            return bool(eval(self.code, {"__builtins__": {}, "*": _product}, values))
        # the step has no such value
        except (TypeError, ZeroDivisionError, OverflowError, MemoryError):
            return False


def _product(left: Any, right: Any) -> Any:
    """Of numbers alone: a text or a list times a number may fill the memory."""
    if not isinstance(left, Real) or not isinstance(right, Real):
        raise TypeError
    return left * right


def parse(text: str, settings: Collection[str] = ()) -> Expression:
    """An expression over the fields of a step and these `settings` of strategies.

    Raises:
        ExpressionError: it cannot be parsed, or contains an unknown name.
    """
    names = _Names(settings)
    if len(text) > LONGEST:
        raise ExpressionError(f"An expression has at most {LONGEST} characters.")
    try:
        tree = names.visit(ast.parse(" ".join(text.split()), mode="eval"))
        code = compile(ast.fix_missing_locations(tree), "<condition>", "eval")
    except ExpressionError:
        raise
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ExpressionError(
            f"{text!r} cannot be read as an expression: enter one such as {EXAMPLE}; == means equal."
        ) from None
    return Expression(text, code, names.readers)


class _Names(ast.NodeTransformer):
    """Rejects disallowed nodes, and turns dotted names into single names for the lookup."""

    def __init__(self, settings: Collection[str]) -> None:
        self.readers: dict[str, Callable[[Step], Any]] = {}
        self._known = {name: _reader("settings", name) for name in settings} | STEP_FIELDS
        self._known |= {f"settings.{name}": _reader("settings", name) for name in settings}
        self._known |= {f"seconds.{phase}": _reader("seconds", phase) for phase in PHASES}

    def generic_visit(self, node: ast.AST) -> ast.AST:
        # an operator alone has no text
        if not isinstance(getattr(node, "op", node), _ALLOWED):
            raise ExpressionError(
                f"{ast.unparse(node)!r} cannot be used here: use comparisons, and, or, not, in, "
                "+ - * /, numbers, texts in quotes, and names."
            )
        return super().generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Mult):
            return node
        return ast.Call(ast.Name("*", ast.Load()), [node.left, node.right], [])

    def visit_Name(self, node: ast.Name | ast.Attribute) -> ast.AST:
        name = ast.unparse(node)
        if name not in self._known:
            near = meant(name, self._known) or "accepted"
            raise ExpressionError(f"Unknown name {name!r}. Did you mean {near!r}?")
        self.readers[name] = self._known[name]
        return ast.Name(name, ast.Load())

    visit_Attribute = visit_Name  # noqa: N815


def _reader(column: str, name: str) -> Callable[[Step], Any]:
    return lambda step: getattr(step, column).get(name)


def compiled(condition: Condition | None, settings: Collection[str] = ()) -> Callable[[Step], bool]:
    """A condition as a function. Expressions may use the names of `settings`; None never holds.

    Raises:
        SettingsError: neither a function nor a valid expression.
    """
    if condition is None:
        return lambda _: False
    if isinstance(condition, str):
        return parse(condition, settings)
    if not callable(condition):
        raise SettingsError(
            f"Expected an expression such as '{EXAMPLE}' or a function, got {condition!r}."
        )
    return condition
