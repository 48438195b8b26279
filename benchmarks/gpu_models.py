"""Models of real shapes with random weights; their logits are overwritten: real time, modelled agreement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from speclab.errors import OutOfMemoryError, SettingsError
from speclab.models.cache import KVCache
from speclab.models.forward import Batch, Forward, ForwardOutput
from speclab.models.memory import is_out_of_memory
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner
from speclab.models.transfers import to_device

GUESSES = 5
"""Tokens that may follow any token, in the modelled distributions."""
RULED_OUT = -30.0
"""Logit of every other token."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A target and its draft: family, number format, and the config fields of each."""

    family: str
    dtype: torch.dtype
    target: dict[str, Any]
    draft: dict[str, Any]


def _sizes(hidden: int, layers: int, heads: int, inner: int, **others: Any) -> dict[str, Any]:
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    return sizes | {"intermediate_size": inner} | others


_PYTHIA = {"vocab_size": 50304, "max_position_embeddings": 2048, "rotary_pct": 0.25}
_LLAMA = {"vocab_size": 128256, "max_position_embeddings": 8192, "num_key_value_heads": 8, "rope_theta": 5e5}
_TINY = {"vocab_size": 512, "max_position_embeddings": 512}
SHAPES = {
    "pythia": Shape(
        "gpt_neox", torch.float16, _sizes(2560, 32, 32, 10240, **_PYTHIA), _sizes(512, 6, 8, 2048, **_PYTHIA)
    ),
    "llama": Shape(
        "llama",
        torch.bfloat16,
        _sizes(4096, 32, 32, 14336, **_LLAMA),
        _sizes(2048, 16, 32, 8192, **_LLAMA, tie_word_embeddings=True),
    ),
    "tiny": Shape("gpt_neox", torch.float32, _sizes(64, 2, 4, 128, **_TINY), _sizes(32, 1, 4, 64, **_TINY)),
}
"""Pythia-2.8B with Pythia-70M, Llama-3-8B with Llama-3.2-1B (at a context of 8,192), and one for tests."""


def shape(name: str) -> Shape:
    """A shape by name.

    Raises:
        SettingsError: there is none; the message lists all.
    """
    if name not in SHAPES:
        raise SettingsError(f"There is no shape {name!r}: choose one of {', '.join(SHAPES)}.")
    return SHAPES[name]


def random_pair(chosen: Shape, device: torch.device, dtype: torch.dtype | None = None) -> ModelPair:
    """A pair of that shape, made on the device; no weights are read, so no text comes of it.

    Raises:
        OutOfMemoryError: it does not fit.
    """
    runners = []
    for sizes in (chosen.target, chosen.draft):
        config = CONFIG_MAPPING[chosen.family](**sizes)
        try:
            with torch.device(device):
                runners.append(Runner(AutoModelForCausalLM.from_config(config, dtype=dtype or chosen.dtype)))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise OutOfMemoryError(f"Models of this shape do not fit {device}: choose a smaller shape.") from None
    return ModelPair(runners[0], runners[1], name=" + ".join(runner.name for runner in runners)).fresh()


class Modelled:
    """Runs every pass, then overwrites its logits, on the device: what follows depends on token and position.

    Any token has `GUESSES` successors. The draft gives them the probabilities of `probs`; the target is certain of one,
    each with the probability that the draft gives it: a draft that knows how sure it may be.

    Args:
        inner: what computes the passes.
        probs: `[GUESSES]`, sums to at most 1.
        right: `[positions]` int64, which successor the target chooses after each position; None for the draft.
    """

    def __init__(self, inner: Forward, probs: Tensor, right: Tensor | None) -> None:
        self._inner, self._log_probs, self._right = inner, probs.log(), right
        self._places = torch.arange(GUESSES, device=probs.device)

    @property
    def name(self) -> str:
        """For records."""
        return f"{self._inner.name}, modelled logits"

    def __call__(self, batch: Batch, cache: KVCache) -> ForwardOutput:
        """A pass, as `Forward` says, with other logits."""
        output = self._inner(batch, cache)
        logits = output.logits.fill_(RULED_OUT)
        count = len(logits)
        tokens, positions = (to_device(given[-count:], logits.device) for given in (batch.tokens, batch.positions))
        successors = (tokens[:, None] * 7 + self._places * 31 + 1) % logits.shape[-1]
        if self._right is None:
            logits.scatter_(1, successors, self._log_probs.to(logits.dtype).expand(len(logits), -1))
        else:
            logits.scatter_(1, successors.gather(1, self._right[positions][:, None]), 0.0)
        return output._replace(summary=None)


def modelled(pair: ModelPair, acceptance: float) -> ModelPair:
    """The pair with distributions in which the draft's first guess is right with probability `acceptance`.

    The second is with half of what is left, each further one half as often.
    """
    device, draft = pair.target.device, pair.draft
    assert draft is not None
    probs = torch.tensor([acceptance, *((1 - acceptance) / 2**place for place in range(1, GUESSES))])
    positions = pair.target.context or 1 << 16
    rng = torch.Generator().manual_seed(0)
    right = torch.multinomial(probs, positions, replacement=True, generator=rng)
    twin = pair.fresh()
    assert twin.draft is not None
    twin.target.implementation = Modelled(pair.target.implementation, probs.to(device), right.to(device))
    twin.draft.implementation = Modelled(draft.implementation, probs.to(device), None)
    return twin
