"""The likeliest next tokens of many rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from speclab.errors import LogitsError

STRIPES = 16
"""A wide row is searched as so many stripes, first by the largest of each place in them; measured: 16 of 8 to 64."""
FEW = 1 << 16
"""Fewer numbers than this are searched as they stand; measured on a CPU."""


@torch.inference_mode()
def likeliest(logits: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Ids and probabilities of the `width` likeliest tokens of each row, best first, on the device of the logits.

    Args:
        logits: `[n, V]`, any float dtype.

    Returns:
        `[n, min(width, V)]` int64 ids and float32 probabilities.
    """
    law = logits.float().softmax(-1)  # on CPU twice as fast as logsumexp
    probabilities, ids = largest(law, min(width, law.shape[-1]))
    return ids, probabilities


def largest(rows: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """What `rows.topk(width)` gives, values and places `[n, width]`, three to eight times as fast where rows are wide.

    The `width` largest lie in the `width` columns of stripes that have the largest maxima, so the rest is not looked
    at. Of equal values any may come first, as in `topk`.
    """
    count, columns = rows.shape[-1], rows.shape[-1] // STRIPES
    if columns <= 2 * width or rows.numel() < FEW:
        found = rows.topk(width)
        return found.values, found.indices
    whole = columns * STRIPES
    striped = rows[:, :whole].unflatten(1, (STRIPES, columns))
    best = striped.amax(1).topk(width, sorted=False).indices
    places = (best[:, None] + torch.arange(0, whole, columns, device=rows.device)[:, None]).flatten(1)
    if whole < count:
        rest = torch.arange(whole, count, device=rows.device)
        places = torch.cat([places, rest.expand(len(rows), -1)], 1)
    found = rows.gather(1, places).topk(width)
    return found.values, places.gather(1, found.indices)


def to_device(values: Sequence[int] | NDArray[Any], device: torch.device) -> Tensor:
    """Values of the host as a tensor on `device`; on CUDA nothing waits until they are there.

    A copy that does not wait reads the host's memory later, and only from pinned memory, which may not be written
    meanwhile. It is new each time: torch's allocator gives pinned memory out again when the device has read it.
    """
    host = torch.from_numpy(values) if isinstance(values, np.ndarray) else torch.tensor(values)
    if device.type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)


def on_host(ids: Tensor, probabilities: Tensor) -> NDArray[np.int32]:
    """Ids and probabilities side by side, `[n, 2, width]`, the second as the bits of float32.

    From another device they come in one transfer, hence with one wait for it.
    """
    if ids.device.type != "cpu":
        return torch.stack((ids.int(), probabilities.view(torch.int32)), 1).cpu().numpy()
    rows = np.empty((ids.shape[0], 2, ids.shape[1]), np.int32)  # NumPy's small copies cost less than torch's
    rows[:, 0], rows[:, 1] = ids.numpy(), probabilities.numpy().view(np.int32)
    return rows


def digest(logits: Tensor, likeliest: int) -> Tensor:
    """What the host reads of logits `[m, V]`: `[m, 1 + k]` int32, whether a row is of numbers, and tokens of it.

    Args:
        likeliest: so many ids, best first, then the bits of their float32 log-probabilities; 0: the argmax alone.
    """
    numbers = _finite(logits)[:, None].int()
    if not likeliest:
        return torch.cat((numbers, logits.argmax(-1, keepdim=True).int()), 1)
    log_probs, ids = largest(logits.float().log_softmax(-1), min(likeliest, logits.shape[-1]))
    return torch.cat((numbers, ids.int(), log_probs.view(torch.int32)), 1)


class Logits:
    """What a pass answers: `rows` `[m, V]`, in the model's dtype and on its device, and what the host reads of them.

    Args:
        rows: the logits.
        likeliest: of how many tokens a row `found` tells; 0 of the argmax.
        found: what `digest` has of them, where it came with the pass; else it is worked out when it is asked for.
    """

    def __init__(self, rows: Tensor, likeliest: int = 0, found: NDArray[np.int32] | None = None) -> None:
        self.rows, self._likeliest, self._found = rows, likeliest, found

    @cached_property
    def choices(self) -> list[int]:
        """The argmax of every row."""
        if self._found is not None and not self._likeliest:
            chosen: list[int] = self._found[:, 1].tolist()
        else:
            chosen = self.rows.argmax(-1).tolist()
        return chosen

    def likeliest(self, width: int) -> list[tuple[tuple[int, float], ...]]:
        """The `width` likeliest tokens of each row and their log-probabilities, best first."""
        if self._found is not None and self._likeliest == width:
            ids, bits = np.split(self._found[:, 1:], 2, axis=1)
        else:
            law = self.rows.float().log_softmax(-1)
            log_probs, best = largest(law, min(width, law.shape[-1]))
            ids, bits = on_host(best, log_probs).swapaxes(0, 1)
        columns = zip(ids.tolist(), np.ascontiguousarray(bits).view(np.float32).tolist(), strict=True)
        return [tuple(zip(tokens, probs, strict=True)) for tokens, probs in columns]


def checked(logits: Tensor, found: Tensor | None, likeliest: int, name: str, *, mended: bool = False) -> Logits:
    """The logits of a pass, which must be numbers: one that overflowed, or damaged weights, must not choose a token.

    Args:
        logits: `[m, V]`.
        found: their `digest`, if it was worked out with the pass.
        likeliest: as in `digest`.
        name: of the model.
        mended: whoever reads them mends those that are no numbers, so they are not refused.

    Raises:
        LogitsError: a row has a NaN, an infinity, or nothing but minus infinity.
    """
    if logits.device.type == "cpu":
        host, numbers = None, mended or bool(_finite(logits).all())
    else:  # one transfer for the check and what comes with it: the only wait of a pass
        host = (digest(logits, likeliest) if found is None else found).cpu().numpy()
        numbers = bool(host[:, 0].all())
    if not numbers and not mended:
        raise LogitsError(
            f"{name} gave logits that are no numbers (NaN or infinity) in {str(logits.dtype).removeprefix('torch.')}: "
            f"{way_out(logits.dtype)}"
        )
    return Logits(logits, likeliest, host)


def _finite(logits: Tensor) -> Tensor:
    """`[m]` bool. One maximum a row finds them out: NaN wins it, and it may not be infinite."""
    return torch.isfinite(logits.amax(-1))


def way_out(dtype: torch.dtype) -> str:
    """What to do about a model whose logits are no numbers in this dtype."""
    if dtype.itemsize < 4:
        return "load it with dtype='float32', in which larger numbers fit"
    return "its weights are damaged, or hold such numbers themselves: load them again, or choose another model"
