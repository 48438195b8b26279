"""The report of a run: one HTML page that needs nothing else, a pure function of what the folder of results holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from speclab.bench import report_papers, report_sections, report_sources
from speclab.bench.page import Item, Page, Part, number, render, text, times
from speclab.bench.papers import paper_tables
from speclab.bench.result import RUN, Stored, read_results
from speclab.errors import MeasurementError
from speclab.files import write_whole
from speclab.views.explain import plural

REPORT = "report.html"
FEW = 4
"""Prompts of which quartiles tell little."""
HOW = (
    "All methods decode each prompt in turn, the order changed every round; a first round warms up and is not kept.",
    "The device is waited for before each reading of the clock.",
    "A ratio is of two calls on the same prompt in the same round.",
    "Every text is compared with the target's own greedy decoding.",
)
SECTIONS: tuple[tuple[str, str, Callable[[Page], list[Item]]], ...] = (
    ("speed", "Speed", report_sections.speed),
    ("passes", "Passes", report_sections.passes),
    ("cost", "Cost of verification", report_sections.cost),
    ("time", "Time", report_sections.time),
    ("kinds", "Kinds of text", report_sections.by_kind),
    ("loops", "Looping outputs", report_sections.loops),
    ("sources", "Sources and routes", report_sources.recorded),
    ("memory", "Memory", report_sections.memory),
    ("failures", "Failures", report_sections.failures),
)


def write_report(folder: str | os.PathLike[str]) -> Path:
    """Writes `report.html` into a folder of results, or into one that holds several of them; returns its path.

    Raises:
        MeasurementError: there are no results, or they are damaged, or plotly or jinja2 is not installed.
        SpeclabError: the folder cannot be written.
    """
    place = Path(folder)
    folders = [place] if (place / RUN).exists() else [path.parent for path in sorted(place.glob(f"*/{RUN}"))]
    if not folders:
        raise MeasurementError(f"{place} holds no results: name a folder that speclab bench --protocol has written.")
    try:
        html = report_html([read_results(each) for each in folders])
    except ImportError as error:
        raise MeasurementError(
            f"A report needs {error.name}, which is not installed: pip install 'speclab[lab]'."
        ) from None
    return write_whole(place / REPORT, html.encode())


def report_html(runs: Sequence[Stored]) -> str:
    """The page of one run, or of several, a part for each."""
    pages = [Page(stored, f"r{place}" if len(runs) > 1 else "r") for place, stored in enumerate(runs)]
    first, protocols = pages[0], ", ".join(dict.fromkeys(page.run.protocol for page in pages))
    days = ", ".join(dict.fromkeys(f"{page.run.started:%d %B %Y}" for page in pages))
    sub = (f"{first.models}, on {first.machine}.", f"Protocol {protocols}, {days}.")
    if len(pages) == 1:
        return render(first.run.title or first.run.protocol, sub, _parts(first))
    parts = [Part(page.id, page.run.protocol, page.run.title, parts=_parts(page)) for page in pages]
    return render(f"{len(runs)} measurements of speculative decoding", sub, parts)


def _parts(page: Page) -> list[Part]:
    """What a run shows, in order; a part without content is left out."""
    ours = f"{page.models}; {page.measured}; {page.machine}"
    tables = [each for each in paper_tables().values() if page.run.protocol in each.protocols]
    beside = [item for each in tables for item in report_papers.beside(each, page.rows, ours)]
    found = [("in-short", "In short", [*_lead(page), *_warnings(page)]), ("papers", "Beside the papers", beside)]
    if page.rows:
        found += [(anchor, heading, show(page)) for anchor, heading, show in SECTIONS]
    found.append(("how", "How it was measured", _how(page)))
    return [Part(f"{page.id}-{anchor}", name, name, inside) for anchor, name, inside in found if inside]


def _lead(page: Page) -> list[Item]:
    """The finding: the fastest of speclab, the fastest of transformers, and whether every text was the target's."""
    top, base = page.best, page.run.baseline
    if top is None or top.speedup is None or top.method == base:
        sentence = "Nothing here is faster than the baseline." if page.rows else "There is no result yet."
        return [text(sentence, "lead")]
    over = top.speedup
    quartiles = f"in the median of {over.count} prompts (quartiles {times(over.low)} to {times(over.high)})"
    where = quartiles if over.count > 1 else "on the one prompt"
    sentence = (
        f"The fastest of speclab's methods is {page.name(top)}: {times(over.median)} {base} {where}, with "
        f"{number(top.mean('tokens_per_iteration'))} tokens per iteration."
    )
    others = [(o.speedup.median, page.name(o)) for o in page.rows if o.group == "transformers" and o.speedup]
    if others:
        sentence += f" Of transformers' own, {max(others)[1]} is the fastest: {times(max(others)[0])}."
    compared = sum(one.compared for one in page.rows)
    if compared and compared == sum(one.equal for one in page.rows):
        sentence += " Every text compared is the target's own, token for token."
    return [text(sentence, "lead")]


def _warnings(page: Page) -> list[Item]:
    """All that a reader should know before using a figure."""
    run, notices = page.run, []
    unequal = [page.name(one) for one in page.rows if one.equal < one.compared]
    failed = sum(len(one.failures) for one in page.rows)
    absent = [name for name in run.methods if name not in {one.method for one in page.rows}]
    if run.ended is None:
        kept = plural(len(page.stored.results), "call")
        sentence = f"The run was cut short or still goes on; {kept} are kept, and they are all here."
        notices.append(("Unfinished", sentence))
    if absent:
        notices.append(("Not reached", f"No result of {', '.join(absent)}."))
    if unequal:
        notices.append(("Other text", f"Not the target's own greedy text on every prompt: {', '.join(unequal)}."))
    if failed:
        notices.append(("Failed", f"{plural(failed, 'call')} gave no text; Failures says why."))
    if 0 < page.prompts < FEW:
        few = plural(page.prompts, "prompt")
        notices.append(("Few prompts", f"Only {few}: medians and quartiles of so few say little."))
    notices += [("Note", note) for note in page.stored.notes]
    return [{"kind": "warning", "label": label, "text": sentence} for label, sentence in notices]


def _how(page: Page) -> list[Item]:
    run = page.run
    ended = f"{run.ended:%Y-%m-%d %H:%M:%S}" if run.ended else "not ended"
    pairs = (
        ("protocol", run.protocol), ("models", page.models), *run.machine.items(), ("threads of torch", run.threads),
        *((f"version of {name}", version) for name, version in run.versions.items()),
        ("started, ended", f"{run.started:%Y-%m-%d %H:%M:%S}, {ended}"), ("calls kept", len(page.stored.results)),
        *((name.replace("_", " "), setting) for name, setting in run.arguments.items()),
    )  # fmt: skip
    return [{"kind": "facts", "pairs": pairs}, {"kind": "list", "lines": HOW}]
