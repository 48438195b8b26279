"""A target at eight bits drafts for itself: a copy of its module whose products read int8 weights.

The copy shares every tensor of the target; only the int8 weights and their scales are new, a byte
per weight. torch's own product reads them in bfloat16, so a row costs about half of a bfloat16 row
of the target; with more rows it costs more than the target's product, which is taken there.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from speclab.errors import SettingsError, first_line
from speclab.models.transfers import is_spread

FEW = 4
"""Most rows that read int8 weights; measured on a CPU with AVX-512."""
STEP = 16
"""torch's product reads beyond the weights if their inner size is no multiple of it."""
LARGEST = 127


class EightBit(nn.Linear):
    """A product whose weights are rounded to int8, with a scale per output.

    `weight` and `bias` are the target's own tensors.
    """

    def __init__(self, part: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features = part.in_features
        self.out_features = part.out_features
        self.weight = part.weight
        self.register_parameter("bias", part.bias)
        weights = part.weight.detach().float()
        # [outputs]: the largest weight of each becomes 127
        scales = weights.abs().amax(1).clamp(min=1e-12) / LARGEST
        self.eight: Tensor
        self.scales: Tensor
        rounded = (weights / scales[:, None]).round().to(torch.int8)
        self.register_buffer("eight", rounded)
        self.register_buffer("scales", scales.to(torch.bfloat16))

    def forward(self, rows: Tensor) -> Tensor:
        flat = rows.reshape(-1, self.in_features)
        if len(flat) > FEW:
            return F.linear(rows, self.weight, self.bias)
        product = torch._weight_int8pack_mm(flat.bfloat16(), self.eight, self.scales)
        out = product.to(rows.dtype).view(rows.shape[:-1] + (self.out_features,))
        bias: Tensor | None = self.bias
        if bias is None:
            return out
        return out + bias


@torch.no_grad()
def at_eight_bits(model: PreTrainedModel, name: str) -> PreTrainedModel:
    """A copy of a target whose products read int8 weights.

    Raises:
        SettingsError: it is quantised already, spread over devices, or has no weights that can be
            rounded; torch has no such product here.
    """
    way_out = 'leave draft out, or pass draft="self" to see a draft that is always right'
    quantized = getattr(model, "hf_quantizer", None) or hasattr(model.config, "quantization_config")
    if quantized:
        raise SettingsError(
            f'draft="int8" rounds weights, and those of {name} are quantised already: load its '
            "original in bfloat16, or pass another draft."
        )
    if is_spread(model):
        raise SettingsError(
            f'draft="int8" needs {name} on one device, and its device_map spreads it: {way_out}.'
        )
    parts: dict[str, nn.Linear] = {}
    for place, part in model.named_modules():
        if type(part) is nn.Linear and part.in_features % STEP == 0:
            parts[place] = part
    if not parts:
        raise SettingsError(
            f'draft="int8" finds no product in {name} whose inner size is a multiple of {STEP}: '
            f"{way_out}."
        )
    for place, part in parts.items():
        if not torch.isfinite(part.weight).all():
            raise SettingsError(
                f'draft="int8" cannot round {place} of {name}, whose weights are not finite: load '
                "the model again, or choose another."
            )
    tensors: list[Tensor] = list(model.parameters()) + list(model.buffers())
    shared: dict[int, Any] = {id(tensor): tensor for tensor in tensors}
    copied = copy.deepcopy(model, shared)
    try:
        for place, part in parts.items():
            eight = EightBit(part)
            copied.set_submodule(place, eight)
        eight(eight.weight[:1].detach())
    except RuntimeError as error:
        reason = first_line(error, 60)
        raise SettingsError(
            f'draft="int8" needs a product that torch lacks on {model.device} ({reason}): {way_out}.'
        ) from None
    return copied
