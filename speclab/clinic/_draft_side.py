"""The draft's side: are recorded proposals what a draft model or a head, run plainly, would propose;
and was a head given the right states?

The draft is checked like a target: its proposals stand in for the target's answers. Proposals that
are unlike the pair's draft are no fault by themselves, since another drafter may have made them; a
note then says what the pair's draft would have had accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp
from operator import itemgetter
from statistics import median
from typing import Any

import numpy as np
import torch

from speclab.clinic._causes import explain_answers, fit_of
from speclab.clinic._draft_oracles import DraftOracle, HeadOracle
from speclab.clinic._faults import NO_WINDOW, final_norm
from speclab.clinic._passes import Change
from speclab.clinic._plain import Measured, Oracle, Progress, measure
from speclab.clinic._report import acceptance
from speclab.clinic._sampled import Cuts
from speclab.drafters.draft_pass import DRAFT
from speclab.heads.runner import HeadRunner
from speclab.models.runner import Runner
from speclab.pair import ModelPair
from speclab.trace.records import UNKNOWN, Finding, NodeRecord, Step, Trace

PASSES = 48
"""Iterations whose drafts are compared."""
ALIKE = 1.0
"""Median gap in nats up to which the source may have proposed what is recorded."""
NEAR = 0.1
"""Share of the largest state by which given states may be off."""
DEPTHS = 3
"""Depths of the acceptance that a note gives."""
SKIPPED = "skipped norm in the draft"


def explain_draft(
    trace: Trace, pair: ModelPair, progress: Progress | None, first: int
) -> tuple[list[Finding], list[str]]:
    """At most one finding, of kind `draft`: the first iteration whose proposals are wrong, or whose
    head was given wrong states. And notes.

    Recorded proposals are `log_prob` and `draft_topk` of another decoder, and of a session what its
    draft model and heads proposed.

    Args:
        first: the first iteration with wrong answers; after it heads read states that are wrong, too.
    """
    outside = "format" in trace.models
    groups: dict[str, list[Oracle]] = {}  # of another decoder any source may have proposed
    if outside or not trace.settings.get("temperature"):
        for name, oracle in _sources(trace, pair, progress, first):
            groups.setdefault("" if outside else name, []).append(oracle)
    for oracles in groups.values():
        misread = [_misread(oracle) for oracle in oracles if isinstance(oracle, HeadOracle)]
        if misread and None not in misread:
            return [finding for finding in misread[:1] if finding], []
        sources = [
            (oracle, measure(oracle))
            for oracle in oracles
            if any(node.target_top for step in oracle.steps for node in step.nodes)
        ]
        if not all(any(one.wrong for one in measured) for _, measured in sources):
            continue  # a source proposed what is recorded
        explained = [_explained(*each, outside) for each in sources]
        findings = sorted([one for one in explained if one], key=itemgetter(0))
        if findings:
            return [findings[0][1]], []
        if sources and outside and pair.draft is not None:
            return [], [_unlike(trace, pair.draft)]
    return [], []


def _sources(
    trace: Trace, pair: ModelPair, progress: Progress | None, first: int
) -> Iterator[tuple[str, Oracle]]:
    """Everything of the pair that drafts, by name, with the proposals that it may have made."""
    outside = "format" in trace.models
    names = [DRAFT] * (pair.draft is not None) + list(pair.head_names)
    runners = [pair.draft] * (pair.draft is not None) + list(pair.heads)
    for name, runner in zip(names, runners, strict=True):
        assert runner is not None
        own = isinstance(runner, Runner)
        longest = runner.context or NO_WINDOW
        asked = trace.steps[: PASSES if own else min(PASSES, first + 1)]
        within = [step for step in asked if step.prefix_length + len(step.tree) < longest]
        steps = tuple([_turned(step, name, outside) for step in within])
        if not any(step.hidden or any(node.target_top for node in step.nodes) for step in steps):
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
        if drawn is None:
            yield name, DraftOracle(turned, draft, progress)
        if cuts := drawn or Cuts.of(trace):
            yield name, DraftOracle(turned, draft, progress, cuts=cuts)


def _explained(
    oracle: Oracle, measured: Sequence[Measured], outside: bool
) -> tuple[bool, Finding] | None:
    """Whether no cause is named, and the finding for a source; None if another one may have proposed."""
    first = next(one for one in measured if one.wrong)
    index = first.step.index
    gaps = [gap for one in measured for gap in one.gaps if gap]
    fault = ""
    if isinstance(oracle, HeadOracle):
        named, sentence = _of_head(oracle, first)
        node = first.wrong[0]
        # a head is like its target, and so like any good drafter
        alike = bool(first.step.hidden)
    else:
        cause, named = explain_answers(oracle, measured, index)
        sampled = oracle.trace.settings.get("temperature")
        if cause.kind == "temperature" and sampled and not Cuts.of(oracle.trace, "draft_"):
            return None  # what the draft sampled by
        sentence = f"({cause.kind}). {cause.sentence}"
        led = len(first.gaps) - len(oracle.trace.steps[index].tree)
        if led:
            sentence += " Row 0 is here the token before the root: the draft ran it in this pass."
        node = max((cause.node or 0) - led, 0)
        fault = SKIPPED if cause.kind == "norm" else ""
        alike = median(gaps) <= ALIKE
    sentence = f"The draft, run plainly, proposes otherwise {sentence}"
    if outside and not named and not alike:
        return None
    return not named, Finding(index, node, "draft", sentence, fault)


@torch.inference_mode()
def _unlike(trace: Trace, draft: Runner) -> str:
    """What the pair's draft would have had accepted on this text, beside what was."""
    text = [*trace.prompt_ids, *trace.token_ids][: draft.context]
    n = len(text)
    seen = np.tri(n, dtype=np.bool_)
    logits = draft.beside(draft.model).logits(draft.shown(text), range(n), seen).logits
    ranks = [int((row > row[token]).sum()) for row, token in zip(logits, text[1:], strict=False)]
    hits = Counter[int]()
    tries = Counter[int]()
    root = len([*trace.prompt_ids, *trace.tokens_at(0)]) - 1
    for step in trace.steps:
        deepest = min(DEPTHS, int(step.tree.depth.max()), len(ranks) - root)
        for depth in range(1, deepest + 1):
            widest = Counter(step.tree.parent[step.tree.depth == depth].tolist()).most_common(1)[0][
                1
            ]
            tries[depth] += 1
            if ranks[root + depth - 1] >= widest:
                break
            hits[depth] += 1
        root += len(step.committed)
    recorded = acceptance(trace)
    figures = [
        f"at depth {depth} in {hits[depth]} of {tries[depth]} ({' of '.join(map(str, recorded.get(depth, (0, 0))))})"
        for depth in tries
    ]
    return (
        f"The recorded proposals are unlike those of the pair's draft, {draft.name}. With as many "
        f"children it would have been accepted {', '.join(figures)}; in brackets what was recorded."
    )


def _of_head(oracle: HeadOracle, measured: Measured) -> tuple[bool, str]:
    """Whether it is known what a head read instead, and a sentence."""
    step = measured.step
    count = oracle.model.config.get_text_config(decoder=True).num_hidden_layers
    layers = [layer % (count + 1) for layer in oracle.head.layers]
    changes: dict[str, dict[str, Any]] = {"position before": {"moved": 1}}
    if min(layers):
        changes["layer before"] = {"deeper": -1}
    if max(layers) < count:
        changes["layer after"] = {"deeper": 1}
    elif final_norm(oracle.model):
        changes["last layer before the final norm"] = {"plain": True}
    fits = []
    for says, change in changes.items():
        other = HeadOracle(oracle.trace, oracle.pair, oracle.head, **change)
        gaps = other.gaps(step, other.log_probs(step, other.answers(step)))
        fits.append(fit_of(Change("states", says), gaps, measured))
    best = min(fits, key=lambda fit: fit.cost)
    gap = median([measured.gaps[row] for row in measured.wrong])
    sentence = (
        f"({oracle.head.name}: {len(measured.wrong)} rows differ, in the median by {gap:.2g})."
    )
    if best.wins:
        says = best.change.says
        return True, f"{sentence} It is as if the head read the states of the {says}."
    if step.hidden:
        sentence += " It was given the right states, so the head itself computes otherwise."
    return False, sentence


def _misread(oracle: HeadOracle) -> Finding | None:
    """The first iteration whose `hidden` are not the target's states before the newest token."""
    for step in [step for step in oracle.steps if step.hidden]:
        given = torch.tensor(step.hidden)
        states = oracle.states(step.prefix_length)[:, : len(given)].cpu()
        apart = (states - given).abs().amax(1) / states.abs().amax()
        place = step.prefix_length - 1
        if apart[place] <= NEAR:
            continue
        nearest = int(apart.argmin())
        says = f"those of position {nearest}" if apart[nearest] <= NEAR else "of no position"
        sentence = (
            f"The head was not given the target's states at position {place}, before the newest token "
            f"(off by {apart[place]:.2g} of the largest); they are {says}."
        )
        return Finding(step.index, 0, "draft", sentence)
    return None


def _turned(step: Step, name: str, outside: bool) -> Step:
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
    log_probs = step.tree.log_prob
    return tuple(
        [(int(step.tree.token[child]), exp(float(log_probs[child]))) for child in children]
    )
