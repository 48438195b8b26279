"""Hand-made iterations in which several trees were proposed, or in which a sampled accept path ended early."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from view_samples import build_step, five_nodes, trace

from speclab.trace.records import Proposal, Residual, Step, TokenProb, Trace, Trial
from speclab.tree import CandidateSampling, DraftTree


def grown(
    token: Sequence[int], parent: Sequence[int], probs: Sequence[float], source: str | Sequence[str]
) -> DraftTree:
    return DraftTree.of(token, parent, [math.log(prob) for prob in probs], source)


def proposal(name: str, tree: DraftTree, chosen: bool) -> Proposal:
    mean = float(np.exp(tree.path_log_prob[1:]).mean()) if len(tree) > 1 else 0.0
    return Proposal(name, tree, mean, mean, chosen)


LONGER = grown([0, 1, 5, 2, 3, 6], [-1, 0, 0, 1, 3, 4], [1, 0.5, 0.1, 0.6, 0.5, 0.5], "prose")
"""It holds all that five_nodes commits, the target's own token too, and one node beyond."""
SHORTER = grown([0, 1, 7, 4], [-1, 0, 1, 2], [1, 0.2, 0.5, 0.5], "prose")


def routed(other: DraftTree = LONGER) -> Step:
    """Five nodes of "code" were verified; 2 of them accepted."""
    step = five_nodes()
    return replace(step, proposals=(proposal("prose", other, False), proposal("code", step.tree, True)))


def united() -> Step:
    """`five_nodes` and `SHORTER` as one tree."""
    tree = grown(
        [0, 1, 8, 2, 9, 7, 4], [-1, 0, 0, 1, 1, 1, 5], [1, 0.6, 0.3, 0.7, 0.2, 0.5, 0.5],
        ["target", "both", "code", "code", "code", "prose", "prose"],
    )  # fmt: skip
    step = build_step(tree, (1, 3), bonus=3, prefix=12, index=2)
    return replace(step, proposals=(proposal("prose", SHORTER, True), proposal("code", five_nodes().tree, True)))


def routed_run() -> Trace:
    """Four iterations; in the second one tree alone was drafted."""
    run = trace(4)
    steps = []
    for index, step in enumerate(run.steps):
        mine, other = proposal("code", step.tree, index != 3), proposal("prose", LONGER, index == 3)
        other = replace(other, score=mine.score + (0.25 if index == 3 else -0.125))
        steps.append(step if index == 1 else replace(step, proposals=(other, mine)))
    return replace(run, steps=tuple(steps))


def stopped(rule: str = "draws without replacement") -> Step:
    """' the' and ' old' were drawn from the draft and rejected; the target then drew ' said' from what was left."""
    tree = DraftTree.of(
        [5, 0, 1], [-1, 0, 0], [0.0, math.log(0.8), math.log(0.1)], "draft", CandidateSampling.WITHOUT_REPLACEMENT
    )
    shares = (
        TokenProb(3, 0.75, 0.5, 0.05), TokenProb(0, 0.0, 0.31, 0.8),
        TokenProb(1, 0.05, 0.1, 0.1), TokenProb(2, 0.2, 0.09, 0.05),
    )  # fmt: skip
    return replace(
        build_step(tree, (), bonus=3),
        rule=rule,
        residual=Residual(0, shares, (Trial(1, 0.31, 0.8), Trial(2, 0.1, 0.5))),
    )


def drew_once() -> Step:
    """The target drew ' said' from its own distribution; no candidate carries it."""
    step = stopped("sample and match")
    assert step.residual is not None
    shares = tuple(replace(share, draft=None) for share in step.residual.tokens)
    return replace(step, residual=Residual(0, shares))


def typical() -> Step:
    """The same under a rule that changes the output."""
    step = stopped("typical acceptance")
    return replace(step, counts=replace(step.counts, lossy=1))
