"""Do the bits of a row depend on the rows beside it? Measured by operator and by whole passes.

A library chooses how to add up a product by the number of rows, so a row of a pass of twelve may
have other last bits than the same row alone: then a text with speculation leaves the text without
it at the next near-tie. Where every operator leaves a row its bits, and attention reads each row's
own path, a tree pass equals token-by-token decoding of the library bit for bit.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import DynamicCache

from speclab.models.own_paths import OneRow, OwnPaths, through
from speclab.models.probe import prefix_length
from speclab.models.runner import Runner
from speclab.models.source import Bits
from speclab.tree import Bools

MOST = 24
"""Most rows of one pass that are tried at load."""
FEWEST = 4
"""Fewer rows at a time are not worth a pass by own path."""
_firsts: dict[tuple[object, ...], int | None] = {}
"""What was measured in this process, by what decides how a library adds up a product."""
COMPARED = 1 << 17
"""Numbers of an operator's answers that are compared at least."""
_PREFIX = 40


@dataclass(frozen=True)
class Operator:
    """One operator of a layer, or a whole pass.

    Attributes:
        name: its place in the module, with `N` for the number of the layer.
        shape: of its weights, or empty.
        first: the first measured number of rows at which a row's bits are others; None: none is.
    """

    name: str
    shape: tuple[int, ...]
    first: int | None


# Operators


@torch.inference_mode()
def products(runner: Runner, rows: Sequence[int]) -> Iterator[Operator]:
    """Each kind of part without parts of its own (products, norms, activations), one of each shape.

    Args:
        runner: its module runs once, on as many random tokens as the largest of `rows`.
        rows: numbers of rows, increasing.
    """
    most = max(rows)
    seen: dict[tuple[str, tuple[int, ...]], tuple[nn.Module, Tensor]] = {}

    def note(part: nn.Module, inputs: tuple[Any, ...], options: Any, output: Any) -> None:
        # one tensor in, one out, a row of one for a row of the other
        if options or len(inputs) != 1 or not isinstance(output, Tensor):
            return
        read = inputs[0]
        if not isinstance(read, Tensor) or _axis(read, most) is None:
            return
        if output is read:  # dropout, which does nothing here
            return
        weight = getattr(part, "weight", None)
        shape: tuple[int, ...] = ()
        if weight is not None:
            shape = tuple(weight.shape)
        seen.setdefault((names[part], shape), (part, read))

    names: dict[nn.Module, str] = {}
    handles = []
    for name, part in runner.model.named_modules():
        if not any(part.children()):
            names[part] = re.sub(r"\.\d+\.", ".N.", name)
            handles.append(part.register_forward_hook(note, with_kwargs=True))
    try:
        runner.model(_random_ids(runner, most)[None], use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    for (name, shape), (part, inputs) in seen.items():
        yield Operator(name, shape, _first_of_product(part, inputs, rows))


def _first_of_product(part: nn.Module, inputs: Tensor, rows: Sequence[int]) -> int | None:
    """The first number of rows at which a row of its answer is not what it is alone."""
    axis = _axis(inputs, max(rows))
    assert axis is not None
    shapes = tuple([weight.shape for weight in part.parameters()])
    conditions = inputs.shape, inputs.dtype, inputs.device, torch.get_num_threads()
    key = (type(part), str(part), shapes, conditions, tuple(rows))
    if key in _firsts:
        return _firsts[key]
    first: int | None = None
    captured = inputs
    compared = 0
    generator = torch.Generator(inputs.device).manual_seed(0)
    # most rounded sums hide other last bits: many numbers are compared
    # an activation's end of a vector differs seldom: once in a million numbers was seen
    wanted = COMPARED
    if not shapes:
        wanted = min(16 * COMPARED, 500 * inputs.numel())
    while compared < wanted:
        alone = torch.cat([part(row) for row in inputs.split(1, axis)], axis)
        for count in rows:
            if first is not None and count >= first:
                break
            if not torch.equal(part(inputs.narrow(axis, 0, count)), alone.narrow(axis, 0, count)):
                first = count
        compared += alone.numel()
        factors = torch.rand(inputs.shape, generator=generator, device=inputs.device)
        inputs = captured * (4 * factors - 2).to(captured.dtype)
    _firsts[key] = first
    return first


def _axis(inputs: Tensor, rows: int) -> int | None:
    """The axis of the rows in what a part reads: `[1, rows, …]` or `[rows, …]`."""
    if inputs.ndim > 2 and inputs.shape[:2] == (1, rows):
        return 1
    if inputs.ndim == 2 and len(inputs) == rows:
        return 0
    return None


class _Recorder(OwnPaths):
    """Reads a chain by own path, and measures the module's own attention to it in one call."""

    def __init__(self, prefix: int, rows: Sequence[int]) -> None:
        super().__init__(np.tri(max(rows), dtype=np.bool_), prefix + max(rows))
        self._rows = rows
        self.first: int | None = None

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, one_row: OneRow, window: int | None
    ) -> list[Tensor]:
        alone = super().attend(query, keys, values, one_row, window)
        for count in self._rows:
            total = self.start + count
            far = torch.ones((count, total), dtype=torch.bool, device=query.device)
            hidden = far.triu(self.start + 1)
            if window is not None:
                hidden |= far.tril(self.start - window)
            mask: Tensor | None = None
            if count > 1:
                mask = torch.zeros((1, 1, count, total), dtype=query.dtype, device=query.device)
                mask.masked_fill_(hidden, torch.finfo(query.dtype).min)
            beside = one_row(query[:, :, :count], keys[:, :, :total], values[:, :, :total], mask)
            if not torch.equal(beside, torch.cat(alone[:count], 1)):
                self.first = min(count, self.first or count)
                break
        return alone


@torch.inference_mode()
def attention(runner: Runner, rows: Sequence[int]) -> Operator:
    """The module's own attention to a chain behind a prefix, in one call; the first of all layers.

    Raises:
        RuntimeError: the family's attention is no function that the library can exchange.
    """
    probe = runner.fork(lean=False)
    prefix = _random_ids(probe, prefix_length(probe, _PREFIX)).tolist()
    probe.extend(prefix)
    recorder = _Recorder(len(prefix), rows)
    tokens = _random_ids(probe, max(rows))
    positions = torch.arange(len(prefix), len(prefix) + max(rows), device=probe.device)
    with through(probe.model, recorder) as calls:
        probe.model(
            tokens[None],
            position_ids=positions[None],
            past_key_values=probe.cache,
            use_cache=True,
        )
    if not calls:
        raise RuntimeError("the library cannot exchange its attention")
    return Operator("attention", (), recorder.first)


# Whole passes


class Plain:
    """Token-by-token decoding by the library alone: its module, its cache, its attention.

    Args:
        prefix: is read in one pass, as `generate` does.
    """

    @torch.inference_mode()
    def __init__(self, runner: Runner, prefix: Sequence[int]) -> None:
        self._runner = runner
        self._states: dict[tuple[int, ...], tuple[DynamicCache, Tensor]] = {}
        cache = DynamicCache(config=runner.model.config)
        self._states[()] = cache, self._pass(prefix, 0, cache)
        self._length = len(prefix)

    def _pass(self, tokens: Sequence[int], start: int, cache: DynamicCache) -> Tensor:
        ids = torch.tensor([list(tokens)], device=self._runner.device)
        options: dict[str, Any] = {}
        if self._runner.takes_last:
            options["logits_to_keep"] = 1
        out = self._runner.model(
            ids,
            position_ids=torch.arange(start, start + len(tokens), device=ids.device)[None],
            past_key_values=cache,
            use_cache=True,
            **options,
        )
        logits: Tensor = out.logits[0, -1]
        return logits

    @torch.inference_mode()
    def after(self, path: Sequence[int]) -> Tensor:
        """Logits `[V]` after the prefix and the tokens of a path, one pass per token."""
        key = tuple(path)
        if key not in self._states:
            self.after(key[:-1])
            cache = copy.deepcopy(self._states[key[:-1]][0])
            logits = self._pass(key[-1:], self._length + len(key) - 1, cache)
            self._states[key] = cache, logits
        return self._states[key][1]


def first_of_passes(runner: Runner, rows: Sequence[int], *, own: bool) -> int | None:
    """The first number of rows at which a chain's pass differs from token-by-token decoding.

    `own`: the rows read by own path, else under the mask.
    """
    probe = runner.fork(lean=False)
    prefix = _random_ids(probe, prefix_length(probe, _PREFIX)).tolist()
    tokens = _random_ids(probe, max(rows), seed=1).tolist()
    plain = Plain(probe, prefix)
    by_own_path = 0
    if own:
        by_own_path = max(rows)
    with _reading(probe, by_own_path):
        probe.extend(prefix)
        for count in rows:
            chain = range(len(prefix), len(prefix) + count)
            got = probe.logits(tokens[:count], chain, np.tri(count, dtype=np.bool_)).logits
            probe.crop(len(prefix))
            for row in range(count):
                if not torch.equal(got[row], plain.after(tokens[: row + 1])[: got.shape[1]]):
                    return count
    return None


@contextmanager
def _reading(runner: Runner, rows: int) -> Iterator[None]:
    """While it lasts, passes of a runner read by own path in at most so many rows; 0: under masks."""
    before = runner.state.bits
    runner.state.bits = Bits(rows, "", torch.get_num_threads())
    try:
        yield
    finally:
        runner.state.bits = before


# The probe


def measured(runner: Runner) -> Bits:
    """Whether the tree passes of a target have the bits of plain decoding, and in how many rows.

    First each operator, at every number of rows up to `MOST`; then a random tree of so many nodes
    against token-by-token decoding. A lean pass that differs is replaced by the module.
    """
    threads = torch.get_num_threads()
    if type(runner) is not Runner:
        return Bits(0, f"{runner.family} verifies by paths", threads)
    try:
        rows, reason = _rows_of_products(products(runner, range(2, MOST + 1)))
        if rows >= FEWEST:
            _settle_products(runner, rows)
            reason = _problem(runner, rows)
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError) as error:
        reason = f"the probe's pass fails ({type(error).__name__})"
    if reason:
        rows = 0
    return Bits(rows, reason, threads)


def _rows_of_products(operators: Iterable[Operator]) -> tuple[int, str]:
    """Most rows at which all of them hold, and what does not beyond."""
    rows = MOST
    reason = ""
    for operator in operators:
        if operator.first is not None and operator.first <= rows:
            rows = operator.first - 1
            reason = f"{operator.name} changes a row's bits at {operator.first} rows"
        if rows < FEWEST:
            break
    return rows, reason


def _settle_products(runner: Runner, rows: int) -> None:
    """Packed weights are used for at most so many rows, and only in shapes in which their bits are
    the library's."""
    if runner.lean is None:
        return
    same: dict[tuple[int, ...], bool] = {}
    for product in runner.lean.products:
        product.most = rows
        if product.packed is None:
            continue
        shapes = [part.weight.shape for part in product.parts]
        shape = (sum(shape[0] for shape in shapes), shapes[0][1])
        if shape not in same:
            generator = torch.Generator().manual_seed(0)
            inputs = torch.randn(rows, shape[1], generator=generator).to(runner.dtype)
            alone = torch.cat([product.plain(row) for row in inputs.split(1)])
            counts = range(1, rows + 1)
            same[shape] = all(
                torch.equal(product.by_copy(inputs[:count]), alone[:count]) for count in counts
            )
        if not same[shape]:
            product.packed = None


def _problem(runner: Runner, rows: int) -> str:
    """What is wrong with a random tree of so many rows, or ""; a lean pass may be dropped."""
    draw = random.Random(rows)
    prefix = _random_ids(runner, prefix_length(runner, _PREFIX, rows)).tolist()
    plain = Plain(runner, prefix)
    tokens = _random_ids(runner, rows, seed=rows).tolist()
    paths: list[list[int]] = [[0]]
    for node in range(1, rows):
        parent = max(0, node - draw.randint(1, 3))
        paths.append(paths[parent] + [node])
    problem = _difference(runner, prefix, tokens, paths, plain)
    if problem and runner.lean is not None:
        runner.lean = runner.state.lean = None
        problem = _difference(runner, prefix, tokens, paths, plain)
    return problem


def _difference(
    runner: Runner, prefix: list[int], tokens: list[int], paths: list[list[int]], plain: Plain
) -> str:
    visible: Bools = np.zeros((len(paths), len(paths)), dtype=np.bool_)
    for node, path in enumerate(paths):
        visible[node, path] = True
    positions = [len(prefix) + len(path) - 1 for path in paths]
    with _reading(runner, len(paths)):
        probe = runner.fork()
        first = probe.extend(prefix)
        if not torch.equal(first, plain.after([])[: len(first)]):
            return "a whole prompt has other bits"
        got = probe.logits(tokens, positions, visible).logits
    # the last two leaves: their paths have most of the nodes
    for leaf in (len(paths) - 1, len(paths) - 2):
        for depth, node in enumerate(paths[leaf], start=1):
            want = plain.after([tokens[row] for row in paths[leaf][:depth]])
            if not torch.equal(got[node], want[: got.shape[1]]):
                return f"a pass of {len(paths)} rows has other bits although its products hold"
    return ""


def _random_ids(runner: Runner, count: int, seed: int = 0) -> Tensor:
    draw = random.Random(seed)
    ids = [draw.randrange(min(runner.known, runner.vocab_size)) for _ in range(count)]
    return torch.tensor(ids, device=runner.device)
