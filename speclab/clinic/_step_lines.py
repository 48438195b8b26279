"""The lines of a `speclab.steps/1` file (docs/steps.md): read, and refused in the file's own words."""

from __future__ import annotations

import base64
import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from math import exp
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError

from speclab.errors import TraceError
from speclab.files import opened
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
    "block": "a block of draws",
}
"""Acceptance rules of the header, and their names in records."""
FOLLOWS = ("greedy", "sample and match")
"""Rules under which the text follows the recorded choices."""
_NO_OTHERS: Any = ConfigDict(extra="forbid")
LogProb = Annotated[float, Field(le=1e-3)] | NotANumber
Top = Many[tuple[Natural, LogProb]]


@dataclass(frozen=True)
class Header:
    """The first line of a file; docs/steps.md says what its fields mean."""

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
class Pass:
    """A line of a file: one verification pass of the target."""

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


FOR_CHECKS = {"batch", "draft_topk", "hidden", "request"}
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


def lines_of(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes, bool]]:
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


def read_line(kind: type[Any], line: bytes, where: str) -> Any:
    """The line as a header or a pass.

    Raises:
        TraceError: a field is missing, unknown, or not what docs/steps.md says.
    """
    what = "header" if kind is Header else "pass"
    try:
        read = adapter(kind).validate_json(line, strict=True)  # type: ignore[arg-type]
        if isinstance(read, Header) and (wrong := next(_wrong_header(read), "")):
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


def _wrong_header(header: Header) -> Iterator[str]:
    if not header.prompt_ids:
        yield f"prompt_ids must be {_MEANINGS['prompt_ids']}"
    if header.rule and header.rule not in RULES:
        yield f"rule must be {_MEANINGS['rule']}, not {header.rule!r}"
    if header.rule not in ("", "greedy") and not header.temperature:
        yield f"rule is {header.rule}, but temperature is 0: write what was sampled at"
    if -header.position_offset >= len(header.prompt_ids) > 0:
        yield "position_offset pads the whole prompt: it is less than its length"
    if header.rule == "greedy" and header.temperature:
        yield f"rule is greedy, but temperature is {header.temperature:g}: leave one of them out"


def wrong_in(line: Pass, most: int) -> Iterator[str]:
    """What is wrong with a pass of a vocabulary of at most `most` tokens, a sentence each."""
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


def _wrong_references(line: Pass) -> Iterator[str]:
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
