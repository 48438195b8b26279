"""What engines write, read: log lines, Prometheus counters and JSON of vLLM, SGLang and llama.cpp.

docs/engines.md names each shape, with the version that it was checked against. A reader adds entries to a `Found`; what
contradicts itself is a ValueError of a few words, to which the caller adds the file and the line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import isfinite
from typing import Any

from pydantic_core import from_json

from speclab.serving.accepted import AcceptedStep, Logged, mean_of
from speclab.trace.codecs import NODES

MOST = 200_000
"""Entries of a log."""
_REAL = r"([-+]?(?:\d+\.?\d*|nan|inf))"


@dataclass
class Found:
    """Entries so far, by engine. `by_id`: where the entry of a response stands that may come again, more complete."""

    entries: list[tuple[str, Logged]] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    by_id: dict[str, int] = field(default_factory=dict)
    counters: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    cumulative: dict[str, Logged] = field(default_factory=dict)
    summary: dict[str, int] = field(default_factory=dict)

    def add(self, engine: str, entry: Logged, key: str = "") -> None:
        """One more entry; in the place of that of the same `key`, if one is there."""
        if key and key in self.by_id:
            self.entries[self.by_id[key]] = (engine, entry)
            return
        if len(self.entries) >= MOST:
            raise ValueError(f"there are more than {MOST:,} entries: split the file")
        if key:
            self.by_id[key] = len(self.entries)
        self.entries.append((engine, entry))

    def finish(self) -> None:
        """Adds what is known at the end alone: counters, and totals where no request was logged."""
        for engine, snapshots in self.counters.items():
            before: dict[str, float] = {}
            for snapshot in snapshots:
                restarted = any(snapshot.get(name, 0) < value for name, value in before.items())
                _counters(self, engine, snapshot, {} if restarted else before)
                before = snapshot
        if not self.entries:
            for entry in self.cumulative.values():
                self.add("llama.cpp", entry)


# vLLM

_VLLM = re.compile(r"([A-Z][\w -]{1,60}): ([^:]{1,600}?)(?=, [A-Z]|\s*$)")


def vllm_line(line: str, found: Found) -> None:
    """`SpecDecoding metrics:`, one per interval."""
    said = dict(_VLLM.findall(line.partition("SpecDecoding metrics:")[2]))
    accepted, drafted = _whole(said.get("Accepted")), _whole(said.get("Drafted"))
    rates = _reals(said.get("Per-position acceptance rate", ""))
    rate = _real(said.get("Avg Draft acceptance rate") or said.get("Draft acceptance rate"))
    mean = _real(said.get("Mean acceptance length"))
    if accepted is None and mean is None and rate is None:
        raise ValueError("the line of SpecDecoding metrics is cut short")
    found.add("vllm", Logged.of_rates(accepted, drafted, mean, rates, None if rate is None else rate / 100,
                                seconds=_clock(line)))  # fmt: skip


# SGLang

_LENGTH, _RATE = re.compile(rf"accept len: {_REAL}"), re.compile(rf"accept rate: {_REAL}")
_META = re.compile(r"'(spec_\w+|completion_tokens|id)': ('[^']*'|\[[\d, -]*\]|[-\d.]+)")
BONUS_IN_RATE = (
    "This SGLang counts the bonus token in its accept rate (older versions do), so the rate is not accepted / drafted."
)


def sglang_line(line: str, found: Found) -> None:
    """`accept len`, `accept rate` of "Decode batch" lines: a mean over the batches of an interval."""
    length, rate = _LENGTH.search(line), _RATE.search(line)
    mean, share = _real(length and length[1]), _real(rate and rate[1])
    if not mean:  # an idle server
        return
    if share is not None and mean < 1.005 and share > 0.005:
        found.notes[BONUS_IN_RATE] = None
    found.add("sglang", Logged.of_rates(None, None, mean, (), share, seconds=_clock(line)))


def sglang_finish_line(line: str, found: Found) -> None:
    """What a server with `--log-requests` writes when a request is done: a Python dict with `meta_info`."""
    said = {name: value[1:-1] if value[0] == "'" else from_json(value) for name, value in _META.findall(line)}
    _sglang(said, {}, found)


def _sglang(said: Mapping[str, Any], around: Mapping[str, Any], found: Found) -> None:
    """`meta_info`, or what `sglext.spec_tokens_details` holds; older names of the same counts are known too."""
    iterations = _counted(said, "spec_verify_ct")
    accepted = _counted(said, "spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
    drafted = _counted(said, "spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
    more = {"scope": "request", **{name: around[name] for name in ("prompt", "output") if around.get(name)}}
    more["name"] = key = str(said.get("id") or around.get("id") or "")[:100]
    histogram = said.get("spec_correct_drafts_histogram") or said.get("spec_accept_histogram")
    if histogram:
        entry = _of_histogram(histogram, drafted, iterations, accepted, **more)
    elif iterations:
        mean, rate = (_number(said, name) for name in ("spec_accept_length", "spec_accept_rate"))
        if accepted is None and isinstance(said.get("completion_tokens"), int):
            accepted = max(said["completion_tokens"] - iterations, 0)
        entry = replace(Logged.of_rates(accepted, drafted, mean, (), rate, **more),
                        iterations=iterations, estimated=False)  # fmt: skip
    else:
        return
    found.add("sglang", entry, key)


# llama.cpp

_DRAFT = re.compile(rf"draft acceptance(?: rate)?\s*=\s*{_REAL}\s*\(\s*(-?\d+) accepted\s*/\s*(-?\d+) generated\)")
_MEAN = re.compile(rf"mean (?:acceptance length|len)\s*=\s*{_REAL}")
_POSITIONS = re.compile(r"(?:acceptance rate per position|acc per pos|#acc rate/pos) = \(([^)]*)\)")
_TASK = re.compile(r"id\s+(-?\d+) \| task (-?\d+)")
_SUMS = re.compile(
    r"statistics\s+(\S+):.*#gen tokens\s*=\s*(\d+), #acc tokens\s*=\s*(\d+)(?:, #mean acc len = ([\d.]+))?"
)
_SUMMARY = re.compile(r"\b(n_predict|n_drafted|n_accept)\s*=\s*(-?\d+)\s*$")


def llama_line(line: str, found: Found) -> None:
    """`draft acceptance`, one per request of llama-server."""
    counts, mean, rates, task = _DRAFT.search(line), _MEAN.search(line), _POSITIONS.search(line), _TASK.search(line)
    if counts is None:
        return
    name = f"slot {task[1]}, task {task[2]}" if task else ""
    found.add("llama.cpp", Logged.of_rates(
        int(counts[2]), _natural(int(counts[3])), _real(mean and mean[1]), _reals(rates[1] if rates else ""), None,
        scope="request", name=name, seconds=_clock(line),
    ))  # fmt: skip


def llama_positions_line(line: str, found: Found) -> None:
    """`acc per pos`, the rates of the request in the line before."""
    rates = _POSITIONS.search(line)
    if not rates or not found.entries or found.entries[-1][1].accepted is None:
        return
    last = found.entries[-1][1]
    found.entries[-1] = "llama.cpp", Logged.of_rates(
        last.accepted, last.drafted, last.tokens_per_iteration, _reals(rates[1]), None,
        scope="request", name=last.name, seconds=last.seconds,
    )  # fmt: skip


def llama_sums_line(line: str, found: Found) -> None:
    """`statistics`, the sums of a drafter since the server began: of use where no request was logged."""
    sums, rates = _SUMS.search(line), _POSITIONS.search(line)
    if sums and int(sums[2]):
        found.cumulative[sums[1]] = Logged.of_rates(
            int(sums[3]), int(sums[2]), _real(sums[4]), _reals(rates[1] if rates else ""), name=sums[1]
        )


def llama_summary_line(line: str, found: Found) -> None:
    """`n_drafted`, `n_accept`, with which llama-speculative ends."""
    said = _SUMMARY.search(line)
    if said is None:
        return
    found.summary[said[1]] = int(said[2])
    if said[1] == "n_accept" and "n_drafted" in found.summary:
        _llama(found.summary.pop("n_drafted"), found.summary.pop("n_accept"), found.summary.pop("n_predict", None),
               {"seconds": _clock(line)}, found)  # fmt: skip


def _llama(drafted: Any, accepted: Any, written: Any, more: Mapping[str, Any], found: Found, key: str = "") -> None:
    drafted, accepted = _natural(drafted, "drafted tokens"), _natural(accepted, "accepted tokens")
    entry = Logged.of_rates(accepted, drafted, None, scope="request", **more)
    if isinstance(written, int) and written > accepted:
        entry = replace(entry, tokens_per_iteration=written / (written - accepted))
        found.notes[PLAIN_PASSES] = None
    found.add("llama.cpp", entry, key)


PLAIN_PASSES = (
    "Tokens per iteration are worked out from the tokens written: passes of llama.cpp without a draft count in it too."
)

# Prometheus

_SERIES = re.compile(r"^(vllm|llamacpp|sglang):(spec_\w{1,60}?)(?:_total)?(\{.*\})?\s+([-+.\w]{1,40})(?:\s+\d+)?\s*$")
_POSITION = re.compile(r'position="(\d+)"')
_ENGINES = {"vllm": "vllm", "llamacpp": "llama.cpp", "sglang": "sglang"}


def prometheus_line(line: str, found: Found) -> None:
    """A counter of the /metrics page; where a series comes again, the next reading of the page has begun."""
    series = _SERIES.match(line)
    if series is None or series[2].endswith("_created"):
        return
    engine, name = _ENGINES[series[1].lower()], series[2]
    value = _real(series[4])
    if value is None or value < 0:
        raise ValueError(f"the counter {series[1]}:{name} is {series[4]}")
    snapshots = found.counters.setdefault(engine, [{}])
    own = f"{name}{series[3] or ''}"
    if own in snapshots[-1]:
        snapshots.append({})
    snapshots[-1][own] = value


def _counters(found: Found, engine: str, now: Mapping[str, float], before: Mapping[str, float]) -> None:
    """One reading of the counters, less the one before."""
    since: defaultdict[str, list[float]] = defaultdict(list)
    at: defaultdict[int, float] = defaultdict(float)
    for own, value in now.items():
        name, _, labels = own.partition("{")
        since[name].append(value - before.get(own, 0))
        place = _POSITION.search(labels)
        if place and name.endswith("accepted_tokens_per_pos") and int(place[1]) < NODES:
            at[int(place[1])] += since[name][-1]
    if engine == "sglang":  # gauges, of each rank
        length, rate = (mean_of(since[name]) for name in ("spec_accept_length", "spec_accept_rate"))
        if length is not None or rate is not None:
            found.add(engine, Logged.of_rates(None, None, length, (), rate))
        return
    drafts, drafted, accepted = (
        round(sum(since[f"spec_decode_num_{what}"])) for what in ("drafts", "draft_tokens", "accepted_tokens")
    )
    if drafts and at:
        found.add(engine, Logged.counted(drafts, drafted or None, [round(at[place]) for place in range(max(at) + 1)]))
    elif drafts or drafted:
        entry = Logged.of_rates(accepted, drafted, 1 + accepted / drafts if drafts else None)
        found.add(engine, replace(entry, iterations=drafts or None, estimated=False))


# JSON


def json_line(line: str, found: Found) -> None:
    """A response: one of JSON lines, or `data: {…}` of a stream. What a log quotes of others is left alone."""
    text = line.strip().removeprefix("data:").lstrip()
    if text.startswith("{"):
        read_json(from_json(text), found)


def read_json(value: Any, found: Found, around: Mapping[str, Any] | None = None) -> None:
    """Everything of acceptance in a response, in a list of them, or in what a benchmark wrapped around them."""
    around = around or {}
    if isinstance(value, list):
        for one in value:
            read_json(one, found, around)
    if not isinstance(value, dict):
        return
    around = {**around, **_texts(value)}
    more = {name: around[name] for name in ("prompt", "output") if around.get(name)}
    key = str(around.get("id") or "")[:100]
    if "acceptance_histogram" in value or "per_step_accepted" in value:
        found.add("vllm", _vllm(value, {**more, "name": key}), key)
    elif any(name in value for name in ("spec_verify_ct", "spec_correct_drafts_histogram", "spec_accept_histogram")):
        _sglang(value, around, found)
    elif "draft_n" in value:
        _llama(
            value["draft_n"], value.get("draft_n_accepted"), value.get("predicted_n"), {**more, "name": key}, found, key
        )
    elif value.get("avg_spec_accept_length") is not None:
        found.add("sglang", Logged.of_rates(None, None, _number(value, "avg_spec_accept_length")))
    else:
        for one in value.values():
            read_json(one, found, around)


def _texts(value: Mapping[str, Any]) -> dict[str, Any]:
    """Id, prompt and output of a response, where it has them."""
    choices = value.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = first.get("message")
    message = message if isinstance(message, dict) else {}
    outputs = (value.get("text"), value.get("content"), first.get("text"), message.get("content"))
    found = {"id": value.get("id"), "prompt": value.get("prompt"), "output": next(filter(None, outputs), None)}
    return {name: one for name, one in found.items() if isinstance(one, str) and one}


def _vllm(said: Mapping[str, Any], more: Mapping[str, Any]) -> Logged:
    """`metrics.speculative_decoding`; its arrays of steps come with the level "detailed"."""
    drafted, iterations = _counted(said, "num_draft_tokens"), _counted(said, "num_spec_steps")
    accepted = _counted(said, "num_accepted_draft_tokens")
    took, gave = said.get("per_step_accepted"), said.get("per_step_drafted")
    if isinstance(took, list) and isinstance(gave, list):
        if len(took) != len(gave):
            raise ValueError(f"per_step_accepted has {len(took)} steps and per_step_drafted {len(gave)}")
        return Logged.of_steps(
            [AcceptedStep(_natural(d, "drafted tokens"), _natural(a, "accepted tokens"))
             for d, a in zip(gave, took, strict=True)], **more,
        )  # fmt: skip
    return _of_histogram(said.get("acceptance_histogram"), drafted, iterations, accepted, scope="request", **more)


def _of_histogram(
    histogram: Any, drafted: int | None, iterations: int | None, accepted: int | None, **more: Any
) -> Logged:
    """`histogram[j]` steps accepted just j tokens."""
    histogram = histogram if isinstance(histogram, list) else [histogram]
    if len(histogram) > NODES:
        raise ValueError(f"the histogram goes to {len(histogram) - 1} accepted tokens, and {NODES} are the most")
    counts = [_natural(one, "steps of the histogram") for one in histogram]
    total = sum(counts)
    entry = Logged.counted(total, drafted, [sum(counts[depth:]) for depth in range(1, len(counts))], **more)
    if iterations is not None and iterations != total:
        raise ValueError(f"the histogram has {total} steps, and {iterations} are said")
    if accepted is not None and accepted != entry.accepted:
        raise ValueError(f"the histogram has {entry.accepted} accepted tokens, and {accepted} are said")
    return entry


# Numbers


def _counted(said: Mapping[str, Any], *names: str) -> int | None:
    """The first of these that is there."""
    name = next((name for name in names if said.get(name) is not None), None)
    return None if name is None else _natural(said[name], name)


def _number(said: Mapping[str, Any], name: str) -> float | None:
    value = said.get(name)
    if value is not None and not (isinstance(value, int | float) and abs(value) < 1e300):
        raise ValueError(f"{name} must be a number, not {str(value)[:40]}")
    return value


def _natural(value: Any, what: str = "a count") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise ValueError(f"{what} must be a whole number from 0, not {str(value)[:40]}")
    return value


def _whole(text: str | None) -> int | None:
    """`262 tokens` → 262."""
    value = _real(text)
    return None if value is None else _natural(int(value) if value.is_integer() else value, "a number of tokens")


def _real(text: str | None) -> float | None:
    """`88.8%` → 88.8, `262 tokens` → 262; None for nothing, and for NaN and infinity."""
    try:
        value = float((text or "nan").partition(" ")[0].rstrip("%"))
    except ValueError:
        raise ValueError(f"{(text or '')[:40]!r} is no number") from None
    return value if isfinite(value) else None


def _reals(text: str) -> tuple[float, ...]:
    values = [_real(one.strip()) for one in text.split(",") if one.strip()]
    known = [one for one in values if one is not None]
    return tuple(known) if len(known) == len(values) else ()


_DATE = re.compile(r"(?:(\d{4})-)?(\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")
_SINCE = re.compile(r"^\s*(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) ")


def _clock(line: str) -> float | None:
    """Seconds of a line's time stamp, from whatever it counts from; None where it has none."""
    if since := _SINCE.match(line):
        minutes, seconds, millis, micros = map(int, since.groups())
        return minutes * 60 + seconds + millis / 1e3 + micros / 1e6
    date = _DATE.search(line[:200])
    if date is None:
        return None
    try:  # vLLM writes no year; 2000 has a 29th of February
        return datetime.fromisoformat(f"{date[1] or 2000}-{date[2]} {date[3]}").timestamp()
    except ValueError:
        return None


LONG = (json_line, sglang_finish_line)
"""What reads lines of any length; the others are read to a few thousand characters, where no expression takes long."""
MARKS: tuple[tuple[str, Callable[[str, Found], None]], ...] = (
    ("SpecDecoding metrics:", vllm_line),
    ("accept len: ", sglang_line),
    ("'spec_verify_ct': ", sglang_finish_line),
    (" generated)", llama_line),
    ("acc per pos = (", llama_positions_line),
    ("#acc tokens", llama_sums_line),
    *((f"{name} ", llama_summary_line) for name in ("n_predict", "n_drafted", "n_accept")),
    (":spec_", prometheus_line),
    *((f'"{name}"', json_line) for name in (
        "speculative_decoding", "spec_decode_metrics", "acceptance_histogram", "per_step_accepted", "spec_verify_ct",
        "avg_spec_accept_length", "draft_n",
    )),
)  # fmt: skip
"""Words by which a line is known, and what reads it; the first that a line holds counts."""
