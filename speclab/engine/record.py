"""The verdict on every node of a verified tree, with its reason in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from speclab.drafters.base import TopK
from speclab.engine.acceptance import Probabilities, Rule, uniform, without
from speclab.engine.decode import Decoding, Iteration, runners
from speclab.engine.sampling import draws, probabilities, transform
from speclab.models.head_runner import HeadRunner
from speclab.models.runner import Runner
from speclab.models.transfers import largest, to_device
from speclab.trace.records import CacheRecord, Event, ExtraRow, NodeRecord, Residual, Step, TokenProb, Trial, Verdict
from speclab.tree import Bools, DraftTree


@dataclass(frozen=True, slots=True)
class Seen:
    """What the target saw at each of `n` nodes.

    `choice`: its next token, `choice_prob` that token's probability, `token_prob` the probability of the node's own
    token at its parent (None for a verified root); `root_choice`: its choice for a drafted root's place, or None.
    `rule`: of acceptance; where it tried children one by one (`one_by_one`) also its `trials` and the `path` it took.
    """

    choice: Sequence[int]
    choice_prob: Sequence[float]
    token_prob: Sequence[float | None]
    root_choice: int | None
    rule: Rule
    one_by_one: bool = False
    trials: Sequence[Trial] = ()
    path: Sequence[int] = ()


def judge(tree: DraftTree, seen: Seen, accepted: Sequence[int], texts: Mapping[int, str]) -> list[tuple[Verdict, str]]:
    """One (verdict, reason) for each node.

    A node was reached when its parent is on the accepted path; a reached node is accepted or rejected.
    """
    on_path = set(accepted) | ({0} if seen.root_choice is None else set())
    tried = {trial.node: trial for trial in seen.trials}
    verdicts: list[tuple[Verdict, str]] = []
    for node, parent in enumerate(tree.parent.tolist()):
        text, prob = repr(texts[int(tree.token[node])]), seen.token_prob[node]
        if parent < 0 and node not in tried:
            verdicts.append(_root(node in accepted, text, seen, texts))
        elif node in on_path and node in tried:
            verdicts.append(("accepted", _tested(tried[node], seen.rule)))
        elif node in on_path:
            verdicts.append(("accepted", f"the target chose {text} here, with probability {prob:.3f}"))
        elif parent >= 0 and parent not in on_path:
            above = repr(texts[int(tree.token[parent])])
            verdicts.append(("not reached", f"its parent {above} is not on the accepted path"))
        elif seen.one_by_one:
            verdicts.append(_passed_by(node, tried.get(node), seen))
        elif seen.choice[parent] == tree.token[node]:
            verdicts.append(("not reached", "the text ended before it"))
        else:
            chosen = repr(texts[seen.choice[parent]])
            verdicts.append(
                (
                    "rejected",
                    f"the target chose {chosen} ({seen.choice_prob[parent]:.3f}), not {text} ({prob:.3f})",
                )
            )
    return verdicts


def _passed_by(node: int, trial: Trial | None, seen: Seen) -> tuple[Verdict, str]:
    """Of a node beside the path, where children are tried one by one."""
    if node in seen.path:
        return "not reached", "the text ended before it"
    if trial is None:
        return "not reached", "a candidate drawn before it was accepted"
    if trial.accepted:
        return "rejected", f"{_tested(trial, seen.rule)}, but another path is longer, or as long and likelier"
    return "rejected", _tested(trial, seen.rule)


def _tested(trial: Trial, rule: Rule) -> str:
    p, against = f"{trial.target:.2f}", f"{trial.against:.2f}"
    if rule.lossless:
        verb = "accepted with" if trial.accepted else "rejected, its chance was"
        return f"drawn from the draft, {verb} {p} / {against} (what is left of the target's law / the draft's)"
    if trial.accepted:
        return f"likely enough for typical acceptance (lossy): {p} > {against}"
    return f"too unlikely for typical acceptance (lossy): {p}, not above {against}"


def _root(accepted: bool, text: str, seen: Seen, texts: Mapping[int, str]) -> tuple[Verdict, str]:
    if seen.root_choice is None:
        return "root", f"{text} is the target's own token from the pass before"
    if accepted:
        return "accepted", f"the target chose {text} for the root's place"
    return "rejected", f"the target chose {texts[seen.root_choice]!r} for the root's place, not {text}"


class Tried(NamedTuple):
    """How acceptance went, where it tried children one by one: which it tried, and the path it took."""

    one_by_one: bool
    trials: Sequence[Trial]
    path: Sequence[int]


@dataclass(frozen=True, slots=True)
class Reading:
    """What an iteration keeps until its step is read: a few numbers a node, no tensor, no model.

    `chose`: what followed each of `n` nodes. `numbers`: `[n, 2 k + 3]` float32: ids and probabilities of the target's k
    likeliest next tokens, the probabilities of its choice and of the node's own token, and the entropy in nats.
    `root_prob`: of a drafted root's token. `events`, `topk`: of the draft. `texts`: a token's text.
    """

    chose: Sequence[int]
    numbers: NDArray[np.float32]
    root_prob: float | None
    tried: Tried
    events: Sequence[Event]
    topk: Mapping[int, TopK]
    texts: Callable[[int], str]

    def fields(self, step: Step) -> dict[str, Any]:
        """The fields of the step that are worked out when they are read."""
        choice_prob, own_prob, entropy = self.numbers[:, -3:].T.tolist()
        seen = Seen(
            self.chose, choice_prob, [self.root_prob, *own_prob[1:]], step.root_choice, Rule(step.rule), *self.tried
        )
        tops, draft_tops = self._target_tops(), self._draft_tops()
        events = tuple(self.events)
        named = _named(step, events, self.chose, [*tops, *draft_tops.values()])
        texts = {token: self.texts(token) for token in sorted(named)}
        return {"nodes": _nodes(step, seen, entropy, tops, draft_tops, texts), "events": events, "texts": texts}

    def _target_tops(self) -> list[TopK]:
        width = (self.numbers.shape[1] - 3) // 2
        ids, probs = self.numbers[:, :width].astype(np.int64).tolist(), self.numbers[:, width:-3].tolist()
        return [tuple(zip(*row, strict=True)) for row in zip(ids, probs, strict=True)]

    def _draft_tops(self) -> dict[int, TopK]:
        return {node: tuple([(token, exp(log_prob)) for token, log_prob in top]) for node, top in self.topk.items()}


def _nodes(
    step: Step,
    seen: Seen,
    entropy: Sequence[float],
    tops: Sequence[TopK],
    draft_tops: Mapping[int, TopK],
    texts: Mapping[int, str],
) -> tuple[NodeRecord, ...]:
    tree = step.tree
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
            kv_slot=step.prefix_length + node,
            entropy=entropy[node],
            target_top=tops[node],
            draft_top=draft_tops.get(node, ()),
        )
        for node, (verdict, reason) in enumerate(judge(tree, seen, step.accepted, texts))
    )


def _named(step: Step, events: Sequence[Event], chose: Iterable[int], tops: Iterable[TopK]) -> set[int]:
    """Every token that the step speaks of."""
    tokens = {*step.tree.token.tolist(), *step.committed, *chose}
    tokens.update(token for row in step.extra for token in (row.token, row.target_choice))
    tokens.update(token for one in step.proposals for token in one.tree.token.tolist())
    for top in tops:
        tokens.update(token for token, _ in top)
    tokens.update(int(event.values["token"] or 0) for event in events if "token" in event.values)
    if step.residual is not None:
        tokens.update(share.token for share in step.residual.tokens)
    if step.root_choice is not None:
        tokens.add(step.root_choice)
    return tokens


RESIDUAL_TOP = 6
"""Tokens kept: so many of the likeliest for the target, before and after, and every candidate."""


def residual(decoding: Decoding, iteration: Iteration) -> Residual | None:
    """None at temperature 0, and where the text ended before the target drew."""
    outcome = iteration.outcome
    if decoding.settings.temperature == 0 or len(outcome.committed) == len(outcome.accepted):
        return None
    node = _stop(iteration)
    candidates = [0] if node is None else list(outcome.tree.children[node])
    tokens = [int(token) for token in outcome.tree.token[candidates]]
    logits = iteration.verification.root_logits if node is None else iteration.verification.logits[node]
    assert logits is not None
    before = probabilities(logits, decoding.settings)
    after = iteration.walk.residual
    if after is None:  # the target drew once, and no candidate carries what it drew
        after = before
        for token in tokens:
            after = without(after, token)
    draft = None if node is None else iteration.draft.draft_probs.get(node)
    kept = {*_likeliest(before), *_likeliest(after), *tokens, outcome.committed[-1]}
    shares = (
        TokenProb(token, float(after[token]), float(before[token]), None if draft is None else float(draft[token]))
        for token in sorted(kept, key=lambda token: (-before[token], token))
    )
    tries = (trial for trial in iteration.walk.trials if trial.node in candidates and not trial.accepted)
    return Residual(node, tuple(shares), tuple(Trial(one.node, float(one.target), float(one.against)) for one in tries))


def _stop(iteration: Iteration) -> int | None:
    """The node after which the target drew; None before a drafted root."""
    if iteration.outcome.accepted:
        return iteration.outcome.accepted[-1]
    return 0 if iteration.verification.root_choice is None else None


def _likeliest(law: Probabilities) -> list[int]:
    least = np.partition(law, -min(RESIDUAL_TOP, len(law)))[-min(RESIDUAL_TOP, len(law))]
    best = np.flatnonzero((law >= least) & (law > 0))  # no sorting of a whole vocabulary
    return [int(token) for token in best[np.argsort(-law[best], kind="stable")][:RESIDUAL_TOP]]


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
        seconds=iteration.watch.phase_seconds,
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
    return Reading(chose, numbers, root_prob, tried, draft.events, draft.topk, texts)


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
