"""What a draft model or a head of the pair, run plainly on a text, proposes: they stand in for the
target, and their proposals for its answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from speclab.clinic._faults import sharing_weights, without_final_norm
from speclab.clinic._plain import FLOOR, Oracle, Passes, Progress, lowered
from speclab.clinic._sampled import Cuts, transformed
from speclab.heads.runner import HeadRunner
from speclab.models.answer import Answer
from speclab.models.cache import HiddenStates
from speclab.models.runner import Runner
from speclab.pair import ModelPair
from speclab.trace.records import Step, Trace
from speclab.tree import DraftTree


class DraftOracle(Oracle):
    """A draft model in the place of the target.

    `cuts`: what it sampled by, if log-probabilities are recorded after temperature, top-k and top-p.
    """

    drafts = True

    def __init__(
        self,
        trace: Trace,
        pair: ModelPair,
        progress: Progress | None = None,
        *,
        cuts: Cuts | None = None,
    ) -> None:
        self.cuts = cuts
        super().__init__(trace, pair, progress)

    def _after_the_text(self) -> Iterator[Step]:
        """The last accepted node was run with the next pass, if the draft had not expanded it."""
        lead: int | None = None
        for step in super()._after_the_text():
            end = step.accepted[-1] if step.accepted else 0
            ran = step if step.tree.children[end] else replace(step, accepted=step.accepted[:-1])
            drafted_root = step.root_choice is not None
            yield ran if lead is None or drafted_root else _led(ran, lead)
            lead = None if step.tree.children[end] or not end else int(step.tree.token[end])

    def log_probs(self, step: Step, logits: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        if self.cuts is None:
            return super().log_probs(step, logits, nodes)
        return transformed(logits, self.cuts).float().log().clamp_min(FLOOR).cpu()


def _led(step: Step, token: int) -> Step:
    """The step with one row more, before its root."""
    tree = step.tree
    longer, _ = DraftTree.grown(
        [token, *tree.token.tolist()],
        [-1, *(tree.parent + 1).tolist()],
        [0.0, *tree.log_prob.tolist()],
        ["recorded"] * (len(tree) + 1),
    )
    first = replace(step.nodes[0], token=token, target_top=(), draft_top=())
    return replace(
        step,
        tree=longer,
        nodes=(first, *[replace(node, index=node.index + 1) for node in step.nodes]),
        prefix_length=step.prefix_length - 1,
        accepted=(1, *[node + 1 for node in step.accepted]),
        committed=(int(tree.token[0]), *step.committed),
        mask=longer.ancestor_mask(),
    )


class HeadOracle(Oracle):
    """A head in the place of the target: what it proposes, given the target's states on the text.

    `conditions`: whether a block head's proposals depend on the node's token. `moved`: the head
    reads the states of so many positions before the right ones; `deeper`: of so many layers after;
    `plain`: of the last layer before the final norm.
    """

    def __init__(
        self,
        trace: Trace,
        pair: ModelPair,
        head: HeadRunner,
        progress: Progress | None = None,
        *,
        conditions: bool = True,
        moved: int = 0,
        deeper: int = 0,
        plain: bool = False,
    ) -> None:
        super().__init__(trace, pair, progress)
        self.head = head
        self._conditions = conditions
        self._changed = moved, deeper
        self._target = self._read(without_final_norm(self.model) if plain else self.model)
        self._own = type(head)(deepcopy(head.model), self._target)

    def _admitted(self) -> Runner:
        """The target runs no trees here."""
        return self.pair.target

    def _read(self, model: PreTrainedModel) -> Runner:
        """A target with the states that the head reads."""
        moved, deeper = self._changed
        # transformers' hooks stay on a model
        target = self.pair.target.beside(sharing_weights(model))
        count = model.config.get_text_config(decoder=True).num_hidden_layers + 1
        target.watch([layer % count + deeper for layer in self.head.layers])
        target.extend(self.text)
        assert target.hidden is not None
        states = target.hidden.keys[0].transpose(0, 1)[: len(self.text)]
        target.cache.hidden = HiddenStates(self.head.layers)
        places = torch.arange(len(states), device=states.device) - moved
        target.cache.hidden.append(states[places.clamp(0, len(states) - 1)])
        return target

    def states(self, end: int) -> Tensor:
        """`[end, numbers]`: what the head reads of the first positions."""
        assert self._target.hidden is not None
        return self._target.hidden.rows(0, end, self.head.layers).float()

    def answers(self, step: Step) -> Tensor:
        self.report(step)
        return self._proposed(self._own, step)

    def reference(self, dtype: str) -> Passes:
        module = lowered(deepcopy(self.head.model), dtype)
        head = type(self.head)(module, self._read(lowered(self.model, dtype)))
        return lambda step: self._proposed(head, step)

    @torch.inference_mode()
    def _proposed(self, head: HeadRunner, step: Step) -> Tensor:
        """Logits `[n, V]` after each node, level by level; zeros beyond the head's reach."""
        depths = step.tree.depth.tolist()
        tree = SimpleNamespace(
            token=step.tree.token.tolist(), parent=step.tree.parent.tolist(), depth=depths
        )
        verified = step.root_choice is None
        answer = head.after_text(self.text[: step.prefix_length + verified], node=verified - 1)
        rows = torch.zeros(len(depths), self.pair.target.vocab_size)
        if verified:
            rows[:1] = _known(answer)
        for depth in range(verified, min(max(depths) + 1, head.reach or len(depths))):
            nodes = [node for node, own in enumerate(depths) if own == depth]
            answer = (
                head.after_nodes(tree, nodes)
                if self._conditions
                else head.at_depths([depth] * len(nodes), None, 0)
            )
            rows[nodes] = _known(answer)
        head.keep_path(())
        return rows


def _known(answer: Answer) -> Tensor:
    assert answer.rows is not None
    return answer.rows.float().cpu()
