"""The draft's side: are recorded proposals what a draft model or a head, run plainly, would propose;
and was a head given the right states?

The draft is checked like a target: its proposals stand in for the target's answers. Proposals that
are unlike the pair's draft are no fault by themselves, since another drafter may have made them; a
note then says what the pair's draft would have had accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from math import exp, log
from statistics import StatisticsError, correlation, median
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from speclab.clinic._causes import explain_answers, fit_of
from speclab.clinic._faults import NO_WINDOW, final_norm, sharing_weights, without_final_norm
from speclab.clinic._passes import Change
from speclab.clinic._plain import FLOOR, TINY, Measured, Oracle, Passes, Progress, lowered, measure
from speclab.clinic._report import acceptance
from speclab.clinic._sampled import Cuts, transformed
from speclab.drafters.draft_pass import DRAFT
from speclab.heads.runner import HeadRunner
from speclab.models.answer import Answer
from speclab.models.cache import HiddenStates
from speclab.models.runner import Runner
from speclab.pair import ModelPair
from speclab.trace.records import UNKNOWN, Finding, NodeRecord, Step, Trace
from speclab.tree import DraftTree

PASSES = 48
"""Iterations whose drafts are compared."""
ALIKE = 0.5
"""Correlation of recorded and expected log-probabilities above which the source proposed."""
NEAR = 0.1
"""Share of the largest state by which given states may be off."""
DEPTHS = 3
"""Depths of the acceptance that a note gives."""
FEWEST = 3
"""Passes in which proposals must be off by the same number of ids."""
SKIPPED = "skipped norm in the draft"


class DraftOracle(Oracle):
    """A draft model in the place of the target.

    `cuts`: what it sampled by, if log-probabilities are recorded after temperature, top-k and top-p.
    """

    drafts = True

    def __init__(
        self,
        trace: Trace,
        pair: ModelPair,
        progress: Progress | None = None,
        *,
        cuts: Cuts | None = None,
    ) -> None:
        self.cuts = cuts
        super().__init__(trace, pair, progress)

    def _after_the_text(self) -> Iterator[Step]:
        """The last accepted node was run with the next pass, if the draft had not expanded it."""
        lead: int | None = None
        for step in super()._after_the_text():
            end = step.accepted[-1] if step.accepted else 0
            ran = step if step.tree.children[end] else replace(step, accepted=step.accepted[:-1])
            drafted_root = step.root_choice is not None
            yield ran if lead is None or drafted_root else _led(ran, lead)
            lead = None if step.tree.children[end] or not end else int(step.tree.token[end])

    def log_probs(self, step: Step, logits: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        if self.cuts is None:
            return super().log_probs(step, logits, nodes)
        return transformed(logits, self.cuts).float().log().clamp_min(FLOOR).cpu()


def _led(step: Step, token: int) -> Step:
    """The step with one row more, before its root."""
    tree = step.tree
    longer, _ = DraftTree.grown(
        [token, *tree.token.tolist()],
        [-1, *(tree.parent + 1).tolist()],
        [0.0, *tree.log_prob.tolist()],
        ["recorded"] * (len(tree) + 1),
    )
    first = replace(step.nodes[0], token=token, target_top=(), draft_top=())
    return replace(
        step,
        tree=longer,
        nodes=(first, *[replace(node, index=node.index + 1) for node in step.nodes]),
        prefix_length=step.prefix_length - 1,
        accepted=(1, *[node + 1 for node in step.accepted]),
        committed=(int(tree.token[0]), *step.committed),
        mask=longer.ancestor_mask(),
    )


class HeadOracle(Oracle):
    """A head in the place of the target: what it proposes, given the target's states on the text.

    `conditions`: whether a block head's proposals depend on the node's token. `moved`: the head
    reads the states of so many positions before the right ones; `deeper`: of so many layers after;
    `plain`: of the last layer before the final norm.
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
        plain: bool = False,
    ) -> None:
        super().__init__(trace, pair, progress)
        self.head = head
        self._conditions = conditions
        self._changed = moved, deeper
        self._target = self._read(without_final_norm(self.model) if plain else self.model)
        self._own = type(head)(deepcopy(head.model), self._target)

    def _admitted(self) -> None:
        """The target runs no trees here."""

    def _read(self, model: PreTrainedModel) -> Runner:
        """A target with the states that the head reads."""
        moved, deeper = self._changed
        # transformers' hooks stay on a model
        target = self.pair.target.beside(sharing_weights(model))
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
        """Logits `[n, V]` after each node, level by level; zeros beyond the head's reach."""
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


def _known(answer: Answer) -> Tensor:
    assert answer.rows is not None
    return answer.rows.float().cpu()


class Source:
    """What may have proposed, and how that fits the record.

    Attributes:
        measured: all iterations; `wrong`: those whose proposals are not the source's.
        off: by how many ids the best recorded proposal after each root is off.
        alike: whether recorded and expected log-probabilities are correlated.
    """

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.off = Counter[int]()
        self._pairs: list[tuple[float, float]] = []
        self.measured = measure(oracle, watch=self._watch)
        self.wrong = [one for one in self.measured if one.wrong]
        self.alike = False
        with suppress(StatisticsError):  # numbers that do not vary
            self.alike = correlation(*zip(*self._pairs, strict=True)) >= ALIKE

    def _watch(self, step: Step, logits: Tensor, _: float) -> None:
        for node in [node for node in step.nodes if node.target_top][:1]:
            best = max(node.target_top, key=lambda top: top[1])
            self.off[best[0] - int(logits[node.index].argmax())] += 1
        for node, row in zip(step.nodes, self.oracle.log_probs(step, logits), strict=True):
            self._pairs += [(log(max(prob, TINY)), float(row[at])) for at, prob in node.target_top]


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
    groups: dict[str, list[Oracle]] = {}
    if outside or not trace.settings.get("temperature"):
        for name, oracle in _sources(trace, pair, progress, first):
            groups.setdefault("" if outside else name, []).append(oracle)
    for oracles in groups.values():
        misread = [_misread(oracle) for oracle in oracles if isinstance(oracle, HeadOracle)]
        if misread and None not in misread:
            return [finding for finding in misread[:1] if finding], []
        sources = []
        for oracle in oracles:
            if any(node.target_top for step in oracle.steps for node in step.nodes):
                sources.append(Source(oracle))
                if not sources[-1].wrong:
                    break  # it proposed what is recorded
        else:
            finding = _explained(sources, outside)
            if finding is not None:
                return [finding], []
            if outside and sources and pair.draft is not None:
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


def _explained(sources: Sequence[Source], outside: bool) -> Finding | None:
    """The finding for these sources; None if one of them reproduces the proposals, or none is like them."""
    unnamed = None
    for source in sources:
        oracle = source.oracle
        first = source.wrong[0]
        index = first.step.index
        fault = ""
        if isinstance(oracle, HeadOracle):
            kind, sentence = _of_head(oracle, first)
            node = first.wrong[0]
            alike = bool(
                first.step.hidden
            )  # a head is like its target, and so like any good drafter
        else:
            cause, named = explain_answers(oracle, source.measured, index)
            sampled = oracle.trace.settings.get("temperature")
            if cause.kind == "temperature" and sampled and not Cuts.of(oracle.trace, "draft_"):
                return None  # what the draft sampled by
            kind = cause.kind if named else ""
            sentence = f"({cause.kind}). {cause.sentence}"
            led = len(first.gaps) - len(oracle.trace.steps[index].tree)
            if led:
                sentence += (
                    " Row 0 is here the token before the root: the draft ran it in this pass."
                )
            node = max((cause.node or 0) - led, 0)
            fault = SKIPPED if cause.kind == "norm" else ""
            alike = source.alike
            if off := _ids_off(source.off):
                kind, sentence = "ids", off
        sentence = f"The draft, run plainly, proposes otherwise {sentence}"
        finding = Finding(index, node, "draft", sentence, fault)
        if kind:
            return finding
        if alike or not outside:
            unnamed = unnamed or finding
    return unnamed


def _ids_off(counts: Counter[int]) -> str:
    """That the best proposals after the roots are off by the same number of ids; "" if not."""
    ((off, count),) = counts.most_common(1)
    if not off or count < max(FEWEST, counts.total() / 2):
        return ""
    return (
        f"(ids). In {count} of {counts.total()} passes the best token recorded after the root is the "
        f"draft's best token {off:+d}: look at the map from the draft's vocabulary to the target's."
    )


@torch.inference_mode()
def _unlike(trace: Trace, draft: Runner) -> str:
    """What the pair's draft would have had accepted on this text, beside what was."""
    text = [*trace.prompt_ids, *trace.token_ids][: draft.context]
    n = len(text)
    seen = np.tri(n, dtype=np.bool_)
    logits = draft.beside(draft.model).forward(draft.shown(text), range(n), seen)
    ranks = [int((row > row[token]).sum()) for row, token in zip(logits, text[1:], strict=False)]
    hits = Counter[int]()
    tries = Counter[int]()
    root = len(trace.prompt_ids)
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


def _of_head(oracle: HeadOracle, measured: Measured) -> tuple[str, str]:
    """What a head read instead, "" if nothing fits; and a sentence."""
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
        return "states", f"{sentence} It is as if the head read the states of the {says}."
    if step.hidden:
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
