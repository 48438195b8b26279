"""A draft head in the place of the target: what it proposes, given the target's states on the text."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from speclab.clinic._faults import final_norm, sharing_weights, without_final_norm
from speclab.clinic._passes import Change
from speclab.clinic._plain import Oracle, Passes, Progress, lowered
from speclab.heads.runner import HeadRunner
from speclab.models.cache import HiddenStates
from speclab.pair import ModelPair
from speclab.trace.records import Step, Trace


class HeadOracle(Oracle):
    """What a head proposes.

    Args:
        conditions: whether a block head's proposals depend on the node's token.
        moved: the head reads the states of so many positions before the right ones.
        deeper: of so many layers after the right ones.
        plain: of the last layer before the final norm.
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
        self.head = head
        self.conditions = conditions
        self.states = moved, deeper, plain
        super().__init__(trace, pair, progress, draft=head)

    @torch.inference_mode()
    def passes(self, dtype: str, **_: Any) -> Passes:
        """The head in a precision, on a target with the states that it reads."""
        moved, deeper, plain = self.states
        target = self.pair.target
        exact = target.dtype == torch.float32
        model = lowered(target.model if exact else deepcopy(target.model).float(), dtype)
        # transformers' hooks stay on a model
        model = without_final_norm(model) if plain else sharing_weights(model)
        runner = target.beside(model)
        count = model.config.get_text_config(decoder=True).num_hidden_layers + 1
        runner.watch([layer % count + deeper for layer in self.head.layers])
        runner.extend(self.text)
        assert runner.hidden is not None
        states = runner.hidden.keys[0].transpose(0, 1)[: len(self.text)]
        runner.cache.hidden = HiddenStates(self.head.layers)
        places = torch.arange(len(states), device=states.device) - moved
        runner.cache.hidden.append(states[places.clamp_min(0)])
        head = type(self.head)(lowered(deepcopy(self.head.model), dtype), runner)
        return partial(self._proposed, head)

    @torch.inference_mode()
    def _proposed(self, head: HeadRunner, step: Step) -> Tensor:
        """Logits `[n, V]` after each node, level by level; zeros beyond the head's reach."""
        self.report(step)
        tree = SimpleNamespace(
            token=step.tree.token.tolist(),
            parent=step.tree.parent.tolist(),
            depth=step.tree.depth.tolist(),
        )
        verified = 0 not in step.drafted
        answer: Any = head.after_text(self.text[: step.prefix_length + verified], node=verified - 1)
        logits = torch.zeros(len(tree.depth), self.pair.target.vocab_size)
        if verified:
            logits[:1] = answer.rows
        for depth in range(verified, min(max(tree.depth) + 1, head.reach or len(tree.depth))):
            nodes = [node for node, own in enumerate(tree.depth) if own == depth]
            if self.conditions:
                answer = head.after_nodes(tree, nodes)
            else:
                answer = head.at_depths([depth] * len(nodes), None, 0)
            logits[nodes] = answer.rows.float().cpu()
        head.keep_path(())
        return logits

    def changes(self, step: Step) -> Iterator[Change]:
        """Other states that the head may have read."""
        config = self.pair.target.model.config.get_text_config(decoder=True)
        count = config.num_hidden_layers
        layers = [layer % (count + 1) for layer in self.head.layers]
        changes: dict[str, dict[str, Any]] = {"position before": {"moved": 1}}
        if min(layers):
            changes["layer before"] = {"deeper": -1}
        if max(layers) < count:
            changes["layer after"] = {"deeper": 1}
        elif final_norm(self.pair.target.model):
            changes["last layer before the final norm"] = {"plain": True}
        for which, changed in changes.items():
            says = f"the head {self.head.name} reads the states of the {which}"
            yield Change("states", says, partial(self._changed, step, changed))

    def _changed(self, step: Step, changed: dict[str, Any]) -> Tensor:
        oracle = HeadOracle(self.trace, self.pair, self.head, conditions=self.conditions, **changed)
        return oracle.answers(step)
