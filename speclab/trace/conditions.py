"""Conditions to run until: functions that make a `Step → bool`, and the list of them for whoever offers a choice.

A condition that compares an iteration with the one before it is a `Condition`: `following` starts it anew at any place
of a run, so that the same one serves forwards, backwards and after a fork.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from speclab.errors import SettingsError
from speclab.trace.expressions import compiled
from speclab.trace.records import Step

Until = Callable[[Step], bool]
Asked = Until | str
"""A condition, or an expression that is one."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a step and the one before it, which is None at the beginning and where nobody says."""

    test: Callable[[Step, Step | None], bool]

    def __call__(self, step: Step) -> bool:
        """Whether it holds for this step alone."""
        return self.test(step, None)

    def following(self, previous: Step | None) -> Until:
        """The condition for the steps after `previous`, to be asked of each, in order."""

        def until(step: Step) -> bool:
            nonlocal previous
            before, previous = previous, step
            return self.test(step, before)

        return until


def following(asked: Asked | None, previous: Step | None) -> Until:
    """What to ask of each step after `previous`, in order; of None, what never holds.

    Raises:
        SettingsError: neither a condition nor an expression that reads as one.
    """
    if asked is None:
        return lambda _: False
    until = condition(asked)
    return until.following(previous) if isinstance(until, Condition) else until


def parse(text: str) -> Condition:
    """An expression over the fields of a step (`speclab.trace.expressions`), such as `accepted < 2 and entropy > 3`.

    Raises:
        ExpressionError: it does not parse, names what no step has, or compares what cannot be compared.
    """
    return Condition(compiled(text))


def all_of(*conditions: Asked) -> Condition:
    """Every one of these holds; conditions or expressions."""
    tests = [_test(asked) for asked in conditions]
    return Condition(lambda step, previous: all(test(step, previous) for test in tests))


def any_of(*conditions: Asked) -> Condition:
    """At least one of these holds; conditions or expressions."""
    tests = [_test(asked) for asked in conditions]
    return Condition(lambda step, previous: any(test(step, previous) for test in tests))


def none_of(*conditions: Asked) -> Condition:
    """None of these holds; conditions or expressions."""
    held = any_of(*conditions)
    return Condition(lambda step, previous: not held.test(step, previous))


def condition(asked: Asked) -> Until:
    """The condition itself, or the one that an expression says.

    Raises:
        SettingsError: neither.
    """
    if isinstance(asked, str):
        return parse(asked)
    if not callable(asked):
        raise SettingsError(f"{asked!r} is no condition: give an expression such as 'accepted < 2', or a function.")
    return asked


def _test(asked: Asked) -> Callable[[Step, Step | None], bool]:
    until = condition(asked)
    return until.test if isinstance(until, Condition) else lambda step, _: until(step)


def fewer_accepted(k: int) -> Until:
    """The iteration accepted fewer than `k` drafted tokens."""
    return lambda step: step.counts.accepted < k


def token_rejected() -> Until:
    """The target chose another token than one it was offered."""
    return lambda step: any(node.verdict == "rejected" for node in step.nodes)


def token_appears(token: int) -> Until:
    """This token id was committed."""
    return lambda step: token in step.committed


def text_appears(text: str) -> Until:
    """The tokens committed by one iteration contain this text.

    Raises:
        SettingsError: the text is empty.
    """
    if not text:
        raise SettingsError("An empty text is everywhere: name a text to run until.")
    return lambda step: text in "".join(step.texts.get(token, "") for token in step.committed)


def entropy_above(nats: float) -> Until:
    """After some node of the committed path, or the root, the target's law has more entropy than this."""
    return lambda step: any(step.nodes[node].entropy > nats for node in {0, *step.accepted})


def tree_exceeds(nodes: int) -> Until:
    """The tree has more nodes than this, root included."""
    return lambda step: len(step.tree) > nodes


def settings_change() -> Until:
    """The drafter changed its settings for the next iteration."""
    return lambda step: dict(step.adaptation.before) != dict(step.adaptation.after)


def route_changes() -> Condition:
    """The drafter went another way than in the iteration before."""
    return parse("route != previous.route")


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """One condition on offer. `default` has the type of its argument; None: it takes none."""

    label: str
    make: Callable[..., Until]
    default: int | float | str | None = None

    def until(self, argument: Any = None) -> Until:
        """The condition, with its argument if it takes one."""
        return self.make() if self.default is None else self.make(argument)


BREAKPOINTS = (
    Breakpoint("a token is rejected", token_rejected),
    Breakpoint("fewer accepted than", fewer_accepted, 2),
    Breakpoint("the text appears", text_appears, "."),
    Breakpoint("the token id appears", token_appears, 0),
    Breakpoint("target entropy above (nats)", entropy_above, 3.0),
    Breakpoint("the tree has more nodes than", tree_exceeds, 24),
    Breakpoint("settings change", settings_change),
    Breakpoint("the route changes", route_changes),
    Breakpoint("the expression holds", parse, "accepted < 2 and entropy > 3"),
)
