"""The attention weights of one row of a tree pass, computed on demand.

Fused attention never holds these weights, so the row is run again with eager attention, on a copy of the module that
shares its weights. The copy attends to the cache of a fork: neither the module nor anybody's cache is written to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from speclab.errors import NotRecordedError, SpeclabError, UnsupportedModelError
from speclab.models.cache import KVCache
from speclab.models.forward import Batch, ForwardOutput, ModuleForward
from speclab.models.memory import is_spread
from speclab.models.probe import sharing_weights
from speclab.models.runner import Runner
from speclab.tree import Bools

EAGER = "eager"


def attention_weights(
    runner: Any, prefix: Sequence[int], tokens: Sequence[int], positions: Sequence[int], visible: Bools, row: int
) -> NDArray[np.float32]:
    """What one of `n` rows attends to, `[layers, heads, len(prefix) + n]` float32; the runner stays as it is.

    Where its module was changed since the prefix was cached, it is the attention of the module as it is now.

    Args:
        runner: of a model; its cache begins with the prefix.
        prefix: ids that all rows see, where no window hides them.
        tokens, positions: of the `n` rows.
        visible: `[n, n]` bool, which rows each row sees.

    Raises:
        UnsupportedModelError, NotRecordedError: its attention cannot be read; the message says why.
    """
    if not isinstance(runner, Runner) or not isinstance(runner.model, PreTrainedModel):
        raise NotRecordedError(f"{runner.name} is no model of transformers, so there are no attention weights to read.")
    if is_spread(runner.model):
        raise UnsupportedModelError(
            f"The attention of {runner.name} cannot be read, because its weights are quantised or lie on several "
            "devices: load it unquantised on one device."
        )
    twin = runner.fork(len(prefix))
    model = sharing_weights(runner.model)
    twin.cache.watch(())
    twin.implementation = ModuleForward(model)
    if twin.length < len(prefix):
        twin.extend(prefix)
    twin.forward(tokens, positions, visible)  # keys and values of all rows: also of those that this row must not see
    # The row comes once more, alone: in place of its first self it sees its second, in the last column.
    sees = visible[row].copy()
    sees[row] = False
    try:
        if model.config._attn_implementation != EAGER:
            model.set_attn_implementation(EAGER)
        eager = twin.implementation = _EagerForward(model)
        twin.forward([tokens[row]], [positions[row]], np.append(sees, visible[row, row])[None])
        weights = torch.stack([layer[0, :, -1] for layer in eager.weights]).float().cpu().numpy()
    except SpeclabError:
        raise
    except Exception as error:  # whatever a foreign module raises, the reason is the same
        why = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:120]}"
        raise UnsupportedModelError(
            f"{runner.name} gives no attention weights ({why}): choose another target."
        ) from error
    found: NDArray[np.float32] = weights[..., :-1]
    found[..., len(prefix) + row] += weights[..., -1]
    return found


class _EagerForward(ModuleForward):
    """Through a module that attends eagerly; keeps the weights of the last pass, `[1, heads, rows, columns]` each."""

    weights: Sequence[Tensor] = ()

    def __call__(self, batch: Batch, cache: KVCache) -> ForwardOutput:
        output, mask = self._run(batch, cache, output_attentions=True)
        self.weights = output.attentions or ()
        return ForwardOutput(output.logits[0], None, mask)
