"""What passes between host and device: up without a wait, and down once a pass, with the check that it is finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from speclab.errors import LogitsError
from speclab.models.answer import Answer, Ids, topk


def to_device(values: Sequence[int] | NDArray[Any], device: torch.device) -> Tensor:
    """Values of the host as a tensor on `device`; on CUDA nothing waits until they are there.

    A copy that does not wait reads the host's memory later, and only from pinned memory, which may not be written
    meanwhile. It is new each time: torch's allocator gives pinned memory out again when the device has read it.
    """
    host = torch.from_numpy(values) if isinstance(values, np.ndarray) else torch.tensor(values)
    if device.type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)


def check_finite(
    logits: Tensor,
    k: int,
    name: str,
    *,
    allow_nonfinite: bool = False,
    ids: Ids | None = None,
    vocab_size: int = 0,
) -> Answer:
    """The answer of a pass, which must be finite: one that overflowed, or damaged weights, must not choose a token.

    Args:
        logits: `[m, V]`.
        k: most probable tokens of each row that come from a device with the check and the argmax.
        allow_nonfinite: the reader replaces those that are not finite, so they are not refused.
        ids, vocab_size: of a draft vocabulary, as in `Answer`.

    Raises:
        LogitsError: a row has a NaN, an infinity, or nothing but minus infinity.
    """
    choice = top = None
    rows_finite = torch.isfinite(logits.amax(-1))  # a NaN wins the maximum of its row, and that may not be infinite
    if logits.device.type == "cpu":
        finite = bool(rows_finite.all())
    else:  # one transfer for the check and what comes with it: the only wait of a pass
        parts = [rows_finite.int()[:, None], logits.argmax(-1).int()[:, None]]
        if k:
            log_probs, best = topk(logits.float().log_softmax(-1), k)
            parts += [best.int(), log_probs.view(torch.int32)]
        host = torch.cat(parts, 1).cpu().numpy()
        finite = bool(host[:, 0].all())
        count = (host.shape[1] - 2) // 2
        tokens = host[:, 1 : 2 + count].astype(np.int64)
        tokens = tokens if ids is None else ids[tokens]
        choice = tokens[:, 0]
        if k:
            top = tokens[:, 1:], np.ascontiguousarray(host[:, 2 + count :]).view(np.float32)
    if not finite and not allow_nonfinite:
        raise LogitsError(
            f"{name} gave logits that are no numbers (NaN or infinity) in {str(logits.dtype).removeprefix('torch.')}: "
            f"{nonfinite_advice(logits.dtype)}"
        )
    return Answer(logits, choice=choice, top=top, ids=ids, vocab_size=vocab_size)


def nonfinite_advice(dtype: torch.dtype) -> str:
    """What to do about a model whose logits are not finite in this dtype."""
    if dtype.itemsize < 4:
        return "load it with dtype='float32', in which larger numbers fit"
    return "its weights are damaged, or hold such numbers themselves: load them again, or choose another model"
