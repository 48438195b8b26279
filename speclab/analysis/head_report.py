"""What a check of a draft head found, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np

NORMAL = (
    "Nothing that was tried does better than the head as it is loaded. Falling acceptance is then normal, for behind a "
    "drafted token a head reads its own features; and a head of few training tokens is low from the first guess on."
)


def percent(share: Share) -> str:
    """`48.7%`; a dash where there are no places."""
    return f"{100 * share.value:.1f}%" if share.places else "–"


class Share(NamedTuple):
    """`right` of `places`, and its interval of 95 % (Wilson)."""

    right: int
    places: int

    @property
    def value(self) -> float:
        """0 to 1."""
        return self.right / max(self.places, 1)

    @property
    def interval(self) -> tuple[float, float]:
        """Low and high end."""
        n, p, z = max(self.places, 1), self.value, 1.96
        middle, half = p + z * z / (2 * n), z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max((middle - half) / (1 + z * z / n), 0.0), min((middle + half) / (1 + z * z / n), 1.0)


@dataclass(frozen=True, slots=True)
class Tried:
    """Another way to run the head, measured on the same places as the head as it is loaded.

    `right`, `instead`: right guesses at the depth that it changes, and those of the head as it is loaded. `gain`,
    `nats`: more of them, and fewer nats per token of the target, than as loaded; with how many standard errors each.
    `better`: enough of one of them to be named.
    """

    cause: str
    how: str
    right: Share
    instead: Share
    depth: int
    gain: float
    gain_errors: float
    nats: float
    nats_errors: float
    better: bool = False
    out: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    `cause`: whether it lowers acceptance. `out`: the way out. `weight`: the largest is the likeliest cause; of a way
    that was tried it follows from what it gained, of other checks it is a default of speclab's.
    """

    check: str
    cause: bool
    text: str
    out: str = ""
    weight: float = 0.0

    def __str__(self) -> str:
        return f"{'✗' if self.cause else '✓'} {self.check}: {self.text}" + (f" {self.out}" if self.cause else "")


class Bin(NamedTuple):
    """First guesses of a like confidence: its mean, the target's mean probability of them, how many are right."""

    confidence: float
    target: float
    right: Share


@dataclass(frozen=True)
class HeadReport:
    """What `check_head` measured. Printed, it is its findings, the likeliest cause first.

    Attributes:
        head, target: names.
        facts: of the head as it is loaded.
        texts, places: what was measured on.
        accepted: by depth, of a chain whose guesses before were all right, the guesses that are right too.
        guessed: by depth, right first guesses behind the text's own tokens (n-α of EAGLE).
        calibration: first guesses by confidence.
        kinds: right first guesses by kind of prompt.
        tried: other ways to run it.
        findings: of every check.
        notes: what to know of the text.
    """

    head: str
    target: str
    facts: Mapping[str, str]
    texts: int
    places: int
    accepted: tuple[Share, ...]
    guessed: tuple[Share, ...]
    calibration: tuple[Bin, ...]
    kinds: Mapping[str, Share]
    tried: tuple[Tried, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> Share:
        """Right first guesses: acceptance at depth 1."""
        return self.accepted[0]

    @property
    def tokens_per_iteration(self) -> float:
        """Of a greedy chain of as many drafted tokens as depths were measured, the target's own token included."""
        return 1 + float(np.cumprod([share.value for share in self.accepted]).sum())

    @property
    def likeliest(self) -> Finding | None:
        """The finding that costs most; None where nothing tried does better than the head as it is loaded."""
        return max((one for one in self.findings if one.cause), key=lambda one: one.weight, default=None)

    def __str__(self) -> str:
        worst = self.likeliest
        lines = [f"{self.head} for {self.target}: {percent(self.first)} right first guesses, of {self.places} places"]
        lines += ["acceptance by depth: " + ", ".join(percent(share) for share in self.accepted)]
        lines += [f"likeliest cause: {worst.check}" if worst else NORMAL]
        return "\n".join([*lines, *map(str, sorted(self.findings, key=lambda one: one is not worst)), *self.notes])
