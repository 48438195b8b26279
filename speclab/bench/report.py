"""The report of a run: one HTML page that needs nothing else, a pure function of what the folder of results holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from speclab.bench import report_figures, report_sources, report_swept, report_tables
from speclab.bench import report_notes as notes
from speclab.bench.papers_beside import BESIDE
from speclab.bench.report_numbers import Row, prompts, rows
from speclab.bench.report_page import Part, block, facts, fold, page, said, under
from speclab.bench.report_paper import beside
from speclab.bench.report_words import lead, machine, measured, models, warnings
from speclab.bench.result import RunInfo
from speclab.bench.store import RUN, Stored, read_results
from speclab.errors import MeasurementError
from speclab.files import write_whole

REPORT = "report.html"
_FOOTER = (
    "Made by speclab. Every figure of ours was measured in the run it stands in; the papers' are from their tables."
)


def write_report(folder: str | os.PathLike[str]) -> Path:
    """Writes `report.html` into a folder of results, or into one that holds several of them; returns its path.

    Raises:
        MeasurementError: there are no results, or they are damaged, or plotly is not installed.
        SpeclabError: the folder cannot be written.
    """
    place = Path(folder)
    runs = read_runs(place)
    try:
        html = report_html(runs)
    except ImportError as error:
        raise MeasurementError(
            f"A report needs {error.name}, which is not installed: pip install 'speclab[lab]'."
        ) from None
    return write_whole(place / REPORT, html.encode())


def read_runs(folder: Path) -> list[Stored]:
    """The results of a folder, or of every folder in it.

    Raises:
        MeasurementError: there are none, or they are damaged.
    """
    if (folder / RUN).exists():
        return [read_results(folder)]
    found = [read_results(path.parent) for path in sorted(folder.glob(f"*/{RUN}"))]
    if not found:
        raise MeasurementError(f"{folder} holds no results: name a folder that speclab bench --protocol has written.")
    return found


def report_html(runs: Sequence[Stored]) -> str:
    """The page of one run, or of several, a part for each."""
    first = runs[0].run
    days = ", ".join(dict.fromkeys(f"{stored.run.started:%d %B %Y}" for stored in runs))
    names = ", ".join(dict.fromkeys(stored.run.protocol for stored in runs))
    sub = (f"{models(first)}, on {machine(first)}.", f"Protocol {names}, {days}.")
    if len(runs) == 1:
        return page(first.title or first.protocol, sub, [part.headed() for part in _blocks(runs[0], "r")], _FOOTER)
    parts = [_whole(stored, f"r{place}") for place, stored in enumerate(runs)]
    return page(f"{len(runs)} measurements of speculative decoding", sub, parts, _FOOTER)


def _whole(stored: Stored, name: str) -> Part:
    """A run as one part of a larger page."""
    inner = "".join(part.within() for part in _blocks(stored, name))
    return Part(name, stored.run.protocol, inner).headed(stored.run.title)


def _blocks(stored: Stored, name: str) -> Iterable[Part]:
    """What a run shows, in order; a part without content is left out."""
    run, results = stored.run, stored.results
    found = rows(results, run)
    swept = any(each.x is not None for each in found)
    ours = f"{models(run)}; {measured(stored, found)}; {machine(run)}"
    papers = "".join(beside(each, found, ours) for each in BESIDE.get(run.protocol, ()))
    loops = report_tables.loops(results, run) or said(_no_loops(stored))
    every = (
        ("in-short", "In short", lead(stored, found) + warnings(stored, found)),
        ("papers", "Beside the papers", papers),
        ("speed", "Speed", _swept(found, run, name) if swept else _speed(found, run, name)),
        ("passes", "Passes", _passes(found, run, name, swept=swept)),
        ("cost", "Cost of verification", _noted(report_figures.cost(found, name), notes.COST)),
        ("time", "Time", _time(found, run, name, swept=swept)),
        ("kinds", "Kinds of text", _folded(report_tables.by_kind(results, run), swept=swept)),
        ("loops", "Looping outputs", _noted(_folded(loops, swept=swept), notes.LOOPS)),
        ("sources", "Sources and routes", report_sources.blocks(results, run, name)),
        ("memory", "Memory", _noted(_folded(report_tables.memory(found, run), swept=swept), notes.MEMORY)),
        ("failures", "Failures", report_tables.failures(found, run)),
        ("how", "How it was measured", _how(stored)),
    )
    shown = [(anchor, heading, html) for anchor, heading, html in every if html and (found or anchor in _ALWAYS)]
    return [Part(f"{name}-{anchor}", heading, html) for anchor, heading, html in shown]


_ALWAYS = {"in-short", "papers", "how"}


def _speed(found: Sequence[Row], run: RunInfo, name: str) -> str:
    growth = report_figures.growth(found, run, name)
    return (
        report_figures.speeds(found, run, name) + said(notes.SPEED, "under") + report_tables.speed(found, run)
        + block("Speed over the length of the text", _noted(growth, notes.GROWTH))
    )  # fmt: skip


def _swept(found: Sequence[Row], run: RunInfo, name: str) -> str:
    return report_swept.swept(found, run, name) + fold("every contender and value", report_tables.speed(found, run))


def _passes(found: Sequence[Row], run: RunInfo, name: str, *, swept: bool) -> str:
    trade = "" if swept else report_figures.trade(found, run, name)
    calls = _folded(report_tables.calls(found, run), swept=swept)
    return _noted(trade, notes.TRADE) + _noted(calls, notes.ACCEPTANCE)


def _time(found: Sequence[Row], run: RunInfo, name: str, *, swept: bool) -> str:
    """Of a sweep the largest value alone: a bar for each would fill pages."""
    last = max((each.x for each in found if each.x is not None), default=None)
    shown = [each for each in found if each.x in {None, last}] if swept else found
    return _noted(report_figures.where(shown, run, name) + report_figures.phases(shown, run, name), notes.WHERE)


def _noted(shown: str, note: str) -> str:
    """With small print; nothing where there is nothing to explain."""
    return shown and shown + said(note, "under")


def _folded(table: str, *, swept: bool) -> str:
    return fold("the table", table) if swept else table


def _no_loops(stored: Stored) -> str:
    return f"No text of the {len(prompts(stored.results))} prompts loops, so there is nothing to leave out."


def _how(stored: Stored) -> str:
    run = stored.run
    ended = f"{run.ended:%Y-%m-%d %H:%M:%S}" if run.ended else "not ended"
    pairs = (
        ("protocol", run.protocol), ("models", models(run)), *run.machine.items(), ("threads of torch", run.threads),
        *((f"version of {name}", version) for name, version in run.versions.items()),
        ("started, ended", f"{run.started:%Y-%m-%d %H:%M:%S}, {ended}"), ("calls kept", len(stored.results)),
        *((name.replace("_", " "), setting) for name, setting in run.arguments.items()),
    )  # fmt: skip
    return facts(pairs) + under(notes.HOW)
