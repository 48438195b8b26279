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


def summarize(logits: Tensor, k: int) -> Tensor:
    """What the host reads of logits `[m, V]`: `[m, 1 + n]` int32, whether a row is finite, and tokens of it.

    Args:
        k: so many ids, the most probable first, then the bits of their float32 log-probabilities; 0: the argmax alone.
    """
    finite = _is_finite(logits)[:, None].int()
    if not k:
        return torch.cat((finite, logits.argmax(-1, keepdim=True).int()), 1)
    log_probs, ids = topk(logits.float().log_softmax(-1), k)
    return torch.cat((finite, ids.int(), log_probs.view(torch.int32)), 1)


def check_finite(
    logits: Tensor,
    summary: Tensor | None,
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
        summary: what `summarize` gives of them, if it was worked out with the pass.
        k: as in `summarize`.
        allow_nonfinite: whoever reads them replaces those that are not finite, so they are not refused.
        ids, vocab_size: of a draft vocabulary, as in `Answer`.

    Raises:
        LogitsError: a row has a NaN, an infinity, or nothing but minus infinity.
    """
    choice = top = None
    if logits.device.type == "cpu":
        finite = allow_nonfinite or bool(_is_finite(logits).all())
    else:  # one transfer for the check and what comes with it: the only wait of a pass
        host = (summarize(logits, k) if summary is None else summary).cpu().numpy()
        finite = bool(host[:, 0].all())
        tokens = host[:, 1 : max(k, 1) + 1].astype(np.int64)
        tokens = tokens if ids is None else ids[tokens]
        if k:
            top = tokens, np.ascontiguousarray(host[:, k + 1 :]).view(np.float32)
        else:
            choice = tokens[:, 0]
    if not finite and not allow_nonfinite:
        raise LogitsError(
            f"{name} gave logits that are no numbers (NaN or infinity) in {str(logits.dtype).removeprefix('torch.')}: "
            f"{nonfinite_advice(logits.dtype)}"
        )
    return Answer(logits, choice=choice, top=top, ids=ids, vocab_size=vocab_size)


def _is_finite(logits: Tensor) -> Tensor:
    """`[m]` bool. One maximum a row finds them out: NaN wins it, and it may not be infinite."""
    return torch.isfinite(logits.amax(-1))


def nonfinite_advice(dtype: torch.dtype) -> str:
    """What to do about a model whose logits are not finite in this dtype."""
    if dtype.itemsize < 4:
        return "load it with dtype='float32', in which larger numbers fit"
    return "its weights are damaged, or hold such numbers themselves: load them again, or choose another model"
