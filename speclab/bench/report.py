"""The report of a run: one HTML page that needs nothing else, a pure function of what the folder of results holds.

`Page` works out the tables and figures of a run; `report.html.j2` says in which order they stand, under which headings,
and what a reader must know of each.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, product
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from speclab.analysis.attribution import synergy
from speclab.bench import figures, summary
from speclab.bench.result import Result, RunInfo, Stored, read_results
from speclab.bench.summary import (
    CALLS,
    NONE,
    PEAK,
    SPEED,
    SPEEDUP,
    TOKENS,
    TPOT,
    TTFT,
    Cell,
    Spread,
    Summary,
    Table,
    bound_rows,
    head_rows,
    kinds,
    number,
    over_all,
    path_row,
    source_rates,
    source_rows,
    spread,
    summaries,
    times,
    verify_costs,
    without_looping,
)  # fmt: skip
from speclab.files import write_whole
from speclab.views.explain import plural

REPORT = "report.html"
MEMORY = {"rss": "resident, of the whole process", "cuda allocator": "of the CUDA allocator"}
PATHS = ("spine only", "spine continuation", "branch only")
"""Kinds of paths on which accepted tokens lie."""
FIGURE_CONFIG = {
    "displaylogo": False, "responsive": True, "scrollZoom": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
    "toImageButtonOptions": {"format": "svg"},
}  # fmt: skip


Rows = Callable[[Sequence[Result]], Iterable[list[Cell]]]
"""The rows of one method on one kind of prompt."""


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
    from jinja2 import Environment, PackageLoader, StrictUndefined
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
        """Each method at each swept value, by kind of prompt and over all."""
        return summaries(self.stored.results, self.run)

    @cached_property
    def rows(self) -> list[Summary]:
        """Each method at each swept value, over all kinds of prompts."""
        return over_all(self.summaries)

    @cached_property
    def kinds(self) -> list[str]:
        """Of prompts."""
        return kinds(self.stored.results)

    @cached_property
    def swept(self) -> list[Summary]:
        """Those of which something was varied."""
        return [one for one in self.rows if one.x is not None]

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
        return ", ".join(self.name(one) for one in self.rows if one.equal < one.compared)

    @property
    def settings(self) -> dict[str, str]:
        """Of each method, those of its strategy, or the arguments of transformers' `generate`."""
        first = {result.method: result.settings for result in reversed(self.stored.results)}
        return {
            method: ", ".join(f"{name} {setting}" for name, setting in first[method].items())
            for method in dict.fromkeys(one.method for one in self.rows)
        }

    def name(self, one: Summary) -> str:
        """The method, and at which swept values."""
        at = ((self.run.x_name or "x", one.x), (self.run.x2_name or "x2", one.x2))
        return ", ".join((one.method, *(f"{what} {amount:g}" for what, amount in at if amount is not None)))

    @cached_property
    def sections(self) -> dict[str, str]:
        """Headings of the parts that have a content, by anchor."""
        found = {
            "short": ("In short", True),
            "speed": ("Speed", self.rows),
            "passes": ("Passes", self.rows),
            "time": ("Time", self.times or self.cost),
            "kinds": ("Kinds of text", self.rows),
            "sources": ("Sources and routes", self.recorded or self.synergy.rows),
            "memory": ("Memory", self.memory.rows),
            "failures": ("Failures", self.failures.rows),
            "how": ("How it was measured", True),
        }
        return {anchor: heading for anchor, (heading, content) in found.items() if content}

    @property
    def speed(self) -> Figure | None:
        """Throughput of each method."""
        shown = {self.name(one): rate for one in self.rows if (rate := one.spread("throughput"))}
        if not shown:
            return None
        others = frozenset(self.name(one) for one in self.rows if one.foreign)
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
                rows.append([self.name(one), why])
                continue
            single = [each.speedup.median for each in self.summaries
                      if each.at == one.at and each.kind in self.kinds and each.speedup]  # fmt: skip
            same = f"{one.equal} of {one.compared}" + (f", {one.ties} by a tie" if one.ties else "")
            rows.append([
                self.name(one), SPEED.cell(one), SPEEDUP.cell(one),
                *[times(mean(single) if single else None)] * several,
                TOKENS.cell(one), TTFT.cell(one, quartiles=False), TPOT.cell(one, quartiles=False),
                same if one.compared else "not compared", str(one.prompts),
            ])  # fmt: skip
        best = self.name(self.best) if self.best else ""
        caption = "Measured: medians over prompts with their quartiles; tokens per iteration is a mean"
        return Table(head, rows, caption, best=best)

    @property
    def sweep(self) -> Iterator[Figure]:
        """What was varied: lines over one setting, a grid over two; settings of different kinds are drawn apart."""
        own = {one.method: [each for each in self.swept if each.method == one.method] for one in self.swept}
        if any(one.x2 is not None for one in self.swept):
            yield from (self._grid(name, found) for name, found in own.items() if any(one.speedup for one in found))
            return
        x = self.run.x_name or "x"
        values = {name: tuple(one.x or 0.0 for one in found) for name, found in own.items()}
        for xs, metric in product(dict.fromkeys(values.values()), (SPEED, SPEEDUP, TOKENS)):
            points: dict[str, dict[float, Spread]] = {}
            for one in self.swept:
                found = metric.over_prompts(one)
                if found and values[one.method] == xs:
                    points.setdefault(one.method, {})[one.x or 0.0] = found
            rows = [[name, *(metric.spread(some.get(at)) for at in sorted(xs))] for name, some in points.items()]
            label = f"{metric.heading} over {x}: {', '.join(points)}; medians and quartiles over prompts."
            if points:
                plot = figures.lines(points, x, metric.heading, level=1.0 if metric is SPEEDUP else None)
                yield Figure(plot, label, Table(("", *(f"{at:g}" for at in sorted(xs))), rows))

    def _grid(self, name: str, found: Sequence[Summary]) -> Figure:
        cells = {(one.x, one.x2): one.speedup.median for one in found
                 if one.x is not None and one.x2 is not None and one.speedup}  # fmt: skip
        x, x2 = self.run.x_name or "x", self.run.x2_name or "x2"
        best, middle = max(cells, key=lambda at: cells[at]), spread(list(cells.values()))
        label = (
            f"{name}: median speedup over {self.run.baseline} by {x} and {x2}. The best is {x} {best[0]:g}, "
            f"{x2} {best[1]:g}: {times(cells[best])}; the median of all is {times(middle.median if middle else None)}."
        )
        columns, down = (sorted({at[axis] for at in cells}) for axis in (0, 1))
        rows = [[f"{x2} {row:g}", *(times(cells.get((column, row))) for column in columns)] for row in down]
        return Figure(figures.grid(cells, x, x2, "×"), label, Table(("", *(f"{x} {c:g}" for c in columns)), rows))

    @property
    def trade(self) -> Figure | None:
        """Tokens per iteration against milliseconds per iteration."""
        points = {
            self.name(one): (tokens, ms) for one in ([] if self.swept else self.rows)
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
        rows = [[self.name(one), *(metric.cell(one) for metric in CALLS)] for one in self.rows]
        caption = "Passes for 100 new tokens, the prefill included; means over prompts"
        return Table(("", *(metric.heading for metric in CALLS)), rows, caption)

    @cached_property
    def times(self) -> list[Figure]:
        """Where time goes, per token and per iteration; of a sweep the largest value alone."""
        last = max((one.x for one in self.swept), key=lambda x: x or 0, default=None)
        own = [one for one in self.rows if one.x in {None, last}]

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
            split = {self.name(one): {part: one.mean(figure(part)) or 0.0 for part in looks} for one in own}
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

    @cached_property
    def cost(self) -> Figure | None:
        """What verifying so many rows takes."""
        points = verify_costs(self.stored.results)
        if not points:
            return None
        rows = [[str(rows), number(1000 * seconds), f"{passes:,}"] for rows, seconds, passes in points]
        label = "Milliseconds per verification by the rows of the pass, root included; the mark grows with the passes."
        return Figure(figures.curve(points), label, Table(("rows", "ms", "passes"), rows))

    @property
    def by_kind(self) -> Table:
        """Speedup on each kind of prompt, and on the prompts whose text does not loop."""
        kept = without_looping(self.stored.results)
        rest = {one.at: one for one in over_all(summaries(kept, self.run))}
        left = len({result.prompt for result in kept if result.ok})
        looping, names = left < self.prompts, self.kinds if len(self.kinds) > 1 else []
        found = {(one.at, one.kind): one for one in self.summaries}
        rows = [
            [self.name(one), *(SPEEDUP.cell(found.get((one.at, kind))) for kind in names),
             *[SPEEDUP.cell(rest.get(one.at)), TOKENS.cell(rest.get(one.at))] * looping]
            for one in self.rows if names or looping
        ]  # fmt: skip
        groups = (("", 1 + len(names)), (f"the {left} of {self.prompts} prompts whose text does not loop", 2)) * looping
        caption = f"Speedup over {self.run.baseline} by kind of prompt"
        return Table(("", *names, *("speedup", "tokens per iteration") * looping), rows, caption, groups)

    @cached_property
    def memory(self) -> Table:
        """Peak memory and what it has over the baseline's; nothing where it was not measured."""
        peaks = {self.name(one): PEAK.over_prompts(one) for one in self.rows}
        base = peaks.get(self.run.baseline)
        rows = [
            [name, PEAK.spread(peak), f"{100 * (peak.median / base.median - 1):+.2f}%" if peak and base else NONE]
            for name, peak in peaks.items() if any(peaks.values())
        ]  # fmt: skip
        how = next((one.memory_kind for one in self.stored.results if one.memory_kind), "")
        head = ("", PEAK.heading, f"over {self.run.baseline}")
        return Table(head, rows, f"Peak memory, {MEMORY.get(how, how)}")

    @cached_property
    def failures(self) -> Table:
        """How many calls of which method failed, and why."""
        why = Counter((self.name(one), each.failed or "no reason given") for one in self.rows for each in one.failures)
        return Table(("", "why", "calls"), [[*place, str(number)] for place, number in why.items()], text=2)

    @cached_property
    def recorded(self) -> list[tuple[Summary, list[Result]]]:
        """Of each method on each kind, one result with records for each prompt: repeats tell the same."""
        once = [
            (one, {result.prompt: result for result in reversed(one.results) if result.paths is not None})
            for one in self.summaries
        ]
        return [(one, list(found.values())[::-1]) for one, found in once if found]

    def _of_records(self, head: Sequence[str], rows: Rows, **layout: Any) -> Table:
        """Rows over all kinds, those of single kinds folded away."""
        whole: list[Sequence[Cell]] = []
        single: list[Sequence[Cell]] = []
        for one, results in self.recorded:
            kept = whole if one.kind == self.rows[0].kind else single
            kept += [[self.name(one), one.kind, *row] for row in rows(results)]
        return Table(("", "kind", *head), whole, more=single, **{"text": 2, **layout})

    @property
    def synergy(self) -> Table:
        """Tokens per iteration of a method with several sources over those of the best single source (GOOSE, 5.4)."""
        rows: list[list[Cell]] = []
        for kind in self.kinds:
            own = {one.method: (set(source_rates(one.results)), one.mean("tokens_per_iteration"))
                   for one in self.summaries if one.kind == kind}  # fmt: skip
            for method, (sources, together) in own.items():
                alone = {name: amount for name, (other, amount) in own.items() if len(other) == 1 and other < sources}
                known = [amount for amount in alone.values() if amount]
                if known and together:
                    singly = ", ".join(f"{name} {number(amount)}" for name, amount in alone.items())
                    rows.append([method, kind, singly, number(together), times(synergy(together, known))])
        head = ("", "kind", "one source alone, tokens per iteration", "together", "synergy")
        return Table(head, rows, text=3)

    @property
    def records(self) -> dict[str, Table]:
        """What only records tell: paths of accepted tokens, right sources, Proposition 1, two routed parts."""
        sources = ("source", "drafted", "accepted / drafted", "accepted / tried", "first guess")
        bound = ("isotropic", "bound, accepted / drafted", "bound, accepted / tried", "measured")
        heads = ("part", "chosen", "mean confidence", "share followed", "expected tokens", "followed tokens")
        return {
            "paths": self._of_records(("accepted tokens", *PATHS), path_row),
            "sources": self._of_records(sources, source_rows, text=3),
            "bound": self._of_records(bound, bound_rows, groups=(("", 2), ("modelled", 3), ("", 1))),
            "heads": self._of_records(heads, head_rows, text=3),
        }
