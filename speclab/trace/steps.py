"""Steps of another decoder: opens a `speclab.steps/1` file (docs/steps.md) as a Trace."""

from __future__ import annotations

import base64
import gzip
import os
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import exp
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, ValidationError
from pydantic_core import from_json

from speclab.errors import TraceError
from speclab.files import opened
from speclab.recorder import FORMAT, OPTIONAL
from speclab.trace.codecs import (
    Amount,
    Length,
    Many,
    Natural,
    NotANumber,
    Probability,
    Real,
    Whole,
    adapter,
)
from speclab.trace.metrics import Counts
from speclab.trace.records import UNKNOWN, Adaptation, CacheRecord, NodeRecord, Step, Trace, Verdict
from speclab.tree import Bools, DraftTree

if TYPE_CHECKING:
    from speclab.pair import ModelPair

MAX_BYTES = 1 << 30
"""Largest file, and the most that a compressed one may unpack to."""
MOST_TOKENS = 300_000
"""More than any vocabulary has."""
DTYPES = {
    "float32": ("f32", "fp32", "float", "single"),
    "float16": ("f16", "fp16", "half"),
    "bfloat16": ("bf16", "bfloat"),
    "float8": ("fp8", "f8", "e4m3", "e5m2", "float8_e4m3fn", "float8_e5m2"),
    "int8": ("q8", "q8_0", "q8_1", "w8a8", "w8a16", "i8"),
    "int4": ("q4", "q4_0", "q4_1", "q4_k", "q4_k_m", "q4_k_s", "w4a16", "i4", "nf4"),
}
"""Names of precisions, and their aliases."""
RULES = {
    "greedy": "greedy",
    "sample_and_match": "sample and match",
    "rejection": "independent draws",
    "rejection_without_replacement": "draws without replacement",
}
"""Acceptance rules of the header, and their names in records."""
FOLLOWS = ("greedy", "sample and match")
"""Rules under which the text follows the recorded choices."""
_NO_OTHERS: Any = ConfigDict(extra="forbid")
LogProb = Annotated[float, Field(le=1e-3)] | NotANumber
Top = Many[tuple[Natural, LogProb]]


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
    processed: bool = False
    eos_ids: Many[Natural] = ()
    ignore_eos: bool = False
    position_offset: Whole = 0
    rule: str = ""
    top_k: Natural | None = None
    top_p: Probability | None = None
    min_p: Probability | None = None
    seed: Natural | None = None
    request: str | Natural = ""


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
    draft_topk: Many[Many[tuple[Natural, Annotated[float, Field(le=1e-3)]]]] = ()
    hidden: Many[Real] = ()
    choice: Many[Natural] = ()
    topk: Many[Top] = ()
    kept_slots: Many[Length] = ()
    seconds: dict[str, Amount] = field(default_factory=dict)
    request: str | Natural = ""
    batch: str | Natural = ""


_FOR_CHECKS = {"batch", "draft_topk", "hidden", "request"}
"""Fields that no picture shows, so that a step does not miss them."""

_TOP = "a list of [token id, log-probability] for each row; log-probabilities are at most 0"
_MEANINGS = {
    "prompt_ids": "a list of token ids, at least one",
    "dtype": "the name of a precision, such as float32",
    "temperature": "a number of at least 0",
    "processed": "true or false",
    "ignore_eos": "true or false",
    "eos_ids": "a list of token ids",
    "position_offset": "a whole number",
    "rule": f"one of {', '.join(RULES)}",
    "top_k": "a whole number of at least 0",
    "top_p": "a number from 0 to 1",
    "min_p": "a number from 0 to 1",
    "seed": "a whole number of at least 0",
    "prefix_length": f"a whole number from 0 to {2**24}",
    "token": "a list of token ids, one for each row",
    "parent": "a list of row numbers, -1 for the root",
    "accepted": "a list of row numbers",
    "committed": "a list of token ids",
    "position": "a list of whole numbers, one for each row",
    "mask": "a text in base64 of numpy.packbits(mask, axis=1)",
    "hidden_prefix": "a list of [row, first entry, last entry]",
    "slot": "a list of slot numbers, one for each row",
    "kept_slots": "a list of slot numbers",
    "log_prob": "a list of log-probabilities of at most 0, one for each row",
    "draft_topk": _TOP,
    "hidden": "a list of numbers",
    "choice": "a list of token ids, one for each row",
    "topk": _TOP,
    "seconds": "an object of phases with seconds of at least 0",
    "request": "a text or a whole number",
    "batch": "a text or a whole number",
}


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
    most = MOST_TOKENS if pair is None else pair.vocab_size
    for number, raw, last in _lines(path):
        where = f"{path}, line {number}"
        try:
            value = from_json(raw)
        except ValueError as error:
            if last and header is not None:
                finished = f"line {number} is incomplete and was left out"
                break
            raise TraceError(f"{where} is not JSON ({error}): record it again.") from None
        value, raw = (value, raw) if isinstance(value, dict) else ({}, b"{}")
        if header is None:
            if value.get("format") != FORMAT:
                kind = f"{FORMAT!r}, not {value.get('format')!r}"
                raise TraceError(f"{where} must be a header of format {kind}: record it again.")
            header = _read(_Header, raw, where)
            ids: Collection[int] = header.prompt_ids
        else:
            line = _read(_Pass, raw, where)
            if wrong := next(_wrong(line, most), ""):
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
    with opened(path, TraceError, MAX_BYTES) as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        file = gzip.GzipFile(fileobj=raw) if zipped else raw
        number = size = 0
        while True:
            try:
                line = file.readline()
            except (EOFError, OSError, zlib.error):
                yield number + 1, b"{", True
                return
            if not line:
                return
            number += 1
            size += len(line)
            if size > MAX_BYTES:
                raise TraceError(
                    f"{path} unpacks to more than {MAX_BYTES:,} bytes: record fewer passes."
                )
            if line.strip():
                yield number, line, not line.endswith(b"\n")


def _read(kind: type[Any], line: bytes, where: str) -> Any:
    """The line as a header or a pass.

    Raises:
        TraceError: a field is missing, unknown, or not what docs/steps.md says.
    """
    what = "header" if kind is _Header else "pass"
    try:
        read = adapter(kind).validate_json(line, strict=True)  # type: ignore[arg-type]
        if isinstance(read, _Header) and (wrong := next(_wrong_header(read), "")):
            raise TraceError(f"{where}: {wrong}.")
        return read
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        names = ", ".join(column.name for column in fields(kind))
        raise TraceError(f"{where}: a {what} has no field {name!r}; its fields are {names}.")
    if first["type"].startswith("missing"):
        raise TraceError(f"{where}: {name} is missing; it is {_MEANINGS[name]}.")
    meaning = _MEANINGS.get(name, "a text")
    at = "".join(f"[{index}]" for index in first["loc"][1:] if isinstance(index, int))
    raise TraceError(f"{where}: {name} must be {meaning}{at and f', and {name}{at} is not'}.")


def precision(name: str) -> str:
    """The usual name of a precision, "" if the name is not known: `bf16` is `bfloat16`."""
    plain = name.lower().removeprefix("torch.").replace("-", "_")
    names = {alias: dtype for dtype, aliases in DTYPES.items() for alias in (dtype, *aliases)}
    return names.get(plain, "")


def _wrong_header(header: _Header) -> Iterator[str]:
    if not header.prompt_ids:
        yield f"prompt_ids must be {_MEANINGS['prompt_ids']}"
    if header.rule and header.rule not in RULES:
        yield f"rule must be {_MEANINGS['rule']}, not {header.rule!r}"
    if header.rule == "greedy" and header.temperature:
        yield f"rule is greedy, but temperature is {header.temperature:g}: leave one of them out"


def _wrong(line: _Pass, most: int) -> Iterator[str]:
    n = len(line.token)
    if not n:
        yield "it has no rows, but a pass has at least the root"
    for name in ("parent", "position", "slot", "log_prob", "draft_topk", "choice", "topk"):
        length = len(getattr(line, name))
        if length != n and (length or name == "parent"):
            yield f"{name} has {length} values for {n} rows"
    if line.parent[0] != -1:
        yield f"row 0 is the root, and its parent must be -1, not {line.parent[0]}"
    for row, parent in enumerate(line.parent[1:], start=1):
        if not 0 <= parent < row:
            yield f"row {row} has parent {parent}, and parents come before their children"
    yield from _wrong_references(line)
    for name in ("topk", "draft_topk"):
        for row, top in enumerate(getattr(line, name)):
            yield from _wrong_top(f"{name} of row {row}", top, most)


def _wrong_references(line: _Pass) -> Iterator[str]:
    n = len(line.token)
    hidden = line.hidden_prefix
    rows = [*line.accepted, *[row for row, _, _ in hidden]]
    if len({*line.accepted}) < len(line.accepted):
        yield "accepted contains a row twice"
    if max(rows, default=0) >= n:
        yield f"row {max(rows)} does not exist in a pass of {n} rows"
    for row, first, last in hidden:
        if not first <= last < line.prefix_length:
            yield f"row {row} hides entries {first} to {last} of a prefix of {line.prefix_length}"
    if line.mask and _size(line.mask) != n * -(-n // 8):
        yield f"the mask does not have {n} rows: write numpy.packbits(mask, axis=1) in base64"


def _wrong_top(name: str, top: Sequence[tuple[int, float]], most: int) -> Iterator[str]:
    """What shows that the numbers are not a log-softmax over a vocabulary of at most `most` tokens."""
    if len({token for token, _ in top}) < len(top):
        yield f"{name} contains a token twice"
    total = sum(exp(value) for _, value in top)
    rest = max(most - len(top), 0) * exp(min((value for _, value in top), default=0.0))
    how = "write the log-softmax of the raw logits"
    if total > 1.02:
        yield f"the probabilities in {name} add up to {total:.3g}: {how}"
    elif top and total + rest < 0.97:
        yield (
            f"the probabilities in {name} add up to {total:.3g}, and the other tokens, which are less "
            f"probable, cannot add up to the rest: {how}"
        )


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
    rule = _rule(line, header)
    if rule not in FOLLOWS:  # a choice is then not what the text follows
        line = replace(line, choice=())
    bonus = line.committed[-1] if len(line.committed) > len(accepted) else None
    slots = line.slot or range(line.prefix_length, line.prefix_length + n)
    unread = {"choice"} if "choice" in given and not line.choice else set()
    missing = sorted({*OPTIONAL, "mask", "entropy"} - _FOR_CHECKS - given.keys() | unread)
    not_numbers = [node_of[row] for row, top in enumerate(line.topk) if _broken(top)]
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
        caches=(_cache(line, slots),),
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
        rule=rule,
        position=tuple([line.position[row] for row in order]) if line.position else (),
        hidden_prefix=hidden,
        rows=tuple(order) if order != list(range(n)) else (),
        missing=tuple(missing),
        not_numbers=tuple(sorted(not_numbers)),
        hidden=line.hidden,
        request=str(line.request if line.request != "" else header.request),
        batch=str(line.batch),
    )


def _cache(line: _Pass, slots: Sequence[int]) -> CacheRecord:
    before = line.prefix_length
    end = before + len(line.committed)
    capacity = max(end, *slots) + 1
    return CacheRecord(
        "target", before, len(line.token), line.kept_slots, (), end, end, capacity, 0
    )


def _broken(top: Sequence[tuple[int, float]]) -> bool:
    """Whether a row's answer is not a number."""
    return any(value != value for _, value in top)


def _rule(line: _Pass, header: _Header) -> str:
    """The acceptance rule; a sampled run without one follows the choices that it recorded."""
    if header.rule:
        return RULES[header.rule]
    if not header.temperature:
        return "greedy"
    return "sample and match" if line.choice else "recorded"


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
    draft_top = [_probabilities(line.draft_topk[row]) if line.draft_topk else () for row in order]
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
            draft_top=draft_top[node],
        )


def _probabilities(top: Sequence[tuple[int, Real]]) -> tuple[tuple[int, float], ...]:
    """Best first; empty if a number is missing."""
    if _broken(top):
        return ()
    ordered = sorted(top, key=lambda pair: -pair[1])
    return tuple([(token, exp(log_prob)) for token, log_prob in ordered])


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
    about: dict[str, Any] = {
        "target": header.model,
        "engine": header.engine,
        "tokenizer": header.tokenizer,
        "note": header.note,
        "target_dtype": precision(header.dtype) or header.dtype,
        "format": header.format,
        "processed": header.processed,
        "eos_ids": " ".join(map(str, header.eos_ids)),
        "position_offset": header.position_offset,
    }
    sampling = {
        "temperature": header.temperature,
        "top_k": header.top_k,
        "top_p": header.top_p,
        "min_p": header.min_p,
        "seed": header.seed,
        "stop_at_eos": not header.ignore_eos,
    }
    return Trace(
        prompt_ids=prompt[:-1] if root_in_prompt else prompt,
        first_token=root,
        steps=tuple(steps),
        settings={
            "strategy": header.engine or "recorded",
            **{name: value for name, value in sampling.items() if value is not None},
        },
        models=about,
        texts=texts,
        finished=finished,
    )


def _tokens(step: Step) -> set[int]:
    tops = {token for node in step.nodes for token, _ in (*node.target_top, *node.draft_top)}
    choices = {node.target_choice for node in step.nodes} - {UNKNOWN}
    return {*step.tree.token.tolist(), *step.committed, *choices, *tops}
