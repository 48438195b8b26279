"""What an expression may ask of a Step: a name, its kind, what it means, and how it is read."""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from speclab.errors import ExpressionError
from speclab.trace.records import PHASES, Step

Kind = Literal["number", "text", "truth", "numbers", "texts", "setting", "nothing"]


@dataclass(frozen=True, slots=True)
class Fact:
    """One named field. `of` gives None where a step has no such thing, such as a route of a strategy without routes."""

    kind: Kind
    meaning: str
    of: Callable[[Step], Any]


def _route(step: Step) -> str | None:
    return next((str(event.values.get("route", event.reason)) for event in step.events if event.kind == "route"), None)


def _confidence(step: Step) -> Any:
    found = (event.values.get("confidence") for event in step.events if event.kind == "expand")
    return next((value for value in found if value is not None), None)


def _text(step: Step) -> str:
    return "".join(step.texts.get(token, "") for token in step.committed)


def _width(step: Step) -> int:
    return max(Counter(step.tree.depth.tolist()).values())


def _corrected(step: Step) -> bool:
    end = step.accepted[-1] if step.accepted else -1 if step.root_choice is not None else 0
    refused = (node for node in step.nodes if node.verdict == "rejected")
    return step.bonus is not None and any(step.tree.parent[node.index] == end for node in refused)


def _changed(step: Step) -> tuple[str, ...]:
    before, after = step.adaptation.before, step.adaptation.after
    return tuple(name for name in {**before, **after} if before.get(name) != after.get(name))


def _gates(step: Step) -> tuple[str, ...]:
    return tuple(str(event.values["gate"]) for event in step.events if "gate" in event.values)


FACTS: dict[str, Fact] = {
    "iteration": Fact("number", "the iteration, counted from 1 as the lab counts", lambda step: step.index + 1),
    "index": Fact("number", "the iteration, counted from 0", lambda step: step.index),
    "prefix": Fact("number", "entries in the target's cache before the pass", lambda step: step.prefix_length),
    "nodes": Fact("number", "nodes of the tree, root included", lambda step: len(step.tree)),
    "depth": Fact("number", "the deepest level of the tree; the root is 0", lambda step: int(step.tree.depth.max())),
    "width": Fact("number", "nodes on the tree's widest level", _width),
    "drafted": Fact("number", "drafted tokens verified", lambda step: step.counts.drafted),
    "accepted": Fact("number", "drafted tokens accepted", lambda step: step.counts.accepted),
    "rejected": Fact(
        "number",
        "nodes rejected: the walk reached their parent, and the target chose otherwise",
        lambda step: sum(node.verdict == "rejected" for node in step.nodes),
    ),
    "committed": Fact("number", "tokens committed, the target's own included", lambda step: len(step.committed)),
    "acceptance": Fact(
        "number",
        "accepted / drafted, 0 to 1; nothing where nothing was drafted",
        lambda step: step.counts.accepted / step.counts.drafted if step.counts.drafted else None,
    ),
    "entropy": Fact(
        "number",
        "the largest entropy of the target's law on the committed path, root included; nats",
        lambda step: max(step.nodes[node].entropy for node in (0, *step.accepted)),
    ),
    "confidence": Fact("number", "the draft's confidence at the first node expanded, 0 to 1", _confidence),
    "target_calls": Fact("number", "forward passes of the target", lambda step: step.counts.target_calls),
    "draft_calls": Fact("number", "forward passes of draft models and heads", lambda step: step.counts.draft_calls),
    "seconds": Fact(
        "number", "seconds of all phases; seconds.verify: of one of them", lambda step: sum(step.seconds.values())
    ),
    "text": Fact("text", "the text committed", _text),
    "bonus": Fact(
        "text",
        "the target's own token, as text",
        lambda step: None if step.bonus is None else step.texts.get(step.bonus, ""),
    ),
    "route": Fact("text", "which way the drafter went", _route),
    "note": Fact("text", "what the record notes, such as a tie", lambda step: step.note),
    "tokens": Fact("numbers", "the token ids committed", lambda step: step.committed),
    "verdicts": Fact(
        "texts",
        "verdicts of the nodes: root, accepted, rejected, not reached",
        lambda step: tuple(node.verdict for node in step.nodes),
    ),
    "sources": Fact("texts", "which parts of the drafter proposed the nodes", lambda step: step.tree.source),
    "gates": Fact("texts", "gates that stopped drafting, such as node_budget", _gates),
    "changed": Fact("texts", "settings that the drafter changed for the next iteration", _changed),
    "adapted": Fact("truth", "whether it changed any", lambda step: bool(_changed(step))),
    "corrected": Fact("truth", "whether the target replaced a rejected candidate by its own token", _corrected),
    "mask_differs": Fact(
        "truth",
        "whether the target was given another mask than the ancestor closure",
        lambda step: bool((step.mask != step.tree.ancestor_mask()).any()),
    ),
}
"""Every name, in the order in which help shows it."""


Read = Callable[[Step, Step | None], Any]
LONGEST = 500
_KINDS = {"number": "a number", "text": "a text", "truth": "true or false", "nothing": "None", "setting": "a setting"}
_KINDS |= {"numbers": "a list of numbers", "texts": "a list of texts"}
_ORDERED = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
_SLIPS = {
    r"\bcontains\b": 'write "the" in text',
    r"&": "write and",
    r"\|": "write or",
    r"<>": "write !=",
    r"(?<![<>=!])=(?!=)": "two values are compared with ==",
}
_EXAMPLE = "accepted < 2 and entropy > 3"


@dataclass(frozen=True, slots=True)
class _Part:
    kind: Kind
    read: Read


def compiled(text: str) -> Callable[[Step, Step | None], bool]:
    """A function of a step and the one before it (None at the beginning) that says whether the expression holds.

    Raises:
        ExpressionError: it does not parse, names what no step has, or compares what cannot be compared.
    """
    if not text.strip():
        raise ExpressionError(f"An empty expression holds nowhere: write one such as {_EXAMPLE}.")
    if len(text) > LONGEST:
        raise ExpressionError(f"Column {LONGEST}: an expression has at most {LONGEST} characters.", LONGEST)
    line = " ".join(text.splitlines())
    lead = len(line) - len(line.lstrip())  # Python reads a space at the beginning as an indentation
    try:
        tree = ast.parse(line[lead:], mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        slip = next((f" ({way})" for sign, way in _SLIPS.items() if re.search(sign, line)), "")
        column = lead + (getattr(error, "offset", 0) or len(line[lead:].rstrip()) + 1)  # 0: something lacks at its end
        said = f"Column {column}: this does not read as an expression{slip}; one that does: {_EXAMPLE}."
        raise ExpressionError(said, column) from None
    read = _Reader(line[lead:], lead).truth(tree.body)
    return lambda step, previous: bool(read(step, previous))


def setting_names() -> tuple[str, ...]:
    """The settings of every strategy, those defined outside the package included."""
    from speclab.drafters import Strategy, strategies

    def kinds(kind: type[Strategy]) -> Iterator[type[Strategy]]:
        yield kind
        for narrower in kind.__subclasses__():
            yield from kinds(narrower)

    strategies()  # imports them all
    return tuple(dict.fromkeys(["strategy", *sorted(name for kind in kinds(Strategy) for name in kind.model_fields)]))


class _Reader:
    """Turns the nodes of one expression into parts, each a kind and a way to read its value."""

    def __init__(self, line: str, lead: int) -> None:
        self._bytes, self._lead = line.encode(), lead

    def truth(self, node: ast.expr) -> Read:
        """A part that is true or false; a setting may be."""
        part = self._part(node)
        if part.kind not in {"truth", "setting"}:
            raise self._refusal(node, f"{self._source(node)} is {_KINDS[part.kind]}: compare it with something")
        return part.read

    def _part(self, node: ast.expr) -> _Part:
        made: _Part | None = None
        match node:
            case ast.Constant(value=value):
                made = self._literal(node, value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                made = self._literal(node, -value)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                denied = self.truth(operand)
                made = _Part("truth", lambda step, previous: not denied(step, previous))
            case ast.BoolOp(op=op, values=values):
                reads, every = [self.truth(value) for value in values], all if isinstance(op, ast.And) else any
                made = _Part("truth", lambda step, previous: every(read(step, previous) for read in reads))
            case ast.Compare():
                made = self._comparison(node)
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                made = self._list(node, elements)
            case ast.Name() | ast.Attribute():
                made = self._named(node)
        if made is None:
            known = "comparisons, and, or, not, in, numbers, texts in quotes and names"
            raise self._refusal(node, f"only {known} are read here")
        return made

    def _literal(self, node: ast.expr, value: object) -> _Part:
        kinds: tuple[tuple[type, Kind], ...] = (
            (bool, "truth"), (int, "number"), (float, "number"), (str, "text"), (type(None), "nothing"),
        )  # fmt: skip
        kind = next((kind for type_, kind in kinds if isinstance(value, type_)), None)
        if kind is None:
            raise self._refusal(node, f"{self._source(node)} is neither a number nor a text")
        return _Part(kind, lambda _step, _previous: value)

    def _list(self, node: ast.expr, elements: list[ast.expr]) -> _Part:
        kinds = {self._part(element).kind for element in elements if isinstance(element, ast.Constant)}
        if len(kinds) != 1 or not kinds <= {"number", "text"} or not all(isinstance(e, ast.Constant) for e in elements):
            raise self._refusal(node, "a list holds numbers alone, or texts in quotes alone")
        values = ast.literal_eval(node)
        return _Part("numbers" if kinds == {"number"} else "texts", lambda _step, _previous: values)

    def _named(self, node: ast.expr) -> _Part:
        names = self._source(node).replace(" ", "").split(".")
        if names[0] != "previous" or len(names) == 1:
            return self._field(node, names)
        part = self._field(node, names[1:])
        return _Part(part.kind, lambda _, previous: None if previous is None else part.read(previous, None))

    def _field(self, node: ast.expr, names: list[str]) -> _Part:
        match names:
            case [name] if name in FACTS:
                of = FACTS[name].of
                return _Part(FACTS[name].kind, lambda step, _: of(step))
            case ["seconds", name] if name in PHASES:
                return _Part("number", lambda step, _: step.seconds.get(name))
            case [name] | ["settings", name] if name in setting_names():
                return _Part("setting", lambda step, _: step.settings.get(name))
            case _:
                raise self._refusal(node, _unknown(".".join(names)))

    def _comparison(self, node: ast.Compare) -> _Part:
        operands = [node.left, *node.comparators]
        parts = [self._part(operand) for operand in operands]
        links = []
        for place, op in enumerate(node.ops):
            left, right = parts[place], parts[place + 1]
            if not _fits(op, left.kind, right.kind):
                said = f"{_KINDS[left.kind]} {self._source(operands[place])} and {_KINDS[right.kind]}"
                raise self._refusal(operands[place + 1], _misfit(op, said, self._source(operands[place + 1])))
            links.append((left.read, right.read, _test(op, "nothing" in {left.kind, right.kind})))
        return _Part(
            "truth", lambda step, prev: all(test(left(step, prev), right(step, prev)) for left, right, test in links)
        )

    def _source(self, node: ast.expr) -> str:
        return self._bytes[node.col_offset : node.end_col_offset].decode()

    def _refusal(self, node: ast.expr, why: str) -> ExpressionError:
        # ast counts bytes, people count characters
        column = self._lead + len(self._bytes[: node.col_offset].decode()) + 1
        return ExpressionError(f"Column {column}: {why}.", column)


def _fits(op: ast.cmpop, left: Kind, right: Kind) -> bool:
    scalars = {"number", "text", "truth", "nothing", "setting"}
    if isinstance(op, ast.In | ast.NotIn):
        return (left, right) in {("text", "text"), ("text", "texts"), ("number", "numbers")} or (
            left == "setting" and right in {"texts", "numbers"}
        )
    if isinstance(op, ast.Eq | ast.NotEq):
        return {left, right} <= scalars and (left == right or bool({left, right} & {"setting", "nothing"}))
    return type(op) in _ORDERED and {left, right} <= {"number", "setting"}


def _misfit(op: ast.cmpop, said: str, source: str) -> str:
    if isinstance(op, ast.Is | ast.IsNot):
        return "write == for is, and != for is not"
    way = "; a text or a list stands to the right of in" if isinstance(op, ast.In | ast.NotIn) else ""
    return f"{said} {source} cannot be compared so{way}"


def _test(op: ast.cmpop, with_nothing: bool) -> Callable[[Any, Any], bool]:
    """What the operator asks of two values; of which one that is not there meets nothing, unless None was written."""
    if type(op) in _ORDERED:
        ordered = _ORDERED[type(op)]
        return lambda a, b: isinstance(a, int | float) and isinstance(b, int | float) and bool(ordered(a, b))
    if isinstance(op, ast.In):
        return lambda a, b: a is not None and b is not None and a in b
    if isinstance(op, ast.NotIn):
        return lambda a, b: a is not None and b is not None and a not in b
    same = operator.eq if isinstance(op, ast.Eq) else operator.ne
    if with_nothing:
        return same
    return lambda a, b: a is not None and b is not None and bool(same(a, b))


def _unknown(name: str) -> str:
    near = get_close_matches(name, [*FACTS, *setting_names()], 1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    phases = ", ".join(f"seconds.{phase}" for phase in PHASES)
    others = f"{phases}, the settings of a strategy, and previous.NAME"
    return f"no step has the name {name}{meant}; names are {', '.join(FACTS)}, {others}"
