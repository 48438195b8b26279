"""Optional faster implementations of the forward pass, behind one door: `implementations`.

What is here computes the module's own logits with less overhead: a lean forward in the place of the module's Python
(`lean`), on a CPU with packed weights for small models (`packed`), CUDA graphs (`graphs` over `static_cache`),
and exact arithmetic (`exact`), in which a row's bits depend on nothing but its own text.
`load_pair(…, fast=False)`, or `Runner(…, fast=False)`, never opens the door: every pass is the module's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers import PreTrainedModel

from speclab.models.fast.graphs import GraphForward
from speclab.models.fast.lean import LeanForward, lean_forward
from speclab.models.masks import MaskPlan

if TYPE_CHECKING:
    from speclab.models.forward import Implementation


def implementations(
    model: PreTrainedModel, *, bitwise: bool = False, pack: bool = True
) -> tuple[list[Implementation], LeanForward | None, str]:
    """What runs a module's passes faster than the module, the fastest first; the lean one of them; why there is none.

    The reason is empty for a family that was never written out, and where there are some.
    """
    lean = lean_forward(model, bitwise=bitwise, pack=pack)
    if not isinstance(lean, LeanForward):
        return [], None, lean
    banded = MaskPlan.of(model.config).window is not None  # a graph's mask knows no window
    graphs = [GraphForward(lean, model)] if model.device.type == "cuda" and not banded else []
    return [*graphs, lean], lean, ""
