"""What a draft model or a head of the pair, run plainly on a text, proposes: they stand in for the
target, and their proposals for its answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import partial
from math import log
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from speclab.clinic._faults import final_norm, sharing_weights, without_final_norm
from speclab.clinic._passes import Change
from speclab.clinic._plain import FLOOR, Measured, Oracle, Passes, Progress, lowered
from speclab.clinic._sampled import Cuts, transformed
from speclab.heads.runner import HeadRunner
from speclab.models.answer import Answer
from speclab.models.cache import HiddenStates
from speclab.models.runner import Runner
from speclab.pair import ModelPair
from speclab.trace.records import Step, Trace


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

    def log_probs(self, step: Step, logits: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        if self.cuts is None:
            return super().log_probs(step, logits, nodes)
        rows = transformed(logits, self.cuts).log()
        for row, node in enumerate(range(len(rows)) if nodes is None else nodes):
            tokens = [token for token, _ in step.nodes[node].draft_top]
            if tokens:  # compared among themselves, since rounding moves the edges of a cut
                among = transformed(logits[row, tokens], Cuts(self.cuts.temperature)).log()
                rows[row, tokens] = among + log(
                    sum([prob for _, prob in step.nodes[node].draft_top])
                )
        return rows.float().clamp_min(FLOOR).cpu()


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
        **changed: int,
    ) -> None:
        super().__init__(trace, pair, progress)
        self.head = head
        self._conditions = conditions
        self._changed = changed
        self._own = self._copy("float32")

    def _admitted(self) -> Runner:
        """The target runs no trees here."""
        return self.pair.target

    @torch.inference_mode()
    def _copy(self, dtype: str) -> HeadRunner:
        """The head in a precision, on a target with the states that it reads."""
        moved, deeper, plain = [self._changed.get(name, 0) for name in ("moved", "deeper", "plain")]
        model = lowered(self.model, dtype)
        # transformers' hooks stay on a model
        model = without_final_norm(model) if plain else sharing_weights(model)
        target = self.pair.target.beside(model)
        count = model.config.get_text_config(decoder=True).num_hidden_layers + 1
        target.watch([layer % count + deeper for layer in self.head.layers])
        target.extend(self.text)
        assert target.hidden is not None
        states = target.hidden.keys[0].transpose(0, 1)[: len(self.text)]
        target.cache.hidden = HiddenStates(self.head.layers)
        places = torch.arange(len(states), device=states.device) - moved
        target.cache.hidden.append(states[places.clamp_min(0)])
        return type(self.head)(lowered(deepcopy(self.head.model), dtype), target)

    def answers(self, step: Step) -> Tensor:
        self.report(step)
        return self._proposed(self._own, step)

    def reference(self, dtype: str) -> Passes:
        return partial(self._proposed, self._copy(dtype))

    @torch.inference_mode()
    def _proposed(self, head: HeadRunner, step: Step) -> Tensor:
        """Logits `[n, V]` after each node, level by level; zeros beyond the head's reach."""
        depths = step.tree.depth.tolist()
        tree = SimpleNamespace(
            token=step.tree.token.tolist(), parent=step.tree.parent.tolist(), depth=depths
        )
        verified = 0 not in step.drafted
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


class HeadSearch:
    """Other states that a head may have read in a wrong iteration."""

    def __init__(self, oracle: HeadOracle, measured: Measured) -> None:
        self.oracle = oracle
        self.measured = measured

    def tries(self) -> Iterator[Iterator[Change]]:
        yield self._states()

    def _states(self) -> Iterator[Change]:
        oracle = self.oracle
        count = oracle.model.config.get_text_config(decoder=True).num_hidden_layers
        layers = [layer % (count + 1) for layer in oracle.head.layers]
        changes: dict[str, dict[str, Any]] = {"position before": {"moved": 1}}
        if min(layers):
            changes["layer before"] = {"deeper": -1}
        if max(layers) < count:
            changes["layer after"] = {"deeper": 1}
        elif final_norm(oracle.model):
            changes["last layer before the final norm"] = {"plain": True}
        for which, given in changes.items():
            says = f"the head {oracle.head.name} reads the states of the {which}"
            yield Change("states", says, given)

    def gaps(self, change: Change) -> list[float]:
        """Of every row."""
        oracle = self.oracle
        if change.given:
            oracle = HeadOracle(oracle.trace, oracle.pair, oracle.head, **change.given)
        step = self.measured.step
        return oracle.gaps(step, oracle.log_probs(step, oracle.answers(step)))
