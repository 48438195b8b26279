"""What engines say of speculative decoding in their responses, without a plug-in.

The field names are those of:

- vLLM: `metrics.speculative_decoding`, docs/features/speculative_decoding/acceptance_metrics.md;
- AIPerf: `spec_decode_acceptance` in profile_export.jsonl, `SpecDecodeAcceptanceRecord`: vLLM's names,
  and a histogram that leaves out zeros;
- SGLang: `meta_info`, python/sglang/srt/managers/tokenizer_manager.py,
  `TokenizerManager._calculate_spec_decoding_metrics`, and later `fill_spec_decoding_meta`;
- llama.cpp: `timings`, tools/server/server-task.cpp, `result_timings::to_json`; the line of the log,
  tools/server/server-context.cpp, `server_slot::print_timings`;
- forks of llama.cpp: the file that `LLAMA_SPEC_DUMP` names, a line for each pass with `n_accepted` and
  `pos`, or with `n_accept` and `n_draft`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from speclab.errors import TraceError
from speclab.files import read_whole
from speclab.pair import ModelPair
from speclab.trace.codecs import Natural
from speclab.trace.metrics import Counts, Survival, survival

MOST_BYTES = 1 << 28
LOG_LINE = re.compile(r"draft acceptance = [\d.]+ \(\s*(\d+) accepted /\s*(\d+) generated\)")
NAMES = {
    "histogram": "acceptance_histogram spec_correct_drafts_histogram spec_accept_histogram",
    "accepted": "num_accepted_draft_tokens spec_num_correct_drafts spec_accepted_drafts "
    "spec_accept_token_num draft_n_accepted n_accepted n_accept",
    "drafted": "num_draft_tokens spec_num_proposed_drafts spec_proposed_drafts spec_draft_token_num "
    "draft_n n_draft",
}
"""What each engine calls it."""
SIGNS = {
    "acceptance_histogram": "vLLM",
    "spec_verify_ct": "SGLang",
    "draft_n_accepted": "llama.cpp",
    "n_accepted": "a dump",
    "n_accept": "a dump",
}
"""A field of each object that is read, and its engine."""
LACKS = {
    "passes": "how many tokens each pass accepted, so there is no acceptance by depth",
    "lengths": "how many tokens each pass drafted; it is taken that all drafted as many",
    "order": "in which order passes came (vLLM: --per-request-spec-decode-metrics detailed)",
    "tokens": "the text's tokens (ask for logprobs)",
    "unlisted": "the passes without a draft, so the text cannot be cut into passes",
}
NUMBERS = TypeAdapter(tuple[Natural, ...])
PARTS = 4
"""Parts of a text by which acceptance is shown."""


@dataclass(frozen=True)
class Response:
    """One request: what its engine says.

    Attributes:
        passes: what each verification pass accepted and looked at, in order if `ordered`.
        accepted, drafted: tokens in all; `drafted` is 0 if it is not said.
        tokens: the texts of the tokens, empty if they are not said.
        lacks: what is not said, a key of `LACKS` each.
    """

    engine: str
    accepted: int
    drafted: int
    passes: tuple[Counts, ...]
    ordered: bool
    tokens: tuple[str, ...]
    lacks: tuple[str, ...]

    @property
    def hazards(self) -> dict[int, Survival]:
        """By depth: the share of drafted tokens that were accepted where the target looked."""
        most = max([each.looked for each in self.passes], default=0)
        return {depth: _share(self.passes, depth) for depth in range(1, most + 1)}

    @property
    def parts(self) -> list[Survival]:
        """The same at depth 1 in each quarter of the passes that drafted, if they are in order."""
        drafted = [each for each in self.passes if each.looked and self.ordered]
        size = -(-len(drafted) // PARTS) or 1
        starts = range(0, len(drafted), size)
        return [_share(drafted[start : start + size], 1) for start in starts]

    def text(self, free: str = "[{}]") -> str:
        """The text, a bar after each pass, and what was accepted from its draft by this template."""
        written = "".join(self.tokens[:1]) + "|"
        start = 1  # the first token came with the prompt's pass
        for each in self.passes:
            end = start + each.accepted
            if each.accepted:
                written += free.format("".join(self.tokens[start:end]))
            written += "".join(self.tokens[end : end + 1]) + "|"
            start = end + 1
        return written

    def show(self, free: str = "[{}]") -> str:
        """The report; `free` as in `text`."""
        drafted = f" of {self.drafted} drafted" if self.drafted else ""
        lines = [f"{self.engine}: {self.accepted}{drafted} tokens accepted."]
        if self.passes:
            length = 1 + self.accepted / len(self.passes)
            lines[0] += f" {len(self.passes)} passes, {length:.2f} tokens per pass."
        lines += [f"  depth {depth}: {_worded(row)}" for depth, row in self.hazards.items()]
        for number, row in enumerate(self.parts, 1):
            lines.append(f"  depth 1, part {number} of the text: {_worded(row)}")
        if self.ordered and self.tokens and "unlisted" not in self.lacks:
            lines.append(self.text(free))
        return "\n".join([*lines, *[f"Not said: {LACKS[name]}." for name in self.lacks]])

    __str__ = show

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        hazards = {depth: asdict(row) for depth, row in self.hazards.items()}
        return {**asdict(self), "hazards": hazards}


def read(path: str | os.PathLike[str], pair: ModelPair | None = None) -> list[Response]:
    """Read what engines say in a response, in JSON lines of many, in a dump or in a log.

    Args:
        path: a response, streamed or not; lines of a benchmark; a dump; a server's log.
        pair: with the target's tokenizer, for responses without the tokens' texts.

    Raises:
        TraceError: nothing there speaks of speculative decoding, or a line is not as its engine
            writes it.
    """
    responses: list[Response] = []
    dump: list[Mapping[str, Any]] = []
    for line, document in _documents(path):
        for sign, fields in _objects(document):
            try:
                if SIGNS[sign] != "a dump":
                    responses.append(_response(SIGNS[sign], fields, document, pair))
                elif not fields.get("replay"):  # a pass that only repeats one
                    drafted = fields.get("n_draft", len(fields.get("pos", ())))
                    dump.append({"accepted": _number(fields, "accepted"), "drafted": drafted})
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                raise TraceError(
                    f"{Path(path).name}, line {line}: {SIGNS[sign]} writes other numbers ({error!s:.80}): give the "
                    "response as the engine returned it."
                ) from None
    if dump:
        fields = {
            name: [each[name[9:]] for each in dump]
            for name in ("per_step_accepted", "per_step_drafted")
        }
        responses.append(_response("a dump", fields, {}, None))
    if not responses:
        raise TraceError(
            f"{Path(path).name} says nothing of speculative decoding: start vLLM with "
            "--per-request-spec-decode-metrics detailed; SGLang's meta_info and llama.cpp's timings have "
            "it if they drafted."
        )
    return responses


def _documents(path: str | os.PathLike[str]) -> Iterator[tuple[int, Any]]:
    """The line, from 1, of each JSON value of a file, and the value."""
    text = read_whole(path, TraceError, MOST_BYTES).decode("utf-8", "replace")
    is_log = LOG_LINE.search(text) is not None
    lines = text.splitlines()
    if lines and lines[0].strip() == "{":
        lines = [" ".join(lines)]  # one response, indented
    for number, line in enumerate(lines, 1):
        content = line.strip().removeprefix("data:").strip()  # an event of a stream
        match = LOG_LINE.search(line)
        if match is not None:
            yield number, {"draft_n_accepted": int(match[1]), "draft_n": int(match[2])}
        elif content not in ("", "[DONE]") and not is_log:
            try:
                yield number, json.loads(content)
            except ValueError as error:
                raise TraceError(
                    f"{Path(path).name}, line {number} is not JSON ({error}): give a response, JSON lines or a log."
                ) from None


def _objects(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Objects in a document that speak of speculative decoding, with the field that shows it."""
    parts = value if isinstance(value, list) else ()
    if isinstance(value, Mapping):
        sign = next((name for name in SIGNS if name in value), None)
        if sign is not None:
            yield sign, value
            return
        parts = [*value.values()]
    for part in parts:
        yield from _objects(part)


def _response(
    engine: str, fields: Mapping[str, Any], document: Any, pair: ModelPair | None
) -> Response:
    steps = NUMBERS.validate_python(fields.get("per_step_accepted") or ())
    lengths = NUMBERS.validate_python(fields.get("per_step_drafted") or ())
    ordered = bool(steps)
    lacks = []
    if not ordered:
        histogram = _first(fields, "histogram") or ()
        pairs = histogram.items() if isinstance(histogram, Mapping) else enumerate(histogram)
        counts = sorted([(int(accepted), int(times)) for accepted, times in pairs])
        for accepted, times in counts:
            steps = (*steps, *[accepted] * times)
        # vLLM's longest draft; SGLang's histogram ends there
        longest = int(fields.get("num_spec_tokens") or max(counts, default=(0, 0))[0])
        lengths = (longest,) * len(steps)
        lacks = ["lengths", "order"] if steps else ["passes"]
    passes = []
    for accepted, drafted in zip(steps, lengths, strict=True):
        if accepted > drafted:
            raise ValueError(f"a pass accepted {accepted} of {drafted} drafted tokens")
        # the target looks at the tokens that it accepts, and at the one that it rejects
        passes.append(Counts(accepted=accepted, looked=min(accepted + 1, drafted)))
    tokens = _texts(document, pair)
    ends = 1 + sum(steps) + len(steps)
    if not tokens:
        lacks.append("tokens")
    elif ordered and not ends - 1 - steps[-1] < len(tokens) <= ends:  # the last pass may be cut
        lacks.append("unlisted")
    total = _number(fields, "accepted") or sum(steps)
    drafted = _number(fields, "drafted") or (sum(lengths) if ordered else 0)
    return Response(engine, total, drafted, tuple(passes), ordered, tokens, tuple(lacks))


def _first(fields: Mapping[str, Any], what: str) -> Any:
    return next(
        (fields[name] for name in NAMES[what].split() if fields.get(name) is not None), None
    )


def _number(fields: Mapping[str, Any], what: str) -> int:
    return NUMBERS.validate_python([_first(fields, what) or 0])[0]


def _texts(document: Mapping[str, Any], pair: ModelPair | None) -> tuple[str, ...]:
    """The texts of a response's tokens: of its logprobs, else of its ids or its text by the tokenizer."""
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
    texts = pair.token_texts(NUMBERS.validate_python(ids))
    return tuple([texts[token] for token in ids])


def _share(passes: tuple[Counts, ...] | list[Counts], depth: int) -> Survival:
    """Of the passes in which the target looked at a depth, those that accepted there."""
    counts = []
    for each in passes:
        if each.looked >= depth:
            counts.append(Counts(accepted=int(each.accepted >= depth), looked=1))
    return survival(counts)[0]


def _worded(row: Survival) -> str:
    interval = f"95 %: {row.low:.2f} to {row.high:.2f}"
    return f"{row.survival:.2f} ({row.accepted} of {row.looked}; {interval})"
