"""What finds each fault of the clinic in a session: its steps, its caches, and its modules run anew on its text.

A detector never asks whether a fault was injected. It fires where the record is what its own fault would have given,
and not what the module gives; so one fault does not set off the detector of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from speclab.analysis import faults
from speclab.drafters.draft_pass import DRAFT
from speclab.engine.sampling import transform
from speclab.engine.session import Session
from speclab.errors import SettingsError
from speclab.models.runner import Runner
from speclab.trace.records import Step
from speclab.tree import Bools

CLOSE = {torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.1}
"""Largest difference of two probabilities that rounding explains, by dtype (a speclab default)."""
MOST_PADDING = 32
"""Padding of more slots is not looked for."""
DRAFTED_NODES = 24
"""Nodes whose draft is asked again."""
Verdict = tuple[bool | None, str]
"""Whether a fault is found (None: the run cannot tell), and the evidence in one sentence."""


class Examined:
    """A session with its text run anew: healthy answers of its modules, beside those that were recorded.

    Raises:
        SettingsError: nothing is decoded yet.
    """

    def __init__(self, session: Session) -> None:
        self.session, self.steps, self.pair = session, session.steps, session.pair
        if not self.steps:
            raise SettingsError("No iteration is decoded yet: Step or Run, then check what was decoded.")
        trace = session.trace
        self.text = [*trace.prompt_ids, *trace.token_ids()]
        self.close = CLOSE.get(self.pair.target.dtype, CLOSE[torch.float32])
        model, settings = self.pair.target.model, session.settings
        self._processors = self.pair.rules.processors(model, len(trace.prompt_ids), settings.max_new_tokens)
        self._starts = list(np.cumsum([len(trace.prompt_ids) + 1, *(len(step.committed) for step in self.steps)]))

    @cached_property
    def drafted(self) -> int | None:
        """The first iteration that drafted a token."""
        return next((step.index for step in self.steps if len(step.tree) > 1), None)

    def prefix(self, index: int) -> list[int]:
        """What the target's cache should hold before an iteration, as ids."""
        return self.text[: self._starts[index] - (self.steps[index].root_choice is None)]

    def runner(self, *, window: bool = True) -> Runner:
        """An empty runner on the target's module, made anew; `window` False: as if it had none."""
        model, plan = self.pair.target.model, self.pair.target.plan
        made = Runner(model, self.pair.target.name, lean=False)
        if not window:
            made = Runner(model, made.name, replace(plan, window=faults.NO_WINDOW), lean=False)
        made.vocab_size = self.pair.target.vocab_size
        return made

    def gaps(self, index: int, runner: Runner, positions: Sequence[int]) -> list[float]:
        """For each node the largest difference of a recorded probability from what a pass by `runner` gives.

        The rows are those of the iteration, with the mask that they were given; `positions` are counted from the
        prefix's end.
        """
        step, prefix = self.steps[index], self.prefix(index)
        if runner.length != len(prefix):
            runner.crop(0)
            runner.extend(prefix)
        places = [len(prefix) + position for position in positions]
        tokens, mask = step.tree.token.tolist(), step.mask
        if step.extra:  # a row that no node sees stands for all of them: a pass of one row alone knows no window
            tokens, places = [*tokens, tokens[0]], [*places, places[0]]
            mask = np.pad(mask, (0, 1), constant_values=False) | np.eye(len(tokens), dtype=np.bool_)
        rows = runner.forward(tokens, places, mask)[: len(step.tree)]
        runner.crop(len(prefix))
        if self._processors is not None:
            paths = [step.tree.token[list(step.tree.path(node))].tolist() for node in range(len(step.tree))]
            rows = torch.stack([self._processors([*prefix, *path], row) for path, row in zip(paths, rows, strict=True)])
        found = transform(rows, self.session.settings)
        return [_gap(node.target_top, row) for node, row in zip(step.nodes, found, strict=True)]

    @cached_property
    def healthy(self) -> Runner:
        """A runner of the target as it should be."""
        return self.runner()

    def right(self, index: int) -> list[float]:
        """`gaps` of an iteration from a healthy pass."""
        return self.gaps(index, self.healthy, self.steps[index].tree.depth.tolist())

    def largest_gap(self, index: int, positions: Sequence[int], runner: Runner | None = None) -> float:
        """The largest of `gaps`, infinite where these positions are beyond the target's context."""
        most = (self.pair.target.context or faults.NO_WINDOW) - len(self.prefix(index))
        return max(self.gaps(index, runner or self.healthy, positions)) if max(positions) < most else float("inf")

    def name(self, step: Step, node: int) -> str:
        """`node 2 ' the'`."""
        return f"node {node} {step.texts[int(step.tree.token[node])]!r}"


def _gap(top: Sequence[tuple[int, float]], probs: Tensor) -> float:
    return max(abs(prob - float(probs[token])) for token, prob in top)


# The detectors.


def find_siblings(seen: Examined) -> Verdict:
    """A mask that shows a row what is not above it: by the records alone."""
    wrong: list[tuple[Step, int, int]] = []
    siblings = 0
    for step in seen.steps:
        siblings += sum(len(children) > 1 for children in step.tree.children)
        shown: Bools = step.mask & ~step.tree.ancestor_mask()
        wrong += [(step, int(row), int(column)) for row, column in np.argwhere(shown)]
    if wrong:
        step, row, column = wrong[0]
        kin = "its sibling" if step.tree.parent[row] == step.tree.parent[column] else "which is no ancestor of it"
        return True, (
            f"In iteration {step.index + 1} {seen.name(step, row)} was shown {seen.name(step, column)}, {kin}; there "
            f"are {len(wrong)} such mask entries in {len(seen.steps)} iterations."
        )
    if not siblings:
        return None, "No tree has two nodes under one parent, so there is no sibling to see."
    return False, f"In {len(seen.steps)} masks every row was shown its ancestors and itself alone."


def find_positions(seen: Examined) -> Verdict:
    """Rows out of place among themselves: their answers are those of other positions."""
    if (at := seen.drafted) is None:
        return None, "Nothing was drafted, so no row stands beside another."
    step, depth = seen.steps[at], seen.steps[at].tree.depth.tolist()
    gaps = seen.right(at)
    if max(gaps) > seen.close:
        ways = {
            "one position further than their depth": [place + (place > 0) for place in depth],
            "at positions counted along the row": list(range(len(depth))),
        }
        found = next((way for way, places in ways.items() if seen.largest_gap(at, places) <= seen.close), None)
        if found is not None:
            node = int(np.argmax(gaps))
            return True, (
                f"In iteration {at + 1} the rows answer as if they stood {found}; after {seen.name(step, node)} the "
                f"same path alone gives a probability that differs by {gaps[node]:.3f}."
            )
    rows = f"The {len(depth)} rows of iteration {at + 1}"
    return False, f"{rows} do not answer as rows out of place among themselves would."


def find_phantoms(seen: Examined) -> Verdict:
    """More rows in the cache than committed tokens, or a slot that holds a rejected token."""
    records = [(step, step.caches[0]) for step in seen.steps]
    first = next(((step, cache) for step, cache in records if cache.after > cache.committed), None)
    held, committed = seen.pair.target.length, records[-1][1].committed
    stale = _stale_slot(seen, min(held, committed))
    if first is not None or stale:
        step, cache = first or records[-1]
        more = f" {stale[:1].upper()}{stale[1:]}." if stale else ""
        return True, (
            f"After iteration {step.index + 1} the target's cache held {cache.after} rows for {cache.committed} "
            f"committed tokens; at the end {held} for {committed}.{more}"
        )
    if not any(len(step.tree) > len(step.accepted) + (step.root_choice is None) for step in seen.steps):
        return None, "No row was rejected, so none could stay."
    rows = f"{held} rows for {committed} committed tokens"
    return False, f"The target's cache holds {rows}, and each is of its own token."


def _stale_slot(seen: Examined, count: int) -> str:
    """Whether one of the first `count` slots holds a rejected token: values of the first layer tell tokens apart.

    Before any attention they depend on the token, and in some families on its position, and on no mask.
    """
    rejected = [(step, node.index) for step in seen.steps for node in step.nodes if node.verdict == "rejected"]
    if not rejected or not count:
        return ""
    places = [len(seen.prefix(step.index)) + int(step.tree.depth[node]) for step, node in rejected]
    tokens = [int(step.tree.token[node]) for step, node in rejected]
    own = _first_values(seen.healthy, seen.text[:count], range(count))
    others = _first_values(seen.healthy, tokens, places)
    given = seen.pair.target.cache.layers[0].values[0].transpose(0, 1)[:count].flatten(1).to(own.dtype)
    apart = CLOSE.get(own.dtype, 1e-3) * max(1.0, float(own.abs().max()))
    for slot in torch.nonzero((given - own).abs().amax(1) > apart).flatten().tolist():
        for place in torch.nonzero((others - given[slot]).abs().amax(1) <= apart).flatten().tolist():
            step, token = rejected[place][0], tokens[place]
            if token != seen.text[slot]:  # the right token at another position is another fault
                return f"slot {slot} holds {step.texts[token]!r}, which was rejected in iteration {step.index + 1}"
    return ""


def _first_values(runner: Runner, tokens: Sequence[int], positions: Sequence[int]) -> Tensor:
    """Values of tokens in the first layer, `[tokens, heads · dim]`; each sees itself alone."""
    runner.crop(0)
    runner.logits(tokens, positions, np.eye(len(tokens), dtype=np.bool_))
    values = runner.cache.layers[0].values[0].transpose(0, 1).flatten(1).clone()
    runner.crop(0)  # they are no text that another pass could go on from
    return values


def find_norm(seen: Examined) -> Verdict:
    """A draft that says what its module says without the final norm, and not what the module says."""
    draft = seen.pair.draft
    if draft is None or not faults.final_norm(draft.model):
        return None, "There is no draft model with a final norm."
    asked = [
        (step, node.index)
        for step in seen.steps
        for node in step.nodes
        if node.draft_top and {step.tree.source[child] for child in step.tree.children[node.index]} == {DRAFT}
    ][:DRAFTED_NODES]
    if not asked or seen.session.settings.temperature:
        return None, "No node has candidates of a draft model that was asked greedily."
    paths = [seen.prefix(step.index) + step.tree.token[list(step.tree.path(node))].tolist() for step, node in asked]
    tops = [step.nodes[node].draft_top for step, node in asked]
    close = CLOSE.get(draft.dtype, CLOSE[torch.float32])

    def differing(model: torch.nn.Module) -> list[float]:
        rows = [model(torch.tensor([path], device=draft.device), use_cache=False).logits[0, -1] for path in paths]
        probs = [row[: draft.vocab_size].float().softmax(-1) for row in rows]
        return [_gap(top, row) for top, row in zip(tops, probs, strict=True)]

    gaps = differing(draft.model)
    wrong, largest = sum(gap > close for gap in gaps), max(gaps)
    if wrong and max(differing(faults.without_final_norm(draft.model))) <= close:
        return True, (
            f"At {wrong} of {len(gaps)} nodes the draft said something else than its module run plainly (by up to "
            f"{largest:.3f}), and what the module says without its final norm."
        )
    other = ", which no skipped norm explains" if wrong else ""
    return False, (
        f"At {len(gaps)} nodes the draft's probabilities are {largest:.1e} off its module's, run plainly{other}."
    )


def find_window(seen: Examined) -> Verdict:
    """Rows beyond the window that answer as with full attention."""
    window = Runner(seen.pair.target.model, lean=False).plan.window
    if window is None:
        return None, "The target has no sliding window."
    past = [step for step in seen.steps if len(seen.prefix(step.index)) >= window]
    if not past:
        return None, f"The text is not longer than the window of {window} tokens."
    step, depth = past[0], past[0].tree.depth.tolist()
    gaps = seen.right(step.index)
    if max(gaps) > seen.close and (seen.largest_gap(step.index, depth, seen.runner(window=False)) <= seen.close):
        return True, (
            f"In iteration {step.index + 1}, {len(seen.prefix(step.index))} tokens in, the rows answer as with full "
            f"attention; with the window of {window} tokens a probability differs by {max(gaps):.3f}."
        )
    return False, f"Past the window of {window} tokens no row answers as with full attention."


def find_unverified(seen: Examined) -> Verdict:
    """A root's row that gives the first drafted token in every iteration, though all rows below it are right."""
    if (at := seen.drafted) is None:
        return None, "Nothing was drafted, so no first token could be taken unverified."
    drafted = [step for step in seen.steps if len(step.tree) > 1]
    always = all(step.nodes[0].target_choice == step.tree.token[1] for step in drafted)
    gaps = seen.right(at)
    if always and gaps[0] > seen.close and max(gaps[1:]) <= seen.close:
        return True, (
            f"In all {len(drafted)} iterations with a draft its first token was taken; before it, in iteration "
            f"{at + 1}, a probability is {gaps[0]:.3f} off the target's own, and all rows below are right."
        )
    taken = sum(step.nodes[0].target_choice == step.tree.token[1] for step in drafted)
    share = f"{taken} of {len(drafted)} iterations"
    return False, f"The first drafted token was taken in {share}, by the target's own answer."


def find_padding(seen: Examined) -> Verdict:
    """All rows of the first pass behind padding: answers as if each stood the same number of positions further."""
    depth, gaps = seen.steps[0].tree.depth.tolist(), seen.right(0)
    if max(gaps) > seen.close:
        shifted = {more: seen.largest_gap(0, [at + more for at in depth]) for more in range(1, MOST_PADDING + 1)}
        more = min(shifted, key=lambda more: shifted[more])
        if shifted[more] <= seen.close:
            return True, (
                f"In the first iteration every row answers as if it stood {more} positions further, as behind padding; "
                f"at its own position a probability differs by {max(gaps):.3f}."
            )
    return False, "The rows of the first iteration do not answer as if padding stood between them and the prompt."
