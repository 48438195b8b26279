"""Arithmetic in which a row's result is the same bits wherever the row stands: alone, in a prompt, or in a draft tree.

Two things make ordinary passes differ in their last bits. A product takes another kernel, which sums in another order,
for another number of rows; and attention sums over the keys in the order of their slots, which differs between a tree
and the text that comes of it. In half precision such a bit becomes another text within tens of tokens.

Here a product is run with a number of rows that was tried: its bits are those of a full block (`FixedRows`). In
attention (`ExactAttention`) queries, keys and values are rounded to multiples of a step, and so are the weights that
the softmax gives them: sums of such multiples in float64 are exact, so that no order, no kernel and no hidden key can
change them. Nothing else in a layer sums over more than a row.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from speclab.models.cache import KVCache
from speclab.models.fast.packed import Linear

BLOCK = 64
"""Rows of a full block: longer passes go block by block, and on CUDA shorter ones are padded to it."""
COUNTS = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, BLOCK)
"""Numbers of rows that are tried on a CPU; a pass is padded to the next of them that gives a block's bits."""
SCORE_BITS = {torch.float32: 20, torch.bfloat16: 17, torch.float16: 17}
"""Queries and keys are rounded to so many bits below their usual size, by the model's dtype."""
VALUE_BITS = {torch.float32: 18, torch.bfloat16: 16, torch.float16: 16}
WEIGHT_BITS = {torch.float32: 22, torch.bfloat16: 20, torch.float16: 20}
"""As much for values and for softmax weights. 13 and more of float64's 53 bits are left for sums to grow in, over the
usual size of one value times the largest weight; beyond that float64 would round their last bits.
"""
_HALF_STEPS = 1.5 * 2.0**52
"""Adding and taking away this many steps rounds a float64 to a multiple of the step."""


class FixedRows(Linear):
    """Products of which a row has the same bits in every pass."""

    def __init__(self, *modules: nn.Linear, act: Any = None, pack: bool = False) -> None:
        super().__init__(*modules, act=act, pack=pack)
        self._counts: dict[tuple[int, str, int], int] = {}

    def __call__(self, rows: Tensor, *, plus: Tensor | None = None, times: Tensor | None = None) -> Tensor:
        """`[m, in]` to `[m, out]`, plus or times another `[m, out]`, block by block."""
        how, parts = "plus" if plus is not None else "times" if times is not None else "", []
        for start in range(0, len(rows), BLOCK):
            given = [None if it is None else it[start : start + BLOCK] for it in (rows, plus, times)]
            count = min(BLOCK, len(rows) - start)
            more = self._count(count, how) - count
            part, plus_part, times_part = (it if it is None or not more else F.pad(it, (0, 0, 0, more)) for it in given)
            assert part is not None
            product = super().__call__(part, plus=plus_part, times=times_part)
            parts.append(product[:count] if more else product)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _count(self, rows: int, how: str) -> int:
        """How many rows to run so many with."""
        if not self.pack:
            return BLOCK
        key = rows, how, torch.get_num_threads()
        if key not in self._counts:
            bias, weight = any(module.bias is not None for module in self.modules), self.modules[0].weight
            out = sum(module.out_features for module in self.modules)
            self._counts[key] = next(
                it
                for it in agreeing(weight.shape[1], out, weight.dtype, self.act, how, bias=bias, threads=key[2])
                if it >= rows
            )
        return self._counts[key]


_TRIED: dict[tuple[Any, ...], tuple[int, ...]] = {}
"""What was tried in this process, by the kind of product."""


def agreeing(
    inner: int, out: int, dtype: torch.dtype, act: Any, how: str, *, bias: bool, threads: int
) -> tuple[int, ...]:
    """The numbers of rows, of `COUNTS`, whose packed products have a block's bits wherever in it the rows stand.

    Tried on weights whose second half takes away what the first half gave: what is left of a sum is so small that its
    last bits show in half precision, and with them the order of the sum.
    """
    key = inner, out, dtype, type(act), how, bias, threads
    if key not in _TRIED:
        draw = torch.Generator().manual_seed(0)
        half = torch.randn((min(out, 512), inner // 2), generator=draw)
        weight = torch.cat([half, -half, half[:, : inner % 2]], 1).repeat(-(-out // len(half)), 1)[:out].to(dtype)
        left = torch.randn((BLOCK, inner // 2), generator=draw)
        rows = torch.cat([left, left * (1 + 2.0**-6 * (left > 1)), left[:, : inner % 2]], 1).to(dtype)
        module = nn.Linear(1, 1, bias=bias, device="meta")
        module.in_features, module.out_features = inner, out
        module.weight = nn.Parameter(weight, requires_grad=False)
        module.bias = nn.Parameter(weight.new_zeros(out), requires_grad=False) if bias else None  # type: ignore[assignment]
        linear = Linear(module, act=act, pack=True)
        linear.repack()
        others = {how: torch.full((BLOCK, out), float(how == "times"), dtype=dtype)} if how else {}
        whole = linear(rows, **others)

        def agrees(count: int) -> bool:
            starts = {*range(0, BLOCK - count + 1, max(count, 8)), BLOCK - count}
            places = [slice(start, start + count) for start in starts]
            return all(
                torch.equal(linear(rows[at], **{it: others[it][at] for it in others}), whole[at]) for at in places
            )

        _TRIED[key] = tuple(count for count in COUNTS if count == BLOCK or agrees(count))
    return _TRIED[key]


class ExactAttention:
    """Attention over a cache that holds rounded keys and values, in float64, ready for the products.

    Args:
        weights: `[heads + 2 * shared, dim, hidden]`, what makes queries, keys and values of each head.
        biases: `[heads + 2 * shared, dim]`, None for none.
        norm: of the rows before.
        heads, shared: query heads, and key-value heads.
    """

    def __init__(self, weights: Tensor, biases: Tensor | None, norm: Any, heads: int, shared: int) -> None:
        dtype = weights.dtype
        self.heads, self.shared, self.dtype = heads, shared, dtype
        self.scale = weights.shape[1] ** -0.5
        # The usual size of a head's features: rows come from a norm, so theirs is that of its gains.
        sizes = (weights.float() * norm.weight.float()).norm(dim=-1)
        if getattr(norm, "bias", None) is not None:
            sizes = sizes + (weights.float() @ norm.bias.float()).abs()
        if biases is not None:
            sizes = sizes + biases.float().abs()
        largest = sizes.amax(-1).clamp_min(torch.finfo(torch.float32).tiny)
        largest[:heads] *= self.scale
        bits = torch.full_like(largest, SCORE_BITS[dtype])
        bits[heads + shared :] = VALUE_BITS[dtype]
        self._halves = _HALF_STEPS * torch.exp2(largest.log2().ceil() - bits).double()[:, None]
        self._weight_halves = math.ldexp(_HALF_STEPS, -WEIGHT_BITS[dtype])

    def __call__(self, qkv: Tensor, hidden: Tensor | None, cache: KVCache, index: int) -> Tensor:
        """Appends keys and values to the cache, and attends.

        Args:
            qkv: `[m, heads + 2 * shared, dim]` float64, queries and keys turned by their positions; written to.
            hidden: `[m, n]` bool, what each row does not see of the cache with the new rows; None: causal.
            cache: its `index`-th layer is written.

        Returns:
            `[m, heads * dim]` in the model's dtype.
        """
        qkv[:, : self.heads].mul_(self.scale)
        qkv.add_(self._halves).sub_(self._halves)
        query, key, value = qkv.transpose(0, 1)[None].split((self.heads, self.shared, self.shared), dim=1)
        keys, values = cache.update(key, value, index)
        rows, columns = len(qkv), keys.shape[2]
        bounds = [*range(0, rows, BLOCK), rows]
        if hidden is not None or rows == 1:
            seen = [None if hidden is None else hidden[start:stop] for start, stop in pairwise(bounds)]
            ends = [columns] * len(seen)
        else:  # what lies behind a block's last row is hidden from all of it
            ends = [columns - rows + stop for stop in bounds[1:]]
            ones = [query.new_ones((stop - start, columns - rows + stop)) for start, stop in pairwise(bounds)]
            seen = [it.triu(it.shape[1] - it.shape[0] + 1).bool() for it in ones]
        parts = [
            self._attend(query[0, :, start:stop], keys[0, :, :end], values[0, :, :end], part)
            for (start, stop), end, part in zip(pairwise(bounds), ends, seen, strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None) -> Tensor:
        """`[heads, m, dim]`, `[shared, n, dim]` twice and `[m, n]` to `[m, heads * dim]`."""
        rows, dim = query.shape[1:]
        grouped = query.reshape(self.shared, -1, dim)  # heads that share their keys, as rows
        weights = torch.bmm(grouped, keys.transpose(1, 2))
        if hidden is not None:
            weights.view(self.shared, -1, *hidden.shape).masked_fill_(hidden, -torch.inf)
        weights.sub_(weights.amax(-1, keepdim=True)).exp_()
        weights.add_(self._weight_halves).sub_(self._weight_halves)  # a hidden key's stays 0: it adds nothing
        out = torch.bmm(weights, values).div_(weights.sum(-1, keepdim=True)).to(self.dtype)
        return out.view(self.heads, rows, dim).transpose(0, 1).reshape(rows, -1)
