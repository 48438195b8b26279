"""Why a row answers otherwise than it should: each hypothesis is one changed pass, compared with what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from speclab.analysis.faults import NO_WINDOW, final_norm, without_final_norm
from speclab.analysis.oracle import FLOOR, Explanation, Oracle
from speclab.models.probe import sharing_weights
from speclab.models.runner import Runner
from speclab.trace.records import Step
from speclab.tree import Bools

SHIFTS = tuple(shift for near in range(1, 9) for shift in (near, -near))
"""Positions by which rows of a pass may be off, the nearest first."""
ALMOST_ONE = 1 - 1e-6
"""A probability that a model's own answer hardly has."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A changed pass: the kind of the fault, what it does to the wrong row, and its answers, logits
    `[n, V]`.

    `fault`: the one of the clinic that it is, if any.
    """

    kind: str
    says: str
    answers: Callable[[], Tensor]
    fault: str = ""


class Passes:
    """Passes of one model over the tree of a step, each behind the same prefix."""

    def __init__(
        self, oracle: Oracle, step: Step, model: PreTrainedModel | None = None, **plan: Any
    ) -> None:
        target = oracle.pair.target
        self.step = step
        self.text = oracle.text
        self.most = target.context or NO_WINDOW
        self.runner = Runner(
            model or target.model, target.name, replace(target.plan, **plan), lean=False
        )
        self.runner.vocab_size = target.vocab_size
        self.places = [step.prefix_length + depth for depth in step.tree.depth.tolist()]
        self.mask = step.tree.ancestor_mask()

    def __call__(self, *, prefix: int | None = None, **changes: Any) -> Tensor:
        """Logits of every row, `[n, V]`: the right pass, changed in what is given.

        `prefix`: how many tokens of the text the prefix has; `hidden`: an entry of it that no row
        sees; `tokens`, `places`, `mask` and `window` of these rows alone.
        """
        self._hold(self.step.prefix_length if prefix is None else prefix)
        return self._tree(**changes)

    def after(self, before: Step, kept: Sequence[int], shift: int = 0) -> Tensor:
        """The same where these rows of the step before were kept, and positions are off by `shift`."""
        self._hold(before.prefix_length)
        held = before.prefix_length
        tree = before.tree
        self.runner.logits(
            tree.token.tolist(),
            [held + depth for depth in tree.depth.tolist()],
            tree.ancestor_mask(),
        )
        self.runner.keep(held, [held + row for row in sorted(kept)])
        answers = self._tree(places=[place + shift for place in self.places])
        self.runner.crop(held)
        return answers

    def _hold(self, length: int) -> None:
        if self.runner.length > length:
            self.runner.crop(length)
        elif self.runner.length < length:
            self.runner.extend(self.text[self.runner.length : length])

    def _tree(
        self,
        tokens: Sequence[int] | None = None,
        places: Sequence[int] | None = None,
        mask: Bools | None = None,
        hidden: int | None = None,
        window: int | None = None,
    ) -> Tensor:
        held = self.runner.length
        places = list(places or self.places)
        given = list(tokens if tokens is not None else self.step.tree.token.tolist())
        n = len(given)
        visible = self.mask if mask is None else mask
        if n == 1:  # a pass of one row alone would take no mask, and so no window
            given = given * 2
            places = places * 2
            visible = np.eye(2, dtype=np.bool_)
        visible = np.concatenate([np.ones((len(given), held), dtype=np.bool_), visible], axis=1)
        if hidden is not None:
            visible[:, hidden] = False
        if min(places) < 0 or max(places) >= self.most:
            return torch.full((n, self.runner.vocab_size), torch.nan)
        plan = self.runner.plan
        self.runner.plan = replace(plan, window=window or plan.window)
        answers = self.runner.logits(given, places, visible).logits[:n]
        self.runner.plan = plan
        self.runner.crop(held)
        return answers


def explain_answers(
    oracle: Oracle, step: Step, before: Step | None, right: Tensor
) -> Explanation | None:
    """What is wrong with a step's answers, and which changed pass gives what was recorded; None if
    they are right.

    Args:
        before: the step before, None for the first.
        right: what `oracle.answers` gives for the step.
    """
    gaps = oracle.gaps(step, oracle.log_probs(step, right))
    wrong = [row for row, gap in enumerate(gaps) if gap > oracle.close]
    if not wrong:
        return None
    row = wrong[0]
    differs = f"the right pass differs by {gaps[wrong[0]]:.2g}"
    subject = f"Row {row} of iteration {step.index + 1} answers"
    if not step.nodes[row].target_top:
        return (
            row,
            "answer",
            f"{subject} otherwise than it should; without a recorded topk no cause can be told.",
            "",
        )
    best = None
    tried = dict[str, None]()
    for one in _hypotheses(oracle, step, before, row, right):
        tried[one.kind] = None
        oracle.report(step)
        theirs = oracle.gaps(step, oracle.log_probs(step, one.answers()))
        fitting = sum(gap <= oracle.close for gap in theirs)
        if not theirs[row] <= oracle.close or fitting <= len(gaps) - len(wrong):
            continue
        if best is None or fitting > best[0]:
            best = fitting, theirs[row], one
        if fitting == len(gaps):
            break
    if best is None:
        sentence = f"{subject} otherwise than it should ({differs}), and as none that was tried: {', '.join(tried)}."
        return row, "answer", sentence, ""
    _, gap, found = best
    top = len(step.nodes[row].target_top)
    return (
        row,
        found.kind,
        f"{subject} {found.says} (top-{top} agree to {gap:.0e}; {differs}).",
        found.fault,
    )


def _hypotheses(
    oracle: Oracle, step: Step, before: Step | None, row: int, right: Tensor
) -> Iterator[Hypothesis]:
    """The pass-wide ones of a kind first: what fits as many rows and comes later is not taken."""
    passes = Passes(oracle, step)
    yield from _answers(oracle, step, row, right)
    yield from _positions(passes, row)
    if oracle.pair.target.plan.window is not None:
        wide = Passes(oracle, step, window=NO_WINDOW)
        yield Hypothesis(
            "window", "as without the sliding window", wide, "window run as full attention"
        )
        says = "as if its pass alone ignored the sliding window"
        yield Hypothesis("window", says, lambda: passes(window=NO_WINDOW))
    yield from _masks(passes, before, row)
    yield from _prefixes(passes, before)
    yield from _models(oracle, step)
    yield from _tokens(passes, row)


def _answers(oracle: Oracle, step: Step, row: int, right: Tensor) -> Iterator[Hypothesis]:
    """What needs no further pass."""
    n = len(right)
    top = step.nodes[row].target_top
    taken = int(step.tree.token[1]) if n > 1 else None
    if row == 0 and taken is not None and top[0][0] == taken and top[0][1] >= ALMOST_ONE:
        one_hot = right.clone()
        one_hot[0] = -torch.inf
        one_hot[0, taken] = 0
        yield Hypothesis(
            "choice", "with the first drafted token", lambda: one_hot, "unverified first token"
        )
    moved = [[(each + shift) % n for each in range(n)] for shift in (-1, 1)]
    moved += [[*range(row), other, *range(row + 1, n)] for other in range(n) if other != row]
    for order in moved:
        says = f"with what belongs to row {order[row]}"
        yield Hypothesis("answer", says, lambda order=order: right[order])  # type: ignore[misc]
    own = oracle.log_probs(step, right)[row].cpu()
    known = [
        (log(prob), float(own[token]))
        for token, prob in top
        if prob > exp(FLOOR) and own[token] > FLOOR
    ]
    if len(known) > 2 and known[0][0] - known[-1][0] > 1e-3:
        heat = (known[0][1] - known[-1][1]) / (known[0][0] - known[-1][0])
        if heat > 0:
            yield Hypothesis("temperature", f"as at temperature {heat:.3g}", lambda: right / heat)


def _positions(passes: Passes, row: int) -> Iterator[Hypothesis]:
    own = passes.places
    n = len(passes.places)
    along = [own[0] + each for each in range(n)]
    wholes = [(list(passes.step.position), ""), (along, "wrong positions")]
    wholes += [([place + shift for place in own], "padded positions") for shift in SHIFTS]
    wholes += [
        ([own[0], *(place + shift for place in own[1:])], "wrong positions") for shift in SHIFTS
    ]
    wholes += [
        ([place + shift * (each == row) for each, place in enumerate(own)], "") for shift in SHIFTS
    ]
    for places, fault in wholes:
        if places and places[row] != own[row]:
            says = f"as if its position were {places[row]} and not {own[row]}"
            yield Hypothesis("position", says, lambda places=places: passes(places=places), fault)  # type: ignore[misc]


def _masks(passes: Passes, before: Step | None, row: int) -> Iterator[Hypothesis]:
    step = passes.step
    own = passes.mask
    n = len(passes.mask)
    parent = step.tree.parent
    siblings = np.tril(parent[:, None] == parent[None])
    rootless = own.copy()
    rootless[1:, 0] = False
    masks = [
        ("as with the recorded mask", step.mask),
        ("as if each row saw the siblings before it", own | siblings),
        ("as if each row saw all rows before it, as in a chain", np.tri(n, dtype=np.bool_)),
        ("as if no row saw the root", rootless),
        ("as with the mask transposed", own.T),
    ]
    if before is not None:
        old = np.eye(n, dtype=np.bool_)
        earlier = before.tree.ancestor_mask()[:n, :n]
        old[: len(earlier), : len(earlier)] = earlier
        masks.append(("as with the mask of the iteration before", old))
    for other in range(n):
        one = own.copy()
        one[row, other] = not own[row, other]
        if other != row:
            verb = "did not see" if own[row, other] else "saw"
            masks.append((f"as if it {verb} row {other}", one))
        if other != row and parent[other] == parent[row]:
            exchanged = own.copy()
            exchanged[[row, other]] = own[[other, row]]
            masks.append((f"as if its mask and that of row {other} were exchanged", exchanged))
    for says, mask in masks:
        if (mask != own).any():
            yield Hypothesis("mask", says, lambda mask=mask: passes(mask=mask))  # type: ignore[misc]


def _prefixes(passes: Passes, before: Step | None) -> Iterator[Hypothesis]:
    held = passes.step.prefix_length
    own = passes.places
    yield Hypothesis(
        "prefix", "as without the last entry of the prefix", lambda: passes(hidden=held - 1)
    )
    yield Hypothesis("prefix", "as without the first entry of the prefix", lambda: passes(hidden=0))
    for shift in (0, 1):
        places = [place + shift for place in own]
        says = "as if the prefix held the root too" + ", with positions one further" * shift
        yield Hypothesis("prefix", says, lambda p=places: passes(prefix=held + 1, places=p))  # type: ignore[misc]
    says = "as if the prefix had ended one entry earlier"
    short = [place - 1 for place in own]
    yield Hypothesis("prefix", says, lambda: passes(prefix=held - 1, places=short))
    if before is None or before.root_choice is not None:
        return
    path = (0, *before.accepted)[: len(before.committed)]
    first = list(range(len(path)))
    if list(path) != first:
        says = f"as if rows {first} of the iteration before had been kept, and not {list(path)}"
        yield Hypothesis("order", says, lambda: passes.after(before, first))
    rejected = [row for row in range(len(before.tree)) if row not in path]
    for shift in (0, 1):
        for stale in rejected:
            says = f"as if row {stale} of the iteration before, which was rejected, had stayed in the prefix"
            kept = [*path, stale]
            yield Hypothesis("prefix", says, lambda k=kept, s=shift: passes.after(before, k, s))  # type: ignore[misc]
    for place, row in enumerate(path):
        for other in rejected:
            if before.tree.depth[other] == before.tree.depth[row]:
                kept = [*path[:place], other, *path[place + 1 :]]
                says = f"as if row {other} of the iteration before had been kept, and not row {row}"
                yield Hypothesis("order", says, lambda k=kept: passes.after(before, k))  # type: ignore[misc]


def _models(oracle: Oracle, step: Step) -> Iterator[Hypothesis]:
    model = oracle.pair.target.model
    if final_norm(model):
        yield Hypothesis(
            "norm", "as without the final norm", Passes(oracle, step, without_final_norm(model))
        )
    first = next(
        (name for name, part in model.named_modules() if "norm" in type(part).__name__.lower()), ""
    )
    if first and first != final_norm(model):
        twin = sharing_weights(model)
        twin.set_submodule(first, nn.Identity())
        yield Hypothesis("norm", "as without the first norm", Passes(oracle, step, twin))
    width = model.get_input_embeddings().embedding_dim
    for scale in (sqrt(width), 1 / sqrt(width)):
        twin = sharing_weights(model)
        table = twin.get_input_embeddings()
        table.register_forward_hook(lambda _, __, rows, scale=scale: rows * scale)
        yield Hypothesis(
            "scale", f"as with embeddings times {scale:.3g}", Passes(oracle, step, twin)
        )


def _tokens(passes: Passes, row: int) -> Iterator[Hypothesis]:
    own = passes.step.tree.token.tolist()
    for token in dict.fromkeys([*own, *passes.text[-8:], 0]):
        if token != own[row]:
            given = [*own[:row], token, *own[row + 1 :]]
            says = f"as if its token were {passes.step.texts.get(token, str(token))!r}"
            yield Hypothesis("token", says, lambda given=given: passes(tokens=given))  # type: ignore[misc]
