"""Steps of another decoder: opens a `speclab.steps/1` file (docs/steps.md) as a Trace."""

from __future__ import annotations

import base64
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, ValidationError
from pydantic_core import from_json

from speclab.errors import TraceError
from speclab.files import opened
from speclab.recorder import FORMAT, OPTIONAL
from speclab.trace.codecs import Amount, Length, Many, Natural, Real, Whole, adapter
from speclab.trace.metrics import Counts
from speclab.trace.records import UNKNOWN, Adaptation, CacheRecord, NodeRecord, Step, Trace, Verdict
from speclab.tree import Bools, DraftTree

if TYPE_CHECKING:
    from speclab.pair import ModelPair

MAX_BYTES = 1 << 30
"""Largest file."""
_NO_OTHERS: Any = ConfigDict(extra="forbid")
Top = Many[tuple[Natural, Annotated[float, Field(le=1e-3)]]]


@dataclass(frozen=True)
class _Header:
    __pydantic_config__ = _NO_OTHERS
    format: str
    prompt_ids: Many[Natural]
    engine: str = ""
    model: str = ""
    tokenizer: str = ""
    dtype: str = ""
    temperature: Amount = 0.0
    note: str = ""


@dataclass(frozen=True)
class _Pass:
    __pydantic_config__ = _NO_OTHERS
    prefix_length: Length
    token: Many[Natural]
    parent: Many[Whole]
    accepted: Many[Natural]
    committed: Many[Natural]
    position: Many[Whole] = ()
    mask: str = ""
    hidden_prefix: Many[tuple[Natural, Length, Length]] = ()
    slot: Many[Length] = ()
    log_prob: Many[Annotated[float, Field(le=1e-3)]] = ()
    choice: Many[Natural] = ()
    topk: Many[Top] = ()
    kept_slots: Many[Length] = ()
    seconds: dict[str, Amount] = field(default_factory=dict)


def load_steps(path: str | os.PathLike[str], pair: ModelPair | None = None) -> Trace:
    """Opens the verification passes that another decoder recorded.

    Fields that are not recorded are empty and listed in `Step.missing`. Rows are reordered
    breadth-first; `Step.rows` has the row of the file for each node. An incomplete last line is
    dropped, and `Trace.finished` says so.

    Args:
        pair: the models, for token texts; without them a text is the token's number.

    Raises:
        TraceError: the file is missing, larger than 1 GB, of another version, or has an invalid
            line.
    """
    header: _Header | None = None
    steps: list[Step] = []
    finished = ""
    for number, raw, last in _lines(path):
        where = f"{path}, line {number}"
        try:
            value = from_json(raw)
        except ValueError as error:
            if last and header is not None:
                finished = f"line {number} is incomplete and was left out"
                break
            raise TraceError(f"{where} is not JSON ({error}): record it again.") from None
        value = value if isinstance(value, dict) else {}
        if header is None:
            if value.get("format") != FORMAT:
                kind = f"{FORMAT!r}, not {value.get('format')!r}"
                raise TraceError(f"{where} must be a header of format {kind}: record it again.")
            header = _read(_Header, value, where)
            ids: Collection[int] = header.prompt_ids
        else:
            line = _read(_Pass, value, where)
            if wrong := next(_wrong(line), ""):
                raise TraceError(f"{where}: {wrong}.")
            steps.append(_step(line, len(steps), header, value))
            ids = _tokens(steps[-1])
        if pair is not None and max(ids, default=0) >= pair.vocab_size:
            raise TraceError(
                f"{where}: token {max(ids)} is outside the vocabulary of {pair.vocab_size} tokens."
            )
    if header is None or not steps:
        raise TraceError(
            f"{path} contains no verification pass: record one with speclab.recorder.Recorder."
        )
    return _trace(header, steps, finished, pair)


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes, bool]]:
    """(number from 1, line, whether the file ends within it) of each line that is not empty."""
    with opened(path, TraceError, MAX_BYTES) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line, not line.endswith(b"\n")


def _read(kind: type[Any], value: Any, where: str) -> Any:
    try:
        return adapter(kind).validate_python(value)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field_name = ".".join(map(str, first["loc"])) or "it"
        raise TraceError(
            f"{where}: {field_name}: {first['msg'][:1].lower()}{first['msg'][1:]}."
        ) from None


def _wrong(line: _Pass) -> Iterator[str]:
    n = len(line.token)
    if not n:
        yield "it has no rows, but a pass has at least the root"
    for name in ("parent", "position", "slot", "log_prob", "choice", "topk"):
        length = len(getattr(line, name))
        if length != n and (length or name == "parent"):
            yield f"{name} has {length} values for {n} rows"
    if line.parent[0] != -1:
        yield f"row 0 is the root, and its parent must be -1, not {line.parent[0]}"
    for row, parent in enumerate(line.parent[1:], start=1):
        if not 0 <= parent < row:
            yield f"row {row} has parent {parent}, and parents come before their children"
    yield from _wrong_references(line)


def _wrong_references(line: _Pass) -> Iterator[str]:
    n = len(line.token)
    hidden = line.hidden_prefix
    rows = [*line.accepted, *[row for row, _, _ in hidden]]
    if max(rows, default=0) >= n:
        yield f"row {max(rows)} does not exist in a pass of {n} rows"
    for row, first, last in hidden:
        if not first <= last < line.prefix_length:
            yield f"row {row} hides entries {first} to {last} of a prefix of {line.prefix_length}"
    if line.mask and _size(line.mask) != n * -(-n // 8):
        yield f"the mask does not have {n} rows: write numpy.packbits(mask, axis=1) in base64"


def _size(text: str) -> int:
    """Bytes of a base64 text; -1 if it is invalid."""
    try:
        return len(base64.b64decode(text, validate=True))
    except ValueError:
        return -1


def _step(line: _Pass, index: int, header: _Header, given: Mapping[str, Any]) -> Step:
    n = len(line.token)
    tree, order = DraftTree.grown(
        line.token, line.parent, line.log_prob or [0.0] * n, ["recorded"] * n
    )
    node_of = {row: node for node, row in enumerate(order)}
    accepted = tuple([node_of[row] for row in line.accepted])
    mask = _mask(line.mask, order) if line.mask else tree.ancestor_mask()
    hidden = tuple([(node_of[row], first, last) for row, first, last in line.hidden_prefix])
    hidden_entries = [
        [last - first + 1 for row, first, last in hidden if row == node] for node in range(n)
    ]
    bonus = line.committed[-1] if len(line.committed) > len(accepted) else None
    slots = line.slot or range(line.prefix_length, line.prefix_length + n)
    end = line.prefix_length + len(line.committed)
    cache = CacheRecord(
        "target", line.prefix_length, n, line.kept_slots, (), end, end, max(end, *slots) + 1, 0
    )
    missing = sorted({*OPTIONAL, "mask", "entropy"} - given.keys())
    greedy = not header.temperature
    return Step(
        index=index,
        prefix_length=line.prefix_length,
        tree=tree,
        nodes=tuple(_nodes(line, tree, order, accepted, bonus, slots)),
        accepted=accepted,
        committed=line.committed,
        bonus=bonus,
        root_choice=None,
        settings={},
        events=(),
        caches=(cache,),
        seconds=line.seconds,
        adaptation=Adaptation(),
        counts=Counts(
            1,
            len(line.committed),
            n - 1,
            len(accepted),
            int(tree.depth.max()),
            1,
            0,
            sum(line.seconds.values()),
        ),
        mask=mask,
        prefix_seen=tuple([line.prefix_length - sum(hidden_entries[node]) for node in range(n)]),
        texts={},
        note="recorded",
        rule="greedy" if greedy else "recorded",
        position=tuple([line.position[row] for row in order]) if line.position else (),
        hidden_prefix=hidden,
        rows=tuple(order) if order != list(range(n)) else (),
        missing=tuple(missing),
    )


def _mask(text: str, order: Sequence[int]) -> Bools:
    packed = np.frombuffer(base64.b64decode(text), np.uint8).reshape(len(order), -1)
    mask = np.unpackbits(packed, axis=1, count=len(order)).astype(np.bool_)
    return mask[np.ix_(order, order)]


def _nodes(
    line: _Pass,
    tree: DraftTree,
    order: Sequence[int],
    accepted: Sequence[int],
    bonus: int | None,
    slots: Sequence[int],
) -> Iterator[NodeRecord]:
    path = [0, *accepted]
    followed = dict(zip(path, [*(int(tree.token[node]) for node in accepted), bonus], strict=True))
    draft = np.exp(tree.log_prob).tolist()
    path_probs = np.exp(tree.path_log_prob).tolist()
    top = [_probabilities(line.topk[row]) if line.topk else () for row in order]
    for node, row in enumerate(order):
        parent = int(tree.parent[node])
        chosen = line.choice[row] if line.choice else followed.get(node)
        known = dict(top[parent]) if node else {}
        verdict: Verdict = (
            "accepted" if node in path else "rejected" if parent in path else "not reached"
        )
        yield NodeRecord(
            index=node,
            token=int(tree.token[node]),
            draft_prob=draft[node],
            path_prob=path_probs[node],
            target_prob=known.get(int(tree.token[node])),
            target_choice=UNKNOWN if chosen is None else chosen,
            verdict="root" if node == 0 else verdict,
            kv_slot=slots[row],
            entropy=0.0,
            choice_prob=None if chosen is None else dict(top[node]).get(chosen),
            target_top=top[node],
        )


def _probabilities(top: Sequence[tuple[int, Real]]) -> tuple[tuple[int, float], ...]:
    return tuple([(token, exp(log_prob)) for token, log_prob in top])


def _trace(header: _Header, steps: list[Step], finished: str, pair: ModelPair | None) -> Trace:
    """If the first pass also runs the prompt's last token, that token is the root, and not part of the prompt here."""
    first = steps[0]
    prompt = header.prompt_ids
    root = int(first.tree.token[0])
    root_in_prompt = first.prefix_length == len(prompt) - 1 and prompt[-1] == root
    for index, step in enumerate(steps[:-1]):
        cache = replace(step.caches[0], after=steps[index + 1].prefix_length)
        steps[index] = replace(step, caches=(cache,))
    tokens = sorted({*prompt, *(token for step in steps for token in _tokens(step))})
    texts = (
        pair.token_texts(tokens) if pair is not None else {token: f" #{token}" for token in tokens}
    )
    steps = [
        replace(step, texts={token: texts[token] for token in sorted(_tokens(step))})
        for step in steps
    ]
    about = {
        "target": header.model,
        "engine": header.engine,
        "tokenizer": header.tokenizer,
        "note": header.note,
    }
    return Trace(
        prompt_ids=prompt[:-1] if root_in_prompt else prompt,
        first_token=root,
        steps=tuple(steps),
        settings={"strategy": header.engine or "recorded", "temperature": header.temperature},
        models={**about, "target_dtype": header.dtype, "format": header.format},
        texts=texts,
        finished=finished,
    )


def _tokens(step: Step) -> set[int]:
    tops = {token for node in step.nodes for token, _ in node.target_top}
    choices = {node.target_choice for node in step.nodes} - {UNKNOWN}
    return {*step.tree.token.tolist(), *step.committed, *choices, *tops}
