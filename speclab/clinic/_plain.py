"""The plain answers: what the target, a draft model or a head says, run as it should be.

The expected answer after a node is that of the model on the node's path alone, as plain text, without
a tree mask; of a head, what it proposes given the target's states on the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from speclab.clinic._faults import final_norm, sharing_weights, without_final_norm
from speclab.clinic._lines import DTYPES
from speclab.clinic._record import GREEDY
from speclab.errors import SettingsError
from speclab.heads.layout import DraftModule
from speclab.heads.runner import HeadRunner
from speclab.models.cache import HiddenStates
from speclab.models.paths import PathRunner
from speclab.models.runner import Runner
from speclab.pair import ModelPair
from speclab.sampling import transform
from speclab.settings import SessionSettings
from speclab.trace.records import UNKNOWN, NodeRecord, Step, Trace
from speclab.tree import Bools, Floats, Ints

FLOOR = -12.0
"""Less probable tokens (nats) count as equally improbable: float32 rounds them by more than faults do."""
AHEAD = 256
"""Tokens of the text that one pass runs ahead: a pass of few tokens takes as long."""
HALF = {"float16": torch.float16, "bfloat16": torch.bfloat16}
Model = TypeVar("Model", bound=nn.Module)
Passes = Callable[[Step], Tensor]
"""Logits `[n, V]` of the nodes of a step; steps come in their order."""
Progress = Callable[[int, int], object]
"""Called before each pass with the iterations compared so far and their number; what it raises ends the work."""


def lowered(model: Model, dtype: str) -> Model:
    """A copy in a lower precision; below 16 bits only the weights are rounded, in blocks of 32."""
    if dtype == "float32":
        return model
    twin = deepcopy(model)
    if dtype in HALF:
        return twin.to(HALF[dtype])
    with torch.no_grad():
        for weights in twin.parameters():
            if weights.ndim < 2 or weights.numel() % 32:
                continue
            blocks = weights.view(-1, 32)
            scale = blocks.abs().amax(1, keepdim=True).clamp_min(1e-12)
            scale /= 7 if dtype == "int4" else 127
            blocks.copy_((blocks / scale).round() * scale)
    return twin


@dataclass(frozen=True)
class HeadReading:
    """How a head reads the target's states.

    `conditions`: a block head's proposals depend on the node's token. `back`: the states are those of
    so many positions before the right ones; `deeper`: of so many layers after the right ones;
    `before_norm`: of the last layer before the final norm.
    """

    head: HeadRunner
    conditions: bool = True
    back: int = 0
    deeper: int = 0
    before_norm: bool = False

    @torch.inference_mode()
    def passes(
        self, target: Runner, model: PreTrainedModel, module: DraftModule, text: Sequence[int]
    ) -> Callable[[Step], Tensor]:
        """Its proposals after the nodes of a step: logits `[n, V]`, zeros beyond the head's reach.

        Args:
            model, module: the target's and the head's, in the precision of the run.
        """
        # transformers' hooks stay on a model
        watched = without_final_norm(model) if self.before_norm else sharing_weights(model)
        runner = target.beside(watched)
        count = _layers(runner)
        layers = self.head.layers
        runner.watch([layer % (count + 1) + self.deeper for layer in layers])
        runner.extend(text)
        assert runner.hidden is not None
        states = runner.hidden.keys[0].transpose(0, 1)[: len(text)]  # [tokens, layers, hidden]
        runner.cache.hidden = HiddenStates(layers)
        places = torch.arange(len(states), device=states.device) - self.back
        runner.cache.hidden.append(states[places.clamp_min(0)])
        return partial(self._proposed, type(self.head)(module, runner), text)

    @torch.inference_mode()
    def _proposed(self, head: HeadRunner, text: Sequence[int], step: Step) -> Tensor:
        """One pass, level by level."""
        tree: Any = step.tree
        n = len(tree)
        verified = int(0 not in step.drafted)
        answer: Any = head.after_text(text[: step.prefix_length + verified], node=verified - 1)
        logits = torch.zeros(n, head.vocab_size)
        if verified:
            logits[:1] = answer.rows
        for depth in range(verified, min(int(tree.depth[-1]) + 1, head.reach or n)):
            nodes = np.flatnonzero(tree.depth == depth).tolist()
            if self.conditions:
                answer = head.after_nodes(tree, nodes)
            else:
                answer = head.at_depths([depth] * len(nodes), None, 0)
            logits[nodes] = answer.rows.float().cpu()
        head.keep_path(())
        return logits

    def others(self, target: Runner) -> Iterator[tuple[str, HeadReading]]:
        """Other states that the head may have read."""
        yield "position before", replace(self, back=1)
        count = _layers(target)
        layers = [layer % (count + 1) for layer in self.head.layers]
        if min(layers):
            yield "layer before", replace(self, deeper=-1)
        if max(layers) < count:
            yield "layer after", replace(self, deeper=1)
        elif final_norm(target.model):
            yield "last layer before the final norm", replace(self, before_norm=True)


def _layers(runner: Runner) -> int:
    """The number of layers of a model; its states are those of one layer more."""
    count: int = runner.model.config.get_text_config(decoder=True).num_hidden_layers
    return count


class Oracle:
    """What a model of a pair answers on the text of a trace: the target, a draft model or a head.

    A draft's steps have its proposals in the place of the target's answers.

    Args:
        draft: the draft's runner, or how a head reads the target; without it, the target answers.
        heat: the temperature at which a draft's log-probabilities are recorded.

    Attributes:
        runner: the target or the draft model; a head's target.
        model: its module in float32.
        steps: with prefix lengths computed from the text; recorded cache lengths are ignored.
        dtype: the precision of the record, "" if its name is not known.
        exact: the run and its target are bit for bit, so nothing is rounding.
        answers: the plain answers, in float32, or with the target's own bits.
    """

    def __init__(
        self,
        trace: Trace,
        pair: ModelPair,
        progress: Progress | None = None,
        close: float | None = None,
        draft: Runner | HeadReading | None = None,
        heat: float = 1.0,
    ) -> None:
        if close is not None and not close >= 0:  # NaN is neither
            raise SettingsError(
                f"Expected close as a difference of log-probabilities from 0 on, got {close!r}."
            )
        self.pair = pair
        self.trace = trace
        self.close = close
        self.progress = progress
        self.heat = heat
        self.drafts = draft is not None
        self.head = draft if isinstance(draft, HeadReading) else None
        self.runner = draft if isinstance(draft, Runner) else pair.target
        self.outside = self.drafts or "format" in trace.models
        pads = 0
        if self.outside:  # padding is part of the recorded prompt, and no text
            pads = max(0, -int(trace.models.get("position_offset") or 0))
        self.text = self.runner.shown((list(trace.prompt_ids) + trace.token_ids)[pads:])
        self.steps = _from_the_text(trace, pads)
        own = str(self.runner.dtype).removeprefix("torch.")
        recorded = str(trace.models.get("target_dtype") or own)
        if recorded == "float32":
            recorded = own
        self.dtype = ""
        if recorded in DTYPES:
            self.dtype = recorded
        self.model = self.runner.model
        if own != "float32":
            self.model = deepcopy(self.model).float()
        self.settings: SessionSettings | None = None
        self._processors = None
        if not self.outside:  # another decoder records logits before temperature and top-p
            self.settings = SessionSettings.of(trace.settings)
            self._processors = pair.rules.processors(
                pair.target.model, len(trace.prompt_ids), self.settings.max_new_tokens
            )
        same_bits = trace.models.get("target_exact") == str(pair.target.bits)
        self.exact = same_bits and bool(pair.target.own_rows) and not self.outside
        if self.exact:
            runner = pair.target.fork(lean=False)
            runner.extend(self.text[: len(trace.prompt_ids)])  # as the run read its prompt
            self.answers = self._told(partial(tree_pass, runner, self.text))
        elif self.outside or isinstance(self.runner, PathRunner):
            self.answers = self.passes("float32")
        else:
            self.answers = self.passes("float32", PathRunner)

    def passes(
        self, dtype: str, kind: type[Runner] | None = None, head: HeadReading | None = None
    ) -> Passes:
        """The model's own passes over the trees in a precision.

        Args:
            kind: of the runner. A session's paths run one by one, without a tree mask. Another
                decoder's run at once, 3 times as fast: the mask was compared with plain passes when
                the pair was loaded.
            head: reads the target in another way.
        """
        model = lowered(self.model, dtype)
        head = head or self.head
        if head is not None:
            module = lowered(deepcopy(head.head.model), dtype)
            return self._told(head.passes(self.pair.target, model, module, self.text))
        runner = self.runner.beside(model, kind)
        runner.allow_nonfinite = True
        return self._told(partial(tree_pass, runner, self.text))

    def _told(self, run: Passes) -> Passes:
        """Passes that are reported."""

        def logits(step: Step) -> Tensor:
            self.report(step)
            return run(step)

        return logits

    def report(self, step: Step) -> None:
        """Report that a pass of this step comes next."""
        if self.progress is not None:
            self.progress(step.index, len(self.trace.steps))

    def log_probs(self, step: Step, logits: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        """What is recorded of logits `[m, V]` of these nodes, by default of all."""
        if self.settings is None:
            return (logits.float() / self.heat).log_softmax(-1).clamp_min(FLOOR).cpu()
        if self._processors is not None:
            prefix = list(self.text[: step.prefix_length])
            rows = []
            for node, row in zip(nodes or range(len(logits)), logits, strict=True):
                path = step.tree.token[list(step.tree.path(node))].tolist()
                rows.append(self._processors(prefix + path, row))
            logits = torch.stack(rows)
        return transform(logits, self.settings).float().log().clamp_min(FLOOR).cpu()

    def gaps(self, step: Step, right: Tensor, given: Tensor | None = None) -> Floats:
        """The gap `[n]` of each node to the right log-probabilities `[n, V]`."""
        gaps = []
        for row, node in enumerate(step.nodes):
            other = None if given is None else given[row]
            gaps.append(self.gap(node, right[row], other))
        return np.array(gaps)

    def gap(self, node: NodeRecord, right: Tensor, given: Tensor | None = None) -> float:
        """The largest difference of a recorded log-probability to the right ones `[V]`, or of `given`
        ones of the same tokens; infinite if they are not numbers.

        A draft's may be normalised over fewer tokens than it has, by a smaller vocabulary or a cut, so
        all of a row may be too high by one constant.
        """
        if not node.target_top:
            return 0.0
        tokens, probs = map(list, zip(*node.target_top, strict=True))
        other = torch.tensor(probs).log().clamp_min(FLOOR)
        if given is not None:
            other = given[tokens]
        low, high = (other - right[tokens]).aminmax()
        if low.isnan():
            return inf
        constant = 0.0
        if self.drafts:
            constant = max(0.0, float(low + high) / 2)
        return max(float(high) - constant, constant - float(low))

    def choices(self, step: Step, log_probs: Tensor) -> Floats:
        """For each node `[n]` how far its recorded choice is below the best token; 0 without a greedy choice."""
        below = np.zeros(len(step.nodes))
        if step.rule != GREEDY or self.trace.models.get("processed"):
            return below
        for row, node in enumerate(step.nodes):
            if node.target_choice != UNKNOWN and row not in step.not_numbers:
                below[row] = float(log_probs[row].max() - log_probs[row, node.target_choice])
        return below


def _from_the_text(trace: Trace, pads: int) -> tuple[Step, ...]:
    """The steps with prefix lengths computed from the text, which begins after so much padding."""
    length = len(trace.prompt_ids) + len(trace.tokens_at(0)) - pads
    steps = []
    for step in trace.steps:
        before = length - 1
        if 0 in step.drafted:  # a drafted root is not in the text
            before = length
        steps.append(replace(step, prefix_length=before))
        length += len(step.committed)
    return tuple(steps)


def tree_pass(runner: Runner, text: Sequence[int], step: Step) -> Tensor:
    """Logits `[n, V]` of a step's tree after its prefix; the text is prefilled up to 256 tokens ahead."""
    length = step.prefix_length
    ahead = AHEAD
    if isinstance(runner, PathRunner):  # a path is behind the whole text
        ahead = 0
    if runner.length < length:
        runner.extend(text[runner.length : length + ahead])
    depth = step.tree.depth
    before = np.tile(np.arange(runner.length) < length, (len(depth), 1))
    seen = np.hstack([before, step.tree.ancestor_mask()])
    return row_pass(runner, step.tree.token, length + depth, seen)


def row_pass(runner: Runner, tokens: Ints, positions: Ints, seen: Bools) -> Tensor:
    """Logits `[m, V]` of rows that see `seen` `[m, entries + m]`; the cache stays as it was."""
    held = runner.length
    count = len(tokens)
    if count == 1:  # a pass of one row takes no mask, and so no window
        seen = np.hstack([np.repeat(seen[:, :held], 2, 0), np.eye(2, dtype=np.bool_)])
        tokens = tokens.repeat(2)
        positions = positions.repeat(2)
    answers = runner.logits(tokens.tolist(), positions.tolist(), seen).logits[:count]
    runner.crop(held)
    return answers
