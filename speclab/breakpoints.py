"""Conditions to run until: functions that make a `Step → bool`, and the list of them for whoever offers a choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from speclab.errors import SettingsError
from speclab.trace import Step

Until = Callable[[Step], bool]


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
)
