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

from speclab.clinic._cause import Cause, explain_answers
from speclab.clinic._changes import LEAST_RANKS
from speclab.clinic._faults import NO_WINDOW
from speclab.clinic._gaps import Measured, measure
from speclab.clinic._plain import HALF, HeadReading, Oracle, Progress
from speclab.clinic._report import acceptance, by_depth
from speclab.drafters.draft_pass import DRAFT
from speclab.heads.runner import HeadRunner
from speclab.models.runner import Runner
from speclab.pair import ModelPair
from speclab.trace.metrics import Counts
from speclab.trace.records import UNKNOWN, Finding, NodeRecord, Step, Trace

PASSES = 48
"""Iterations whose drafts are compared: a draft that is wrong is wrong in all."""
APART = 20.0
"""Levels by which proposals without a cause must be off on the median. The draft in bfloat16, of a run in
float32, was 5 levels off in 9 of 12 passes; stale rows were 50."""
OTHERWISE = "The draft, run plainly, proposes otherwise ({}). {}"
OWN_OTHERWISE = " In {} of {} passes the proposals are its own, so it drafted this run."
OWN_HEAT = (
    "The draft's proposals are as if {}: if that is its own setting, write draft_temperature in the "
    "header."
)
OWN_DRAFT = "The proposals are the target's own: its draft is the target."
UNLIKE = (
    "The recorded proposals are unlike those of the pair's draft, {}. With as many children its "
    "acceptance would have been: {}. Recorded: {}."
)


@dataclass(frozen=True)
class DraftSide:
    """What is found: a finding of kind `draft`, or a note, or neither."""

    finding: Finding | None = None
    note: str = ""


@dataclass(frozen=True)
class Compared:
    """A source of proposals, its recorded proposals beside its own, and the first wrong iteration."""

    oracle: Oracle
    run: Sequence[Measured]
    first: int

    @property
    def right(self) -> set[int]:
        """Iterations whose proposals are its own but for rounding, which chance cannot give."""
        right: set[int] = set()
        if self.oracle.dtype in ("float32", *HALF):  # else the level is the run's own
            for index, each in enumerate(self.run):
                if not each.wrong and _telling(each.step, range(len(each.gaps))):
                    right.add(index)
        return right

    @property
    def clearly_wrong(self) -> bool:
        """Whether no other precision of the same draft can explain its first wrong iteration."""
        wrong = self.run[self.first]
        rows = list(wrong.wrong)
        far = np.median(wrong.gaps[rows]) > APART * np.median(wrong.levels)
        return bool(far) and _telling(wrong.step, rows)


def _telling(step: Step, rows: Sequence[int]) -> bool:
    """Whether one of these rows has enough proposals to tell drafts apart."""
    return max([len(step.nodes[row].target_top) for row in rows]) >= LEAST_RANKS


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
        return DraftSide()
    groups: dict[str, list[Oracle]] = {}
    for name, oracle in _sources(trace, pair, progress, first):
        if outside:  # any source may have proposed
            name = ""
        groups.setdefault(name, []).append(oracle)
    for oracles in groups.values():
        unlike = _unlike(oracles)
        if outside and len(unlike) == len(oracles) - 1:  # all but the target, the last source
            return DraftSide(note=OWN_DRAFT)
        if len(unlike) < len(oracles):
            continue
        if outside and not unlike[-1].right:  # the target drafted nothing
            unlike.pop()
        side = _explained(unlike, outside)
        if side == DraftSide() and pair.draft is not None:
            return DraftSide(note=_other_draft(trace, pair.draft))
        return side
    return DraftSide()


def _unlike(oracles: Sequence[Oracle]) -> list[Compared]:
    """The sources before the first that proposed what is recorded, but for rounding."""
    compared = []
    for oracle in oracles:
        run = measure(oracle)
        rows = 0
        wrong = []
        for index, measured in enumerate(run):
            rows += len(measured.wrong)
            if measured.wrong:
                wrong.append(index)
        # in half precision it explains a single row of a run: a draft that is wrong is wrong again
        if rows == 0 or (rows == 1 and oracle.dtype in HALF):
            break
        compared.append(Compared(oracle, run, wrong[0]))
    return compared


def _explained(unlike: Sequence[Compared], outside: bool) -> DraftSide:
    """What explains that no source of a group proposed what is recorded. Of another decoder a
    difference without a cause is a finding only if a source proposed in other passes: else another
    draft may have proposed."""
    right: set[int] = set()
    for each in unlike:
        right |= each.right
    found: Cause | None = None
    for each in unlike:
        cause = explain_answers(each.oracle, each.run, each.first)
        if cause.finding.kind == "temperature":
            return DraftSide(note=OWN_HEAT.format(cause.says))
        own = each.right and each.first not in right and each.clearly_wrong
        if not (cause.says or own or not outside):
            continue
        if own and not cause.says:
            sentence = cause.finding.sentence + OWN_OTHERWISE.format(len(right), len(each.run))
            cause = replace(cause, finding=replace(cause.finding, sentence=sentence))
        if found is None or (cause.says and not found.says):
            found = cause
    if found is None:
        return DraftSide()
    wrong = found.finding
    sentence = OTHERWISE.format(wrong.kind, wrong.sentence)
    fault = ""
    if wrong.kind == "norm":
        fault = "skipped norm in the draft"
    return DraftSide(replace(wrong, kind="draft", sentence=sentence, fault=fault))


def _sources(
    trace: Trace, pair: ModelPair, progress: Progress | None, first: int
) -> Iterator[tuple[str, Oracle]]:
    """Everything of the pair that may have drafted, by name, with its proposals as answers; of another
    decoder the target itself, too, as the last."""
    sources: dict[str, HeadRunner | Runner] = {}
    if pair.draft is not None:
        sources[DRAFT] = pair.draft
    sources.update(zip(pair.head_names, pair.heads, strict=True))
    if sources and "format" in trace.models:
        sources["target"] = pair.target
    # a sampled draft is recorded at its own temperature, at the target's, or before it
    heats = {1.0, float(trace.settings.get("temperature") or 1.0)}
    if own := trace.settings.get("draft_temperature"):
        heats = {float(own)}
    for name, source in sources.items():
        turned = _turned_run(trace, name, source, first)
        if turned is None:
            continue
        if isinstance(source, HeadRunner):
            for conditions in {True, not source.conditions}:
                reading = HeadReading(source, conditions)
                yield name, Oracle(turned, pair, progress, draft=reading)
        elif source is pair.target:
            yield name, Oracle(turned, pair, progress, draft=source)
        else:
            for heat in sorted(heats, reverse=True):
                yield name, Oracle(turned, pair, progress, draft=source, heat=heat)


def _turned_run(trace: Trace, name: str, source: HeadRunner | Runner, first: int) -> Trace | None:
    """The first iterations, turned to the proposals of a source; None if none are recorded."""
    outside = "format" in trace.models
    most = PASSES
    if isinstance(source, HeadRunner):
        most = min(PASSES, first + 1)
    longest = source.context or NO_WINDOW
    steps = []
    compared = False
    for step in trace.steps[:most]:
        if step.prefix_length + len(step.tree) < longest:
            turned = _turned(step, name, outside)
            steps.append(turned)
            compared = compared or any(node.target_top for node in turned.nodes)
    if not compared:
        return None
    dtype = str(source.dtype).removeprefix("torch.")
    if outside:
        dtype = str(trace.models.get("target_dtype") or dtype)
    models = {**trace.models, "target_dtype": dtype}
    return replace(trace, steps=tuple(steps), models=models)


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
def _other_draft(trace: Trace, draft: Runner) -> str:
    """What the pair's draft would have had accepted on this text, beside what was."""
    text = (list(trace.prompt_ids) + trace.token_ids)[: draft.context]
    seen = np.tri(len(text), dtype=np.bool_)
    logits = draft.beside(draft.model).logits(draft.shown(text), range(len(text)), seen).logits
    # the draft's rank of each token of the text but the first, from 0
    own = logits[:-1].gather(1, torch.tensor(text[1:], device=logits.device)[:, None])
    ranks = (logits[:-1] > own).sum(1).tolist()
    root = len(trace.prompt_ids) + len(trace.tokens_at(0)) - 1
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
    recorded = by_depth(acceptance(trace.steps))
    return UNLIKE.format(draft.name, by_depth(acceptance(steps)), recorded)
