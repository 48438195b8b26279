"""Steps of another decoder: opens a `speclab.steps/1` file (docs/steps.md) as a Trace, and refuses a wrong
line in the file's own words."""

from __future__ import annotations

import base64
import gzip
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import exp, log
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from speclab.clinic._detectors import FOLLOWS_THE_TARGET
from speclab.errors import SettingsError, TraceError, named
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
from speclab.trace.metrics import Counts, looked
from speclab.trace.records import UNKNOWN, Adaptation, CacheRecord, NodeRecord, Step, Trace, Verdict
from speclab.tree import Bools, DraftTree

if TYPE_CHECKING:
    from speclab.pair import ModelPair

MAX_BYTES = 1 << 30
"""Largest file, and the most that a compressed one may unpack to."""
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
RULES = {
    "greedy": "greedy",
    "sample_and_match": "sample and match",
    "rejection": "independent draws",
    "rejection_without_replacement": "draws without replacement",
    "block": "a block of draws",
}
"""Acceptance rules of the header, and their names in records."""
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
    draft_temperature: Amount | None = None
    draft_top_k: Natural | None = None
    draft_top_p: Probability | None = None
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

_MEANINGS = {
    name: meaning
    for names, meaning in (
        line.split(": ")
        for line in """\
prompt_ids: a list of token ids, at least one
dtype: the name of a precision, such as float32
temperature draft_temperature: a number of at least 0
processed ignore_eos: true or false
eos_ids committed: a list of token ids
position_offset: a whole number
rule: one of greedy, sample_and_match, rejection, rejection_without_replacement, block
top_k draft_top_k seed: a whole number of at least 0
top_p min_p draft_top_p: a number from 0 to 1
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
hidden: a list of numbers
seconds: an object of phases with seconds of at least 0
request batch: a text or a whole number""".splitlines()
    )
    for name in names.split()
}
"""What each field must be."""

SAMPLING = "temperature top_k top_p min_p draft_temperature draft_top_k draft_top_p seed"
ABOUT = "engine tokenizer note format processed position_offset"
"""Fields of the header that become settings of the trace, and that describe its models."""
DUMPED = {"n_draft", "n_accepted", "pos"}
"""Fields of a line of `LLAMA_SPEC_DUMP`."""
UNRECORDED = MOST_TOKENS
"""The id of tokens that the dump lacks: the prompt, each root, and each token of the target's own."""
DUMP = Header(
    FORMAT,
    (UNRECORDED,),
    engine="llama.cpp",
    note="LLAMA_SPEC_DUMP has the draft's tokens alone, so the target's side cannot be checked.",
)


def load_steps(path: str | os.PathLike[str], pair: ModelPair | None = None) -> Trace:
    """Opens the verification passes that another decoder recorded: `speclab.steps/1`, or what forks of
    llama.cpp write if `LLAMA_SPEC_DUMP` names a file.

    Fields that are not recorded are empty and listed in `Step.missing`. Rows are reordered
    breadth-first; `Step.rows` has the row of the file for each node. An incomplete last line is
    dropped, and `Trace.finished` says so.

    Args:
        pair: the models, for token texts; without them a text is the token's number.

    Raises:
        TraceError: the file is missing, larger than 1 GB, of another version, or has an invalid
            line.
    """
    if pair is not None and not hasattr(pair, "vocab_size"):
        raise SettingsError(
            f'Expected a pair of models, got {named(pair)}: load it, as in speclab.load_pair("mini").'
        )
    header: Header | None = None
    steps: list[Step] = []
    finished = ""
    most = MOST_TOKENS if pair is None else pair.vocab_size
    for number, raw, last in lines_of(path):
        where = f"{path}, line {number}"
        value = _parsed(raw, where, last and header is not None)
        if value is None:
            finished = f"line {number} is incomplete and was left out"
            break
        if header is None and value.keys() >= DUMPED:
            header = DUMP
        if header is None:
            header = _header(value, where)
            ids = {*header.prompt_ids}
        else:
            if header is DUMP:
                value = _of_dump(value, sum(len(step.committed) for step in steps) + 1, where)
            line = read_line(Pass, to_json(value), where)
            if wrong := next(wrong_in(line, most), ""):
                raise TraceError(f"{where}: {wrong}.")
            steps.append(_step(line, len(steps), header, value))
            ids = _tokens(steps[-1])
        largest = max(ids - {UNRECORDED} if header is DUMP else ids, default=0)
        if pair is not None and largest >= pair.vocab_size:
            raise TraceError(
                f"{where}: token {largest} is outside the vocabulary of {pair.vocab_size} tokens."
            )
    if header is None or not steps:
        raise TraceError(
            f"{path} contains no verification pass: record one with speclab.recorder.Recorder."
        )
    return _trace(header, steps, finished, pair)


def _parsed(raw: bytes, where: str, may_be_cut: bool) -> dict[str, Any] | None:
    """The object of a line, empty if it is none; None if it is the incomplete last one."""
    try:
        value = from_json(raw)
    except ValueError as error:
        if may_be_cut:
            return None
        raise TraceError(f"{where} is not JSON ({error}): record it again.") from None
    return value if isinstance(value, dict) else {}


def _header(value: Mapping[str, Any], where: str) -> Header:
    if value.get("format") != FORMAT:
        kind = f"{FORMAT!r}, not {value.get('format')!r}"
        raise TraceError(f"{where} must be a header of format {kind}: record it again.")
    header: Header = read_line(Header, to_json(value), where)
    return header


def _of_dump(value: Mapping[str, Any], length: int, where: str) -> dict[str, Any]:
    """A pass of a chain, from a line of `LLAMA_SPEC_DUMP`."""
    try:
        drafted = [
            (int(each["tok"]), float(each["p"]), each.get("top", ())) for each in value["pos"]
        ]
        accepted = int(value["n_accepted"])
        tops = [
            [[top["tok"], log(top["p"])] for top in given if top["p"] > 0] for *_, given in drafted
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(
            f"{where}: a line of LLAMA_SPEC_DUMP has n_accepted, and tok and p of each pos ({error!r})."
        ) from None
    tokens = [token for token, *_ in drafted]
    return {
        "prefix_length": length,
        "token": [UNRECORDED, *tokens],
        "parent": [*range(-1, len(tokens))],
        "accepted": [*range(1, accepted + 1)],
        "committed": [*tokens[:accepted], UNRECORDED],
        "log_prob": [0.0, *[log(max(prob, 1e-30)) for _, prob, _ in drafted]],
        "draft_topk": [*tops, []],
        "request": value.get("seq", ""),
    }


def _step(line: Pass, index: int, header: Header, given: Mapping[str, Any]) -> Step:
    n = len(line.token)
    log_prob = line.log_prob or [0.0] * n
    tree, order = DraftTree.grown(line.token, line.parent, log_prob, ["recorded"] * n)
    node_of = {row: node for node, row in enumerate(order)}
    accepted = tuple([node_of[row] for row in line.accepted])
    hidden = tuple([(node_of[row], first, last) for row, first, last in line.hidden_prefix])
    seen = [line.prefix_length] * n
    for node, first, last in hidden:
        seen[node] -= last - first + 1
    # a sampled run without a rule follows the choices that it recorded
    sampled = "sample and match" if line.choice else "recorded"
    rule = RULES.get(header.rule, sampled if header.temperature else "greedy")
    if rule not in FOLLOWS_THE_TARGET:  # a choice is then not what the text follows
        line = replace(line, choice=())
    start = line.prefix_length
    end = start + len(line.committed)
    slots = line.slot or range(start, start + n)
    unread = {"choice"} if "choice" in given and not line.choice else set()
    missing = {*OPTIONAL, "mask", "entropy"} - FOR_CHECKS - given.keys() | unread
    not_numbers = [node_of[row] for row, top in enumerate(line.topk) if _broken(top)]
    came_to = looked(tree, accepted, end - start, drafted_root=False)
    seconds = sum(line.seconds.values())
    deepest = int(tree.depth.max())
    counts = Counts(1, end - start, n - 1, len(accepted), deepest, 1, 0, seconds, came_to)
    kept = line.kept_slots
    cache = CacheRecord("target", start, n, kept, (), end, end, max(end, *slots) + 1, 0)
    return Step(
        index=index,
        prefix_length=start,
        tree=tree,
        nodes=tuple(_nodes(line, tree, order, accepted, slots)),
        accepted=accepted,
        committed=line.committed,
        bonus=line.committed[-1] if end - start > len(accepted) else None,
        root_choice=None,
        settings={},
        events=(),
        caches=(cache,),
        seconds=line.seconds,
        adaptation=Adaptation(),
        counts=counts,
        mask=_mask(line.mask, order) if line.mask else tree.ancestor_mask(),
        prefix_seen=tuple(seen),
        texts={},
        note="recorded",
        rule=rule,
        position=tuple([line.position[row] for row in order]) if line.position else (),
        hidden_prefix=hidden,
        rows=tuple(order) if order != list(range(n)) else (),
        missing=tuple(sorted(missing)),
        not_numbers=tuple(sorted(not_numbers)),
        hidden=line.hidden,
        request=str(line.request if line.request != "" else header.request),
        batch=str(line.batch),
    )


def _broken(top: Sequence[tuple[int, float]]) -> bool:
    """Whether a row's answer is not a number."""
    return any(value != value for _, value in top)


def _mask(text: str, order: Sequence[int]) -> Bools:
    packed = np.frombuffer(base64.b64decode(text), np.uint8).reshape(len(order), -1)
    mask = np.unpackbits(packed, axis=1, count=len(order)).astype(np.bool_)
    return mask[np.ix_(order, order)]


def _nodes(
    line: Pass,
    tree: DraftTree,
    order: Sequence[int],
    accepted: Sequence[int],
    slots: Sequence[int],
) -> Iterator[NodeRecord]:
    path = [0, *accepted]
    tokens = tree.token.tolist()
    followed = dict(
        zip(
            path,
            [*[tokens[node] for node in accepted], *line.committed[len(accepted) :][-1:]],
            strict=False,
        )
    )
    draft = np.exp(tree.log_prob).tolist()
    path_probs = np.exp(tree.path_log_prob).tolist()
    top = [_probabilities(line.topk[row]) if line.topk else () for row in order]
    for node, row in enumerate(order):
        parent = int(tree.parent[node])
        chosen = line.choice[row] if line.choice else followed.get(node, UNKNOWN)
        verdict: Verdict = "not reached"
        if node in path or parent in path:
            verdict = "accepted" if node in path else "rejected"
        yield NodeRecord(
            index=node,
            token=tokens[node],
            draft_prob=draft[node],
            path_prob=path_probs[node],
            target_prob=dict(top[parent]).get(tokens[node]) if node else None,
            target_choice=chosen,
            verdict=verdict if node else "root",
            kv_slot=slots[row],
            entropy=0.0,
            choice_prob=dict(top[node]).get(chosen),
            target_top=top[node],
            draft_top=_probabilities(line.draft_topk[row]) if line.draft_topk else (),
        )


def _probabilities(top: Sequence[tuple[int, Real]]) -> tuple[tuple[int, float], ...]:
    """Best first; empty if a number is missing."""
    if _broken(top):
        return ()
    ordered = sorted(top, key=lambda pair: -pair[1])
    return tuple([(token, exp(log_prob)) for token, log_prob in ordered])


def _trace(header: Header, steps: list[Step], finished: str, pair: ModelPair | None) -> Trace:
    """If the first pass also runs the prompt's last token, that token is the root, and not part of the prompt here."""
    first = steps[0]
    prompt = header.prompt_ids
    root = int(first.tree.token[0])
    root_in_prompt = first.prefix_length == len(prompt) - 1 and prompt[-1] == root
    tokens = {*prompt, *(token for step in steps for token in _tokens(step))}
    known = sorted(tokens - {UNRECORDED} if header is DUMP else tokens)
    texts = {token: f" #{token}" for token in known} if pair is None else pair.token_texts(known)
    texts |= {UNRECORDED: "?"} if header is DUMP else {}
    after = [*[step.prefix_length for step in steps[1:]], steps[-1].caches[0].after]
    for index, step in enumerate(steps):
        cache = replace(step.caches[0], after=after[index])
        own = {token: texts[token] for token in sorted(_tokens(step))}
        steps[index] = replace(step, caches=(cache,), texts=own)
    settings = {name: getattr(header, name) for name in SAMPLING.split()}
    about: dict[str, Any] = {name: getattr(header, name) for name in ABOUT.split()}
    return Trace(
        prompt_ids=prompt[:-1] if root_in_prompt else prompt,
        first_token=root,
        steps=tuple(steps),
        settings={
            "strategy": header.engine or "recorded",
            "stop_at_eos": not header.ignore_eos,
            **{name: value for name, value in settings.items() if value is not None},
        },
        models={
            **about,
            "target": header.model,
            "target_dtype": precision(header.dtype) or header.dtype,
            "eos_ids": " ".join(map(str, header.eos_ids)),
            "text": header is not DUMP,
        },
        texts=texts,
        finished=finished,
    )


def _tokens(step: Step) -> set[int]:
    tops = {token for node in step.nodes for token, _ in (*node.target_top, *node.draft_top)}
    choices = {node.target_choice for node in step.nodes} - {UNKNOWN}
    return {*step.tree.token.tolist(), *step.committed, *choices, *tops}


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
    names = {
        alias: dtype for dtype, aliases in DTYPES.items() for alias in (dtype, *aliases.split())
    }
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
