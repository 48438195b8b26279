"""Turns an iteration's tensors into its Step: probabilities, verdicts, caches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from math import exp
from operator import index
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from speclab.drafters.base import TopK, paired
from speclab.engine.decode import Decoding, Iteration, runners
from speclab.errors import SettingsError
from speclab.models.answer import KEPT, TopTokens, topk
from speclab.models.source import DraftSource
from speclab.models.transfers import to_device
from speclab.sampling import Probabilities, inverse_cdf, transform, uniform, without
from speclab.trace.records import (
    RANKS,
    UNKNOWN,
    CacheRecord,
    ExtraRow,
    NodeRecord,
    Residual,
    ResidualToken,
    Step,
    Verdict,
)
from speclab.tree import Bools

NODE_TOP = 5
"""Most probable next tokens of the target kept per node."""
ENDED = "draft ended"
"""The note of a step whose draft has no positions left."""
RESIDUAL_TOP = 6
"""Most probable tokens kept of the bonus token's distribution, before and after rejections."""


def kept_answers(iteration: Iteration) -> TopTokens:
    """The target's most probable tokens after each row of a pass: the nodes, then the extra rows."""
    ids, log_probs = iteration.verification.answer.topk(KEPT)
    extra = iteration.verification.extra
    if len(extra):
        extra_ids, extra_log_probs = extra.topk(KEPT)
        ids = np.concatenate((ids, extra_ids))
        log_probs = np.concatenate((log_probs, extra_log_probs))
    return ids, log_probs


@torch.inference_mode()
def record(decoding: Decoding, iteration: Iteration, index: int, note: str = "") -> Step:
    """The Step of the iteration that `decoding` has just finished, without tensors."""
    draft = iteration.draft
    outcome = iteration.outcome
    n = len(outcome.tree)
    mask, prefix_seen = decoding.pair.target.mask_given()
    target = _target_columns(decoding, iteration)
    draft_top = _draft_top(iteration)
    extra = _extra(iteration, mask, prefix_seen)
    residual = _residual(decoding, iteration)
    contexts = [runner.context for runner in decoding.drafter.runners]
    ended = any(0 < (context or 0) <= iteration.prefix_length + 1 for context in contexts)
    if ended and not note:
        note = ENDED
    bonus = None
    if len(outcome.committed) > len(outcome.accepted):
        bonus = outcome.committed[-1]
    texts = decoding.pair.token_texts(
        sorted(_tokens(iteration, target, draft_top.values(), extra, residual))
    )
    return Step(
        index=index,
        prefix_length=iteration.prefix_length,
        tree=outcome.tree,
        nodes=_nodes(decoding, iteration, target, draft_top),
        accepted=outcome.accepted,
        committed=outcome.committed,
        bonus=bonus,
        root_choice=iteration.verification.root_choice,
        settings=iteration.strategy.describe(),
        events=tuple(draft.events),
        caches=_caches(decoding, iteration),
        seconds=iteration.watch.phase_seconds,
        adaptation=iteration.adaptation,
        counts=iteration.counts,
        mask=mask[:n, :n],
        prefix_seen=tuple(prefix_seen[:n]),
        texts=texts,
        note=note,
        extra=extra,
        proposals=draft.proposals,
        paths=decoding.pair.target.paths,
        rule=str(iteration.rule),
        trials=iteration.acceptance.trials,
        residual=residual,
    )


def _draft_top(iteration: Iteration) -> dict[int, TopK]:
    """The draft's next tokens of each node, with probabilities.

    Raises:
        SettingsError: they are no tokens with log-probabilities.
    """
    tops: dict[int, TopK] = {}
    for node, top in iteration.draft.topk.items():
        try:
            tops[node] = tuple((index(token), exp(log_prob)) for token, log_prob in top)
        except (TypeError, ValueError, OverflowError):
            raise SettingsError(
                f"topk[{node}] of {type(iteration.strategy).__name__} is not a list of next tokens: "
                "give ((token, log-probability), …)."
            ) from None
    return tops


# Nodes


class _TargetColumns(NamedTuple):
    """The target's predictions after each of `n` nodes.

    `choice`: the token that followed, and its probability. `token_prob`: of the node's own token at
    its parent, None for a verified root. `entropy`: in nats. `top`: the most probable next tokens.
    """

    choice: Sequence[int]
    choice_prob: Sequence[float]
    token_prob: Sequence[float | None]
    entropy: Sequence[float]
    top: Sequence[TopK]


def _target_columns(decoding: Decoding, iteration: Iteration) -> _TargetColumns:
    tree = iteration.outcome.tree
    verification = iteration.verification
    settings = decoding.settings
    if settings.temperature == 0:
        probs = verification.targets.rows().float().softmax(-1)  # [n, V]
    else:
        probs = transform(verification.targets.rows(), settings).float()
    choice = _choices(decoding, iteration, probs)
    choice_prob = probs.gather(1, to_device(choice, probs.device)[:, None])  # [n, 1]
    parents = to_device(tree.parent.clip(0), probs.device)
    tokens = to_device(tree.token.copy(), probs.device)
    entropy = torch.special.entr(probs).sum(-1)
    parts = [choice_prob, probs[parents, tokens][:, None], entropy[:, None]]
    parts += topk(probs, NODE_TOP)
    columns = torch.cat(parts, 1).cpu().numpy()  # one transfer; float32 holds every id
    top_probs, ids = np.split(columns[:, 3:], 2, axis=1)
    chosen_prob, token_prob, entropies = columns[:, :3].T.tolist()
    token_prob[0] = None
    if verification.root is not None:
        token_prob[0] = float(verification.root.probs(0)[tree.token[0]])
    top = paired(ids.astype(int), top_probs)
    return _TargetColumns(choice, chosen_prob, token_prob, entropies, top)


def _choices(decoding: Decoding, iteration: Iteration, probs: Tensor) -> list[int]:
    """What follows each node of the path, and the target's choice after every other node."""
    if decoding.settings.temperature == 0:
        return [iteration.verification.targets.choose(node) for node in range(len(probs))]
    first = iteration.prefix_length + 1
    tree = iteration.outcome.tree
    positions = range(first, first + int(tree.depth[-1]) + 1)
    uniforms = [uniform(decoding.settings.seed, position) for position in positions]
    choice = inverse_cdf(probs, [uniforms[depth] for depth in tree.depth.tolist()])
    # down the whole path, also where the text ended before
    path = replace(iteration.outcome, accepted=iteration.acceptance.accepted).path
    for node, child in pairwise(path):
        choice[node] = int(tree.token[child])
    if path:
        choice[path[-1]] = iteration.acceptance.bonus
    return choice


def _nodes(
    decoding: Decoding,
    iteration: Iteration,
    target: _TargetColumns,
    draft_top: Mapping[int, TopK],
) -> tuple[NodeRecord, ...]:
    tree = iteration.outcome.tree
    drafts = decoding.drafter.runners
    verdicts = _verdicts(iteration, target)
    tokens = tree.token.tolist()
    probs = np.exp(tree.log_prob).tolist()
    path_probs = np.exp(tree.path_log_prob).tolist()
    records = []
    for node, verdict in enumerate(verdicts):
        record = NodeRecord(
            index=node,
            token=tokens[node],
            draft_prob=probs[node],
            path_prob=path_probs[node],
            target_prob=target.token_prob[node],
            target_choice=target.choice[node],
            verdict=verdict,
            kv_slot=iteration.prefix_length + node,
            entropy=target.entropy[node],
            choice_prob=target.choice_prob[node],
            beyond_draft=beyond(drafts, target.choice[node]),
            target_top=target.top[node],
            draft_top=draft_top.get(node, ()),
        )
        records.append(record)
    return tuple(records)


def beyond(drafts: Sequence[DraftSource], token: int) -> bool:
    """Whether there are drafts, and none can propose the token."""
    if token == UNKNOWN or not drafts:
        return False
    return not any(token in draft.proposes for draft in drafts)


def _verdicts(iteration: Iteration, target: _TargetColumns) -> list[Verdict]:
    """A node is reached if its parent is on the accepted path; a reached node is accepted or rejected."""
    acceptance = iteration.acceptance
    accepted = iteration.outcome.accepted
    path = iteration.outcome.path
    tried = {trial.node for trial in acceptance.trials}
    # children were tried in turn, not matched with one choice
    one_by_one = acceptance.residual is not None
    tokens = iteration.outcome.tree.token.tolist()
    parents = iteration.outcome.tree.parent.tolist()

    def verdict(node: int) -> Verdict:
        parent = parents[node]
        if node in accepted:
            return "accepted"
        if node in path:
            return "root"
        # under a rejected node, or after a sibling that was accepted
        if (parent >= 0 and parent not in path) or (one_by_one and node not in tried):
            return "not reached"
        matched = not one_by_one and parent >= 0 and target.choice[parent] == tokens[node]
        if matched or node in acceptance.accepted:  # the text ended before it
            return "not reached"
        return "rejected"

    return [verdict(node) for node in range(len(tokens))]


def _tokens(
    iteration: Iteration,
    target: _TargetColumns,
    draft_tops: Iterable[TopK],
    extra: Sequence[ExtraRow],
    residual: Residual | None,
) -> set[int]:
    draft = iteration.draft
    outcome = iteration.outcome
    tokens = set(outcome.committed)
    tokens.update(target.choice, outcome.tree.token.tolist())
    for proposal in draft.proposals:
        tokens.update(proposal.tree.token.tolist())
    for row in extra:
        tokens.update((row.token, row.target_choice))
    for top in chain(target.top, draft_tops):
        tokens.update(token for token, _ in top)
    for event in draft.events:
        tokens.update(int(event.values[rank] or 0) for rank in RANKS if rank in event.values)
    if residual is not None:
        tokens.update(entry.token for entry in residual.tokens)
    if iteration.verification.root_choice is not None:
        tokens.add(iteration.verification.root_choice)
    return tokens


# The distribution that the bonus came from


def _residual(decoding: Decoding, iteration: Iteration) -> Residual | None:
    """None at temperature 0, and if the text ended before the target drew."""
    outcome = iteration.outcome
    verification = iteration.verification
    if decoding.settings.temperature == 0 or len(outcome.committed) == len(outcome.accepted):
        return None
    draft = None
    if outcome.path:
        node = outcome.path[-1]  # the target drew after it
        candidates = list(outcome.tree.children[node])
        before = verification.targets.probs(node)  # [V]
        draft = iteration.draft.draft_probs.get(node)
    else:  # it rejected a drafted root
        assert verification.root is not None
        node = None
        candidates = [0]
        before = verification.root.probs(0)
    tokens: list[int] = outcome.tree.token[candidates].tolist()
    after = iteration.acceptance.residual
    if after is None:  # the target drew once, and no candidate has that token
        after = before
        for token in tokens:
            after = without(after, token)
    shown = {outcome.committed[-1]}
    shown.update(_most_probable(before), _most_probable(after), tokens)
    entries = []
    for token in sorted(shown, key=lambda token: (-before[token], token)):
        drawn = None if draft is None else float(draft[token])
        entries.append(ResidualToken(token, float(after[token]), float(before[token]), drawn))
    return Residual(node, tuple(entries))


def _most_probable(probs: Probabilities) -> list[int]:
    values, ids = topk(torch.from_numpy(probs)[None], RESIDUAL_TOP)
    tokens: list[int] = ids[values > 0].tolist()
    return tokens


# Extra rows, and caches


def _extra(iteration: Iteration, mask: Bools, prefix_seen: Sequence[int]) -> tuple[ExtraRow, ...]:
    rows = iteration.draft.extra
    nodes = len(iteration.outcome.tree)
    if not rows.token:
        return ()
    choice = iteration.verification.extra.choice.tolist()
    sees = [tuple(np.flatnonzero(row).tolist()) for row in mask[nodes:]]
    return tuple(map(ExtraRow, rows.token, rows.depth, sees, prefix_seen[nodes:], choice))


def _caches(decoding: Decoding, iteration: Iteration) -> tuple[CacheRecord, ...]:
    pair = decoding.pair
    ran: list[DraftSource] = [pair.target]
    if iteration.counts.draft_calls:
        ran += decoding.drafter.runners
    names = tuple(pair.runners) + pair.head_names
    records = []
    for name, runner, before in zip(names, runners(pair), iteration.lengths, strict=True):
        if runner in ran:
            kept = runner.kept
            slots = enumerate(kept.slots, kept.prefix)
            record = CacheRecord(
                name=name,
                before=before,
                written=kept.before - before,
                kept=kept.slots,
                moved=tuple([(old, new) for new, old in slots if old != new]),
                after=runner.length,
                committed=decoding.held,
                capacity=runner.capacity,
                slot_bytes=runner.slot_bytes,
            )
            records.append(record)
    return tuple(records)
