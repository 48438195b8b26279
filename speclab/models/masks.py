"""Attention masks for tree passes: additive, 4-D, cut by positions in families with a sliding
window.

Additive (0 is visible, the dtype's lowest number hidden), because eager attention adds a boolean
mask as 0 and 1; 4-D, because a 2-D mask is read as padding. The prefix is always visible; `hidden`
decides which rows of the tree see each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig

from speclab.tree import Bools

Mask = Tensor | dict[str, Tensor] | None

FULL = "full_attention"
SLIDING = "sliding_attention"


@dataclass(frozen=True)
class MaskPlan:
    """How a family takes its masks.

    `window`: a row sees a column if its position is less than `window` above the column's; None
    sees everything. `kinds`: names of the layer kinds if the module takes a dict with one mask per kind;
    empty if it takes one tensor.
    """

    window: int | None = None
    kinds: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: PreTrainedConfig) -> MaskPlan:
        """From a text config's `sliding_window` and `layer_types`."""
        window = getattr(config, "sliding_window", None)
        kinds = tuple(sorted(set(getattr(config, "layer_types", None) or ())))
        if SLIDING in kinds:
            return cls(window, kinds)
        if kinds or getattr(config, "use_sliding_window", True) is False:
            window = None  # every layer has full attention, even if the config has a window
        return cls(window)

    def build(self, hidden: Tensor, positions: Tensor, columns: Tensor, dtype: torch.dtype) -> Mask:
        """The mask of one pass.

        Args:
            hidden: `[m, c]` bool, what each row must not see of the last `c` columns; it sees all
                earlier ones.
            positions: `[m]` int64, position of each row.
            columns: `[n]` int64, position of every cache slot, the new rows included; read for
                windows only.

        Returns:
            `[1, 1, m, n]` of `dtype`, or one such mask per kind of layer.
        """
        low = torch.finfo(dtype).min
        full = torch.zeros(
            (1, 1, len(positions), len(columns)), dtype=dtype, device=positions.device
        )
        full[..., len(columns) - hidden.shape[1] :].masked_fill_(hidden, low)
        if self.window is None:
            return full
        far = positions[:, None] - columns[None, :] >= self.window
        banded = full.masked_fill(far, low)
        if not self.kinds:
            return banded
        masks = dict.fromkeys(self.kinds, banded)
        if FULL in masks:
            masks[FULL] = full
        return masks


def read_back(mask: Mask, rows: int, length: int) -> tuple[Bools, list[int]]:
    """What a mask shows: its last `rows` columns as bool, and per row the number of visible columns
    before.

    Args:
        mask: as given to the model; of a dict, the full-attention mask is read. None shows
            everything to one row.
    """
    if isinstance(mask, dict):
        mask = mask.get(FULL, next(iter(mask.values())))
    shown = np.ones((rows, length))
    if mask is not None:
        shown = (mask[0, 0] == 0).cpu().numpy()  # one transfer
    tree: Bools = shown[:, length - rows :] != 0
    return tree, shown[:, : length - rows].sum(1).astype(int).tolist()
