"""What models should have answered: each path of a tree run plainly, one token after the other, without a tree mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from math import inf

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from speclab.analysis.detectors import name
from speclab.analysis.faults import final_norm, without_final_norm
from speclab.analysis.known_text import session_settings
from speclab.drafters.draft_pass import DRAFT
from speclab.pair import ModelPair
from speclab.sampling import transform
from speclab.settings import SessionSettings
from speclab.trace.records import UNKNOWN, Step, Trace

CLOSE = {"float32": 5e-3, "float16": 0.1, "bfloat16": 0.5}
"""Largest difference of two log-probabilities that rounding explains, by dtype (a speclab default)."""
FLOOR = -12.0
"""Less probable tokens (nats) are all the same."""
GREEDY = "greedy"
PATHS = 16
"""Paths in one plain pass."""
DRAFTED_NODES = 24
"""Nodes whose draft is asked again."""
Explanation = tuple[int | None, str, str, str]
"""A node, the kind of the finding, its sentence, and the fault of the clinic that it is, if any."""
Progress = Callable[[int, int], object]
"""Called before each pass with the iterations compared so far and their number; what it raises ends the work."""


def _close(dtype: object) -> float:
    return CLOSE.get(str(dtype).removeprefix("torch."), CLOSE["float32"])


class Oracle:
    """The models of a pair on the text of a trace."""

    def __init__(self, trace: Trace, pair: ModelPair, progress: Progress | None = None) -> None:
        self.pair = pair
        self.trace = trace
        self._progress = progress
        self.text = [*trace.prompt_ids, *trace.token_ids()]
        self.steps = tuple(self._behind_the_text())
        outside = "format" in trace.models  # of another decoder: logits as they are
        self.settings = SessionSettings() if outside else session_settings(trace)
        self.close = max(_close(pair.target.dtype), _close(trace.models.get("target_dtype")))
        most = self.settings.max_new_tokens
        processors = pair.rules.processors(pair.target.model, len(trace.prompt_ids), most)
        self._processors = None if outside else processors
        self._cache = DynamicCache(config=pair.target.model.config.get_text_config(decoder=True))
        self._held = 0

    def _behind_the_text(self) -> Iterator[Step]:
        """The steps behind as much of the text as there was, whatever their caches are said to have held."""
        length = len(self.trace.prompt_ids) + 1
        for step in self.trace.steps:
            yield replace(step, prefix_length=length - (step.root_choice is None))
            length += len(step.committed)

    @torch.inference_mode()
    def answers(self, step: Step) -> Tensor:
        """Logits after each node `[n, V]`: its path, run plainly.

        Steps are asked for in their order.
        """
        model = self.pair.target.model
        device = self.pair.target.device
        new = torch.tensor([self.text[self._held : step.prefix_length]], device=device)
        if new.numel():
            model(new, past_key_values=self._cache, use_cache=True)
            self._held = step.prefix_length
        tree = step.tree
        leaves = [node for node in range(len(tree)) if not tree.children[node]]
        logits: dict[int, Tensor] = {}
        for first in range(0, len(leaves), PATHS):
            self.report(step)
            paths = [tree.path(leaf) for leaf in leaves[first : first + PATHS]]
            deepest = max(map(len, paths))
            rows = [
                [*tree.token[list(path)].tolist(), *[0] * (deepest - len(path))] for path in paths
            ]
            cache = deepcopy(self._cache)
            cache.batch_repeat_interleave(len(paths))
            output = model(
                torch.tensor(rows, device=device), past_key_values=cache, use_cache=True
            ).logits
            for path, row in zip(paths, output, strict=True):
                logits.update(zip(path, row[:, : self.pair.target.vocab_size], strict=False))
        return torch.stack([logits[node] for node in range(len(tree))])

    def report(self, step: Step) -> None:
        """Tells the progress that a pass of this step comes next."""
        if self._progress is not None:
            self._progress(step.index, len(self.trace.steps))

    def log_probs(self, step: Step, logits: Tensor) -> Tensor:
        """What is recorded of logits `[n, V]`: of a session what it sampled by, of another decoder the log-softmax."""
        if self._processors is not None:
            prefix = self.text[: step.prefix_length]
            paths = [
                step.tree.token[list(step.tree.path(node))].tolist()
                for node in range(len(step.tree))
            ]
            rows = zip(paths, logits, strict=True)
            logits = torch.stack([self._processors([*prefix, *path], row) for path, row in rows])
        return transform(logits, self.settings).float().log().clamp_min(FLOOR).cpu()

    def gaps(self, step: Step, log_probs: Tensor) -> list[float]:
        """For each node the largest difference of a recorded log-probability, or of its choice from the best."""
        best = log_probs.amax(-1).tolist() if step.rule == GREEDY else None
        gaps = []
        for node, row in zip(step.nodes, log_probs, strict=True):
            gap = _gap(node.target_top, row)
            if best is not None and node.target_choice != UNKNOWN:
                gap = max(gap, best[node.index] - float(row[node.target_choice]))
            gaps.append(inf if gap != gap else gap)  # a pass that cannot be
        return gaps

    def ties(self, step: Step, log_probs: Tensor) -> Iterator[Explanation]:
        """Choices that are not the plain pass's, where two tokens are closer than rounding."""
        if step.rule != GREEDY:
            return
        for node, row in zip(step.nodes, log_probs, strict=True):
            best = int(row.argmax())
            choice = node.target_choice
            if (
                choice not in (UNKNOWN, best)
                and (apart := float(row[best] - row[choice])) <= self.close
            ):
                sentence = (
                    f"a tie: {name(step, node.index)} chose {choice}, and {best} is as probable"
                )
                yield node.index, "tie", f"{sentence} to {apart:.2g} in the logarithm.", ""


def _gap(top: Sequence[tuple[int, float]], log_probs: Tensor) -> float:
    """NaN where the row has no numbers."""
    if not top:
        return 0.0
    recorded = torch.tensor([prob for _, prob in top]).log().clamp_min(FLOOR)
    return float((recorded - log_probs[[token for token, _ in top]].float().cpu()).abs().max())


@torch.inference_mode()
def explain_draft(oracle: Oracle, steps: Sequence[Step]) -> Iterator[tuple[int, Explanation]]:
    """Whether the draft answers as its module does; with the iteration."""
    draft = oracle.pair.draft
    if draft is None or oracle.settings.temperature:
        return
    asked = [
        (step, node.index)
        for step in steps
        for node in step.nodes
        if node.draft_top
        and {step.tree.source[child] for child in step.tree.children[node.index]} == {DRAFT}
    ][:DRAFTED_NODES]
    close = _close(draft.dtype)

    def differing(model: torch.nn.Module) -> list[float]:
        gaps = []
        for step, node in asked:
            oracle.report(step)
            path = (
                oracle.text[: step.prefix_length]
                + step.tree.token[list(step.tree.path(node))].tolist()
            )
            row = model(torch.tensor([path], device=draft.device), use_cache=False).logits[
                0, -1, : draft.vocab_size
            ]
            gaps.append(
                _gap(step.nodes[node].draft_top, row.float().log_softmax(-1).clamp_min(FLOOR))
            )
        return gaps

    gaps = differing(draft.model)
    worst = int(np.argmax(gaps)) if gaps else 0
    if not gaps or gaps[worst] <= close:
        return
    step, node = asked[worst]
    wrong = sum(gap > close for gap in gaps)
    beside = f"at {wrong} of {len(gaps)} nodes its module, run plainly, differs, by up to {gaps[worst]:.3f}"
    if final_norm(draft.model) and max(differing(without_final_norm(draft.model))) <= close:
        sentence = f"The draft answers as without its final norm: {beside}."
        yield step.index, (node, "norm", sentence, "skipped norm in the draft")
    else:
        yield (
            step.index,
            (node, "answer", f"The draft answers otherwise than it should: {beside}.", ""),
        )
