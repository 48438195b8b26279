"""A run beside its baselines on the same text. Needs no torch."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclab.analysis.attribution import synergy
from speclab.errors import SpeclabError
from speclab.files import write_whole
from speclab.settings import SessionSettings
from speclab.trace.records import PHASES, Step, Trace

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session
    from speclab.models.pair import ModelPair


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tokens per iteration over the same first `tokens` of a text: of a run, and by name of each baseline."""

    tokens: int
    own: float
    baselines: Mapping[str, float]

    @property
    def best(self) -> str:
        """The baseline with the most tokens per iteration."""
        return max(self.baselines, key=self.baselines.__getitem__)

    @property
    def synergy(self) -> float:
        """The run's tokens per iteration over those of the best baseline (GOOSE, section 5.4)."""
        return synergy(self.own, list(self.baselines.values()))


@dataclass(frozen=True, slots=True)
class Entry:
    """One strategy's run. `trace` is None where it could not begin; `problem` says why it did not come to its end."""

    name: str
    trace: Trace | None
    problem: str = ""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Generated ids, the prefill's first included."""
        return () if self.trace is None else self.trace.token_ids()

    @property
    def complete(self) -> bool:
        """Whether the text came to its end."""
        return self.trace is not None and bool(self.trace.finished)

    @property
    def over(self) -> bool:
        """Whether nothing could follow it: it was not cut at a number of tokens."""
        return self.trace is not None and self.trace.finished not in {"", "max_new_tokens"}

    def seconds(self, phase: str) -> float:
        """Seconds in a phase, over all iterations."""
        return sum(step.seconds.get(phase, 0.0) for step in self.steps)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Its iterations."""
        return () if self.trace is None else self.trace.steps

    @property
    def depths(self) -> tuple[tuple[int, int], ...]:
        """For each depth from 1: (iterations that drafted so deep, iterations that accepted so deep)."""
        reach = [step.counts.longest_path for step in self.steps]
        return tuple(
            (sum(r >= depth for r in reach), sum(len(step.accepted) >= depth for step in self.steps))
            for depth in range(1, max(reach, default=0) + 1)
        )


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Runs on the same prompt with the same settings; texts are held against `reference`.

    Each strategy ran once, one after another: its seconds are of this machine at that time (`speclab bench` repeats and
    takes turns). `stopped`: whether it was cancelled before all had run.
    """

    entries: tuple[Entry, ...]
    stopped: bool = False

    @property
    def greedy(self) -> bool:
        """Whether every text must be the target's own: temperature 0."""
        return all(not entry.trace.settings.get("temperature") for entry in self.entries if entry.trace is not None)

    @property
    def reference(self) -> tuple[int, ...]:
        """The text that the others are held against: the first that came to its end, else the first."""
        return () if self._first is None else self._first.token_ids

    @property
    def _first(self) -> Entry | None:
        begun = [entry for entry in self.entries if entry.token_ids]
        return next((entry for entry in begun if entry.complete), begun[0] if begun else None)

    @property
    def shared(self) -> tuple[int, ...]:
        """Generated ids that no text differs in, as far as each came."""
        parted = [at for entry in self.entries if (at := self.parts_at(entry)) is not None]
        return self.reference[: min(parted)] if parted else self.reference

    def parts_at(self, entry: Entry) -> int | None:
        """Where an entry's text leaves `reference`, counted from 0; None where it does not, as far as it came."""
        one, other = self.reference, entry.token_ids
        shortest = min(len(one), len(other))
        at = next((i for i in range(shortest) if one[i] != other[i]), shortest)
        shorter = entry if len(other) == shortest else self._first
        ended_apart = len(one) != len(other) and shorter is not None and shorter.over
        return at if at < shortest or ended_apart else None

    def rows(self) -> list[dict[str, float | int | str]]:
        """One row a strategy: figures by name, seconds by phase, acceptance by depth (share of iterations so deep)."""
        deepest = max((len(entry.depths) for entry in self.entries), default=0)
        return [self._row(entry, deepest) for entry in self.entries]

    def _row(self, entry: Entry, deepest: int) -> dict[str, float | int | str]:
        row: dict[str, float | int | str] = {"strategy": entry.name}
        metrics = entry.trace.metrics if entry.trace is not None else None
        parted = self.parts_at(entry)
        row |= {
            "tokens": len(entry.token_ids),
            "tokens_per_iteration": metrics.tokens_per_iteration if metrics else "",
            "iterations": metrics.iterations if metrics else "",
            "target_calls": metrics.target_calls if metrics else "",
            "draft_calls": metrics.draft_calls if metrics else "",
            "acceptance_rate": metrics.acceptance_rate if metrics else "",
            "prefill_seconds": metrics.ttft if metrics else "",
        }
        row |= {f"{phase}_seconds": entry.seconds(phase) if metrics else "" for phase in PHASES}
        for depth in range(deepest):
            drafted, accepted = entry.depths[depth] if depth < len(entry.depths) else (0, 0)
            row[f"accepted_at_depth_{depth + 1}"] = accepted / drafted if drafted else ""
        return row | {"differs_from_token": "" if parted is None else parted + 1, "problem": entry.problem}

    def to_csv(self) -> str:
        """`rows` as comma-separated values with a header; seconds, and shares of 1."""
        return self._separated(",")

    def to_tsv(self) -> str:
        """The same with tabs between, as spreadsheets take it from the clipboard."""
        return self._separated("\t")

    def _separated(self, by: str) -> str:
        rows, out = self.rows(), io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]) if rows else ["strategy"], delimiter=by, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes `to_csv` to a file, whole or not at all; returns the path.

        Raises:
            TraceError: the folder is missing, read-only or full.
        """
        return write_whole(path, self.to_csv().encode())

    def __str__(self) -> str:
        names = ("strategy", "tokens", "tokens_per_iteration", "target_calls", "draft_calls")
        rows = [list(names), *([_written(row[name]) for name in names] for row in self.rows())]
        wide = [max(len(row[i]) for row in rows) for i in range(len(names))]
        return "\n".join(
            "  ".join(cell.ljust(room) for cell, room in zip(row, wide, strict=True)).rstrip() for row in rows
        )


def _written(value: float | str) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


Watch = Callable[[str, "Session"], bool]


def compare(
    pair: ModelPair,
    strategies: Mapping[str, Strategy],
    prompt: str | Sequence[int],
    *,
    watch: Watch | None = None,
    **settings: Any,
) -> SideBySide:
    """Decodes the prompt with each strategy, to the end of its text.

    None takes over what another has carried from prompt to prompt. A strategy that these models cannot run becomes an
    entry with its problem, and the others go on.

    Args:
        pair: the models; every run takes caches of its own, and gives them back.
        strategies: by the name its row gets.
        prompt: text or token ids.
        watch: called with a run's name and session before its first iteration and after each; True ends everything,
            what was decoded stays.
        settings: of the sessions, as of `Session`.

    Raises:
        SpeclabError: the prompt or a setting fits none of them.
    """
    SessionSettings(**settings)
    prompt_ids = pair.encode(prompt)
    entries: list[Entry] = []
    for name, strategy in strategies.items():
        entry, ended = _ran(replace(pair, carried={}), name, strategy, prompt_ids, watch or _on, settings)
        entries.append(entry)
        if ended:
            return SideBySide(tuple(entries), stopped=True)
    return SideBySide(tuple(entries))


def _on(_name: str, _session: Session) -> bool:
    return False


def _ran(
    pair: ModelPair, name: str, strategy: Strategy, prompt_ids: list[int], watch: Watch, settings: dict[str, Any]
) -> tuple[Entry, bool]:
    from speclab.engine.session import Session  # brings torch, which comparing what was recorded does without

    try:
        session = Session(pair, strategy, prompt_ids, **settings)
    except SpeclabError as error:
        return Entry(name, None, str(error)), False
    ended = watch(name, session)

    def each(_: Step) -> bool:
        nonlocal ended
        ended = watch(name, session)
        return ended

    problem = ""
    try:
        if not ended:
            session.run(until=each)
    except SpeclabError as error:
        problem = str(error)
    ended = ended or (not problem and not session.finished)  # cancelled inside an iteration
    return Entry(name, session.trace, "stopped before its end" if ended and not session.finished else problem), ended
