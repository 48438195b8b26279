"""What models should have answered: each path of a tree run plainly, one token after the other, without a tree mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from speclab.analysis.detectors import name
from speclab.analysis.faults import NO_WINDOW, final_norm, without_final_norm
from speclab.analysis.known_text import session_settings
from speclab.drafters.draft_pass import DRAFT
from speclab.engine.sampling import transform
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner
from speclab.trace.records import Step, Trace

CLOSE = {torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.1}
"""Largest difference of two probabilities that rounding explains, by dtype (a speclab default)."""
SHIFTS = tuple(range(-8, 33))
"""Positions by which all rows of a pass may be off."""
PATHS = 16
"""Paths in one plain pass."""
DRAFTED_NODES = 24
"""Nodes whose draft is asked again."""
Explanation = tuple[int | None, str, str, str]
"""A node, the kind of the finding, its sentence, and the fault of the clinic that it is, if any."""


class Oracle:
    """The models of a pair on the text of a trace."""

    def __init__(self, trace: Trace, pair: ModelPair) -> None:
        self.pair, self.trace = pair, trace
        self.text = [*trace.prompt_ids, *trace.token_ids()]
        self.settings = session_settings(trace)
        self.close = CLOSE.get(pair.target.dtype, CLOSE[torch.float32])
        most = self.settings.max_new_tokens
        self._processors = pair.rules.processors(pair.target.model, len(trace.prompt_ids), most)
        self._cache = DynamicCache(config=pair.target.model.config.get_text_config(decoder=True))
        self._held = 0

    @torch.inference_mode()
    def gaps(self, step: Step) -> list[float]:
        """For each node the largest difference of a recorded probability from that of its path, run plainly."""
        model, device = self.pair.target.model, self.pair.target.device
        new = torch.tensor([self.text[self._held : step.prefix_length]], device=device)
        if new.numel():
            model(new, past_key_values=self._cache, use_cache=True)
            self._held = step.prefix_length
        tree = step.tree
        leaves = [node for node in range(len(tree)) if not tree.children[node]]
        logits: dict[int, Tensor] = {}
        for first in range(0, len(leaves), PATHS):
            paths = [tree.path(leaf) for leaf in leaves[first : first + PATHS]]
            deepest = max(map(len, paths))
            rows = [[*tree.token[list(path)].tolist(), *[0] * (deepest - len(path))] for path in paths]
            cache = deepcopy(self._cache)
            cache.batch_repeat_interleave(len(paths))
            output = model(torch.tensor(rows, device=device), past_key_values=cache, use_cache=True).logits
            for path, row in zip(paths, output, strict=True):
                logits.update(zip(path, row[:, : self.pair.target.vocab_size], strict=False))
        return self._gaps(step, torch.stack([logits[node] for node in range(len(tree))]))

    def gaps_at(self, step: Step, positions: Sequence[int], *, window: bool = True) -> list[float]:
        """As `gaps`, of a tree pass with the recorded mask and these positions, counted from the prefix's end."""
        target = self.pair.target
        bound = (target.context or NO_WINDOW) - step.prefix_length
        if min(positions) < -step.prefix_length or max(positions) >= bound:
            return [float("inf")]
        plan = target.plan if window else replace(target.plan, window=NO_WINDOW)
        runner = Runner(target.model, target.name, plan, lean=False)
        runner.vocab_size = target.vocab_size
        runner.extend(self.text[: step.prefix_length])
        places = [step.prefix_length + position for position in positions]
        tokens, visible = step.tree.token.tolist(), step.mask
        if len(tokens) == 1:  # a pass of one row alone would take no mask, and so no window
            tokens, places, visible = [*tokens, *tokens], [*places, *places], np.eye(2, dtype=np.bool_)
        return self._gaps(step, runner.logits(tokens, places, visible).logits[: len(step.tree)])

    def _gaps(self, step: Step, logits: Tensor) -> list[float]:
        if self._processors is not None:
            prefix = self.text[: step.prefix_length]
            paths = [step.tree.token[list(step.tree.path(node))].tolist() for node in range(len(step.tree))]
            rows = zip(paths, logits, strict=True)
            logits = torch.stack([self._processors([*prefix, *path], row) for path, row in rows])
        probs = transform(logits, self.settings)
        return [_gap(node.target_top, row) for node, row in zip(step.nodes, probs, strict=True)]


def _gap(top: Sequence[tuple[int, float]], probs: Tensor) -> float:
    return max((abs(prob - float(probs[token])) for token, prob in top), default=0.0)


def explain_answers(oracle: Oracle, step: Step) -> Iterator[Explanation]:
    """The first thing that is wrong with a step's answers, and which changed pass gives what was recorded."""
    gaps = oracle.gaps(step)
    worst = int(np.argmax(gaps))
    if gaps[worst] <= oracle.close:
        return
    beside = f"its path run plainly differs by {gaps[worst]:.3f} in a probability"
    depths = step.tree.depth.tolist()
    drafted = [each for each in oracle.trace.steps if len(each.tree) > 1]
    first_taken = all(each.nodes[0].target_choice == each.tree.token[1] for each in drafted)
    if len(depths) > 1 and max(gaps[1:]) <= oracle.close and first_taken:
        sentence = f"The root's row gives the first drafted token, in all {len(drafted)} iterations; {beside}."
        yield 0, "choice", sentence, "unverified first token"
        return
    shifted = "wrong positions", [depth + (depth > 0) for depth in depths]
    along = "wrong positions", list(range(len(depths)))
    padded = [("padded positions", [depth + shift for depth in depths]) for shift in SHIFTS]
    if oracle.pair.target.plan.window is not None and max(oracle.gaps_at(step, depths, window=False)) <= oracle.close:
        sentence = f"{name(step, worst)} answers with full attention, without the window; {beside}."
        yield worst, "window", sentence, "window run as full attention"
        return
    for fault, positions in (shifted, along, *padded):
        if positions != depths and max(oracle.gaps_at(step, positions)) <= oracle.close:
            own, given = (step.prefix_length + each[worst] for each in (depths, positions))
            sentence = f"{name(step, worst)} answers as if its position were {given} and not {own}; {beside}."
            yield worst, "position", sentence, fault
            return
    yield worst, "answer", f"{name(step, worst)} answers otherwise than it should; {beside}.", ""


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
        if node.draft_top and {step.tree.source[child] for child in step.tree.children[node.index]} == {DRAFT}
    ][:DRAFTED_NODES]
    close = CLOSE.get(draft.dtype, CLOSE[torch.float32])

    def differing(model: torch.nn.Module) -> list[float]:
        gaps = []
        for step, node in asked:
            path = oracle.text[: step.prefix_length] + step.tree.token[list(step.tree.path(node))].tolist()
            row = model(torch.tensor([path], device=draft.device), use_cache=False).logits[0, -1, : draft.vocab_size]
            gaps.append(_gap(step.nodes[node].draft_top, row.float().softmax(-1)))
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
        yield step.index, (node, "answer", f"The draft answers otherwise than it should: {beside}.", "")
