"""What only the reader of a step needs: records of its nodes, events, texts; from plain numbers, when it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speclab.acceptance import Rule, Trial
from speclab.drafters.base import Top
from speclab.trace import Event, NodeRecord, Step
from speclab.verdicts import Seen, judge


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
    `root_prob`: of a drafted root's token. `events`, `tops`: of the draft. `texts`: a token's text.
    """

    chose: Sequence[int]
    numbers: NDArray[np.float32]
    root_prob: float | None
    tried: Tried
    events: Sequence[Event]
    tops: Mapping[int, Top]
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

    def _target_tops(self) -> list[Top]:
        width = (self.numbers.shape[1] - 3) // 2
        ids, probs = self.numbers[:, :width].astype(np.int64).tolist(), self.numbers[:, width:-3].tolist()
        return [tuple(zip(*row, strict=True)) for row in zip(ids, probs, strict=True)]

    def _draft_tops(self) -> dict[int, Top]:
        return {node: tuple([(token, exp(log_prob)) for token, log_prob in top]) for node, top in self.tops.items()}


def _nodes(
    step: Step,
    seen: Seen,
    entropy: Sequence[float],
    tops: Sequence[Top],
    draft_tops: Mapping[int, Top],
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


def _named(step: Step, events: Sequence[Event], chose: Iterable[int], tops: Iterable[Top]) -> set[int]:
    """Every token that the step speaks of."""
    tokens = {*step.tree.token.tolist(), *step.committed, *chose}
    tokens.update(token for row in step.extra for token in (row.token, row.target_choice))
    tokens.update(token for one in step.proposals for token in one.tree.token.tolist())
    for top in tops:
        tokens.update(token for token, _ in top)
    tokens.update(int(event.values["token"] or 0) for event in events if "token" in event.values)
    if step.residual is not None:
        tokens.update(share.token for share in step.residual.shares)
    if step.root_choice is not None:
        tokens.add(step.root_choice)
    return tokens
