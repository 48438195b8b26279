"""Sampled runs of another decoder: whether what was accepted and drawn has the target's distribution.

Over many passes the number of accepted nodes of each depth, and the ranks of drawn tokens, are compared
with what the acceptance rule gives: one test each, with its p-value, corrected by Bonferroni.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import erfc, exp, sqrt

import torch
from torch import Tensor

from speclab.clinic._detectors import path_of
from speclab.sampling import transform
from speclab.settings import SessionSettings
from speclab.trace.records import UNKNOWN, Finding, Step, Trace

ALPHA = 1e-4
"""Probability that a right run is called wrong (speclab default)."""
FEWEST = 20
"""Draws below which a rank is not tested."""
VARIANCE = 4.0
"""Variance of a sum below which it is not tested: a normal distribution fits it badly."""
SAMPLE_AND_MATCH = "sample and match"


@dataclass
class _Sum:
    """Draws of numbers, each with its expected value and its variance."""

    draws: int = 0
    excess: float = 0.0
    variance: float = 0.0

    def add(self, value: float, expected: float, variance: float) -> None:
        self.draws += 1
        self.excess += value - expected
        self.variance += variance

    @property
    def p_value(self) -> float:
        """Two-sided, of a normal distribution."""
        return erfc(abs(self.excess) / sqrt(2 * max(self.variance, 1e-12)))


@dataclass
class SampledChecks:
    """Collects the draws of a run, step by step."""

    trace: Trace
    accepted: dict[int, _Sum] = field(default_factory=dict)
    drawn: _Sum = field(default_factory=_Sum)

    def add(self, step: Step, log_probs: Tensor) -> None:
        """A step, and its right log-probabilities `[n, V]` before temperature and top-p."""
        path = list(path_of(step))
        probs = self._transformed(log_probs)
        matches = step.rule == SAMPLE_AND_MATCH
        if matches or step.rule == "independent draws":
            for node in path:
                self._accept(step, node, probs[node], matches)
        if matches and "choice" not in step.missing:
            for record in step.nodes:
                if record.target_choice != UNKNOWN:
                    self._draw(probs[record.index], record.target_choice, ())
        elif path and step.bonus is not None:
            children = step.tree.children[path[-1]]
            if not children or matches:
                self._draw(probs[path[-1]], step.bonus, step.tree.token[list(children)].tolist())

    def _transformed(self, log_probs: Tensor) -> Tensor:
        settings = self.trace.settings
        names = ("temperature", "top_k", "top_p")
        given = {name: settings[name] for name in names if settings.get(name)}
        probs = transform(log_probs, SessionSettings(**given))
        if least := settings.get("min_p"):
            probs = torch.where(
                probs < float(str(least)) * probs.amax(-1, keepdim=True), 0.0, probs
            )
            probs = probs / probs.sum(-1, keepdim=True)
        return probs

    def _accept(self, step: Step, node: int, probs: Tensor, matches: bool) -> None:
        """Whether any child was accepted, against its probability."""
        children = step.tree.children[node]
        tokens = {int(step.tree.token[child]) for child in children}
        expected = float(probs[sorted(tokens)].sum()) if tokens else 0.0
        if not matches:
            if len(children) != 1 or "log_prob" in step.missing:
                return  # what is left after a rejection needs the draft's whole distribution
            expected = min(1.0, expected / max(exp(step.tree.log_prob[children[0]]), 1e-12))
        if children and not (step.bonus is None and node == path_of(step)[-1]):
            depth = int(step.tree.depth[node]) + 1
            hit = any(child in step.accepted for child in children)
            total = self.accepted.setdefault(depth, _Sum())
            total.add(float(hit), expected, expected * (1 - expected))

    def _draw(self, probs: Tensor, token: int, refused: tuple[int, ...] | list[int]) -> None:
        """The share of more probable tokens, and half its own, whose mean is a half."""
        rest = probs.clone()
        rest[list(refused)] = 0
        rest = rest / rest.sum().clamp_min(1e-30)
        ordered, order = rest.sort(descending=True)
        middle = ordered.cumsum(0) - ordered / 2
        variance = float((ordered * (middle - 0.5) ** 2).sum())
        self.drawn.add(float(middle[order == token].sum()), 0.5, variance)

    def findings(self) -> Iterator[Finding]:
        """At most one, the most certain."""
        tests = {
            f"accepted nodes of depth {depth}": total
            for depth, total in self.accepted.items()
            if total.variance >= VARIANCE
        }
        if self.drawn.draws >= FEWEST:
            tests["ranks of the drawn tokens"] = self.drawn
        if not tests:
            return
        what = min(tests, key=lambda name: tests[name].p_value)
        total = tests[what]
        p = min(1.0, total.p_value * len(tests))
        if p < ALPHA:
            sentence = (
                f"Over {len(self.trace.steps)} passes the {what} are not what the rule and the target's "
                f"distribution give ({total.excess / total.draws:+.2f} in the mean of {total.draws} draws; "
                f"p = {p:.1g} after Bonferroni's correction of {len(tests)} tests)."
            )
            yield Finding(0, None, "choice", sentence)
