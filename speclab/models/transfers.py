"""What passes between host and device: up without a wait, down in one transfer a pass; and the fast top-k of a pass."""

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


def topk(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """What `rows.topk(k)` gives, three to eight times as fast where rows are wide.

    The `k` largest lie in the `k` columns of stripes that have the largest maxima, so the rest is not looked at. Of
    equal values any may come first, as in torch.

    Args:
        rows: `[n, V]`, any float dtype.
        k: how many of each row; all of a row that has fewer.

    Returns:
        Values and int64 indices, `[n, min(k, V)]`, the largest first.
    """
    count, columns = rows.shape[-1], rows.shape[-1] // STRIPES
    if columns <= 2 * k or rows.numel() < FEW:
        found = rows.topk(min(k, count))
        return found.values, found.indices
    whole = columns * STRIPES
    striped = rows[:, :whole].unflatten(1, (STRIPES, columns))
    best = striped.amax(1).topk(k, sorted=False).indices
    places = (best[:, None] + torch.arange(0, whole, columns, device=rows.device)[:, None]).flatten(1)
    if whole < count:
        rest = torch.arange(whole, count, device=rows.device)
        places = torch.cat([places, rest.expand(len(rows), -1)], 1)
    found = rows.gather(1, places).topk(k)
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


def to_host(ids: Tensor, scores: Tensor) -> NDArray[np.int32]:
    """Ids and float32 scores side by side, `[n, 2, k]`, the second as their bits.

    From another device they come in one transfer, hence with one wait for it.
    """
    if ids.device.type != "cpu":
        return torch.stack((ids.int(), scores.view(torch.int32)), 1).cpu().numpy()
    rows = np.empty((ids.shape[0], 2, ids.shape[1]), np.int32)  # NumPy's small copies cost less than torch's
    rows[:, 0], rows[:, 1] = ids.numpy(), scores.numpy().view(np.int32)
    return rows


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


KEPT = 16
"""Most probable tokens of a row that are searched for at least, and that a session keeps of every row."""


class Logits:
    """What a pass computed: `rows` `[m, V]`, in the model's dtype and on its device, and what the host reads of them.

    Args:
        k: how many tokens per row `summary` holds; 0 of the argmax.
        summary: what `summarize` gives, where it came with the pass; else it is worked out when it is asked for.
        ids: the token id of each column, int64 `[V]`, where the columns are those of a draft vocabulary.
    """

    def __init__(
        self, rows: Tensor, k: int = 0, summary: NDArray[np.int32] | None = None, ids: NDArray[np.int64] | None = None
    ) -> None:
        self._rows, self.ids, self._k, self._summary = rows, ids, k, summary
        self._searched: tuple[Tensor, Tensor] | None = None

    @property
    def rows(self) -> Tensor:
        """The logits, `[m, V]`."""
        return self._rows

    @property
    def decided(self) -> bool:
        """Whether `choice` is the target's whatever the sampling: so where a text that is known answers."""
        return False

    def choice(self, row: int) -> int:
        """The argmax of a row."""
        return self.choices[row]

    def scores(self, row: int) -> Tensor:
        """What the target's distribution after a row is made of, `[V]`: the row itself."""
        return self.rows[row]

    def part(self, rows: slice | list[int]) -> Logits:
        """Some of the rows; where they are all of them, the same object, with what was worked out of it."""
        if isinstance(rows, slice) and len(range(*rows.indices(len(self.rows)))) == len(self.rows):
            return self
        return Logits(self.rows[rows], self._k, None if self._summary is None else self._summary[rows], self.ids)

    @cached_property
    def probs(self) -> Tensor:
        """`[m, V]` float32, the softmax."""
        return self.rows.float().softmax(-1)  # on CPU twice as fast as logsumexp

    def most_probable(self, k: int) -> tuple[Tensor, Tensor]:
        """The `k` most probable tokens of each row, best first: probabilities float32 and ids int64, `[m, k]`."""
        if self._searched is None or self._searched[0].shape[-1] < min(k, self.rows.shape[-1]):
            self._searched = topk(self.probs, max(k, KEPT))
        probs, ids = self._searched
        return probs[:, :k], ids[:, :k]

    def successors(self, k: int) -> NDArray[np.int32]:
        """As `most_probable`, on the host: `[m, 2, k]`, ids and the bits of the probabilities.

        A row that is not known has the id -1.
        """
        probs, ids = self.most_probable(k)
        return to_host(ids, probs)

    @cached_property
    def choices(self) -> list[int]:
        """The argmax of every row."""
        if self._summary is not None and not self._k:
            chosen: list[int] = self._summary[:, 1].tolist()
        else:
            chosen = self.rows.argmax(-1).tolist()
        return chosen if self.ids is None else self.ids[chosen].tolist()

    def topk_logprobs(self, k: int) -> list[tuple[tuple[int, float], ...]]:
        """The `k` most probable tokens of each row and their log-probabilities, best first."""
        if self._summary is not None and self._k == k:
            ids, bits = np.split(self._summary[:, 1:], 2, axis=1)
        else:
            log_probs, best = topk(self.rows.float().log_softmax(-1), k)
            ids, bits = to_host(best, log_probs).swapaxes(0, 1)
        names = ids if self.ids is None else self.ids[ids]
        columns = zip(names.tolist(), np.ascontiguousarray(bits).view(np.float32).tolist(), strict=True)
        return [tuple(zip(tokens, probs, strict=True)) for tokens, probs in columns]


def check_finite(
    logits: Tensor,
    summary: Tensor | None,
    k: int,
    name: str,
    *,
    allow_nonfinite: bool = False,
    ids: NDArray[np.int64] | None = None,
) -> Logits:
    """The logits of a pass, which must be finite: one that overflowed, or damaged weights, must not choose a token.

    Args:
        logits: `[m, V]`.
        summary: what `summarize` gives of them, if it was worked out with the pass.
        k: as in `summarize`.
        allow_nonfinite: whoever reads them replaces those that are not finite, so they are not refused.
        ids: the token id of each column, as in `Logits`.

    Raises:
        LogitsError: a row has a NaN, an infinity, or nothing but minus infinity.
    """
    if logits.device.type == "cpu":
        host, finite = None, allow_nonfinite or bool(_is_finite(logits).all())
    else:  # one transfer for the check and what comes with it: the only wait of a pass
        host = (summarize(logits, k) if summary is None else summary).cpu().numpy()
        finite = bool(host[:, 0].all())
    if not finite and not allow_nonfinite:
        raise LogitsError(
            f"{name} gave logits that are no numbers (NaN or infinity) in {str(logits.dtype).removeprefix('torch.')}: "
            f"{nonfinite_advice(logits.dtype)}"
        )
    return Logits(logits, k, host, ids)


def _is_finite(logits: Tensor) -> Tensor:
    """`[m]` bool. One maximum a row finds them out: NaN wins it, and it may not be infinite."""
    return torch.isfinite(logits.amax(-1))


def nonfinite_advice(dtype: torch.dtype) -> str:
    """What to do about a model whose logits are not finite in this dtype."""
    if dtype.itemsize < 4:
        return "load it with dtype='float32', in which larger numbers fit"
    return "its weights are damaged, or hold such numbers themselves: load them again, or choose another model"
