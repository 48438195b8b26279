"""The lines of a `speclab.steps/1` file, field by field, and what makes one invalid.

`scripts/write_steps_format.py` writes the tables of docs/steps.md from the texts below the fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Base64Bytes, BaseModel, Field, ValidationError, model_validator

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
Line = TypeVar("Line", bound=BaseModel)
Ids = Many[Natural]
Rule = Literal[
    "", "greedy", "sample_and_match", "rejection", "rejection_without_replacement", "block"
]
Label = Annotated[str | Natural, Field(description="a text or a whole number")]
Count = Annotated[Natural | None, Field(description="a whole number of at least 0")]
Share = Annotated[Probability | None, Field(description="a number from 0 to 1")]
Setting = Annotated[
    Amount | None,
    Field(description="a number of at least 0, where the draft sampled otherwise"),
]
LogProb = Annotated[float, Field(le=MOST_LOG_PROB)]
Top = tuple[tuple[Natural, LogProb], ...]
Answers = tuple[tuple[Natural, LogProb | NotANumber], ...]


class Header(BaseModel, extra="forbid", frozen=True, use_attribute_docstrings=True):
    """The first line of a file."""

    format: Literal["speclab.steps/1"]
    """speclab.steps/1, in the first line"""
    prompt_ids: Ids = Field(min_length=1)
    """a list of token ids, at least one: the whole prompt"""
    engine: str = ""
    """a text: the decoder and its version"""
    model: str = ""
    """a text: the target's name"""
    tokenizer: str = ""
    """a text: the tokenizer's name"""
    dtype: str = ""
    """the name of a precision, such as float32"""
    temperature: Amount = 0.0
    """a number of at least 0; 0 is greedy"""
    note: str = ""
    """a text that every report repeats"""
    processed: bool = False
    """true or false: choices were made after logits processors"""
    eos_ids: Ids = ()
    """a list of token ids that end a text"""
    ignore_eos: bool = False
    """true or false: the text goes on after a token that ends it"""
    position_offset: Whole = 0
    """a whole number: of all positions; if negative, so many tokens of the prompt are padding"""
    rule: Rule = ""
    """one of greedy, sample_and_match, rejection, rejection_without_replacement, block"""
    top_k: Count = None
    top_p: Share = None
    min_p: Share = None
    draft_temperature: Setting = None
    draft_top_k: Count = None
    draft_top_p: Share = None
    draft_min_p: Share = None
    seed: Count = None
    request: Label = ""

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if self.rule and (self.rule == "greedy") == bool(self.temperature):
            raise ValueError(
                f"rule is {self.rule}, but temperature is {self.temperature:g}: write both as they were"
            )
        if -self.position_offset >= len(self.prompt_ids):
            raise ValueError("position_offset pads the whole prompt: it is less than its length")
        return self


class Pass(BaseModel, extra="forbid", frozen=True, use_attribute_docstrings=True):
    """A line of a file: one verification pass of the target, of `n` rows."""

    prefix_length: Length
    """a whole number from 0 to 16777216: entries in the cache before the pass"""
    token: Ids
    """a list of token ids, one for each row; row 0 is the root"""
    parent: Many[Whole]
    """a list of row numbers, -1 for the root; parents come before children"""
    accepted: Ids
    """a list of row numbers: the committed part of the accepted path, without the root"""
    committed: Ids
    """a list of token ids added to the text: those of the path, then the target's own"""
    position: Many[Whole] = ()
    """a list of whole numbers, one for each row, as passed to the model"""
    mask: Base64Bytes | None = None
    """a text in base64 of numpy.packbits(mask, axis=1): which rows each row saw"""
    hidden_prefix: Many[tuple[Natural, Length, Length]] = ()
    """a list of [row, first entry, last entry] of the prefix that a row did not see"""
    slot: Many[Length] = ()
    """a list of cache slots, one for each row"""
    log_prob: Many[LogProb] = ()
    """a list of log-probabilities of at most 0, one for each row: the drafter's, given the path;
    if it sampled, of what it drew from"""
    draft_topk: Many[Top | None] = ()
    """a list of [token id, log-probability] for each row, or null; log-probabilities are at most 0:
    the drafter's best tokens after it"""
    choice: Many[Natural | None] = ()
    """a list of token ids, one for each row, or null: the target's after it"""
    topk: Many[Answers | None] = ()
    """a list of [token id, log-probability] for each row, or null; log-probabilities are at most 0:
    the log-softmax of the target's raw logits"""
    kept_slots: Many[Length] = ()
    """a list of the slots kept in the cache, in order: this pass's, or with those of the prefix"""
    seconds: dict[str, Amount] = {}
    """an object of phases with seconds of at least 0"""
    request: Label = ""
    batch: Label = ""

    @model_validator(mode="after")
    def _checked(self) -> Self:
        wrong = next(_wrong_in(self), "")
        if wrong:
            raise ValueError(wrong)
        return self


def described(kind: type[BaseModel], name: str) -> str:
    """What a field is, on one line."""
    return " ".join(str(kind.model_fields[name].description).split())


def read_line(kind: type[Line], line: bytes, where: str) -> Line:
    """The line as a header or a pass.

    Raises:
        TraceError: it is not JSON, or a field is missing, unknown, or not what docs/steps.md says.
    """
    try:
        return kind.model_validate_json(line, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    location = first["loc"] or ("the line",)
    name = str(location[0])
    meaning = "an object"
    if name in kind.model_fields:
        meaning = described(kind, name)
    match first["type"]:
        case "json_invalid":
            wrong = f"the line is not JSON ({first['ctx']['error']})"
        case "value_error" if not first["loc"]:
            wrong = str(first["ctx"]["error"])
        case "extra_forbidden":
            names = ", ".join(kind.model_fields)
            wrong = f"there is no field {name!r}; the fields of this line are {names}"
        case "missing":
            wrong = f"{name} is missing; it is {meaning}"
        case _:
            wrong = f"{name} must be {meaning}, not {first['input']!r:.40}"
            indices = [f"[{index}]" for index in location if isinstance(index, int)]
            if indices:
                wrong = f"{name} must be {meaning}, and {name}{''.join(indices)} is not"
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
    for row, answers in enumerate(line.topk):
        yield from _wrong_top(f"topk of row {row}", answers or ())
    for row, top in enumerate(line.draft_topk):
        yield from _wrong_top(f"draft_topk of row {row}", top or ())


def _wrong_references(line: Pass, n: int) -> Iterator[str]:
    for row in line.accepted:
        if row >= n:
            yield f"accepted has row {row}, but the pass has {n} rows"
    if len(set(line.accepted)) < len(line.accepted):
        yield "accepted contains a row twice"
    for row, first, last in line.hidden_prefix:
        if row >= n:
            yield f"hidden_prefix has row {row}, but the pass has {n} rows"
        if not first <= last < line.prefix_length:
            yield f"row {row} hides entries {first} to {last} of a prefix of {line.prefix_length}"
    if line.mask is not None and len(line.mask) != n * -(-n // 8):
        yield f"the mask does not have {n} rows: write numpy.packbits(mask, axis=1) in base64"


def _wrong_top(name: str, top: Sequence[tuple[int, float]]) -> Iterator[str]:
    """What shows that the numbers are not a log-softmax."""
    tokens = set()
    total = 0.0
    least = 0.0
    for token, log_prob in top:
        tokens.add(token)
        total += exp(log_prob)
        least = min(least, log_prob)
    if len(tokens) < len(top):
        yield f"{name} contains a token twice"
    # the other tokens are less probable
    if total > 1.02 or total + MOST_TOKENS * exp(least) < 0.97:
        yield (
            f"the probabilities in {name} add up to {total:.3g}: write the log-softmax of the raw logits"
        )


def precision(name: str) -> str:
    """The usual name of a precision, "" if the name is not known: `bf16` is `bfloat16`."""
    plain = name.lower().removeprefix("torch.").replace("-", "_")
    for dtype, aliases in DTYPES.items():
        if plain == dtype or plain in aliases.split():
            return dtype
    return ""
