"""From an iteration's tensors to its Step: probabilities, verdicts and reasons, caches. The loop knows none of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from speclab.decoding import Decoding, Iteration, runners
from speclab.models.head_runner import HeadRunner
from speclab.models.runner import Runner
from speclab.models.transfers import to_device
from speclab.noise import uniform
from speclab.reading import Reading, Tried
from speclab.residuals import residual
from speclab.sampling import draws, transform
from speclab.sources.likeliest import largest
from speclab.trace import CacheRecord, ExtraRow, Step
from speclab.tree import Bools

TOP = 5
"""Likeliest next tokens of the target that the record keeps of each node."""


@torch.inference_mode()
def record(decoding: Decoding, iteration: Iteration, index: int, note: str = "") -> Step:
    """The Step of the iteration that `decoding` has just done; what only a reader needs is worked out when it is read.

    No tensor and no model outlives this call.
    """
    draft, outcome = iteration.draft, iteration.outcome
    mask, prefix_seen = decoding.pair.target.mask_given()
    nodes = len(outcome.tree)
    step = Step(
        index=index,
        prefix_length=iteration.prefix_length,
        tree=outcome.tree,
        nodes=(),
        accepted=outcome.accepted,
        committed=outcome.committed,
        bonus=outcome.committed[-1] if len(outcome.committed) > len(outcome.accepted) else None,
        root_choice=iteration.verification.root_choice,
        settings=iteration.strategy.describe(),
        events=(),
        caches=_caches(decoding, iteration),
        seconds=iteration.watch.laps,
        adaptation=iteration.adaptation,
        counts=iteration.counts,
        mask=mask[:nodes, :nodes],
        prefix_seen=tuple(prefix_seen[:nodes]),
        texts={},
        note=note,
        extra=_extra(iteration, mask, prefix_seen),
        proposals=draft.proposals,
        budget=draft.budget,
        rule=str(iteration.rule),
        residual=residual(decoding, iteration),
    )
    return step.put_off("nodes", "events", "texts", later=_reading(decoding, iteration).fields)


def _reading(decoding: Decoding, iteration: Iteration) -> Reading:
    draft, walk, texts = iteration.draft, iteration.walk, decoding.pair.texts
    assert texts is not None
    chose, numbers, root_prob = _target_view(decoding, iteration)
    tried = Tried(walk.residual is not None, walk.trials, walk.accepted)
    return Reading(chose, numbers, root_prob, tried, draft.events, draft.tops, texts)


def _target_view(decoding: Decoding, iteration: Iteration) -> tuple[list[int], NDArray[np.float32], float | None]:
    """The first three fields of a `Reading`; they come from the device in one transfer."""
    tree, verification, settings = iteration.outcome.tree, iteration.verification, decoding.settings
    scores = verification.logits.float()
    plain = settings.temperature == 0
    law = scores.softmax(-1) if plain else transform(scores, settings).float()
    best, ids = largest(law, min(TOP, law.shape[-1]))
    chose = _choices(decoding, iteration, law)
    choice = law.gather(1, to_device(chose, law.device)[:, None])
    parents, tokens = to_device(tree.parent.clip(0), law.device), to_device(tree.token.copy(), law.device)
    own, entropy = law[parents, tokens], _entropy(law, scores if plain else None)
    columns = [ids.float(), best, choice, own[:, None], entropy[:, None]]  # ids below 2^24 are exact
    numbers: NDArray[np.float32] = torch.cat(columns, 1).cpu().numpy()
    root_prob = None
    if verification.root_logits is not None:
        root_prob = float(transform(verification.root_logits, settings)[int(tree.token[0])])
    return chose, numbers, root_prob


def _entropy(law: Tensor, scores: Tensor | None) -> Tensor:
    """`[n]` nats; of the softmax of `scores`, where they are given, without a logarithm for every token."""
    if scores is None:
        return (law * law.clamp_min(torch.finfo(law.dtype).tiny).log()).sum(-1).abs()
    below = (scores - scores.amax(-1, keepdim=True)).clamp_(min=-1e4)  # a token may be ruled out, by -inf
    mean: Tensor = torch.linalg.vecdot(law, below)
    return (mean + law.amax(-1).log()).abs()


def _choices(decoding: Decoding, iteration: Iteration, law: Tensor) -> list[int]:
    """What follows each node of the path, and the target's choice after every other; the walk asked for few of them."""
    if decoding.settings.temperature == 0:
        return [iteration.verification.choose(node) for node in range(len(law))]
    first, tree = iteration.prefix_length + 1, iteration.outcome.tree
    noise = {depth: uniform(decoding.settings.seed, first + depth) for depth in range(int(tree.depth[-1]) + 1)}
    chose = draws(law, [noise[depth] for depth in tree.depth.tolist()])
    path = (*([0] if iteration.verification.root_choice is None else []), *iteration.walk.accepted)
    for node, token in zip(path, [*tree.token[list(path[1:])].tolist(), iteration.walk.bonus], strict=False):
        chose[node] = token
    return chose


def _extra(iteration: Iteration, mask: Bools, prefix_seen: Sequence[int]) -> tuple[ExtraRow, ...]:
    rows, nodes = iteration.draft.extra, len(iteration.outcome.tree)
    choice = iteration.verification.extra.argmax(-1).tolist() if rows.token else []
    sees = [tuple(np.flatnonzero(row).tolist()) for row in mask[nodes:]]
    return tuple(map(ExtraRow, rows.token, rows.depth, sees, prefix_seen[nodes:], choice))


def _caches(decoding: Decoding, iteration: Iteration) -> tuple[CacheRecord, ...]:
    pair = decoding.pair
    held = len(decoding.tokens) - (decoding.drafter.root == "verified")
    names = (*pair.runners, *pair.head_names)
    drafted = decoding.drafter.runners if iteration.counts.draft_calls else ()
    return tuple(
        _cache(name, runner, before, held)
        for name, runner, before in zip(names, runners(pair), iteration.lengths, strict=True)
        if runner is pair.target or any(runner is one for one in drafted)
    )


def _cache(name: str, runner: Runner | HeadRunner, before: int, committed: int) -> CacheRecord:
    kept = runner.kept
    moved = tuple((slot, kept.prefix + place) for place, slot in enumerate(kept.slots) if slot != kept.prefix + place)
    return CacheRecord(
        name=name,
        before=before,
        written=kept.before - before,
        kept=kept.slots,
        moved=moved,
        after=runner.length,
        committed=committed,
        capacity=runner.capacity,
        slot_bytes=runner.slot_bytes,
    )
