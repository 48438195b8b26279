"""The draft's side: whether recorded proposals are what the draft, run plainly, would propose.

A run is turned around: what the draft proposed after a node becomes the node's recorded answer, and
the draft its target. So a draft is measured and explained as a target is.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from statistics import correlation

from speclab.analysis.explain import explain_answers
from speclab.analysis.measure import measure
from speclab.analysis.oracle import Oracle, Progress
from speclab.drafters.draft_pass import DRAFT
from speclab.pair import ModelPair
from speclab.trace.records import UNKNOWN, Finding, NodeRecord, Step, Trace

PASSES = 48
"""Iterations whose drafts are compared."""
ALIKE = 0.5
"""Correlation of recorded and expected log-probabilities above which the pair's draft proposed."""
SKIPPED = "skipped norm in the draft"


def explain_draft(
    trace: Trace, pair: ModelPair, progress: Progress | None = None
) -> tuple[Finding, ...]:
    """At most one finding, of kind `draft`: the first iteration whose proposals are wrong.

    Recorded proposals are `log_prob` and `draft_topk` of another decoder, and of a session what its
    draft model proposed. Proposals that have little to do with the pair's draft are of another
    drafter, which is no fault.
    """
    outside = "format" in trace.models
    temperature = float(trace.settings.get("temperature") or 0)
    if pair.draft is None or (temperature and not outside):
        return ()
    steps = tuple([_turned(step, outside) for step in trace.steps[:PASSES]])
    if not any(node.target_top for step in steps for node in step.nodes):
        return ()
    dtype = str(pair.draft.dtype).removeprefix("torch.")
    models = {**trace.models, "format": "draft", "target_dtype": dtype}
    draft = ModelPair(pair.draft, tokenizer=pair.tokenizer, name=pair.name)
    oracle = Oracle(replace(trace, steps=steps, models=models), draft, progress)
    measured = measure(oracle)
    wrong = [one.step.index for one in measured if one.wrong]
    if not wrong:
        return ()
    first = wrong[0]
    before = measured[first - 1] if first else None
    cause, named = explain_answers(oracle, measured[first], before)
    if cause.kind == "temperature" and temperature:  # what the draft sampled by
        return ()
    rows = sum(len(one.wrong) for one in measured)
    if not named and rows > 1 and not _alike(oracle, steps):
        return ()
    fault = SKIPPED if cause.kind == "norm" else ""
    sentence = f"The draft, run plainly, proposes otherwise ({cause.kind}). {cause.sentence}"
    return (Finding(first, cause.node, "draft", sentence, fault),)


def _turned(step: Step, outside: bool) -> Step:
    nodes = [
        replace(node, target_top=_proposed(step, node, outside), target_choice=UNKNOWN)
        for node in step.nodes
    ]
    return replace(step, nodes=tuple(nodes), not_numbers=(), rule="draft")


def _proposed(step: Step, node: NodeRecord, outside: bool) -> tuple[tuple[int, float], ...]:
    """The recorded proposals after a node, with their probabilities."""
    children = step.tree.children[node.index]
    if node.draft_top and (outside or {step.tree.source[child] for child in children} == {DRAFT}):
        return node.draft_top
    if not outside or "log_prob" in step.missing:
        return ()
    log_probs = step.tree.log_prob
    return tuple(
        [(int(step.tree.token[child]), exp(float(log_probs[child]))) for child in children]
    )


def _alike(oracle: Oracle, steps: tuple[Step, ...]) -> bool:
    """Whether the proposals are at least similar to the draft's."""
    recorded: list[float] = []
    expected: list[float] = []
    fresh = Oracle(oracle.trace, oracle.pair)
    for step in fresh.steps[:8]:
        rows = fresh.log_probs(step, fresh.answers(step))
        for node, row in zip(step.nodes, rows, strict=True):
            for token, prob in node.target_top:
                recorded.append(log(max(prob, 1e-6)))
                expected.append(float(row[token]))
    if len({*recorded}) < 2 or len({*expected}) < 2:
        return False
    return correlation(recorded, expected) > ALIKE
