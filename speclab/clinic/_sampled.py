"""Sampled runs of another decoder: does the text have the target's distribution?

A run is lossless if each committed token, given the text before it, has the target's distribution
under the header's temperature, top-k, top-p and min-p. That holds for every acceptance rule, and
needs nothing of the draft. So the ranks of the committed tokens are tested, and no committed token
may have probability 0. Where the rule is known, the number of accepted nodes at each depth is
compared with the rule's expectation, too; and rules that divide by the draft's probabilities need
proposals that were drawn from them. What fails is compared with what known faults would draw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import erfc, exp, sqrt
from typing import Any

import torch
from torch import Tensor

from speclab.clinic._record import BLOCK, MATCH, REJECTION, name, word
from speclab.sampling import transform
from speclab.settings import SessionSettings
from speclab.trace.records import Finding, Step, Trace

ALPHA = 1e-4
"""Probability that a lossless run is reported (speclab default)."""
MIN_VARIANCE = 9.0
"""Variance of a sum below which it is not tested, because a normal distribution fits it badly."""
SCALE = sqrt(12)
"""Ranks are counted in standard deviations of a uniform rank."""
ROUNDING = 3.0
"""A recorded answer is off by at most so many times the usual size of rounding."""
UNLIKELY = 1e-4
"""Stands for probability 0: a token at the edge of a cut, which rounding may move."""
OTHERS = 64
"""Tokens that stand for those that are not recorded: less probable than the recorded ones."""
HEATS = (0.5, 0.6, 0.7, 0.84, 1.2, 1.4, 1.7, 2.0)
"""Factors of the temperature that are tried, beside its square and 1."""
TWICE = "the temperature were applied twice"
UNHEATED = "the temperature were not applied"
TAKEN = "the most probable token were taken in place of a draw"
CLEAR = 10.0
"""Nats by which a fault must explain the draws better than the header does: 1 in 20,000 by chance."""
FITS = 3.0
"""Standard deviations by which draws may be off what a fault would draw, to be explained by it."""
TEXT = "committed tokens"


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
        given: dict[str, Any] = {}
        for each in fields(cls):
            value = trace.settings.get(prefix + each.name)
            if value:
                given[each.name] = value
        return cls(**given) if given else None

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


@dataclass
class Sum:
    """Outcomes under a hypothesis: their log-likelihood, its expectation and variance."""

    likelihood: float = 0.0
    expected: float = 0.0
    variance: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether the outcomes are as likely as they should be."""
        return abs(self.likelihood - self.expected) <= FITS * sqrt(self.variance) + 1


@dataclass
class Test:
    """A statistic of the draws, its `excess` over its expectation in all, and how likely the outcomes are
    if all is right ("") or with each fault."""

    draws: int = 0
    excess: float = 0.0
    variance: float = 0.0
    fits: defaultdict[str, Sum] = field(default_factory=lambda: defaultdict(Sum))

    def add(
        self, excess: float, variance: float, probs: Mapping[str, Tensor], outcome: int
    ) -> None:
        """One draw; `probs`: `[k]`, what it is drawn from, by fault."""
        self.draws += 1
        self.excess += excess
        self.variance += variance
        for says, row in probs.items():
            logs = row.clamp_min(UNLIKELY).log()
            mean = float((row * logs).sum())
            self.fits[says].likelihood += float(logs[outcome])
            self.fits[says].expected += mean
            self.fits[says].variance += float((row * (logs - mean) ** 2).sum())

    @property
    def z(self) -> float:
        return self.excess / sqrt(max(self.variance, 1e-12))

    @property
    def cause(self) -> str:
        """The fault that explains the outcomes, a sentence; "" if none does."""
        best = max(self.fits, key=lambda says: self.fits[says].likelihood)
        for exact in {TWICE, UNHEATED} & self.fits.keys():  # rather than a temperature near it
            near = self.fits[best].likelihood - self.fits[exact].likelihood < CLEAR
            if near and self.fits[exact].holds:
                best = exact
        clear = self.fits[best].likelihood - self.fits[""].likelihood > CLEAR
        return f" It is as if {best}." if clear and self.fits[best].holds else ""


class SampledRun:
    """Collects the draws of a sampled run, pass by pass: what is tested, and committed tokens of
    probability 0, as (iteration, node before it, token)."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.cuts = Cuts.of(trace) or Cuts()
        self.tests: defaultdict[str, Test] = defaultdict(Test)
        self.impossible: list[tuple[int, int, int]] = []
        own = self.cuts.temperature
        self.heats = {f"the temperature were {own * by:.2g}": own * by for by in HEATS}
        self.heats |= {UNHEATED: 1.0, TWICE: own * own, TAKEN: 0.01}

    def add(self, step: Step, logits: Tensor, level: float) -> None:
        """One pass: the plain logits `[n, V]` after each node, and the usual size of rounding."""
        path = list(step.path)
        probs = transformed(logits, self.cuts)
        for depth, (node, token) in enumerate(zip(path, step.committed, strict=False)):
            ordered, order = probs[node].sort(descending=True)
            excess, variance = _mid_rank(ordered, int((order == token).nonzero()))
            drawn = {
                says: transformed(logits[node], replace(self.cuts, temperature=heat))
                for says, heat in self.heats.items()
            }
            drawn["the row before were drawn from"] = probs[max(int(step.tree.parent[node]), 0)]
            drawn[""] = probs[node]
            tests = [TEXT]
            if step.rule != BLOCK:  # whose tokens at one depth depend on the later ones
                tests.append(f"{TEXT} at depth {depth}")
            for title in tests:
                self.tests[title].add(excess, variance, drawn, token)
            if self._excluded(logits[node], token, ROUNDING * level):
                self.impossible.append((step.index, node, token))
        for depth, chances in accept_chances(step, path, probs):
            accepted = len(step.accepted) >= depth
            chance = chances[""]
            outcomes = {says: torch.tensor([1 - p, p]) for says, p in chances.items()}
            test = self.tests[f"nodes accepted at depth {depth}"]
            test.add(accepted - chance, chance * (1 - chance), outcomes, int(accepted))

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
                f"{len(self.impossible)} of {self.tests[TEXT].draws} committed tokens have probability 0 under "
                f"the header's {self.cuts}; the first is {word(step, token)} after {name(step, node)}."
            )
            return Finding(iteration, node, "choice", sentence)
        tests = {}
        for test, sums in self.tests.items():
            if sums.variance >= MIN_VARIANCE or sums.cause:
                tests[test] = sums
        if not tests:
            return None
        test = max(tests, key=lambda test: abs(tests[test].z))
        sums = tests[test]
        p = erfc(abs(sums.z) / sqrt(2)) * len(tests)
        if p >= ALPHA:
            return None
        mean = sums.excess / sums.draws
        what = f"not what the acceptance rule gives ({mean:+.2f} a pass"
        if test.startswith(TEXT):
            rank = 0.5 + mean / SCALE
            what = f"not drawn from the target's distribution (mean rank {rank:.2f}, not 0.50"
        cause = next(filter(None, [tests[other].cause for other in (test, *tests)]), "")
        sentence = (
            f"Over {len(self.trace.steps)} passes the {test} are {what}, {sums.draws} draws, z = {sums.z:.1f}, "
            f"p = {p:.1g} after Bonferroni's correction of {len(tests)} tests).{cause}"
        )
        return Finding(0, None, "choice", sentence)


def _mid_rank(ordered: Tensor, place: int) -> tuple[float, float]:
    """The mid-rank of a place in a distribution less its mean, 1/2, and its variance, both scaled so that
    the variance of a uniform rank is 1."""
    middle = SCALE * (ordered.cumsum(0) - ordered / 2 - 0.5)
    return float(middle[place]), float((ordered * middle**2).sum())


def accept_chances(
    step: Step, path: Sequence[int], probs: Tensor
) -> Iterator[tuple[int, dict[str, float]]]:
    """(depth, probability that a node of it is accepted), where the rule gives one: as it should be (""),
    and by fault.

    Given the drafted tokens, and that the node above is accepted.
    """
    for depth, node in enumerate(path, start=1):
        children = step.tree.children[node]
        ended_here = step.bonus is None and node == path[-1]
        if not children or ended_here:
            continue
        if step.rule == MATCH:
            tokens = {int(step.tree.token[child]) for child in children}
            yield depth, {"": float(probs[node][sorted(tokens)].sum())}
        elif step.rule in REJECTION and len(children) == 1 and "log_prob" not in step.missing:
            # with siblings it depends on the draft's whole distribution
            token = int(step.tree.token[children[0]])
            p = float(probs[node][token])
            q = max(exp(step.tree.log_prob[children[0]]), 1e-12)
            after = dict(step.nodes[children[0]].draft_top).get(token, UNLIKELY)
            yield (
                depth,
                {
                    "": min(1.0, p / q),  # q <= p: always accept; else accept with p / q
                    "q were left out of the ratio": p,
                    "the ratio were inverted": min(1.0, q / max(p, 1e-12)),
                    "the ratio had q of the draft's next row": min(1.0, p / after),
                    "only the most probable token were accepted": float(
                        probs[node].argmax() == token
                    ),
                },
            )


def wrong_claims(trace: Trace) -> list[Finding]:
    """At most one finding: proposals were not drawn from the probabilities that are recorded of them. It
    names what they seem to be drawn from."""
    claims = [*_claims(trace)]
    test = Test()
    given = Cuts.of(trace, "draft_") or Cuts.of(trace) or Cuts()
    parts = [Cuts(**{name: value}) for name, value in asdict(given).items()]
    options = {f"they were drawn at {cuts}": cuts for cuts in (given, *parts, Cuts(top_k=1))}
    for top, place in claims:
        other = max(1.0 - sum(top), 0.0) / OTHERS
        logits = torch.tensor([*top, *[other] * OTHERS]).log()
        rows = {}
        for says, cuts in ({"": Cuts()} | options).items():
            probs = transformed(logits, cuts)
            rows[says] = torch.cat([probs[: len(top)], probs[len(top) :].sum()[None]])
        test.add(*_mid_rank(rows[""], place), rows, place)
    if test.variance < MIN_VARIANCE or (p := erfc(abs(test.z) / sqrt(2))) >= ALPHA:
        return []
    cause = " No setting of the header explains it."
    if test.cause:
        cause = f"{test.cause[:-1]}, and the probabilities taken before that."
    sentence = (
        f"The {len(claims)} proposals were not drawn from the probabilities recorded of them, by which "
        f"acceptance divides: their mean rank is {0.5 + test.excess / len(claims) / SCALE:.2f}, not 0.50 "
        f"(p = {p:.1g}).{cause}"
    )
    return [Finding(0, None, "log_prob", sentence)]


def _claims(trace: Trace) -> Iterator[tuple[list[float], int]]:
    """Of each proposal of a sampled chain: the probabilities recorded after its parent, best first; and its
    place among them, or after them."""
    for step in trace.steps:
        if step.rule not in (*REJECTION, BLOCK) or "log_prob" in step.missing:
            continue
        for node, children in zip(step.nodes, step.tree.children, strict=True):
            if node.draft_top and len(children) == 1:
                top = dict(node.draft_top)
                token = step.nodes[children[0]].token
                yield [*top.values()], [*top, token].index(token)
