"""Host and device: copies up without a wait, and one checked copy down per pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from speclab.errors import LogitsError, UnsupportedModelError
from speclab.models.answer import Answer, Ids, topk


def to_device(values: Sequence[int] | NDArray[Any], device: torch.device) -> Tensor:
    """Host values as a tensor on `device`, without a wait on CUDA.

    An asynchronous copy reads the host's memory later, so it needs pinned memory that nobody
    overwrites. It is allocated each time; torch reuses pinned memory after the device has read it.
    """
    host = torch.as_tensor(values, device="cpu")  # also under torch.set_default_device
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
    """The answer of a pass; refuses logits that are not finite, so that an overflow or damaged
    weights choose no token.

    Args:
        logits: `[m, V]`.
        k: most probable tokens per row to copy from a device with the check and the argmax.
        allow_nonfinite: do not refuse; the reader replaces such values.
        ids, vocab_size: of a draft vocabulary, as in `Answer`.

    Raises:
        LogitsError: a row has a NaN, an infinity, or only minus infinity.
    """
    choice = top = None
    rows_finite = torch.isfinite(logits.amax(-1))  # the maximum of a row with a NaN is NaN
    if logits.device.type == "cpu":
        finite = bool(rows_finite.all())
    else:  # one transfer, the only wait of a pass
        parts = [rows_finite.int()[:, None], logits.argmax(-1).int()[:, None]]
        if k:
            log_probs, best = topk(logits.float().log_softmax(-1), k)
            parts += [best.int(), log_probs.view(torch.int32)]
        host = torch.cat(parts, 1).cpu().numpy()
        finite = bool(host[:, 0].all())
        count = (host.shape[1] - 2) // 2
        tokens = host[:, 1 : 2 + count].astype(np.int64)
        if ids is not None:
            tokens = ids[tokens]
        choice = tokens[:, 0]
        if k:
            top = tokens[:, 1:], np.ascontiguousarray(host[:, 2 + count :]).view(np.float32)
    if not finite and not allow_nonfinite:
        raise LogitsError(
            f"The logits of {name} are not finite (NaN or infinity) in "
            f"{str(logits.dtype).removeprefix('torch.')}: {nonfinite_advice(logits.dtype)}."
        )
    return Answer(logits, choice=choice, top=top, ids=ids, vocab_size=vocab_size)


def nonfinite_advice(dtype: torch.dtype) -> str:
    """The way out if a model's logits are not finite in this dtype."""
    if dtype.itemsize < 4:
        return "load it with dtype='float32', which has a larger range"
    return "its weights are damaged or not finite; load them again, or choose another model"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out; on a CPU torch raises a plain RuntimeError."""
    words = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


def check_placed(model: PreTrainedModel, name: str) -> None:
    """Raises `UnsupportedModelError` if weights are missing, or the inputs have no device."""
    # those of an offloaded part are brought by a hook of accelerate's
    parts = [part for part in model.modules() if not hasattr(part, "_hf_hook")]
    if any(weight.is_meta for part in parts for weight in part.parameters(recurse=False)):
        raise UnsupportedModelError(
            f"{name} has no weights in some of its parts (device meta): load it with "
            "from_pretrained."
        )
    if model.device.type == "meta":
        raise UnsupportedModelError(
            f"{name} has its embedding offloaded, so its inputs have no device: load it with a "
            "device_map that keeps the embedding on a device."
        )


def is_spread(model: nn.Module) -> bool:
    """Whether a model's weights are on several devices, on disk, or in several processes."""
    devices = getattr(model, "hf_device_map", None) or {}
    return len(set(devices.values())) > 1 or not has_plain_weights(model)


def has_plain_weights(model: nn.Module) -> bool:
    """Whether every weight is a whole tensor; with tensor parallelism it is a part (`DTensor`)."""
    return all(type(weight) is nn.Parameter for weight in model.parameters())
