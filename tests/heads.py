"""Random draft heads, with weights large enough for a wrong feature, mask or position to show."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from speclab.models.eagle import Head, HeadConfig


def random_head(
    target: PreTrainedModel,
    seed: int = 0,
    name: str = "head",
    ids: Sequence[int] | None = None,
    *,
    own_output: bool = False,
    **overrides: object,
) -> Head:
    """A head that fits `target`; the same arguments give the same weights; `overrides` are config fields.

    `ids`: its draft vocabulary; None: it has none. Which it is changes none of the other weights.
    """
    config = target.config.get_text_config(decoder=True)
    shape = {"heads": 4, "key_value_heads": 2, "feed_forward": 48} | overrides
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = {"vocab_size": config.vocab_size, "hidden_size": config.hidden_size}
        proposed = None if ids is None else len(ids)
        head = Head(HeadConfig(name=name, draft_vocab_size=proposed, **sizes, **shape), own_output=own_output)
        if ids is not None:
            head.choose_tokens(torch.tensor(ids))
        with torch.no_grad():
            for parameter in head.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(std=0.2)
                else:
                    parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return head.eval()
