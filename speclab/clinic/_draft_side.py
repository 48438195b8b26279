"""The draft's side: are recorded proposals what a draft model or a head, run plainly, would propose?

The draft is checked like a target: its proposals stand in for the target's answers, and the cause is
searched in the same way. Proposals that are unlike the pair's draft are no fault by themselves,
since another drafter may have made them; a note then says what the pair's draft would have had
accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp

import numpy as np
import torch

from speclab.clinic._cause import explain_answers
from speclab.clinic._faults import NO_WINDOW
from speclab.clinic._heads import HeadOracle
from speclab.clinic._plain import HALF, Measured, Oracle, Progress, measure
from speclab.clinic._report import acceptance, by_depth
from speclab.drafters.draft_pass import DRAFT
from speclab.models.runner import Runner
from speclab.pair import ModelPair
from speclab.trace.metrics import Counts
from speclab.trace.records import UNKNOWN, Finding, NodeRecord, Step, Trace

PASSES = 48
"""Iterations whose drafts are compared: a draft that is wrong is wrong in all."""


@dataclass
class DraftSide:
    """What is found: at most one finding, of kind `draft`, and notes."""

    findings: list[Finding]
    notes: list[str]


def explain_draft(
    trace: Trace, pair: ModelPair, progress: Progress | None, first: int
) -> DraftSide:
    """The first iteration whose proposals are wrong.

    Recorded proposals are `log_prob` and `draft_topk` of another decoder, and of a session what its
    draft model and heads proposed.

    Args:
        first: the first iteration with wrong answers; after it heads read states that are wrong, too.
    """
    outside = "format" in trace.models
    if trace.settings.get("temperature") and not outside:
        return DraftSide([], [])
    groups: dict[str, list[Oracle]] = {}  # of another decoder any source may have proposed
    for name, oracle in _sources(trace, pair, progress, first):
        groups.setdefault("" if outside else name, []).append(oracle)
    for oracles in groups.values():
        runs = [measure(oracle) for oracle in oracles]
        if not all(map(_differs, oracles, runs)):
            continue  # a source proposed what is recorded
        if not outside:
            return _explained(oracles, runs, outside)
        turned = [_turned(step, "", outside) for step in trace.steps[:PASSES]]
        own = Oracle(replace(trace, steps=tuple(turned)), pair, progress, draft=pair.target)
        if not _differs(own, measure(own)):
            return DraftSide([], ["The proposals are the target's own: its draft is the target."])
        side = _explained(oracles, runs, outside)
        if not side.findings and not side.notes and pair.draft is not None:
            side.notes.append(_unlike(trace, pair.draft))
        return side
    return DraftSide([], [])


def _explained(
    oracles: Sequence[Oracle], runs: Sequence[Sequence[Measured]], outside: bool
) -> DraftSide:
    """What explains that no source of a group proposed what is recorded. Of another decoder a
    difference without a cause is no finding: another draft may have proposed."""
    side = DraftSide([], [])
    for oracle, run in zip(oracles, runs, strict=True):
        index = next(index for index, measured in enumerate(run) if measured.wrong)
        cause = explain_answers(oracle, run, index)
        wrong = cause.finding
        if wrong.kind == "temperature":
            note = (
                f"The draft's proposals are as if {cause.says}: if that is its own setting, write "
                "draft_temperature in the header."
            )
            return DraftSide([], [note])
        if cause.says or not outside:
            fault = "skipped norm in the draft" if wrong.kind == "norm" else ""
            sentence = (
                f"The draft, run plainly, proposes otherwise ({wrong.kind}). {wrong.sentence}"
            )
            finding = replace(wrong, kind="draft", sentence=sentence, fault=fault)
            side.findings = side.findings or [finding]
    return side


def _differs(oracle: Oracle, run: Sequence[Measured]) -> bool:
    """Whether rounding does not explain what is recorded; in half precision it explains a single row of a
    run, since a draft that is wrong is wrong again."""
    rows = sum([len(measured.wrong) for measured in run])
    return rows > 1 or (rows == 1 and oracle.dtype not in HALF)


def _sources(
    trace: Trace, pair: ModelPair, progress: Progress | None, first: int
) -> Iterator[tuple[str, Oracle]]:
    """Everything of the pair that may have drafted, by name, with its proposals as answers."""
    outside = "format" in trace.models
    settings = trace.settings
    names = (DRAFT, *pair.head_names)
    for name, runner in zip(names, (pair.draft, *pair.heads), strict=True):
        if runner is None:
            continue
        longest = runner.context or NO_WINDOW
        steps = []
        compared = False
        for step in trace.steps[: PASSES if name == DRAFT else min(PASSES, first + 1)]:
            if step.prefix_length + len(step.tree) < longest:
                steps.append(_turned(step, name, outside))
                compared = compared or any(node.target_top for node in steps[-1].nodes)
        if not compared:
            continue
        dtype = (trace.models.get("target_dtype") if outside else None) or runner.dtype
        models = {**trace.models, "target_dtype": str(dtype)}
        turned = replace(trace, steps=tuple(steps), models=models)
        if not isinstance(runner, Runner):
            for conditions in {True, not getattr(runner, "conditions", True)}:
                yield name, HeadOracle(turned, pair, runner, progress, conditions=conditions)
            continue
        # a sampled draft is recorded at its own temperature, at the target's, or before it
        heats = {1.0, float(settings.get("temperature") or 1.0)}
        if settings.get("draft_temperature"):
            heats = {float(settings["draft_temperature"] or 1.0)}
        for heat in sorted(heats, reverse=True):
            yield name, Oracle(turned, pair, progress, draft=runner, heat=heat)


def _turned(step: Step, name: str, outside: bool) -> Step:
    """With the proposals of a source in the place of the target's answers."""
    nodes = []
    for node in step.nodes:
        top = _proposed(step, node, name, outside)
        nodes.append(replace(node, target_top=top, target_choice=UNKNOWN))
    mask = step.tree.ancestor_mask()  # mask and positions are recorded of the target
    return replace(step, nodes=tuple(nodes), mask=mask, position=(), not_numbers=(), rule="draft")


def _proposed(
    step: Step, node: NodeRecord, name: str, outside: bool
) -> tuple[tuple[int, float], ...]:
    """The recorded proposals after a node, with their probabilities."""
    tree = step.tree
    children = tree.children[node.index]
    if node.draft_top and (outside or {tree.source[child] for child in children} == {name}):
        return node.draft_top
    if not outside or "log_prob" in step.missing:
        return ()
    return tuple([(int(tree.token[child]), exp(tree.log_prob[child])) for child in children])


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
        most = max(0, min(int(tree.depth.max()), len(ranks) - root))
        hits = 0
        # with as many children as the widest node of each depth has
        while hits < most:
            if ranks[root + hits] >= np.bincount(tree.parent[tree.depth == hits + 1]).max():
                break
            hits += 1
        steps.append(replace(step, counts=Counts(accepted=hits, looked=min(hits + 1, most))))
        root += len(step.committed)
    return (
        f"The recorded proposals are unlike those of the pair's draft, {draft.name}. With as many children it "
        f"would have been accepted{by_depth(acceptance(steps))}; recorded"
        f"{by_depth(acceptance(trace.steps))}."
    )
