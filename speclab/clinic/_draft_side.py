"""The draft's side: are recorded proposals what a draft model or a head, run plainly, would propose?

The draft is checked like a target: its proposals stand in for the target's answers, and the cause is
searched in the same way. Proposals that are unlike the pair's draft are no fault by themselves,
since another drafter may have made them; a note then says what the pair's draft would have had
accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp
from operator import itemgetter
from statistics import median

import numpy as np
import torch

from speclab.clinic._causes import explain_answers
from speclab.clinic._draft_oracles import DraftOracle, HeadOracle
from speclab.clinic._faults import NO_WINDOW
from speclab.clinic._plain import HALF, Measured, Oracle, Progress, measure
from speclab.clinic._report import acceptance, by_depth
from speclab.clinic._sampled import Cuts
from speclab.drafters.draft_pass import DRAFT
from speclab.heads.runner import HeadRunner
from speclab.models.runner import Runner
from speclab.pair import ModelPair
from speclab.trace.metrics import Counts
from speclab.trace.records import UNKNOWN, Finding, NodeRecord, Step, Trace

PASSES = 48
"""Iterations whose drafts are compared."""
ALIKE = 1.0
"""Median gap in nats up to which a draft model may have proposed what is recorded."""
SKIPPED = "skipped norm in the draft"


def explain_draft(
    trace: Trace, pair: ModelPair, progress: Progress | None, first: int
) -> tuple[list[Finding], list[str]]:
    """At most one finding, of kind `draft`: the first iteration whose proposals are wrong. And notes.

    Recorded proposals are `log_prob` and `draft_topk` of another decoder, and of a session what its
    draft model and heads proposed.

    Args:
        first: the first iteration with wrong answers; after it heads read states that are wrong, too.
    """
    outside = "format" in trace.models
    if trace.settings.get("temperature") and not outside:
        return [], []
    groups: dict[str, list[Oracle]] = {}  # of another decoder any source may have proposed
    for name, oracle in _sources(trace, pair, progress, first):
        groups.setdefault("" if outside else name, []).append(oracle)
    for oracles in groups.values():
        sources = [(oracle, measure(oracle)) for oracle in oracles]
        if not all(_differs(*each) for each in sources):
            continue  # a source proposed what is recorded
        explained = [_explained(*each, outside) for each in sources]
        findings = sorted([one for one in explained if one], key=itemgetter(0))
        if findings:
            return [findings[0][1]], []
        if outside and pair.draft is not None:
            return [], [_unlike(trace, pair.draft)]
    return [], []


def _differs(oracle: Oracle, measured: Sequence[Measured]) -> bool:
    """Whether rounding does not explain what is recorded; in half precision it explains a single row of a
    run, since a draft that is wrong is wrong again."""
    rows = sum([len(one.wrong) for one in measured])
    return rows > 1 or (rows == 1 and oracle.dtype not in HALF)


def _sources(
    trace: Trace, pair: ModelPair, progress: Progress | None, first: int
) -> Iterator[tuple[str, Oracle]]:
    """Everything of the pair that drafts, by name, with the proposals that it may have made."""
    outside = "format" in trace.models
    names = (DRAFT, *pair.head_names)
    for name, runner in zip(names, (pair.draft, *pair.heads), strict=True):
        if runner is None:
            continue
        longest = runner.context or NO_WINDOW
        asked = trace.steps[: PASSES if name == DRAFT else min(PASSES, first + 1)]
        within = [step for step in asked if step.prefix_length + len(step.tree) < longest]
        steps = tuple([_turned(step, name, outside) for step in within])
        if not any(node.target_top for step in steps for node in step.nodes):
            continue
        dtype = (trace.models.get("target_dtype") if outside else None) or runner.dtype
        models = {**trace.models, "format": "draft", "target_dtype": str(dtype)}
        turned = replace(trace, steps=steps, models=models)
        if isinstance(runner, HeadRunner):
            for conditions in {True, not runner.conditions}:
                yield name, HeadOracle(turned, pair, runner, progress, conditions=conditions)
            continue
        draft = ModelPair(runner, tokenizer=pair.tokenizer, name=pair.name)
        drawn = Cuts.of(trace, "draft_")
        # without settings of its own a sampled draft is recorded before or after the target's
        for cuts in (drawn,) if drawn else {None, Cuts.of(trace)}:
            yield name, DraftOracle(turned, draft, progress, cuts=cuts)


def _explained(
    oracle: Oracle, measured: Sequence[Measured], outside: bool
) -> tuple[bool, Finding] | None:
    """Whether no cause is named, and the finding for a source; None if another one may have proposed."""
    index = next(one.step.index for one in measured if one.wrong)
    cause, named = explain_answers(oracle, measured, index)
    sampled = oracle.trace.settings.get("temperature")
    if cause.kind == "temperature" and sampled and not Cuts.of(oracle.trace, "draft_"):
        return None  # what the draft sampled by
    # a head is like its target, and so like any good drafter
    model = isinstance(oracle, DraftOracle)
    alike = model and median([gap for one in measured for gap in one.gaps if gap]) <= ALIKE
    if outside and not named and not alike:
        return None
    fault = SKIPPED if cause.kind == "norm" else ""
    sentence = f"The draft, run plainly, proposes otherwise ({cause.kind}). {cause.sentence}"
    return not named, replace(cause, kind="draft", sentence=sentence, fault=fault)


@torch.inference_mode()
def _unlike(trace: Trace, draft: Runner) -> str:
    """What the pair's draft would have had accepted on this text, beside what was."""
    text = [*trace.prompt_ids, *trace.token_ids][: draft.context]
    n = len(text)
    seen = np.tri(n, dtype=np.bool_)
    logits = draft.beside(draft.model).logits(draft.shown(text), range(n), seen).logits
    ranks = [int((row > row[token]).sum()) for row, token in zip(logits, text[1:], strict=False)]
    root = len([*trace.prompt_ids, *trace.tokens_at(0)]) - 1
    steps = []
    for step in trace.steps:
        tree = step.tree
        hits = 0
        most = max(0, min(int(tree.depth.max()), len(ranks) - root))
        # with as many children as the widest node of each depth has
        while (
            hits < most
            and ranks[root + hits] < np.bincount(tree.parent[tree.depth == hits + 1]).max()
        ):
            hits += 1
        steps.append(replace(step, counts=Counts(accepted=hits, looked=min(hits + 1, most))))
        root += len(step.committed)
    return (
        f"The recorded proposals are unlike those of the pair's draft, {draft.name}. With as many "
        f"children it would have been accepted{by_depth(acceptance(steps))}; recorded"
        f"{by_depth(acceptance(trace.steps))}."
    )


def _turned(step: Step, name: str, outside: bool) -> Step:
    """With the proposals of a source in the place of the target's answers."""
    nodes = [
        replace(node, target_top=_proposed(step, node, name, outside), target_choice=UNKNOWN)
        for node in step.nodes
    ]
    mask = step.tree.ancestor_mask()  # mask and positions are recorded of the target
    return replace(step, nodes=tuple(nodes), mask=mask, position=(), not_numbers=(), rule="draft")


def _proposed(
    step: Step, node: NodeRecord, name: str, outside: bool
) -> tuple[tuple[int, float], ...]:
    """The recorded proposals after a node, with their probabilities."""
    children = step.tree.children[node.index]
    if node.draft_top and (outside or {step.tree.source[child] for child in children} == {name}):
        return node.draft_top
    if not outside or "log_prob" in step.missing:
        return ()
    return tuple(
        [(int(step.tree.token[child]), exp(step.tree.log_prob[child])) for child in children]
    )
