"""The draft's side: whether recorded proposals are what a draft model or a head, run plainly, would
propose; and whether a head was given the right states.

A run is turned around: what was proposed after a node becomes the node's recorded answer, and the
draft its target. So a draft is measured as a target is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from math import exp, log
from statistics import correlation, median
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from speclab.analysis.known_text import session_settings
from speclab.clinic._causes import Fit, cost_of, explain_answers
from speclab.clinic._faults import sharing_weights
from speclab.clinic._measure import Measured, measure
from speclab.clinic._oracle import FLOOR, Oracle, Passes, Progress, lowered
from speclab.clinic._passes import Change
from speclab.drafters.draft_pass import DRAFT
from speclab.heads.runner import HeadRunner
from speclab.models.answer import Answer
from speclab.models.cache import HiddenStates
from speclab.models.runner import Runner
from speclab.pair import ModelPair
from speclab.sampling import transform
from speclab.trace.records import UNKNOWN, Finding, NodeRecord, Step, Trace

PASSES = 48
"""Iterations whose drafts are compared."""
COMPARED = 8
"""Iterations from which a likeness is computed."""
ALIKE = 0.5
"""Correlation of recorded and expected log-probabilities above which the source proposed."""
NEAR = 0.1
"""Share of the largest state by which given states may be off."""
SKIPPED = "skipped norm in the draft"


class HeadOracle(Oracle):
    """A head in the place of the target: what it proposes, given the target's states on the text.

    `conditions`: whether a block head's proposals depend on the node's token. `moved`: the head
    reads the states of so many positions before the right ones; `deeper`: of so many layers behind.
    """

    def __init__(
        self,
        trace: Trace,
        pair: ModelPair,
        head: HeadRunner,
        progress: Progress | None = None,
        *,
        conditions: bool = True,
        moved: int = 0,
        deeper: int = 0,
    ) -> None:
        super().__init__(trace, pair, progress)
        self.head = head
        self._conditions = conditions
        self._changed = moved, deeper
        self._target = self._read(self.model)
        self._own = type(head)(deepcopy(head.model), self._target)

    def _admitted(self) -> None:
        """The target runs no trees here."""

    def _read(self, model: PreTrainedModel) -> Runner:
        """A target with the states that the head reads."""
        moved, deeper = self._changed
        target = self.pair.target.beside(
            sharing_weights(model)
        )  # transformers' hooks stay on a model
        count = model.config.get_text_config(decoder=True).num_hidden_layers + 1
        target.watch([layer % count + deeper for layer in self.head.layers])
        target.extend(self.text)
        assert target.hidden is not None
        states = target.hidden.keys[0].transpose(0, 1)[: len(self.text)]
        target.cache.hidden = HiddenStates(self.head.layers)
        places = torch.arange(len(states), device=states.device) - moved
        target.cache.hidden.append(states[places.clamp(0, len(states) - 1)])
        return target

    def states(self, end: int) -> Tensor:
        """`[end, numbers]`: what the head reads of the first positions."""
        assert self._target.hidden is not None
        return self._target.hidden.rows(0, end, self.head.layers).float()

    def answers(self, step: Step) -> Tensor:
        self.report(step)
        return self._proposed(self._own, step)

    def reference(self, dtype: str) -> Passes:
        module = lowered(deepcopy(self.head.model), dtype)
        head = type(self.head)(module, self._read(lowered(self.model, dtype)))
        return lambda step: self._proposed(head, step)

    @torch.inference_mode()
    def _proposed(self, head: HeadRunner, step: Step) -> Tensor:
        """Logits `[n, V]` after each node, level by level; zeros behind the head's reach."""
        depths = step.tree.depth.tolist()
        tree = SimpleNamespace(
            token=step.tree.token.tolist(), parent=step.tree.parent.tolist(), depth=depths
        )
        verified = step.root_choice is None
        answer = head.after_text(self.text[: step.prefix_length + verified], node=verified - 1)
        rows = torch.zeros(len(depths), self.pair.target.vocab_size)
        if verified:
            rows[:1] = _known(answer)
        for depth in range(verified, min(max(depths) + 1, head.reach or len(depths))):
            nodes = [node for node, own in enumerate(depths) if own == depth]
            answer = (
                head.after_nodes(tree, nodes)
                if self._conditions
                else head.at_depths([depth] * len(nodes), None, 0)
            )
            rows[nodes] = _known(answer)
        head.keep_path(())
        return rows


class SampledDraft(Oracle):
    """A draft model in the place of the target, by what it sampled from: after temperature, top-k and
    top-p."""

    def log_probs(self, step: Step, logits: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        drawn = transform(logits, session_settings(self.trace))
        return drawn.float().log().clamp_min(FLOOR).cpu()


def _known(answer: Answer) -> Tensor:
    assert answer.rows is not None
    return answer.rows.float().cpu()


class Judged(NamedTuple):
    """What may have proposed, and how that fits the record; `likeness`: the correlation of recorded
    and expected log-probabilities."""

    oracle: Oracle
    measured: list[Measured]
    likeness: float


def _judged(oracle: Oracle) -> Judged:
    recorded: list[float] = []
    expected: list[float] = []

    def watch(step: Step, right: Tensor) -> None:
        for node, row in zip(step.nodes if step.index < COMPARED else (), right, strict=False):
            for token, prob in node.target_top:
                recorded.append(log(max(prob, 1e-6)))
                expected.append(float(row[token]))

    measured = measure(oracle, watch=watch)
    varied = len({*recorded}) > 1 and len({*expected}) > 1
    return Judged(oracle, measured, correlation(recorded, expected) if varied else 0.0)


def explain_draft(
    trace: Trace, pair: ModelPair, progress: Progress | None, first: int
) -> tuple[Finding, ...]:
    """At most one finding, of kind `draft`: the first iteration whose proposals are wrong, or whose
    head was given wrong states.

    Recorded proposals are `log_prob` and `draft_topk` of another decoder, and of a session what its
    draft model and heads proposed. Proposals that have little to do with the pair's are of another
    drafter, which is no fault.

    Args:
        first: the first iteration with wrong answers; behind it heads read states that are wrong, too.
    """
    outside = "format" in trace.models
    temperature = float(trace.settings.get("temperature") or 0)
    if temperature and not outside:
        return ()
    groups: dict[str, list[Oracle]] = {}
    for name, oracle in _sources(trace, pair, progress, first):
        groups.setdefault("" if outside else name, []).append(oracle)
    found = [_first(oracles, temperature, outside) for oracles in groups.values()]
    return tuple([finding for finding in found if finding is not None][:1])


def _first(oracles: Sequence[Oracle], temperature: float, outside: bool) -> Finding | None:
    """What is wrong if one of these proposed; None if one of them is right."""
    misread = [_misread(oracle) for oracle in oracles if isinstance(oracle, HeadOracle)]
    if misread and None not in misread:
        return misread[0]
    judged = []
    for oracle in oracles:
        if any(node.target_top for step in oracle.steps for node in step.nodes):
            judged.append(_judged(oracle))
            if not any(one.wrong for one in judged[-1].measured):
                return None
    best = max(judged, key=lambda one: one.likeness, default=None)
    return None if best is None else _explained(best, temperature, outside)


def _sources(
    trace: Trace, pair: ModelPair, progress: Progress | None, first: int
) -> Iterator[tuple[str, Oracle]]:
    """Everything of the pair that drafts, by name, with the proposals that it may have made."""
    outside = "format" in trace.models
    names = [DRAFT] * (pair.draft is not None) + list(pair.head_names)
    runners = [pair.draft] * (pair.draft is not None) + list(pair.heads)
    for name, runner in zip(names, runners, strict=True):
        assert runner is not None
        end = PASSES if isinstance(runner, Runner) else min(PASSES, first + 1)
        given = trace.models.get("target_dtype") if outside else None
        dtype = str(given or runner.dtype).removeprefix("torch.")
        longest = runner.context or 1 << 30
        within = [s for s in trace.steps[:end] if s.prefix_length + len(s.tree) < longest]
        steps = tuple([_turned(step, name, outside) for step in within])
        if not any(step.hidden or any(node.target_top for node in step.nodes) for step in steps):
            continue
        models = {**trace.models, "format": "draft", "target_dtype": dtype}
        turned = replace(trace, steps=steps, models=models)
        if isinstance(runner, Runner):
            draft = ModelPair(runner, tokenizer=pair.tokenizer, name=pair.name)
            yield name, Oracle(turned, draft, progress)
            if outside and trace.settings.get("temperature"):
                yield name, SampledDraft(turned, draft, progress)
            continue
        yield name, HeadOracle(turned, pair, runner, progress)
        if runner.conditions:
            yield name, HeadOracle(turned, pair, runner, progress, conditions=False)


def _explained(judged: Judged, temperature: float, outside: bool) -> Finding | None:
    """The first iteration with wrong proposals; None if another drafter made them."""
    oracle, measured, likeness = judged
    wrong = [one for one in measured if one.wrong]
    first = wrong[0]
    index = first.step.index
    fault = ""
    if isinstance(oracle, HeadOracle):
        kind, sentence = _of_head(oracle, first)
        node = first.wrong[0]
        unlike = not first.step.hidden  # a head is like its target, and so like any good drafter
    else:
        cause, named = explain_answers(oracle, first, measured[index - 1] if index else None)
        if cause.kind == "temperature" and temperature:  # what the draft sampled by
            return None
        kind = cause.kind if named else ""
        sentence = f"({cause.kind}). {cause.sentence}"
        node = cause.node or 0
        fault = SKIPPED if cause.kind == "norm" else ""
        unlike = likeness < ALIKE and sum(len(one.wrong) for one in wrong) > 1
    if outside and not kind and unlike:
        return None
    return Finding(
        index, node, "draft", f"The draft, run plainly, proposes otherwise {sentence}", fault
    )


def _of_head(oracle: HeadOracle, measured: Measured) -> tuple[str, str]:
    """What a head read instead, "" if nothing fits; and a sentence."""
    changes = {
        "position before": (1, 0),
        "layer before": (0, -1),
        "layer behind": (0, 1),
    }
    count = oracle.model.config.get_text_config(decoder=True).num_hidden_layers
    step = measured.step
    fits = []
    for says, (moved, deeper) in changes.items():
        layers = [layer % (count + 1) + deeper for layer in oracle.head.layers]
        if min(layers) >= 0 and max(layers) <= count:
            other = HeadOracle(oracle.trace, oracle.pair, oracle.head, moved=moved, deeper=deeper)
            gaps = tuple(other.gaps(step, other.log_probs(step, other.answers(step))))
            fits.append(Fit(Change("states", says), gaps, cost_of(gaps, measured.levels)))
    best = min(fits, key=lambda fit: fit.cost)
    gap = median([measured.gaps[row] for row in measured.wrong])
    sentence = (
        f"({oracle.head.name}: {len(measured.wrong)} rows differ, in the median by {gap:.2g})."
    )
    if best.wins(measured):
        return (
            "states",
            f"{sentence} It is as if the head read the states of the {best.change.says}.",
        )
    if measured.step.hidden:
        sentence += " It was given the right states, so the head itself computes otherwise."
    return "", sentence


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
    return replace(step, nodes=tuple(nodes), not_numbers=(), rule="draft")


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
