"""Sampled runs of another decoder: does the text have the target's distribution?

A run is lossless if each committed token, given the text before it, has the target's distribution
under the header's temperature, top-k, top-p and min-p. That holds for every acceptance rule, and
needs nothing of the draft. So the ranks of the committed tokens are tested, and no committed token
may have probability 0. Where the rule is known, the number of accepted nodes at each depth is
compared with the rule's expectation, too; and rules that divide by the draft's probabilities need
proposals that were drawn from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import erfc, exp, sqrt
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from speclab.clinic._detectors import BLOCK, REJECTION, name
from speclab.sampling import transform
from speclab.settings import SessionSettings
from speclab.trace.records import Finding, Step, Trace

ALPHA = 1e-4
"""Probability that a lossless run is reported (speclab default)."""
MIN_VARIANCE = 9.0
"""Variance of a sum below which it is not tested, because a normal distribution fits it badly."""
TEXT = "committed tokens"
SCALE = sqrt(12)
"""Ranks are counted in standard deviations of a uniform rank."""
ROUNDING = 3.0
"""A recorded answer is off by at most so many times the usual size of rounding."""
MATCH = "sample and match"
UNLIKELY = 1e-4
"""Stands for probability 0: a proposal at the edge of a cut, which rounding may move."""
OTHERS = 64
"""Tokens that stand for those that are not recorded: less probable than the recorded ones."""


class SampledRun:
    """Collects the draws of a sampled run, pass by pass.

    Attributes:
        draws: what is tested, the excess over its expectation, and its variance.
        impossible: committed tokens of probability 0: (iteration, node before it, token).
        tokens: committed tokens whose distribution is known.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.cuts = Cuts.of(trace) or Cuts()
        self.draws: list[tuple[str, float, float]] = []
        self.impossible: list[tuple[int, int, int]] = []
        self.tokens = 0

    def add(self, step: Step, logits: Tensor, level: float) -> None:
        """One pass: the plain logits `[n, V]` after each node, and the usual size of rounding."""
        path = list(step.path)
        probs = transformed(logits, self.cuts)
        for depth, (node, token) in enumerate(zip(path, step.committed, strict=False)):
            self.tokens += 1
            ordered, order = probs[node].sort(descending=True)
            rank = _mid_rank(ordered, int((order == token).nonzero()))
            self.draws.append((TEXT, *rank))
            if step.rule != BLOCK:  # whose tokens at one depth depend on the later ones
                self.draws.append((f"{TEXT} at depth {depth}", *rank))
            if self._excluded(logits[node], token, ROUNDING * level):
                self.impossible.append((step.index, node, token))
        for depth, chance in accept_chances(step, path, probs):
            excess = (len(step.accepted) >= depth) - chance
            self.draws.append((f"nodes accepted at depth {depth}", excess, chance * (1 - chance)))

    def _excluded(self, logits: Tensor, token: int, rounding: float) -> bool:
        """Whether top-k, min-p or top-p exclude the token, whatever rounding may do."""
        raised = logits.double()
        raised[token] += 2 * rounding
        most = min(1.0, self.cuts.top_p * exp(rounding / self.cuts.temperature))
        return not transformed(raised[None], replace(self.cuts, top_p=most))[0, token]

    def finding(self) -> Finding | None:
        """Tokens that cannot be, else the most certain test."""
        if self.impossible:
            iteration, node, token = self.impossible[0]
            step = self.trace.steps[iteration]
            sentence = (
                f"{len(self.impossible)} of {self.tokens} committed tokens have probability 0 under the "
                f"header's {self.cuts}; the first is {step.texts.get(token, str(token))!r} after "
                f"{name(step, node)}."
            )
            return Finding(iteration, node, "choice", sentence)
        draws = pd.DataFrame(self.draws, columns=["test", "excess", "variance"]).groupby("test")
        tests: Any = draws.sum().assign(draws=draws.size()).query("variance >= @MIN_VARIANCE")
        scores = tests.excess / tests.variance**0.5
        if scores.empty:
            return None
        test = scores.abs().idxmax()
        p = erfc(abs(scores[test]) / sqrt(2)) * len(tests)
        if p >= ALPHA:
            return None
        mean = tests.excess[test] / tests.draws[test]
        what = f"not what the acceptance rule gives ({mean:+.2f} a pass"
        if test.startswith(TEXT):
            rank = 0.5 + mean / SCALE
            what = f"not drawn from the target's distribution (mean rank {rank:.2f}, not 0.50"
        sentence = (
            f"Over {len(self.trace.steps)} passes the {test} are {what}, {tests.draws[test]} draws, "
            f"z = {scores[test]:.1f}, p = {p:.1g} after Bonferroni's correction of {len(tests)} tests)."
        )
        return Finding(0, None, "choice", sentence)


def _mid_rank(ordered: Tensor, place: int) -> tuple[float, float]:
    """The mid-rank of a place in a distribution less its mean, 1/2, and its variance, both scaled so that
    the variance of a uniform rank is 1."""
    middle = SCALE * (ordered.cumsum(0) - ordered / 2 - 0.5)
    return float(middle[place]), float((ordered * middle**2).sum())


@dataclass(frozen=True)
class Cuts:
    """The sampling settings of a header."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0
    min_p: float = 0.0

    @classmethod
    def of(cls, trace: Trace, prefix: str = "") -> Cuts | None:
        """The target's, or with "draft_" the draft's; None if none is written."""
        given = {each.name: trace.settings.get(prefix + each.name) for each in fields(cls)}
        given = {key: value for key, value in given.items() if value}
        return cls(**given) if given else None  # type: ignore[arg-type]

    def __str__(self) -> str:
        named = {"top-k": self.top_k, "top-p": self.top_p, "min-p": self.min_p}
        if self.temperature != 1:
            named = {"temperature": self.temperature, **named}
        return ", ".join([f"{name} {value:g}" for name, value in named.items() if value])


def transformed(logits: Tensor, cuts: Cuts) -> Tensor:
    """`[n, V]`: what temperature, top-k, top-p and then min-p make of logits."""
    settings = SessionSettings(
        temperature=cuts.temperature, top_k=cuts.top_k or None, top_p=cuts.top_p or None
    )
    probs = transform(logits, settings)
    if cuts.min_p:
        probs = probs.masked_fill(probs < cuts.min_p * probs.amax(-1, keepdim=True), 0.0)
        probs = probs / probs.sum(-1, keepdim=True)
    return probs


def wrong_claims(trace: Trace) -> list[Finding]:
    """At most one finding: proposals were not drawn from the probabilities that are recorded of them. It
    names what they seem to be drawn from."""
    claims = [*_claims(trace)]
    excess, variance, claimed = _ranked(claims, Cuts())
    if variance < MIN_VARIANCE or (p := erfc(abs(excess) / sqrt(2 * variance))) >= ALPHA:
        return []
    given = Cuts.of(trace, "draft_") or Cuts.of(trace) or Cuts()
    parts = [Cuts(**{name: value}) for name, value in asdict(given).items()]
    fits = [(*_ranked(claims, cuts), cuts) for cuts in (given, *parts, Cuts(top_k=1))]
    off, _, likelihood, best = max(fits, key=itemgetter(2))
    cause = "No setting of the header explains it."
    if likelihood > claimed and abs(off) < abs(excess) / 3:
        cause = f"It is as if they were drawn at {best}, and the probabilities taken before that."
    sentence = (
        f"The {len(claims)} proposals were not drawn from the probabilities recorded of them, by which "
        f"acceptance divides: their mean rank is {0.5 + excess / len(claims) / SCALE:.2f}, not 0.50 "
        f"(p = {p:.1g}). {cause}"
    )
    return [Finding(0, None, "log_prob", sentence)]


def _claims(trace: Trace) -> Iterator[tuple[list[float], int]]:
    """Of each proposal of a sampled chain: the probabilities recorded after its parent, best first; and its
    place among them, or after them."""
    for step in trace.steps:
        drawn = step.rule in (*REJECTION, BLOCK) and "log_prob" not in step.missing
        for node, children in zip(step.nodes, step.tree.children, strict=True):
            if drawn and node.draft_top and len(children) == 1:
                top = dict(node.draft_top)
                token = step.nodes[children[0]].token
                yield [*top.values()], [*top, token].index(token)


def _ranked(claims: Sequence[tuple[list[float], int]], cuts: Cuts) -> tuple[float, float, float]:
    """The sum of the proposals' mid-ranks, its variance, and their log-likelihood, if they were drawn from
    what the cuts make of the recorded probabilities."""
    total = np.zeros(3)
    for top, place in claims:
        other = max(1.0 - sum(top), 0.0) / OTHERS
        probs = transformed(torch.tensor([*top, *[other] * OTHERS]).log(), cuts)
        ordered = torch.cat([probs[: len(top)], probs[len(top) :].sum()[None]])
        total += *_mid_rank(ordered, place), float(ordered[place].clamp_min(UNLIKELY).log())
    excess, variance, likelihood = total.tolist()
    return excess, variance, likelihood


def accept_chances(step: Step, path: Sequence[int], probs: Tensor) -> Iterator[tuple[int, float]]:
    """(depth, probability that a node of it is accepted), where the rule gives one.

    Given the drafted tokens, and that the node above is accepted.
    """
    for depth, node in enumerate(path, start=1):
        children = step.tree.children[node]
        ended_here = step.bonus is None and node == path[-1]
        if not children or ended_here:
            continue
        if step.rule == MATCH:
            tokens = {int(step.tree.token[child]) for child in children}
            yield depth, float(probs[node][sorted(tokens)].sum())
        elif step.rule in REJECTION and len(children) == 1 and "log_prob" not in step.missing:
            # with siblings it depends on the draft's whole distribution
            token = int(step.tree.token[children[0]])
            draft = exp(step.tree.log_prob[children[0]])
            yield depth, min(1.0, float(probs[node][token]) / max(draft, 1e-12))
