"""From an iteration's tensors to its Step: probabilities, verdicts and reasons, caches. The loop knows none of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

import numpy as np
import torch
from torch import Tensor

from speclab.decoding import Decoding, Iteration, runners
from speclab.drafters.base import Top
from speclab.models.head_runner import HeadRunner
from speclab.models.runner import Runner
from speclab.noise import uniform
from speclab.residuals import residual
from speclab.sampling import draw, transform
from speclab.shares import Residual
from speclab.trace import CacheRecord, ExtraRow, NodeRecord, Step
from speclab.tree import Bools
from speclab.verdicts import Seen, judge

TOP = 5
"""Likeliest next tokens of the target that the record keeps of each node."""


@dataclass(frozen=True, slots=True)
class _TargetView:
    """Lists over the nodes: what the record keeps of the target's `[n, V]` logits."""

    seen: Seen
    entropy: list[float]
    tops: list[Top]


@torch.inference_mode()
def record(decoding: Decoding, iteration: Iteration, index: int) -> Step:
    """The Step of the iteration that `decoding` has just done."""
    outcome, root_choice = iteration.outcome, iteration.verification.root_choice
    view = _target_view(decoding, iteration)
    draft_tops = {
        node: tuple((token, exp(log_prob)) for token, log_prob in top) for node, top in iteration.draft.tops.items()
    }
    mask, prefix_seen = decoding.pair.target.mask_given()
    nodes, extra = len(outcome.tree), _extra(iteration, mask, prefix_seen)
    left = residual(decoding, iteration)
    texts = _texts(decoding, iteration, view, draft_tops, extra, left)
    return Step(
        index=index,
        prefix_length=iteration.prefix_length,
        tree=outcome.tree,
        nodes=_nodes(iteration, view, draft_tops, texts),
        accepted=outcome.accepted,
        committed=outcome.committed,
        bonus=outcome.committed[-1] if len(outcome.committed) > len(outcome.accepted) else None,
        root_choice=root_choice,
        settings=iteration.strategy.describe(),
        events=iteration.draft.events,
        caches=_caches(decoding, iteration),
        seconds=dict(iteration.seconds),
        adaptation=iteration.adaptation,
        counts=iteration.counts,
        mask=mask[:nodes, :nodes],
        prefix_seen=tuple(prefix_seen[:nodes]),
        texts=texts,
        extra=extra,
        proposals=iteration.draft.proposals,
        budget=iteration.draft.budget,
        rule=str(iteration.rule),
        residual=left,
    )


def _target_view(decoding: Decoding, iteration: Iteration) -> _TargetView:
    tree, verification = iteration.outcome.tree, iteration.verification
    law = transform(verification.logits, decoding.settings).float()
    best = law.topk(min(TOP, law.shape[-1]), dim=-1)
    choice = _choices(decoding, iteration, law)
    places = torch.tensor(choice, device=law.device)[:, None]
    token_prob: list[float | None] = [None]
    if verification.root_logits is not None:
        root_law = transform(verification.root_logits, decoding.settings)
        token_prob = [float(root_law[int(tree.token[0])])]
    parents = torch.from_numpy(tree.parent[1:].copy()).to(law.device)
    tokens = torch.from_numpy(tree.token[1:].copy()).to(law.device)
    token_prob += law[parents, tokens].tolist()
    choice_prob = law.gather(1, places)[:, 0].tolist()
    seen = Seen(choice, choice_prob, token_prob, verification.root_choice, iteration.rule, iteration.walk)
    tops = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    entropy = torch.special.entr(law).sum(-1).tolist()
    return _TargetView(seen, entropy, [tuple(zip(ids, probs, strict=True)) for ids, probs in tops])


def _choices(decoding: Decoding, iteration: Iteration, law: Tensor) -> list[int]:
    """What follows each node of the path, and the target's choice after every other; the walk asked for few of them."""
    if decoding.settings.temperature == 0:
        return [iteration.verification.choose(node) for node in range(len(law))]
    first = iteration.prefix_length + 1
    noise = [uniform(decoding.settings.seed, first + depth) for depth in iteration.outcome.tree.depth.tolist()]
    path = (*([0] if iteration.verification.root_choice is None else []), *iteration.walk.accepted)
    tokens = [*iteration.outcome.tree.token[list(path[1:])].tolist(), iteration.walk.bonus]
    follows = dict(zip(path, tokens, strict=False))
    return [follows[node] if node in follows else draw(law[node].double(), noise[node]) for node in range(len(law))]


def _nodes(
    iteration: Iteration, view: _TargetView, draft_tops: Mapping[int, Top], texts: Mapping[int, str]
) -> tuple[NodeRecord, ...]:
    tree, seen = iteration.outcome.tree, view.seen
    verdicts = judge(tree, seen, iteration.outcome.accepted, texts)
    tokens, probs, paths = tree.token.tolist(), tree.log_prob.tolist(), tree.path_log_prob.tolist()
    return tuple(
        NodeRecord(
            index=node,
            token=tokens[node],
            draft_prob=exp(probs[node]),
            path_prob=exp(paths[node]),
            target_prob=seen.token_prob[node],
            target_choice=seen.choice[node],
            verdict=verdict,
            reason=reason,
            kv_slot=iteration.prefix_length + node,
            entropy=view.entropy[node],
            target_top=view.tops[node],
            draft_top=draft_tops.get(node, ()),
        )
        for node, (verdict, reason) in enumerate(verdicts)
    )


def _extra(iteration: Iteration, mask: Bools, prefix_seen: Sequence[int]) -> tuple[ExtraRow, ...]:
    rows, nodes = iteration.draft.extra, len(iteration.outcome.tree)
    choice = iteration.verification.extra.argmax(-1).tolist()
    sees = [tuple(np.flatnonzero(row).tolist()) for row in mask[nodes:]]
    return tuple(map(ExtraRow, rows.token, rows.depth, sees, prefix_seen[nodes:], choice))


def _texts(
    decoding: Decoding,
    iteration: Iteration,
    view: _TargetView,
    draft_tops: Mapping[int, Top],
    extra: Sequence[ExtraRow],
    left: Residual | None,
) -> dict[int, str]:
    outcome = iteration.outcome
    tokens = {*outcome.tree.token.tolist(), *outcome.committed, *view.seen.choice}
    tokens.update(token for row in extra for token in (row.token, row.target_choice))
    tokens.update(token for one in iteration.draft.proposals for token in one.tree.token.tolist())
    for tops in (*view.tops, *draft_tops.values()):
        tokens.update(token for token, _ in tops)
    tokens.update(int(event.values["token"] or 0) for event in iteration.draft.events if "token" in event.values)
    if left is not None:
        tokens.update(share.token for share in left.shares)
    if view.seen.root_choice is not None:
        tokens.add(view.seen.root_choice)
    return {token: decoding.pair.token_text(token) for token in sorted(tokens)}


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
