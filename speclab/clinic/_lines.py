"""The lines of a `speclab.steps/1` file (docs/steps.md), and what makes one invalid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from math import exp, log
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Base64Bytes, ConfigDict, Field, ValidationError

from speclab.errors import TraceError
from speclab.trace.codecs import (
    MOST_LOG_PROB,
    Amount,
    Length,
    Many,
    Natural,
    NotANumber,
    Probability,
    Whole,
    adapter,
)

MOST_TOKENS = 300_000
"""More than any vocabulary has."""
DTYPES = {
    "float32": "f32 fp32 float single",
    "float16": "f16 fp16 half",
    "bfloat16": "bf16 bfloat",
    "float8": "fp8 f8 e4m3 e5m2 float8_e4m3fn float8_e5m2",
    "int8": "q8 q8_0 q8_1 w8a8 w8a16 i8",
    "int4": "q4 q4_0 q4_1 q4_k q4_k_m q4_k_s w4a16 i4 nf4",
}
"""Names of precisions, and their aliases."""
_NO_OTHERS: Any = ConfigDict(extra="forbid")
LogProb = Annotated[float, Field(le=MOST_LOG_PROB)]
Line = TypeVar("Line")


@dataclass(frozen=True)
class Header:
    """The first line of a file; docs/steps.md says what its fields mean."""

    __pydantic_config__ = _NO_OTHERS
    format: Literal["speclab.steps/1"]
    prompt_ids: Annotated[Many[Natural], Field(min_length=1)]
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
    rule: Literal[
        "", "greedy", "sample_and_match", "rejection", "rejection_without_replacement", "block"
    ] = ""
    top_k: Natural | None = None
    top_p: Probability | None = None
    min_p: Probability | None = None
    draft_temperature: Amount | None = None
    draft_top_k: Natural | None = None
    draft_top_p: Probability | None = None
    draft_min_p: Probability | None = None
    seed: Natural | None = None
    request: str | Natural = ""

    def __post_init__(self) -> None:
        if self.rule and (self.rule == "greedy") == bool(self.temperature):
            raise ValueError(
                f"rule is {self.rule}, but temperature is {self.temperature:g}: write both as they were"
            )
        if -self.position_offset >= len(self.prompt_ids):
            raise ValueError("position_offset pads the whole prompt: it is less than its length")


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
    mask: Base64Bytes | None = None
    hidden_prefix: Many[tuple[Natural, Length, Length]] = ()
    slot: Many[Length] = ()
    log_prob: Many[LogProb] = ()
    draft_topk: Many[Many[tuple[Natural, LogProb]]] = ()
    choice: Many[Natural] = ()
    topk: Many[Many[tuple[Natural, LogProb | NotANumber]]] = ()
    kept_slots: Many[Length] = ()
    seconds: dict[str, Amount] = field(default_factory=dict)
    request: str | Natural = ""
    batch: str | Natural = ""

    def __post_init__(self) -> None:
        if wrong := next(_wrong_in(self), ""):
            raise ValueError(wrong)


UNRECORDED = MOST_TOKENS
"""The id of tokens that a dump lacks."""
DUMP = Header(
    "speclab.steps/1",
    (UNRECORDED,),
    engine="llama.cpp",
    note="LLAMA_SPEC_DUMP has the draft's tokens alone, so the target's side cannot be checked.",
)
"""In the place of a dump's first line. A fork of llama.cpp writes one if `LLAMA_SPEC_DUMP` names a file."""


@dataclass(frozen=True)
class Drafted:
    """A token with its probability for the draft; a drafted one with the best in its place."""

    tok: Natural
    p: Probability
    top: Many[Drafted] = ()

    @property
    def log_prob(self) -> float:
        return log(max(self.p, 1e-30))


@dataclass(frozen=True)
class Dumped:
    """A line of a dump: the drafted tokens of a pass. Its other fields are not read."""

    n_accepted: Natural
    pos: Many[Drafted]
    seq: Natural = 0

    def __post_init__(self) -> None:
        self.as_pass(0)  # raises what is wrong with it

    def as_pass(self, length: int) -> Pass:
        """A pass of a chain after so many tokens."""
        token = [each.tok for each in self.pos]
        tops = [tuple([(each.tok, each.log_prob) for each in place.top]) for place in self.pos]
        return Pass(
            prefix_length=length,
            token=(UNRECORDED, *token),
            parent=tuple(range(-1, len(token))),
            accepted=tuple(range(1, self.n_accepted + 1)),
            committed=(*token[: self.n_accepted], UNRECORDED),
            log_prob=(0.0, *[each.log_prob for each in self.pos]),
            draft_topk=(*tops, ()),
            request=self.seq,
        )


_MEANINGS = {
    name: meaning
    for names, meaning in (
        line.split(": ")
        for line in """\
format: speclab.steps/1, in the first line
prompt_ids: a list of token ids, at least one
dtype: the name of a precision, such as float32
temperature draft_temperature: a number of at least 0
processed ignore_eos: true or false
eos_ids committed: a list of token ids
position_offset: a whole number
rule: one of greedy, sample_and_match, rejection, rejection_without_replacement, block
top_k draft_top_k seed n_accepted: a whole number of at least 0
top_p min_p draft_top_p draft_min_p: a number from 0 to 1
prefix_length: a whole number from 0 to 16777216
token choice: a list of token ids, one for each row
parent: a list of row numbers, -1 for the root
accepted: a list of row numbers
position: a list of whole numbers, one for each row
mask: a text in base64 of numpy.packbits(mask, axis=1)
hidden_prefix: a list of [row, first entry, last entry]
slot: a list of slot numbers, one for each row
kept_slots: a list of slot numbers
log_prob: a list of log-probabilities of at most 0, one for each row
draft_topk topk: a list of [token id, log-probability] for each row; log-probabilities are at most 0
pos: a list of objects with tok and p
seconds: an object of phases with seconds of at least 0
request batch: a text or a whole number""".splitlines()
    )
    for name in names.split()
}
"""What each field must be."""


def read_line(kind: type[Line], line: bytes, where: str) -> Line:
    """The line as a header or a pass.

    Raises:
        TraceError: it is not JSON, or a field is missing, unknown, or not what docs/steps.md says.
    """
    try:
        read: Line = adapter(kind).validate_json(line, strict=True)  # type: ignore[arg-type]
        return read
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    name, *indices = map(str, first["loc"] or ("the line",))
    match first["type"]:
        case "json_invalid":
            wrong = f"the line is not JSON ({first['ctx']['error']})"
        case "value_error" if not first["loc"]:
            wrong = str(first["ctx"]["error"])
        case "unexpected_keyword_argument":
            names = ", ".join(column.name for column in fields(kind))  # type: ignore[arg-type]
            wrong = f"there is no field {name!r}; the fields of this line are {names}"
        case "missing":
            wrong = f"{name} is missing; it is {_MEANINGS[name]}"
        case _:
            at = "".join(f"[{index}]" for index in indices if index.isdigit())
            wrong = f"{name} must be {_MEANINGS.get(name, 'a text')}"
            wrong += f", and {name}{at} is not" if at else f", not {first['input']!r:.40}"
    raise TraceError(f"{where}: {wrong}.")


def _wrong_in(line: Pass) -> Iterator[str]:
    """What is wrong with a pass, a clause each."""
    n = len(line.token)
    if not n:
        yield "it has no rows, but a pass has at least the root"
    for name in ("parent", "position", "slot", "log_prob", "draft_topk", "choice", "topk"):
        length = len(getattr(line, name))
        if length != n and (length or name == "parent"):
            yield f"{name} has {length} values for {n} rows"
    for row, parent in enumerate(line.parent):
        if not (0 <= parent < row if row else parent == -1):
            yield f"row {row} has parent {parent}: the root's is -1, and others come before their rows"
    yield from _wrong_references(line, n)
    for name in ("topk", "draft_topk"):
        for row, top in enumerate(getattr(line, name)):
            yield from _wrong_top(f"{name} of row {row}", top)


def _wrong_references(line: Pass, n: int) -> Iterator[str]:
    most = max([*line.accepted, *[row for row, *_ in line.hidden_prefix]], default=0)
    if most >= n:
        yield f"row {most} does not exist in a pass of {n} rows"
    if len({*line.accepted}) < len(line.accepted):
        yield "accepted contains a row twice"
    for row, first, last in line.hidden_prefix:
        if not first <= last < line.prefix_length:
            yield f"row {row} hides entries {first} to {last} of a prefix of {line.prefix_length}"
    if line.mask is not None and len(line.mask) != n * -(-n // 8):
        yield f"the mask does not have {n} rows: write numpy.packbits(mask, axis=1) in base64"


def _wrong_top(name: str, top: Sequence[tuple[int, float]]) -> Iterator[str]:
    """What shows that the numbers are not a log-softmax."""
    if len({token for token, _ in top}) < len(top):
        yield f"{name} contains a token twice"
    total = sum(exp(value) for _, value in top)
    rest = MOST_TOKENS * exp(min((value for _, value in top), default=0.0))
    if total > 1.02 or total + rest < 0.97:  # the other tokens are less probable
        yield (
            f"the probabilities in {name} add up to {total:.3g}: write the log-softmax of the raw logits"
        )


def precision(name: str) -> str:
    """The usual name of a precision, "" if the name is not known: `bf16` is `bfloat16`."""
    plain = name.lower().removeprefix("torch.").replace("-", "_")
    return next((dtype for dtype, names in DTYPES.items() if plain in (dtype, *names.split())), "")
