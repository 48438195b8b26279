"""Conditions to run until: functions of a step, or expressions over its fields such as `accepted < 2 and entropy > 3`.

An expression is written in Python's syntax, parsed by `ast` and translated node by node. Python evaluates none of it,
and what is not listed here is refused where it stands: numbers, texts in quotes, True, False, None, lists of numbers or
of texts, `+` and `-`, comparisons, `in`, `and`, `or`, `not`, and names. Names are those of `STEP_FIELDS`, the settings
of strategies (`settings.depth` where a field has the same name), `seconds.verify`, and any of these of the iteration
before, as in `route != previous.route`. A value that a step does not have satisfies no comparison, except with None.
"""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from speclab.errors import ExpressionError, SettingsError
from speclab.trace.records import PHASES, Step

Condition = Callable[[Step], bool] | str
"""What a run can stop at: a function of a step, or an expression."""
Kind = Literal["number", "text", "truth value", "list of numbers", "list of texts", "setting", "None"]
Read = Callable[[Step, Step | None], Any]
"""Reads a value from a step and the one before it, which is None at the beginning."""
LONGEST, DEEPEST, LARGEST = 500, 100, 1e300
"""Limits of an expression: its characters, the levels it may nest, and the size of its numbers."""
EXAMPLE = "accepted < 2 and entropy > 3"


class StepField(NamedTuple):
    """A named value of a step. `of` gives None where a step has no such value, as where a strategy has no routes."""

    kind: Kind
    meaning: str
    of: Callable[[Step], Any]


def _route(step: Step) -> str | None:
    return next((str(event.values.get("route", event.reason)) for event in step.events if event.kind == "route"), None)


def _confidence(step: Step) -> Any:
    found = (event.values.get("confidence") for event in step.events if event.kind == "expand")
    return next((value for value in found if value is not None), None)


def _acceptance(step: Step) -> float | None:
    return step.counts.accepted / step.counts.drafted if step.counts.drafted else None


def _entropy(step: Step) -> float:
    return max(step.nodes[node].entropy for node in (0, *step.accepted))


def _corrected(step: Step) -> bool:
    end = step.accepted[-1] if step.accepted else -1 if step.root_choice is not None else 0
    rejected = (node for node in step.nodes if node.verdict == "rejected")
    return step.bonus is not None and any(step.tree.parent[node.index] == end for node in rejected)


def _changed(step: Step) -> tuple[str, ...]:
    before, after = step.adaptation.before, step.adaptation.after
    return tuple(name for name in {**before, **after} if before.get(name) != after.get(name))


def _verdicts(step: Step) -> tuple[str, ...]:
    return tuple(node.verdict for node in step.nodes)


def _gates(step: Step) -> tuple[str, ...]:
    return tuple(str(event.values["gate"]) for event in step.events if "gate" in event.values)


def _mask_differs(step: Step) -> bool:
    return bool((step.mask != step.tree.ancestor_mask()).any())


def _fields(kind: Kind, **fields: tuple[str, Callable[[Step], Any]]) -> dict[str, StepField]:
    return {name: StepField(kind, *field) for name, field in fields.items()}


STEP_FIELDS = {
    **_fields(
        "number",
        iteration=("the iteration, counted from 1 as the lab does", lambda step: step.index + 1),
        index=("the iteration, counted from 0", lambda step: step.index),
        prefix=("entries in the target's cache before the pass", lambda step: step.prefix_length),
        nodes=("nodes of the tree, root included", lambda step: len(step.tree)),
        depth=("the deepest level of the tree; the root is 0", lambda step: int(step.tree.depth.max())),
        width=("nodes on the widest level", lambda step: max(Counter(step.tree.depth.tolist()).values())),
        drafted=("drafted tokens verified", lambda step: step.counts.drafted),
        accepted=("drafted tokens accepted", lambda step: step.counts.accepted),
        rejected=("nodes that the target rejected", lambda step: _verdicts(step).count("rejected")),
        committed=("tokens committed, the bonus token included", lambda step: len(step.committed)),
        acceptance=("accepted / drafted, 0 to 1; None where nothing was drafted", _acceptance),
        entropy=("the target's largest entropy on the accepted path, root included; nats", _entropy),
        confidence=("the draft's confidence at the first node expanded, 0 to 1", _confidence),
        target_calls=("forward passes of the target", lambda step: step.counts.target_calls),
        draft_calls=("forward passes of draft models and heads", lambda step: step.counts.draft_calls),
        seconds=("seconds of all phases; seconds.verify: of one phase", lambda step: sum(step.seconds.values())),
    ),
    **_fields(
        "text",
        text=("the text committed", lambda step: "".join(step.texts.get(token, "") for token in step.committed)),
        bonus=("the bonus token's text", lambda step: None if step.bonus is None else step.texts.get(step.bonus, "")),
        route=("which way the drafter went", _route),
        note=("a note of the recorder, such as a tie", lambda step: step.note),
    ),
    **_fields("list of numbers", tokens=("the token ids committed", lambda step: step.committed)),
    **_fields(
        "list of texts",
        verdicts=("root, accepted, rejected or not reached, per node", _verdicts),
        sources=("which parts of the drafter proposed the nodes", lambda step: step.tree.source),
        gates=("gates that stopped drafting, such as node_budget", _gates),
        changed=("settings that the drafter changed for the next iteration", _changed),
    ),
    **_fields(
        "truth value",
        adapted=("whether it changed any", lambda step: bool(_changed(step))),
        corrected=("whether the target's own token replaced a rejected candidate", _corrected),
        mask_differs=("whether the target's mask was not the ancestor closure", _mask_differs),
    ),
}
"""Every field by name, in the order in which help shows them."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression. Called with a step alone, it knows of no iteration before it."""

    text: str
    holds: Callable[[Step, Step | None], bool]

    def __call__(self, step: Step) -> bool:
        """Whether it holds for this step."""
        return self.holds(step, None)


def compiled(condition: Condition | None, settings: Collection[str] = ()) -> Callable[[Step], bool]:
    """A condition as a function: an expression is parsed, which may name these `settings`; None never holds.

    Raises:
        SettingsError: neither a function nor an expression that can be parsed.
    """
    if condition is None:
        return lambda _: False
    if isinstance(condition, str):
        return parse(condition, settings)
    if not callable(condition):
        raise SettingsError(f"{condition!r} is no condition: give an expression such as '{EXAMPLE}', or a function.")
    return condition


def stateful(condition: Callable[[Step], bool], previous: Step | None) -> Callable[[Step], bool]:
    """What to ask of each step after `previous`, in their order: an expression is told the step before each."""
    if not isinstance(condition, Expression):
        return condition

    def holds(step: Step) -> bool:
        nonlocal previous
        before, previous = previous, step
        return condition.holds(step, before)

    return holds


class Breakpoint(NamedTuple):
    """A condition to choose from a list. Its argument replaces {} in `expression`, and has the type of `default`."""

    label: str
    expression: str
    default: int | float | str | None = None

    def parse(self, argument: float | str | None, settings: Collection[str] = ()) -> Expression:
        """The condition with this argument.

        Raises:
            SettingsError: the argument is an empty text, or no expression where one is asked for.
        """
        if self == ANY_EXPRESSION:
            return parse(str(argument), settings)
        if argument == "" and self.default is not None:
            raise SettingsError("Every text contains the empty one: enter the text to run until.")
        return parse(self.expression.format(repr(argument)))


ANY_EXPRESSION = Breakpoint("the expression holds", "{}", EXAMPLE)
BREAKPOINTS = (
    Breakpoint("a token is rejected", "rejected > 0"),
    Breakpoint("fewer accepted than", "accepted < {}", 2),
    Breakpoint("the text appears", "{} in text", "."),
    Breakpoint("the token id appears", "{} in tokens", 0),
    Breakpoint("target entropy above (nats)", "entropy > {}", 3.0),
    Breakpoint("the tree has more nodes than", "nodes > {}", 24),
    Breakpoint("settings change", "adapted"),
    Breakpoint("the route changes", "route != previous.route"),
    ANY_EXPRESSION,
)


def parse(text: str, settings: Collection[str] = ()) -> Expression:
    """An expression over the fields of a step and these `settings` of strategies.

    Raises:
        ExpressionError: it cannot be parsed, names what no step has, or compares what cannot be compared.
    """
    if not text.strip():
        raise ExpressionError(f"The expression is empty: enter one such as {EXAMPLE}.")
    if len(text) > LONGEST:
        raise ExpressionError(f"Column {LONGEST}: an expression has at most {LONGEST} characters.", LONGEST)
    line = " ".join(text.splitlines())
    lead = len(line) - len(line.lstrip())  # Python reads a space at the beginning as an indentation
    try:
        node = ast.parse(line[lead:], mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        typo = next((f" ({way})" for sign, way in _TYPOS.items() if re.search(sign, line)), "")
        column = lead + (getattr(error, "offset", 0) or len(line[lead:].rstrip()) + 1)  # 0: something lacks at its end
        why = f"this cannot be read as an expression{typo}; enter one such as {EXAMPLE}"
        raise ExpressionError(f"Column {column}: {why}.", column) from None
    return Expression(text, _Translator(line[lead:], lead, settings).truth(node))


_TYPOS = {
    r"\bcontains\b": 'write "the" in text',
    r"&": "write and",
    r"\|": "write or",
    r"<>": "write !=",
    r"(?<![<>=!])=(?!=)": "two values are compared with ==",
}
_TYPES: dict[type, Kind] = {
    bool: "truth value", int: "number", float: "number", str: "text", type(None): "None"
}  # fmt: skip
_ORDER = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
_TESTS = _ORDER | {
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.In: lambda value, whole: value in whole, ast.NotIn: lambda value, whole: value not in whole,
}  # fmt: skip
_CONTAINED = {
    ("text", "text"), ("text", "list of texts"), ("number", "list of numbers"),
    ("setting", "list of texts"), ("setting", "list of numbers"),
}  # fmt: skip


class _Translator(ast.NodeVisitor):
    """Turns the nodes of one expression into functions, each with the kind of value that it reads."""

    def __init__(self, line: str, lead: int, settings: Collection[str]) -> None:
        self._line, self._lead, self._settings, self._level = line, lead, settings, 0

    def truth(self, node: ast.expr) -> Callable[[Step, Step | None], bool]:
        """Whether a value is true; a setting may be."""
        read = self._of_kind(node, {"truth value", "setting"}, "compare it with something")
        return lambda step, previous: bool(read(step, previous))

    def _number(self, node: ast.expr) -> Read:
        return self._of_kind(node, {"number", "setting"}, "only numbers are added and subtracted")

    def _of_kind(self, node: ast.expr, kinds: set[Kind], way_out: str) -> Read:
        kind, read = self.visit(node)
        if kind not in kinds:
            raise self._error(node, f"{self._source(node)} is a {kind}: {way_out}")
        return read

    def visit(self, node: ast.AST) -> tuple[Kind, Read]:
        self._level += 1
        if self._level > DEEPEST:
            raise self._error(node, f"an expression nests at most {DEEPEST} levels")
        value: tuple[Kind, Read] = super().visit(node)
        self._level -= 1
        return value

    def generic_visit(self, node: ast.AST) -> tuple[Kind, Read]:
        allowed = "comparisons, + and -, and, or, not, in, numbers, texts in quotes and names"
        raise self._error(node, f"only {allowed} can be used here")

    def visit_Constant(self, node: ast.Constant) -> tuple[Kind, Read]:
        value = node.value
        if type(value) not in _TYPES or (isinstance(value, int | float) and value > LARGEST):
            raise self._error(node, f"{self._source(node)} is neither a number up to {LARGEST:g} nor a text")
        return _TYPES[type(value)], lambda _step, _previous: value

    def visit_Tuple(self, node: ast.Tuple | ast.List | ast.Set) -> tuple[Kind, Read]:
        values = [each.value for each in node.elts if isinstance(each, ast.Constant)]
        kinds = {_TYPES.get(type(value)) for value in values}
        if len(values) < len(node.elts) or kinds not in ({"number"}, {"text"}):
            raise self._error(node, "a list holds numbers alone, or texts in quotes alone")
        return "list of numbers" if kinds == {"number"} else "list of texts", lambda _step, _previous: values

    visit_List = visit_Set = visit_Tuple  # noqa: N815

    def visit_UnaryOp(self, node: ast.UnaryOp) -> tuple[Kind, Read]:
        if isinstance(node.op, ast.Not):
            denied = self.truth(node.operand)
            return "truth value", lambda step, previous: not denied(step, previous)
        if isinstance(node.op, ast.USub):
            return _sum(operator.sub, lambda _step, _previous: 0, self._number(node.operand))
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> tuple[Kind, Read]:
        if not isinstance(node.op, ast.Add | ast.Sub):
            return self.generic_visit(node)
        add = operator.add if isinstance(node.op, ast.Add) else operator.sub
        return _sum(add, self._number(node.left), self._number(node.right))

    def visit_BoolOp(self, node: ast.BoolOp) -> tuple[Kind, Read]:
        tests, whole = [self.truth(each) for each in node.values], all if isinstance(node.op, ast.And) else any
        return "truth value", lambda step, previous: whole(test(step, previous) for test in tests)

    def visit_Compare(self, node: ast.Compare) -> tuple[Kind, Read]:
        operands = [node.left, *node.comparators]
        values = [self.visit(operand) for operand in operands]
        tests = []
        for op, (one, other), (left, right) in zip(node.ops, pairwise(operands), pairwise(values), strict=True):
            if isinstance(op, ast.Is | ast.IsNot):
                raise self._error(other, "write == for is, and != for is not")
            if not _comparable(type(op), left[0], right[0]):
                kinds = f"the {left[0]} {self._source(one)} and the {right[0]} {self._source(other)}"
                way_out = "; a text or a list stands to the right of in" if isinstance(op, ast.In | ast.NotIn) else ""
                raise self._error(other, f"{kinds} cannot be compared{way_out}")
            tests.append((left[1], right[1], _test(type(op), "None" in {left[0], right[0]})))
        return "truth value", lambda step, prev: all(test(a(step, prev), b(step, prev)) for a, b, test in tests)

    def visit_Name(self, node: ast.Name | ast.Attribute) -> tuple[Kind, Read]:
        path = ast.unparse(node).split(".")
        before = path[0] == "previous" and len(path) > 1
        match path[1:] if before else path:
            case [name] if name in STEP_FIELDS:
                field = STEP_FIELDS[name]
            case ["seconds", name] if name in PHASES:
                field = StepField("number", name, lambda step: step.seconds.get(name))
            case [name] | ["settings", name] if name in self._settings:
                field = StepField("setting", name, lambda step: step.settings.get(name))
            case names:
                known = [*STEP_FIELDS, *self._settings, *(f"seconds.{phase}" for phase in PHASES)]
                near = get_close_matches(".".join(names), known) or ["accepted", "entropy", "text"]
                raise self._error(node, f"no step has the name {'.'.join(names)}: did you mean {' or '.join(near)}?")
        if before:
            return field.kind, lambda _, previous: None if previous is None else field.of(previous)
        return field.kind, lambda step, _: field.of(step)

    visit_Attribute = visit_Name  # noqa: N815

    def _source(self, node: ast.AST) -> str:
        return ast.get_source_segment(self._line, node) or ""

    def _error(self, node: ast.AST, why: str) -> ExpressionError:
        # ast counts bytes, people count characters
        column = self._lead + len(self._line.encode()[: getattr(node, "col_offset", 0)].decode()) + 1
        return ExpressionError(f"Column {column}: {why}.", column)


def _sum(add: Callable[[Any, Any], Any], left: Read, right: Read) -> tuple[Kind, Read]:
    def read(step: Step, previous: Step | None) -> Any:
        one, other = left(step, previous), right(step, previous)
        return add(one, other) if _is_number(one) and _is_number(other) else None

    return "number", read


def _comparable(op: type[ast.cmpop], left: Kind, right: Kind) -> bool:
    if op in {ast.In, ast.NotIn}:
        return (left, right) in _CONTAINED
    if op in _ORDER:
        return {left, right} <= {"number", "setting"}
    one_kind = left == right or not {left, right}.isdisjoint({"setting", "None"})
    return one_kind and {left, right}.isdisjoint({"list of numbers", "list of texts"})


def _test(op: type[ast.cmpop], with_none: bool) -> Callable[[Any, Any], bool]:
    """The comparison of two values; one that is missing satisfies it only where None was written."""
    test = _TESTS[op]
    if op in _ORDER:
        return lambda one, other: _is_number(one) and _is_number(other) and test(one, other)
    return lambda one, other: (with_none or (one is not None and other is not None)) and test(one, other)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
