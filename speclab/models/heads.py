"""Draft heads: one decoder layer that proposes from the target's hidden states (EAGLE, Li et al. 2024).

At every place it reads the embedding of a token and the target's hidden state at the place before it, and gives what
the target's next hidden state may be; the target's own output matrix turns that into next-token logits. Behind a
drafted token, where the target has not been, it reads its own output in place of the target's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional

from speclab.models.cache import KVCache
from speclab.models.fast.packed import Linear, PackedWeights, worth_packing
from speclab.models.forward import heads_as_rows, without_cudnn_attention
from speclab.models.runner import Kept, Runner
from speclab.models.transfers import Logits, check_finite, to_device
from speclab.tree import Bools

Angles = tuple[Tensor, Tensor]
_MOST = 1 << 24  # of any size: more than that is a damaged file


class HeadConfig(BaseModel):
    """Sizes of a head, and the target that it was trained for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field("head", description="what pictures and records call it")
    target: str = Field("", description="name of the target that it was trained for")
    vocab_size: int = Field(ge=2, le=_MOST, description="token ids of the target")
    hidden_size: int = Field(ge=8, le=_MOST, description="width of the target's hidden states")
    draft_vocab_size: int | None = Field(
        None, ge=1, le=_MOST, description="tokens that it can propose, named by d2t and t2d; None: every token id"
    )
    layers: tuple[int, ...] = Field(
        (-1,), min_length=1, description="target layers whose hidden states are fused; -1 the last, 0 the embeddings"
    )
    heads: int = Field(ge=1, le=_MOST, description="attention heads")
    key_value_heads: int = Field(
        ge=1, le=_MOST, description="heads of keys and values, shared by groups of attention heads"
    )
    feed_forward: int = Field(ge=1, le=_MOST, description="width of the feed-forward part")
    rope_theta: float = Field(10000.0, gt=0, description="base of the rotary positions")
    norm_epsilon: float = Field(1e-6, gt=0, description="epsilon of the norm before the feed-forward part")
    bias: bool = Field(default=True, description="whether the joining matrix has a bias")

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.heads


class Head(nn.Module):
    """The trained part of a draft head; parameters and buffers are named as in EAGLE's checkpoints.

    Args:
        own_output: it has an output layer of its own, `lm_head`; else it uses the target's.

    Attributes:
        d2t: of a draft vocabulary; offsets int64 `[draft_vocab]`: its token i is the target's i + d2t[i].
        t2d: which of the target's tokens are in it, bool `[vocab]`.
    """

    def __init__(self, config: HeadConfig, *, own_output: bool = False) -> None:
        super().__init__()
        size = config.hidden_size
        self.config = config
        shared = config.key_value_heads * config.head_dim
        self.fuse = _matrix(len(config.layers) * size, size) if len(config.layers) > 1 else None
        self.fc = nn.Linear(2 * size, size, bias=config.bias)
        block = {
            "self_attn": nn.ModuleDict(
                {
                    "q_proj": _matrix(size, size),
                    "k_proj": _matrix(size, shared),
                    "v_proj": _matrix(size, shared),
                    "o_proj": _matrix(size, size),
                }
            ),
            "mlp": nn.ModuleDict(
                {
                    "gate_proj": _matrix(size, config.feed_forward),
                    "up_proj": _matrix(size, config.feed_forward),
                    "down_proj": _matrix(config.feed_forward, size),
                }
            ),
            "post_attention_layernorm": nn.RMSNorm(size, eps=config.norm_epsilon),
        }
        self.layers = nn.ModuleList([nn.ModuleDict(block)])
        proposed = config.draft_vocab_size or config.vocab_size
        self.lm_head = _matrix(size, proposed) if own_output else None
        if config.draft_vocab_size is not None:
            self.register_buffer("d2t", torch.zeros(proposed, dtype=torch.int64))
            self.register_buffer("t2d", torch.arange(config.vocab_size) < proposed)
        self.products = Products(self)

    @property
    def token_ids(self) -> Tensor | None:
        """The target's id of each token of the draft vocabulary, int64 `[draft_vocab]`; None: it has every token."""
        if self.config.draft_vocab_size is None:
            return None
        offsets: Tensor = self.get_buffer("d2t")
        return offsets + torch.arange(len(offsets), device=offsets.device)

    def choose_tokens(self, ids: Tensor) -> None:
        """Makes the target's tokens `ids`, int64 `[draft_vocab]`, all different, the draft vocabulary."""
        ids = ids.sort().values
        self.get_buffer("d2t").copy_(ids - torch.arange(len(ids), device=ids.device))
        self.get_buffer("t2d").zero_()[ids] = True

    def output_rows(self, output: Tensor) -> Tensor:
        """`[draft_vocab, hidden]`: its own output matrix, or its tokens' rows of the target's, `[vocab, hidden]`."""
        if self.lm_head is not None:
            return self.lm_head.weight
        return output if self.token_ids is None else output[self.token_ids]

    def join(self, embeddings: Tensor, features: Tensor) -> Tensor:
        """One input of a token's embedding and the feature before it, both `[..., hidden]`."""
        joined: Tensor = self.fc(torch.cat((embeddings, features), dim=-1))
        return joined

    def fused(self, states: Tensor) -> Tensor:
        """`[..., layers * hidden]` target states to the feature that the head reads, `[..., hidden]`."""
        return self.fuse(states) if self.fuse is not None else states

    def forward(
        self,
        x: Tensor,
        angles: Angles,
        mask: Tensor | None = None,
        cache: KVCache | None = None,
        products: Products | None = None,
    ) -> Tensor:
        """One pass of a Llama block without the norm before its attention, as in EAGLE.

        Args:
            x: `[B, T, hidden]`, from `join`.
            angles: as `rotary` gives them, of the rows' positions: `[T, head_dim]`, or `[1, head_dim]` if they are one.
            mask: `[…, T, length + T]` bool, what each row sees; None for plain causal order, or one row that sees all.
            cache: takes the keys and values of the rows; None in training.
            products: multiply by its matrices; by default by those of the head as they are.

        Returns:
            Features `[B, T, hidden]`, to be read as the target's own hidden states at these places.
        """
        config, products = self.config, products or self.products
        batch, rows, _ = x.shape
        heads, shared = config.heads, config.key_value_heads
        each = products.qkv(x).view(batch, rows, heads + 2 * shared, -1).transpose(1, 2)
        turned, value = each.split((heads + shared, shared), dim=1)
        query, key = _rotated(turned, angles).split((heads, shared), dim=1)
        if cache is not None:
            key, value = cache.update(key, value, 0)
        x = products.out(_attention(query, key, value, mask).transpose(1, 2).reshape(batch, rows, -1), plus=x)
        norm: nn.RMSNorm = self.layers[0]["post_attention_layernorm"]  # type: ignore[index]
        # Under autocast the weight would stay float32, and torch warns of two dtypes.
        read = functional.rms_norm(x, norm.normalized_shape, norm.weight.to(x.dtype), norm.eps)
        return products.down(products.up(read, times=products.gate(read)), plus=x)


class Products:
    """The matrices of a head, those of queries, keys and values side by side."""

    def __init__(self, head: Head) -> None:
        attention, mlp = (head.get_submodule(f"layers.0.{part}") for part in ("self_attn", "mlp"))

        def product(parent: nn.Module, *names: str, act: nn.Module | None = None) -> Linear:
            return Linear(*(cast("nn.Linear", parent.get_submodule(name)) for name in names), act=act)

        self.fuse = Linear(head.fuse) if head.fuse is not None else None
        self.fc, self.qkv = product(head, "fc"), product(attention, "q_proj", "k_proj", "v_proj")
        self.out, self.down = product(attention, "o_proj"), product(mlp, "down_proj")
        self.gate, self.up = product(mlp, "gate_proj", act=nn.SiLU()), product(mlp, "up_proj")


def _matrix(columns: int, rows: int) -> nn.Linear:
    return nn.Linear(columns, rows, bias=False)


def rotary(config: HeadConfig, positions: Tensor) -> Angles:
    """Cosines and sines `[T, head_dim]`, float32, of int positions `[T]`; the first half of the sines is negative."""
    places = torch.arange(0, config.head_dim, 2, device=positions.device).float() / config.head_dim
    turns = positions.float()[:, None] / config.rope_theta**places
    cos, sin = turns.cos(), turns.sin()
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def _rotated(x: Tensor, angles: Angles) -> Tensor:
    cos, sin = (angle.to(x.dtype) for angle in angles)
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """`[B, heads, T, head_dim]`, of keys and values `[B, shared heads, length + T, head_dim]`."""
    if mask is None and query.shape[2] > 1:
        shared = query.shape[1] > key.shape[1]
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=shared)
    return heads_as_rows(query, key, value, mask)


class HeadRunner:
    """A draft head with a cache of its own, batch 1, on the target's device and in its dtype.

    Entry `i` of the cache belongs to token `i + 1` of the text and the target's hidden state at place `i`, so a head
    that has caught up holds as many entries as its target. Every entry is a function of the committed text alone:
    whichever head drafted, all of them stand on the same prefix (Dual-Draft Routing, section 7).

    Attributes:
        length: entries in the cache.
        calls: forward passes so far.
        kept: what the last `crop` left, for records.
        vocab_size, context, device, dtype: the target's.
    """

    def __init__(self, head: Head, target: Runner) -> None:
        self.model = head.to(device=target.device, dtype=target.dtype).eval()
        self.config, self.name, self.family = head.config, head.config.name, "draft head"
        self.vocab_size, self.context = target.vocab_size, target.context
        self.device, self.dtype = target.device, target.dtype
        self.cache = KVCache()
        self.length = 0
        self.calls = 0
        self.kept = Kept(0, 0, ())
        self._target_version = target.version
        self._embed = target.model.get_input_embeddings()
        self._target_output = target.model.get_output_embeddings()
        self._angles = self._turns(0)

    @property
    def capacity(self) -> int:
        """Slots allocated in the cache."""
        return self.cache.capacity

    @property
    def slot_bytes(self) -> int:
        """Bytes a slot takes; 0 before the first pass."""
        return self.cache.slot_bytes

    @torch.inference_mode()
    def extend(self, tokens: Sequence[int], states: Tensor, topk: int = 0) -> tuple[Logits, Tensor]:
        """Appends committed places.

        Args:
            tokens: `m` ids, those of text places `length + 1` and on.
            states: `[m, layers * hidden]`, the target's hidden states at the places before them.
            topk: tokens that the host will read, as in `Runner.logits`.

        Returns:
            What follows the last of them: logits as of `forward`, one row, and the head's own feature `[hidden]`.
        """
        rows = len(tokens)
        visible = np.tri(rows, dtype=np.bool_) if rows > 1 and self.length else None
        positions = range(self.length, self.length + rows)
        logits, features = self._pass(tokens, self._fused(states), positions, visible, topk, last=True)
        return logits, features[-1]

    @torch.inference_mode()
    def after_each(self, tokens: Sequence[int], states: Tensor, topk: int = 0) -> tuple[Logits, Tensor]:
        """As `extend`, with what follows each of the `m` tokens: as many rows of logits, and features `[m, hidden]`."""
        rows = len(tokens)
        positions, visible = range(self.length, self.length + rows), np.tri(rows, dtype=np.bool_)
        return self._pass(tokens, self._fused(states), positions, visible, topk)

    @torch.inference_mode()
    def forward(
        self, tokens: Sequence[int], features: Tensor, positions: Sequence[int], visible: Bools, topk: int = 0
    ) -> tuple[Logits, Tensor]:
        """A pass over rows of a tree, appended to the cache.

        Args:
            tokens: `m` ids.
            features: `[m, hidden]`, the head's own output at each row's parent.
            positions: `m` places; that of the newest committed entry is `length - 1`.
            visible: `[m, c]` bool, which of the last `c` columns each row sees; all before them are visible.
            topk: tokens that the host will read, as in `Runner.logits`.

        Returns:
            Logits `[m, V]`, or `[m, draft_vocab]` with the ids of their columns, and features `[m, hidden]`.
        """
        return self._pass(tokens, features, positions, visible, topk)

    def crop(self, length: int) -> None:
        """Forgets the entries from `length` on."""
        self.kept = Kept(self.length, length, ())
        self.cache.shorten(length)
        self.length = length

    @torch.inference_mode()
    def fork(self, length: int = 0, target: Runner | None = None) -> HeadRunner:
        """A runner of the same head with its own copy of the first `length` entries.

        `target`: what it drafts for; where that module was changed since, no entry is copied.
        """
        if target is not None and target.version != self._target_version:
            fresh = HeadRunner(self.model, target)
            fresh.vocab_size = self.vocab_size
            return fresh
        self._fast.packed.compare()  # every text starts with a fork
        twin = copy.copy(self)
        twin.cache, twin.length, twin.calls = self.cache.copy(length), length, 0
        return twin

    def _pass(
        self,
        tokens: Sequence[int],
        features: Tensor,
        positions: Sequence[int],
        visible: Bools | None,
        topk: int,
        *,
        last: bool = False,
    ) -> tuple[Logits, Tensor]:
        """`last`: of the last row alone the logits are wanted."""
        fast = self._fast
        fast.packed.refresh()
        features = features.to(self.dtype)
        read = torch.cat((self._embed(to_device(tokens, self.device)), features), dim=-1)
        try:
            angles, mask = self._angles_at(positions), self._mask(visible, len(tokens))
            run = partial(self.model, fast.products.fc(read)[None], angles, mask, self.cache, fast.products)
            out: Tensor = without_cudnn_attention(self.device, run)[0]
            rows = fast.output(out[-1:] if last else out)[:, : self.vocab_size]
            logits = check_finite(rows, None, topk, self.name, ids=fast.ids)
        except BaseException:
            self.cache.shorten(self.length)
            raise
        self.calls += 1
        self.length += len(tokens)
        return logits, out

    def _fused(self, states: Tensor) -> Tensor:
        """The target's states, of one layer or several, as what a place starts from."""
        self._fast.packed.refresh()
        fuse, states = self._fast.products.fuse, states.to(self.dtype)
        return states if fuse is None else fuse(states)

    @cached_property
    def _fast(self) -> _Fast:
        """What its passes multiply by; worked out once for all forks.

        Tokens that the pair's tokenizer does not have are left out of a draft vocabulary, as of the target's logits.
        """
        layer, ids = self.model.lm_head or self._target_output, self.model.token_ids
        if ids is not None:
            with torch.inference_mode(mode=False):  # or the weights could not be packed
                known = ids < self.vocab_size
                ids = ids[known]
                layer = _gathered(layer, ids if self.model.lm_head is None else known)
        products = Products(self.model)
        output = Linear(layer) if type(layer) is nn.Linear else layer
        linears = [each for each in (*vars(products).values(), output) if isinstance(each, Linear)]
        packed = PackedWeights(linears, pack=worth_packing(linears))
        return _Fast(products, output, packed, None if ids is None else ids.cpu().numpy())

    def _turns(self, positions: int) -> Angles:
        cos, sin = rotary(self.config, torch.arange(positions, device=self.device))
        return cos.to(self.dtype), sin.to(self.dtype)

    def _angles_at(self, positions: Sequence[int]) -> Angles:
        """Of one position where all are the same, as those of a level of a tree are."""
        first, highest = positions[0], max(positions)
        if highest >= len(self._angles[0]):
            self._angles = self._turns(2 * highest + 256)
        cos, sin = self._angles
        if isinstance(positions, range):
            return cos[first : highest + 1], sin[first : highest + 1]
        if min(positions) == highest:
            return cos[first : first + 1], sin[first : first + 1]
        rows = to_device(positions, self.device)
        return cos[rows], sin[rows]

    def _mask(self, visible: Bools | None, rows: int) -> Tensor | None:
        """`[rows, length + rows]` bool, or None where every row sees all, or the cache is empty."""
        if visible is None or (rows == 1 and visible.all()):
            return None
        mask = torch.ones((rows, self.length + rows), dtype=torch.bool, device=self.device)
        mask[:, mask.shape[1] - visible.shape[1] :] = to_device(visible, self.device)
        return mask


class _Fast(NamedTuple):
    """What a runner's passes multiply by; `ids`: the target's id of each column of the output, None: its own."""

    products: Products
    output: Callable[[Tensor], Tensor]
    packed: PackedWeights
    ids: NDArray[np.int64] | None


def _gathered(layer: nn.Linear, rows: Tensor) -> nn.Linear:
    """A layer of some rows of another's matrix, by number or mark."""
    weights = {name: weight.detach()[rows] for name, weight in layer.named_parameters()}
    part = nn.Linear(layer.in_features, len(weights["weight"]), bias="bias" in weights, device="meta")
    part.load_state_dict(weights, assign=True)
    return part.requires_grad_(requires_grad=False)
