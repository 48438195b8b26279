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
from dataclasses import asdict, dataclass, field, replace
from math import erfc, exp, log, sqrt
from typing import Any

import torch
from torch import Tensor

from speclab.clinic._record import BLOCK, MATCH, REJECTION, name, word
from speclab.display import counted
from speclab.sampling import transform
from speclab.settings import SessionSettings
from speclab.trace.records import Finding, Step, Trace

ALPHA = 1e-4
"""Probability that a lossless run is reported (speclab default)."""
MIN_VARIANCE = 9.0
"""Variance of a sum below which it is not tested, because a normal distribution fits it badly. With 1 in its
place a header of 2.2 for a temperature of 1.2 was missed in 60 passes: the correction is for more tests."""
SCALE = sqrt(12)
"""Ranks are counted in standard deviations of a uniform rank."""
ROUNDING = 3.0
"""A recorded answer is off by at most so many times the usual size of rounding; a token at the edge of a cut
is not judged. 0 and 10 in its place change none of 26 runs."""
UNLIKELY = 1e-4
"""Stands for probability 0: a token at the edge of a cut, which rounding may move."""
OTHERS = 64
"""Tokens that stand for those that are not recorded: less probable than the recorded ones. As one token they
would be the best, and a min-p of 0.3 lost its name; 1,000 name the same."""
HEATS = (0.5, 0.6, 0.7, 0.84, 1.2, 1.4, 1.7, 2.0)
"""Factors of the temperature that are tried, beside its square and 1."""
TWICE = "the temperature were applied twice"
UNHEATED = "the temperature were not applied"
TAKEN = "the most probable token were taken in place of a draw"
CLEAR = 10.0
"""Nats by which a fault must explain the draws better than the header does: 1 in 20,000 by chance."""
FITS = 3.0
"""Standard deviations by which draws may be off what a fault would draw, to be explained by it."""
LEAST_HEAT = 0.1
"""The least temperature that is fitted; the highest is its inverse."""
HALVINGS = 16
"""They leave 0.01 % of the temperature, and a run's draws 10 %."""
FITTED = "they were drawn at {:.2g} times the temperature of these probabilities ({:.2g} in place of {:.2g})"
TEXT = "committed tokens"
OFF_TEXT = "{} are not drawn from the target's distribution (mean rank {:.2f}, not 0.50"
OFF_RULE = "{} are not what the acceptance rule gives ({:+.2f} a pass"


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
        for each in asdict(cls()):
            if value := trace.settings.get(prefix + each):
                given[each] = value
        return cls(**given) if given else None

    def __str__(self) -> str:
        shown = []
        for each, value in asdict(self).items():
            if value and (each, value) != ("temperature", 1):
                shown.append(f"{each.replace('_', '-')} {value:g}")
        return ", ".join(shown)

    def probs(self, logits: Tensor) -> Tensor:
        """`[n, V]`: what temperature, top-k, top-p and then min-p make of logits."""
        settings = SessionSettings(
            temperature=self.temperature, top_k=self.top_k or None, top_p=self.top_p or None
        )
        probs = transform(logits, settings)
        if self.min_p:
            probs = probs.masked_fill(probs < self.min_p * probs.amax(-1, keepdim=True), 0.0)
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

    def rank(self, probs: Mapping[str, Tensor], place: int) -> None:
        """One draw, by its mid-rank: less its mean, 1/2, and scaled so that the variance of a uniform rank
        is 1. `probs`: `[k]` by fault, what is drawn from, best first; `place`: of what was drawn."""
        own = probs[""]
        middle = SCALE * (own.cumsum(0) - own / 2 - 0.5)
        self.excess += float(middle[place])
        self.variance += float((own * middle**2).sum())
        self._fit(probs, place)

    def decide(self, chances: Mapping[str, float], accepted: bool) -> None:
        """One decision, by the chance that each fault gives it."""
        chance = chances[""]
        self.excess += accepted - chance
        self.variance += chance * (1 - chance)
        outcomes = {says: torch.tensor([1 - each, each]) for says, each in chances.items()}
        self._fit(outcomes, int(accepted))

    def _fit(self, probs: Mapping[str, Tensor], outcome: int) -> None:
        self.draws += 1
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
    def mean_rank(self) -> float:
        return 0.5 + self.excess / self.draws / SCALE

    @property
    def cause(self) -> str:
        """The fault that explains the outcomes, a clause; "" if none does."""
        best = max(self.fits, key=lambda says: self.fits[says].likelihood)
        for exact in {TWICE, UNHEATED} & self.fits.keys():  # rather than a temperature near it
            near = self.fits[best].likelihood - self.fits[exact].likelihood < CLEAR
            if near and self.fits[exact].holds:
                best = exact
        if self.fits[best].likelihood - self.fits[""].likelihood <= CLEAR:
            return ""
        return best if self.fits[best].holds else ""


class SampledRun:
    """Collects the draws of a sampled run of another decoder, pass by pass.

    Attributes:
        tested: whether the run's draws can be tested at all.
        impossible: committed tokens of probability 0, as (iteration, node before it, token).
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.cuts = Cuts.of(trace) or Cuts()
        outside = "format" in trace.models
        sampled = bool(trace.settings.get("temperature"))
        self.tested = outside and sampled and not trace.models.get("processed")
        self.tests: defaultdict[str, Test] = defaultdict(Test)
        self.impossible: list[tuple[int, int, int]] = []
        own = self.cuts.temperature
        heats = {UNHEATED: 1.0, TWICE: own * own, TAKEN: 0.01}
        for factor in HEATS:
            heats[f"the temperature were {own * factor:.2g}"] = own * factor
        self.faults = {says: replace(self.cuts, temperature=heat) for says, heat in heats.items()}

    def wrong_claims(self) -> Finding | None:
        """Proposals of a chain that were not drawn from the probabilities recorded of them. It names
        what they seem to be drawn from."""
        given = Cuts.of(self.trace, "draft_") or self.cuts
        options = {"": Cuts()}
        for each, value in asdict(given).items():
            part = Cuts(**{each: value})
            options[f"they were drawn at {part}"] = part
        for cuts in (given, Cuts(top_k=1)):
            options[f"they were drawn at {cuts}"] = cuts
        claims = list(_claims(self.trace))
        test = _tested(claims, options)
        if test.variance < MIN_VARIANCE or _tails(test) >= ALPHA:
            return None
        if not test.cause:
            own = given.temperature
            factor = _fitted_heat(claims)
            says = FITTED.format(factor, factor * own, own)
            test = _tested(claims, {"": Cuts(), says: Cuts(temperature=factor)})
        cause = "No setting of the header explains it"
        if test.cause:
            cause = f"It is as if {test.cause}, and the probabilities taken before that"
        sentence = (
            f"The {test.draws} proposals were not drawn from the probabilities recorded of them, by which "
            f"acceptance divides: their mean rank is {test.mean_rank:.2f}, not 0.50 (p = {_tails(test):.1g}). "
            f"{cause}."
        )
        return Finding(0, None, "log_prob", sentence)

    def add(self, step: Step, logits: Tensor, level: float) -> None:
        """One pass: the plain logits `[n, V]` after each node, and the usual size of rounding."""
        probs = self.cuts.probs(logits)
        for depth, (node, token) in enumerate(zip(step.path, step.committed, strict=False)):
            drawn = {"": probs[node]}
            for says, cuts in self.faults.items():
                drawn[says] = cuts.probs(logits[node])
            above = max(int(step.tree.parent[node]), 0)
            drawn["the row before were drawn from"] = probs[above]
            order = probs[node].argsort(descending=True)
            ordered = {says: row[order] for says, row in drawn.items()}
            place = int((order == token).nonzero())
            self.tests[TEXT].rank(ordered, place)
            if step.rule != BLOCK:  # whose tokens at one depth depend on the later ones
                self.tests[f"{TEXT} at depth {depth}"].rank(ordered, place)
            if self._excluded(logits[node], token, ROUNDING * level):
                self.impossible.append((step.index, node, token))
        for depth, node in enumerate(step.path, start=1):
            if step.bonus is None and node == step.path[-1]:  # the text ended here
                continue
            chances = accept_chances(step, node, probs[node])
            if chances:
                test = self.tests[f"nodes accepted at depth {depth}"]
                test.decide(chances, len(step.accepted) >= depth)

    def _excluded(self, logits: Tensor, token: int, rounding: float) -> bool:
        """Whether top-k, min-p or top-p exclude the token, whatever rounding may do."""
        raised = logits.double()
        raised[token] += 2 * rounding
        most = min(1.0, self.cuts.top_p * exp(rounding / self.cuts.temperature))
        return not replace(self.cuts, top_p=most).probs(raised[None])[0, token]

    def finding(self) -> Finding | None:
        """Tokens that cannot be, else the most certain test."""
        if self.impossible:
            iteration, node, token = self.impossible[0]
            step = self.trace.steps[iteration]
            sentence = (
                f"{counted(len(self.impossible), 'token')} of {self.tests[TEXT].draws} committed cannot be drawn under "
                f"the header's {self.cuts}; the first is {word(step, token)} after {name(step, node)}."
            )
            return Finding(iteration, node, "choice", sentence)
        tests = {}
        for title, test in self.tests.items():
            if test.variance >= MIN_VARIANCE or test.cause:
                tests[title] = test
        if not tests:
            return None
        title = max(tests, key=lambda title: abs(tests[title].z))
        test = tests.pop(title)
        count = len(tests) + 1
        p = _tails(test) * count
        if p >= ALPHA:
            return None
        what = OFF_RULE.format(title, test.excess / test.draws)
        if title.startswith(TEXT):
            what = OFF_TEXT.format(title, test.mean_rank)
        cause = ""
        for each in (test, *tests.values()):
            if each.cause:
                cause = f" It is as if {each.cause}."
                break
        sentence = (
            f"Over {len(self.trace.steps)} passes the {what}, {test.draws} draws, z = {test.z:.1f}, "
            f"p = {p:.1g} after Bonferroni's correction of {counted(count, 'test')}).{cause}"
        )
        return Finding(0, None, "choice", sentence)


def _tested(claims: Sequence[tuple[list[float], int]], options: Mapping[str, Cuts]) -> Test:
    """The ranks of proposals in what is recorded of them, and how well each of these cuts explains them."""
    test = Test()
    for top, place in claims:
        logits = _logits(top)
        rows = {}
        for says, cuts in options.items():
            probs = cuts.probs(logits)
            rows[says] = torch.cat([probs[: len(top)], probs[len(top) :].sum()[None]])
        test.rank(rows, place)
    return test


def _logits(top: list[float]) -> Tensor:
    """Of recorded probabilities, and of the tokens that stand for the others."""
    other = max(1.0 - sum(top), 0.0) / OTHERS
    return torch.tensor(top + [other] * OTHERS).log()


def _fitted_heat(claims: Sequence[tuple[list[float], int]]) -> float:
    """The most likely temperature of what was drawn, where that of the recorded probabilities is 1: at it
    the mean log-probability of the draws is what it should be, so it is found by halving."""
    low, high = LEAST_HEAT, 1 / LEAST_HEAT
    for _ in range(HALVINGS):
        heat = sqrt(low * high)
        excess = 0.0
        for top, place in claims:
            logits = _logits(top).clamp_min(log(UNLIKELY) - 10)
            excess += float(logits[place] - (logits / heat).softmax(-1) @ logits)
        if excess > 0:  # too probable for this temperature
            high = heat
        else:
            low = heat
    return sqrt(low * high)


def _tails(test: Test) -> float:
    """The probability of so large an excess on either side."""
    return erfc(abs(test.z) / sqrt(2))


def accept_chances(step: Step, node: int, probs: Tensor) -> dict[str, float]:
    """The probability that a child of a node is accepted, as it should be ("") and by fault, where the rule
    gives one; given the drafted tokens, and that the node is accepted.

    Args:
        probs: `[V]`, the target's distribution after the node.
    """
    children = step.tree.children[node]
    tokens = step.tree.token[list(children)].tolist()
    if children and step.rule == MATCH:
        return {"": float(probs[sorted(set(tokens))].sum())}
    # with siblings it depends on the draft's whole distribution
    if step.rule not in REJECTION or len(children) != 1 or "log_prob" in step.missing:
        return {}
    token = tokens[0]
    p = float(probs[token])
    q = max(exp(step.tree.log_prob[children[0]]), 1e-12)
    after = dict(step.nodes[children[0]].draft_top).get(token, UNLIKELY)
    return {
        "": min(1.0, p / q),  # q <= p: always accept; else accept with p / q
        "q were left out of the ratio": p,
        "the ratio were inverted": min(1.0, q / max(p, 1e-12)),
        "the ratio had q of the draft's next row": min(1.0, p / after),
        "only the most probable token were accepted": float(probs.argmax() == token),
    }


def _claims(trace: Trace) -> Iterator[tuple[list[float], int]]:
    """Of each proposal of a sampled chain of another decoder: the probabilities recorded after its parent,
    best first; and its place among them, or after them."""
    for step in trace.steps if "format" in trace.models else ():
        if step.rule not in (*REJECTION, BLOCK) or "log_prob" in step.missing:
            continue
        for node, children in zip(step.nodes, step.tree.children, strict=True):
            if node.draft_top and len(children) == 1:
                top = dict(node.draft_top)
                tokens = list(top)
                tokens.append(step.nodes[children[0]].token)
                yield list(top.values()), tokens.index(tokens[-1])
