"""What engines say of speculative decoding in their responses, without a plug-in.

The field names are those of:

- vLLM: `metrics.speculative_decoding`, docs/features/speculative_decoding/acceptance_metrics.md;
- AIPerf: `spec_decode_acceptance` in profile_export.jsonl, `SpecDecodeAcceptanceRecord`: vLLM's
  names, and a histogram that leaves out zeros;
- SGLang: `meta_info`, python/sglang/srt/managers/tokenizer_manager.py,
  `TokenizerManager._calculate_spec_decoding_metrics`, and later `fill_spec_decoding_meta`;
- llama.cpp: `timings`, tools/server/server-task.cpp, `result_timings::to_json`; the line of the
  log, tools/server/server-context.cpp, `server_slot::print_timings`;
- forks of llama.cpp: the file that `LLAMA_SPEC_DUMP` names, a line for each pass with `n_accepted`
  and `pos`, or with `n_accept` and `n_draft`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclab.display import counted
from speclab.errors import TraceError
from speclab.files import read_whole
from speclab.trace.metrics import Counts, Survival, survival

if TYPE_CHECKING:
    from speclab.pair import ModelPair

MOST_BYTES = 1 << 28
LOG_LINE = re.compile(r"draft acceptance = [\d.]+ \(\s*(\d+) accepted /\s*(\d+) generated\)")
NAMES = {
    "histogram": "acceptance_histogram spec_correct_drafts_histogram spec_accept_histogram",
    "accepted": "num_accepted_draft_tokens spec_num_correct_drafts spec_accepted_drafts "
    "spec_accept_token_num draft_n_accepted n_accepted n_accept",
    "drafted": "num_draft_tokens spec_num_proposed_drafts spec_proposed_drafts "
    "spec_draft_token_num draft_n n_draft",
    "verified": "num_spec_steps spec_verify_ct",
    "written": "completion_tokens",
}
"""What each engine calls it."""
DUMP = "a dump"
SIGNS = {
    "acceptance_histogram": "vLLM",
    "per_step_accepted": "vLLM",
    "spec_verify_ct": "SGLang",
    "draft_n_accepted": "llama.cpp",
    "n_accepted": DUMP,
    "n_accept": DUMP,
}
"""A field of each object that is read, and its engine."""
LACKS = {
    "accepted": "how many drafted tokens were accepted: of the tokens, all but one for each pass, and but "
    "the first if it came with the prompt's pass",
    "passes": "how many tokens each pass accepted, so there is no acceptance by depth",
    "lengths": "how many tokens each pass drafted; it is taken that all drafted as many",
    "order": "in which order passes came (vLLM: --per-request-spec-decode-metrics detailed)",
    "tokens": "the text's tokens (ask for logprobs)",
    "unlisted": "the passes without a draft, so the text cannot be cut into passes",
}
PARTS = 4
"""Parts of a text by which acceptance is shown."""


@dataclass(frozen=True)
class Response:
    """One request: what its engine says.

    Attributes:
        accepted, drafted: tokens in all; `accepted` is None, `drafted` 0 if it is not said.
        passes: what each verification pass accepted and looked at, in order if `ordered`.
        tokens: the texts of the tokens, empty if they are not said.
        lacks: what is not said, a key of `LACKS` each.
        verified, written: the numbers of passes and tokens, 0 if they are not said.
    """

    engine: str
    accepted: int | None
    drafted: int
    passes: tuple[Counts, ...]
    ordered: bool
    tokens: tuple[str, ...]
    lacks: tuple[str, ...]
    verified: int = 0
    written: int = 0

    @property
    def hazards(self) -> dict[int, Survival]:
        """By depth: the share of drafted tokens that were accepted where the target looked."""
        rows = {}
        for row in survival(self.passes):
            # alone, and not as the share of drafts that came so far
            accepted = [Counts(accepted=1, looked=1)] * row.accepted
            rejected = [Counts(looked=1)] * (row.looked - row.accepted)
            rows[row.depth] = survival(accepted + rejected)[0]
        return rows

    @property
    def parts(self) -> list[Survival]:
        """The same at depth 1 in each quarter of the passes that drafted, if they are in order."""
        if not self.ordered:
            return []
        drafted = [each for each in self.passes if each.looked]
        size = ceil(len(drafted) / PARTS)
        rows = []
        for start in range(0, len(drafted), size or 1):
            rows.append(survival(drafted[start : start + size])[0])
        return rows

    def text(self, free: str = "[{}]") -> str:
        """The text, a bar after each pass, and by this template what came from its draft."""
        written = "".join(self.tokens[:1]) + "|"
        start = 1  # the first token came with the prompt's pass
        for each in self.passes:
            end = start + each.accepted
            if each.accepted:
                written += free.format("".join(self.tokens[start:end]))
            written += "".join(self.tokens[end : end + 1]) + "|"
            start = end + 1
        return written

    def _summary(self) -> str:
        """Accepted tokens and tokens per pass, as far as they are said."""
        if self.accepted is None:
            passes = counted(self.verified, "pass", "passes")
            if not self.written:
                return f"{passes}."
            tokens = counted(self.written, "token")
            length = self.written / self.verified
            return f"{tokens} in {passes}, {length:.2f} tokens per pass."
        summary = f"{counted(self.accepted, 'token')} accepted."
        if self.drafted:
            summary = f"{self.accepted} of {self.drafted} drafted tokens accepted."
        if self.passes:
            passes = counted(len(self.passes), "pass", "passes")
            length = 1 + self.accepted / len(self.passes)
            summary += f" {passes}, {length:.2f} tokens per pass."
        return summary

    def show(self, free: str = "[{}]") -> str:
        """The report; `free` as in `text`."""
        lines = [f"{self.engine}: {self._summary()}"]
        for depth, row in self.hazards.items():
            lines.append(f"  depth {depth}: {_worded(row)}")
        for part, row in enumerate(self.parts, 1):
            lines.append(f"  depth 1, part {part} of the text: {_worded(row)}")
        if self.ordered and self.tokens and "unlisted" not in self.lacks:
            lines.append(self.text(free))
        for name in self.lacks:
            lines.append(f"Not said: {LACKS[name]}.")
        return "\n".join(lines)

    __str__ = show

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        hazards = {depth: asdict(row) for depth, row in self.hazards.items()}
        return asdict(self) | {"hazards": hazards}


def read(path: str | os.PathLike[str], pair: ModelPair | None = None) -> list[Response]:
    """Read what engines say in a response, in JSON lines of many, in a dump or in a log.

    Args:
        path: a response, streamed or not; lines of a benchmark; a dump; a server's log.
        pair: with the target's tokenizer, for responses without the tokens' texts.

    Raises:
        TraceError: nothing there speaks of speculative decoding, or a line is not as its engine
            writes it.
    """
    name = Path(path).name
    responses: list[Response] = []
    dumped: list[Counts] = []  # a pass for each line of a dump
    for line, document in _documents(path):
        for sign, fields in _objects(document):
            try:
                if SIGNS[sign] != DUMP:
                    responses.append(_response(SIGNS[sign], fields, document, pair))
                elif not fields.get("replay"):  # a pass that only repeats one
                    dumped.append(_dumped(fields))
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                wrong = "the fields beside it are of other kinds"
                if type(error) is ValueError:
                    wrong = str(error)
                raise TraceError(
                    f"{name}, line {line}: {SIGNS[sign]} writes {sign} otherwise ({wrong:.90}): "
                    "give the response as the engine returned it."
                ) from None
    if dumped:
        total = sum(dumped, Counts())
        lacks = ("tokens",)
        passes = tuple(dumped)
        responses.append(Response(DUMP, total.accepted, total.drafted, passes, True, (), lacks))
    if not responses:
        raise TraceError(
            f"{name} says nothing of speculative decoding: start vLLM with "
            "--per-request-spec-decode-metrics detailed; SGLang's meta_info and llama.cpp's "
            "timings have it if they drafted. speclab clinic opens recordings."
        )
    return responses


def _documents(path: str | os.PathLike[str]) -> Iterator[tuple[int, Any]]:
    """The line, from 1, of each JSON value of a file, and the value."""
    text = read_whole(path, TraceError, MOST_BYTES).decode("utf-8", "replace")
    logged = LOG_LINE.findall(text)
    for accepted, drafted in logged:
        yield 1, {"draft_n_accepted": int(accepted), "draft_n": int(drafted)}
    if logged:
        return  # nothing else of a log is read
    lines = text.split("\n")
    with suppress(ValueError):
        json.loads(text)
        lines = [text]  # one response, on one line or many
    for number, line in enumerate(lines, 1):
        content = line.strip().removeprefix("data:").strip()  # an event of a stream
        if content in ("", "[DONE]"):
            continue
        try:
            document = json.loads(content)
        except ValueError as error:
            raise TraceError(
                f"{Path(path).name}, line {number} is not JSON ({error}): give a response, JSON "
                "lines or a log."
            ) from None
        responses = document if isinstance(document, list) else [document]
        for each in responses:
            yield number, each


def _objects(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Objects in a document that speak of speculative decoding, with the field that shows it."""
    if isinstance(value, Mapping):
        for sign in SIGNS:
            if sign in value:
                yield sign, value
                return
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _objects(part)


def _response(
    engine: str, fields: Mapping[str, Any], document: Any, pair: ModelPair | None
) -> Response:
    passes = _listed(fields)
    ordered = bool(passes)
    lacks = []
    if not ordered:
        passes = _counted(fields)
        lacks = ["lengths", "order"] if passes else ["passes"]
    elif "per_step_drafted" not in fields:
        lacks = ["lengths"]
    total = sum(passes, Counts())
    drafted = _number(fields, "drafted")
    if ordered and not drafted and not lacks:
        drafted = total.drafted
    tokens = _texts(document, pair)
    if not tokens:
        lacks.append("tokens")
    elif ordered:
        # the first token came with the prompt's pass; the last pass may be cut
        most = 1 + total.accepted + len(passes)
        if not most - 1 - passes[-1].accepted < len(tokens) <= most:
            lacks.append("unlisted")
    verified = _number(fields, "verified")
    accepted: int | None = _number(fields, "accepted") or total.accepted
    if verified and not passes and _first(fields, "accepted") is None:
        accepted = None
        lacks.insert(0, "accepted")
    written = _number(fields, "written")
    return Response(
        engine, accepted, drafted, tuple(passes), ordered, tokens, tuple(lacks), verified, written
    )


def _listed(fields: Mapping[str, Any]) -> list[Counts]:
    """The passes one by one; where it is not said how many tokens each drafted, it is taken that all
    drafted as many."""
    steps = _numbers("per_step_accepted", fields.get("per_step_accepted") or ())
    most = _whole("num_spec_tokens", fields.get("num_spec_tokens") or max(steps, default=0))
    lengths = (most,) * len(steps)
    if "per_step_drafted" in fields:
        lengths = _numbers("per_step_drafted", fields["per_step_drafted"] or ())
    if len(lengths) != len(steps):
        raise ValueError(f"per_step_drafted has {len(lengths)} numbers for {len(steps)} passes")
    return [_pass(accepted, drafted) for accepted, drafted in zip(steps, lengths, strict=True)]


def _dumped(fields: Mapping[str, Any]) -> Counts:
    """The pass of a line of a dump."""
    drafted = _number(fields, "drafted")
    if not drafted:
        drafts = fields.get("pos", [])
        if not isinstance(drafts, list):
            raise ValueError("pos is not a list of drafted tokens")
        drafted = len(drafts)
    return _pass(_number(fields, "accepted"), drafted)


def _counted(fields: Mapping[str, Any]) -> list[Counts]:
    """The passes of a histogram of accepted tokens; it is taken that all drafted as many."""
    histogram = _first(fields, "histogram") or ()
    if not isinstance(histogram, Mapping):
        _numbers("a histogram", histogram)
        histogram = dict(enumerate(histogram))
    times = {}
    for accepted, count in histogram.items():
        if isinstance(accepted, str) and accepted.isdecimal():
            accepted = int(accepted)
        times[_whole("a histogram", accepted)] = _whole("a histogram", count)
    # vLLM's longest draft; SGLang's histogram ends there
    drafted = _whole("num_spec_tokens", fields.get("num_spec_tokens") or max(times, default=0))
    passes: list[Counts] = []
    for accepted, count in sorted(times.items()):
        passes += [_pass(accepted, drafted)] * count
    return passes


def _pass(accepted: int, drafted: int) -> Counts:
    if accepted > drafted:
        raise ValueError(f"a pass accepted {accepted} of {drafted} drafted tokens")
    # the target looks at the tokens that it accepts, and at the one that it rejects
    return Counts(accepted=accepted, drafted=drafted, looked=min(accepted + 1, drafted))


def _first(fields: Mapping[str, Any], what: str) -> Any:
    """The first of its names that the fields have; None if there is none."""
    for name in NAMES[what].split():
        if fields.get(name) is not None:
            return fields[name]
    return None


def _number(fields: Mapping[str, Any], what: str) -> int:
    for name in NAMES[what].split():
        if fields.get(name) is not None:
            return _whole(name, fields[name])
    return 0


def _whole(name: str, value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} has {value!r:.20}, not a whole number of at least 0")
    return value


def _numbers(name: str, values: Any) -> tuple[int, ...]:
    if not isinstance(values, list | tuple):
        raise ValueError(f"{name} is {values!r:.20}, not a list of whole numbers")
    return tuple([_whole(name, value) for value in values])


def _texts(document: Mapping[str, Any], pair: ModelPair | None) -> tuple[str, ...]:
    """Of the logprobs, else of the ids or the text by the target's tokenizer."""
    choice = (document.get("choices") or [document])[0]
    logprobs = choice.get("logprobs") or {}
    listed = logprobs.get("content") or document.get("completion_probabilities")
    if listed:
        return tuple([str(each["token"]) for each in listed])
    if pair is None:
        return tuple(logprobs.get("tokens") or ())
    ids = choice.get("token_ids") or document.get("output_ids") or document.get("tokens")
    if not ids:
        message = choice.get("message") or {}
        tokenizer: Any = pair.tokenizer
        text = message.get("content") or choice.get("text") or document.get("content") or ""
        ids = tokenizer(text, add_special_tokens=False).input_ids
    texts = pair.token_texts(_numbers("ids", ids))
    return tuple([texts[token] for token in ids])


def _worded(row: Survival) -> str:
    interval = f"95 %: {row.low:.2f} to {row.high:.2f}"
    return f"{row.survival:.2f} ({row.accepted} of {row.looked}; {interval})"
