"""What a report's page is made of: cells, tables, texts and drawings as plain data, which the template renders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from speclab.bench.result import RunInfo, Stored
from speclab.bench.summary import Spread, Summary, over_all, summaries
from speclab.errors import MeasurementError
from speclab.views.explain import plural

NONE = "–"
Item = dict[str, Any]
"""A paragraph, table, drawing, …: its kind, and what the template shows of that kind."""
Write = Callable[[float | None], str]

_CONFIG = {
    "displaylogo": False, "responsive": True, "scrollZoom": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
    "toImageButtonOptions": {"format": "svg"},
}  # fmt: skip


class Cell(NamedTuple):
    """A number, or words; its spread small behind it. A paper's own stands on a shade."""

    text: str
    spread: str = ""
    number: bool = True
    paper: bool = False
    edge: bool = False
    span: int = 1


class Line(NamedTuple):
    """A row of a table under its name."""

    name: str
    cells: Sequence[Cell]
    style: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a method: its heading, how it is written, and whether it is a time (then a median with quartiles)."""

    heading: str
    write: Write
    figure: Callable[[Any], float | None] | str
    timed: bool = False

    def cell(self, one: Summary | None, *, quartiles: bool = True, edge: bool = False) -> Cell:
        """What stands in a method's row."""
        if one is None:
            return Cell(NONE, edge=edge)
        if not self.timed:
            return Cell(self.write(one.mean(self.figure)), edge=edge)
        found = self.spread(one)
        if found is None:
            return Cell(NONE, edge=edge)
        behind = f"{self.write(found.low)} to {self.write(found.high)}" if quartiles and found.count > 1 else ""
        return Cell(self.write(found.median), behind, edge=edge)

    def spread(self, one: Summary) -> Spread | None:
        """Median and quartiles over prompts."""
        return one.speedup if self.figure == "speedup" else one.spread(self.figure)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the page, and what the navigation calls it; on a page of several runs each run holds parts."""

    anchor: str
    name: str
    heading: str
    inside: Sequence[Item] = ()
    parts: Sequence[Part] = ()


def number(amount: float | None, digits: int = 3) -> str:
    """`412`, `3.42`, `0.0712`: so many digits that count, never an exponent; a dash for nothing."""
    if amount is None:
        return NONE
    if amount == 0 or abs(amount) >= 10 ** (digits - 1):
        return f"{amount:,.0f}"
    return f"{amount:#.{digits}g}".rstrip(".") if abs(amount) >= 1e-4 else f"{amount:.1e}"


def times(ratio: float | None) -> str:
    """`1.64×`."""
    return NONE if ratio is None else f"{ratio:.2f}×"


def percent(share: float | None) -> str:
    """`88.2%`."""
    return NONE if share is None else f"{100 * share:.1f}%"


def words(text: str) -> Cell:
    """A cell that holds no number."""
    return Cell(text, number=False)


def text(content: str, style: str = "") -> Item:
    """A paragraph; `style` is "under" for small print."""
    return {"kind": "text", "text": content, "style": style}


def block(heading: str, *inside: Item) -> list[Item]:
    """A heading and what stands under it; nothing where there is nothing."""
    return [{"kind": "heading", "text": heading}, *inside] if inside else []


def fold(summary: str, inside: Sequence[Item]) -> list[Item]:
    """What is there to be looked up; nothing where there is nothing."""
    return [{"kind": "fold", "summary": summary, "inside": inside}] if inside else []


def table(
    head: Sequence[str],
    lines: Iterable[Line],
    caption: str = "",
    groups: Sequence[tuple[str, int]] = (),
    text_columns: int = 1,
) -> list[Item]:
    """A table that scrolls by itself; nothing without a line. `groups`: headings over so many columns each."""
    kept = list(lines)
    shown = {"kind": "table", "head": head, "lines": kept, "caption": caption, "groups": groups, "words": text_columns}
    return [shown] if kept else []


def drawing(figure: Any, label: str, numbers: Sequence[Item], name: str) -> list[Item]:
    """A plotly figure; `label` says what it shows, `numbers` is the same as a table, folded away."""
    html = figure.to_html(full_html=False, include_plotlyjs=False, config=_CONFIG, div_id=f"figure-{name}")
    return [{"kind": "figure", "html": html, "label": label}, *fold("the numbers of this figure", numbers)]


METRICS = {
    "throughput": Metric("tokens/s", number, "throughput", timed=True),
    "speedup": Metric("speedup", times, "speedup", timed=True),
    "ttft_ms": Metric("TTFT, ms", number, lambda one: one.ttft and 1000 * one.ttft, timed=True),
    "tpot_ms": Metric("TPOT, ms", number, lambda one: one.tpot and 1000 * one.tpot, timed=True),
    "paper_acceptance": Metric("acceptance", percent, "paper_acceptance"),
    "tokens_per_iteration": Metric("tokens per iteration", number, "tokens_per_iteration"),
    "path_length": Metric("path length", number, "path_length"),
    "iterations": Metric("iterations", number, lambda one: one.iterations or None),
    "peak_mb": Metric("peak, MB", lambda mb: number(mb, 5), lambda one: (one.peak_memory_bytes or 0) / 1e6 or None),
}
"""By our name for the quantity."""
SPEED, SPEEDUP, TOKENS = (METRICS[name] for name in ("throughput", "speedup", "tokens_per_iteration"))


@dataclass(frozen=True)
class Page:
    """One run on the page; `id` is what anchors and ids of figures begin with."""

    stored: Stored
    id: str

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
    def swept(self) -> bool:
        """Whether something was varied."""
        return any(one.x is not None for one in self.rows)

    @cached_property
    def prompts(self) -> int:
        """With a text."""
        return len({result.prompt for result in self.stored.results if result.ok})

    @cached_property
    def best(self) -> Summary | None:
        """The method of speclab with the largest median speedup."""
        known = [(one.speedup.median, -i) for i, one in enumerate(self.rows) if one.group == "speclab" and one.speedup]
        return self.rows[-max(known)[1]] if known else None

    @property
    def models(self) -> str:
        """The pair in a few words: `mini: target of 10.9 M parameters, draft of 1.1 M parameters, float32`."""
        described = self.run.pair
        sizes = [f"{role} of {described[f'{role}_parameters'] / 1e6:,.3g} M parameters"
                 for role in ("target", "draft") if described.get(f"{role}_parameters")]  # fmt: skip
        kind = [str(described["target_dtype"])] if described.get("target_dtype") else []
        name = str(described.get("pair", "models"))
        return f"{name}: {', '.join((*sizes, *kind))}" if sizes else name

    @property
    def machine(self) -> str:
        """The machine in a few words."""
        facts = self.run.machine
        known = facts.get("gpu") or facts.get("processor") or "this machine"
        return f"{known} ({facts.get('device', 'device unknown')}), {plural(self.run.threads, 'thread')}"

    @property
    def measured(self) -> str:
        """How many prompts, and how long the texts are."""
        longest = max((result.new_tokens for result in self.stored.results), default=0)
        return plural(self.prompts, "prompt") + (f", up to {longest:,} new tokens" if longest else "")

    def name(self, one: Summary) -> str:
        """The method, and at which swept values."""
        at = ((self.run.x_name or "x", one.x), (self.run.x2_name or "x2", one.x2))
        return ", ".join((one.method, *(f"{what} {amount:g}" for what, amount in at if amount is not None)))

    def line(self, one: Summary, cells: Sequence[Cell]) -> Line:
        """A method's row; the best one and those of transformers look it."""
        style = ["best"] * (one is self.best) + ["transformers"] * (one.group == "transformers")
        return Line(self.name(one), cells, " ".join(style))


def render(title: str, sub: Sequence[str], parts: Sequence[Part]) -> str:
    """The whole page: `title` and lines under it, a navigation over the parts, the parts; plotly's script once.

    Raises:
        MeasurementError: jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MeasurementError("A report needs jinja2, which is not installed: pip install 'speclab[bench]'.") from None
    drawn = any(item["kind"] == "figure" for part in parts for one in (part, *part.parts) for item in one.inside)
    page = {"title": title, "sub": sub, "parts": parts, "plotly": _plotly() if drawn else ""}
    loader = PackageLoader("speclab.bench", package_path=".")
    template = Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("report.html.j2")
    return template.render(page=page)


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
