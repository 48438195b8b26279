"""The report of a run: one HTML page that needs nothing else, a pure function of what the folder of results holds.

`Page` works out the tables and figures of a run; `report.html.j2` says in which order they stand, under which headings,
and what a reader must know of each.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from speclab.bench import figures, summary
from speclab.bench.result import RunInfo, Stored, read_results
from speclab.bench.summary import (
    CALLS,
    SPEED,
    SPEEDUP,
    TOKENS,
    TPOT,
    TTFT,
    Cell,
    Summary,
    Table,
    kinds,
    number,
    over_all,
    summaries,
    times,
    without_looping,
)
from speclab.files import write_whole
from speclab.views.explain import plural

REPORT = "report.html"
FIGURE_CONFIG = {
    "displaylogo": False, "responsive": True, "scrollZoom": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
    "toImageButtonOptions": {"format": "svg"},
}  # fmt: skip


class Figure(NamedTuple):
    """A plotly figure, a sentence on what it shows, and its numbers as a table, where no other table has them."""

    plot: Any
    label: str
    numbers: Table | None = None


def write_report(folder: str | os.PathLike[str]) -> Path:
    """Writes `report.html` into a folder of results; returns its path.

    Raises:
        MeasurementError: there are no results, or they are damaged.
        SpeclabError: the folder cannot be written.
    """
    return write_whole(Path(folder) / REPORT, report_html(read_results(folder)).encode())


def report_html(stored: Stored) -> str:
    """The page of a run."""
    return rendered("report.html.j2", Page(stored))


def rendered(template: str, page: Any) -> str:
    """A page by a template of this folder, one file that fetches nothing."""
    from plotly.offline import get_plotlyjs

    loader = PackageLoader("speclab.bench", package_path=".")
    env = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    numbers = count()
    env.filters |= {"times": times, "number": number, "plural": plural}
    env.filters["drawn"] = lambda plot: plot.to_html(
        full_html=False, include_plotlyjs=False, config=FIGURE_CONFIG, div_id=f"figure-{next(numbers)}"
    )
    return env.get_template(template).render(page=page, plotly=get_plotlyjs)


@dataclass(frozen=True)
class Page:
    """The tables and figures of one run."""

    stored: Stored

    @cached_property
    def run(self) -> RunInfo:
        """What was measured on what."""
        return self.stored.run

    @cached_property
    def summaries(self) -> list[Summary]:
        """Each method, by kind of prompt and over all."""
        return summaries(self.stored.results, self.run)

    @cached_property
    def rows(self) -> list[Summary]:
        """Each method, over all kinds of prompts."""
        return over_all(self.summaries)

    @cached_property
    def kinds(self) -> list[str]:
        """Of prompts."""
        return kinds(self.stored.results)

    @cached_property
    def prompts(self) -> int:
        """With a text."""
        return len({result.prompt for result in self.stored.results if result.ok})

    @cached_property
    def ranked(self) -> list[Summary]:
        """Those with a speedup, the fastest first."""
        known = [(-one.speedup.median, place, one) for place, one in enumerate(self.rows) if one.speedup]
        return [one for *_, one in sorted(known)]

    @cached_property
    def best(self) -> Summary | None:
        """The fastest of speclab's methods."""
        return next((one for one in self.ranked if not one.foreign), None)

    @property
    def models(self) -> str:
        """The pair in a few words: `mini: target of 10.9 M parameters, draft of 1.1 M parameters, float32`."""
        described = self.run.pair
        sizes = [f"{role} of {described[f'{role}_parameters'] / 1e6:,.3g} M parameters"
                 for role in ("target", "draft") if described.get(f"{role}_parameters")]  # fmt: skip
        return f"{described.get('pair', 'models')}: {', '.join([*sizes, str(described.get('target_dtype', ''))])}"

    @property
    def unequal(self) -> str:
        """Methods with another text than the target's."""
        return ", ".join(one.method for one in self.rows if one.equal < one.compared)

    @property
    def settings(self) -> dict[str, str]:
        """Of each method, those of its strategy, or the arguments of transformers' `generate`."""
        first = {result.method: result.settings for result in reversed(self.stored.results)}
        return {
            method: ", ".join(f"{name} {setting}" for name, setting in first[method].items())
            for method in [one.method for one in self.rows]
        }

    @cached_property
    def sections(self) -> dict[str, str]:
        """Headings of the parts that have a content, by anchor."""
        found = {
            "short": ("In short", True),
            "speed": ("Speed", self.rows),
            "passes": ("Passes", self.rows),
            "time": ("Time", self.times),
            "kinds": ("Kinds of text", self.rows),
            "failures": ("Failures", self.failures.rows),
            "how": ("How it was measured", True),
        }
        return {anchor: heading for anchor, (heading, content) in found.items() if content}

    @property
    def speed(self) -> Figure | None:
        """Throughput of each method."""
        shown = {one.method: rate for one in self.rows if (rate := one.spread("throughput"))}
        if not shown:
            return None
        others = frozenset(one.method for one in self.rows if one.foreign)
        label = "Throughput of each method, median and quartiles over prompts. The table below has the numbers."
        plot = figures.spreads(shown, "tokens/s", transformers=others, baseline=self.run.baseline)
        return Figure(plot, label)

    @property
    def overview(self) -> Table:
        """Throughput and speedup with their quartiles, tokens per iteration, latency and equality of each method."""
        several = len(self.kinds) > 1
        rows: list[list[Cell]] = []
        head = ["", "tokens/s", f"over {self.run.baseline}", *["mean over kinds"] * several, "tokens per iteration",
                "TTFT, ms", "TPOT, ms", "the target's own text", "prompts"]  # fmt: skip
        for one in self.rows:
            if not one.results:
                why = "; ".join(dict.fromkeys(failure.failed or "no reason given" for failure in one.failures))
                rows.append([one.method, why])
                continue
            single = [each.speedup.median for each in self.summaries
                      if each.method == one.method and each.kind in self.kinds and each.speedup]  # fmt: skip
            same = f"{one.equal} of {one.compared}" + (f", {one.ties} by a tie" if one.ties else "")
            rows.append([
                one.method, SPEED.cell(one), SPEEDUP.cell(one),
                *[times(mean(single) if single else None)] * several,
                TOKENS.cell(one), TTFT.cell(one, quartiles=False), TPOT.cell(one, quartiles=False),
                same if one.compared else "not compared", str(one.prompts),
            ])  # fmt: skip
        best = self.best.method if self.best else ""
        caption = "Measured: medians over prompts with their quartiles; tokens per iteration is a mean"
        return Table(head, rows, caption, best=best)

    @property
    def trade(self) -> Figure | None:
        """Tokens per iteration against milliseconds per iteration."""
        points = {
            one.method: (tokens, ms) for one in self.rows
            if (tokens := one.mean("tokens_per_iteration")) and (ms := one.mean("iteration_ms"))
        }  # fmt: skip
        plain = points.get(self.run.baseline)
        if plain is None or len(points) < 2:
            return None
        label = (
            "Tokens per iteration against milliseconds per iteration, which the table below has. On a dashed ray every "
            f"point has the same speed, as a multiple of {self.run.baseline}'s."
        )
        return Figure(figures.trade(points, plain), label)

    @property
    def calls(self) -> Table:
        """Passes, and what became of drafted tokens."""
        rows = [[one.method, *(metric.cell(one) for metric in CALLS)] for one in self.rows]
        caption = "Passes for 100 new tokens, the prefill included; means over prompts"
        return Table(("", *(metric.heading for metric in CALLS)), rows, caption)

    @cached_property
    def times(self) -> list[Figure]:
        """Where time goes, per token and per iteration."""

        def per_token(part: str) -> summary.Figure:
            return lambda one: 1000 * getattr(one, f"{part}_seconds") / one.new_tokens if one.new_tokens else None

        def per_iteration(phase: str) -> summary.Figure:
            return lambda one: 1000 * one.phases.get(phase, 0.0) / one.iterations if one.phases else None

        where = "Milliseconds of the whole call per new token: in passes of the target, of the draft, outside both."
        phases = "Milliseconds per iteration by phase: draft, verify, accept, commit, adapt; prefill excluded."
        found = []
        for looks, figure, unit, label in (
            (figures.PARTS, per_token, "ms per token", where),
            (figures.PHASES, per_iteration, "ms per iteration", phases),
        ):
            split = {one.method: {part: one.mean(figure(part)) or 0.0 for part in looks} for one in self.rows}
            split = {name: parts for name, parts in split.items() if any(parts.values())}
            used = [part for part in looks if any(parts[part] for parts in split.values())]
            rows = [
                [name, *(number(parts[part] or None) for part in used), number(sum(parts.values()))]
                for name, parts in split.items()
            ]
            if rows:
                numbers = Table(("", *used, "together"), rows, label)
                found.append(Figure(figures.stacked(split, unit, looks), label, numbers))
        return found

    @property
    def by_kind(self) -> Table:
        """Speedup on each kind of prompt, and on the prompts whose text does not loop."""
        kept = without_looping(self.stored.results)
        rest = {one.method: one for one in over_all(summaries(kept, self.run))}
        left = len({result.prompt for result in kept if result.ok})
        looping, names = left < self.prompts, self.kinds if len(self.kinds) > 1 else []
        found = {(one.method, one.kind): one for one in self.summaries}
        rows = [
            [one.method, *(SPEEDUP.cell(found.get((one.method, kind))) for kind in names),
             *[SPEEDUP.cell(rest.get(one.method)), TOKENS.cell(rest.get(one.method))] * looping]
            for one in self.rows if names or looping
        ]  # fmt: skip
        groups = (("", 1 + len(names)), (f"the {left} of {self.prompts} prompts whose text does not loop", 2)) * looping
        caption = f"Speedup over {self.run.baseline} by kind of prompt"
        return Table(("", *names, *("speedup", "tokens per iteration") * looping), rows, caption, groups)

    @cached_property
    def failures(self) -> Table:
        """How many calls of which method failed, and why."""
        why = Counter((one.method, each.failed or "no reason given") for one in self.rows for each in one.failures)
        return Table(("", "why", "calls"), [[*place, str(number)] for place, number in why.items()], text=2)
