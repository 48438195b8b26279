"""What the papers measured, as plain figures: `papers.toml`, each table with its models and what differs from ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import groupby, product
from statistics import mean
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from speclab.bench.protocol import parse_toml, shipped_toml
from speclab.bench.summary import METRICS, NONE, Cell, Metric, Summary, Table

Printed = float | int | tuple[float, float] | Literal["–"]
"""A value, a value with its standard deviation over prompts, or a dash."""


class Figure(NamedTuple):
    """One number of a paper.

    `metric`: by our name for it, such as `throughput` or `tokens_per_iteration`; `value` is in its unit: tokens/s, ×,
    ms, MB, tokens, or a share of 1. `spread`: standard deviation over prompts, where the paper gives one.
    """

    method: str
    setting: str
    metric: str
    value: float
    spread: float | None = None


class _Cells(BaseModel):
    """Rows of a table: each method's values, setting by setting and in it metric by metric."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: list[str]
    metrics: list[str]
    rows: dict[str, list[Printed]]

    @model_validator(mode="after")
    def _rectangular(self) -> _Cells:
        wrong = [method for method, row in self.rows.items() if len(row) != len(self.settings) * len(self.metrics)]
        if wrong:
            raise ValueError(f"the row of {wrong[0]!r} has too many or too few cells")
        return self

    def read(self) -> Iterator[Figure]:
        places = [(setting, metric) for setting in self.settings for metric in self.metrics]
        for method, row in self.rows.items():
            for place, cell in zip(places, row, strict=True):
                if isinstance(cell, tuple):
                    yield Figure(method, *place, *cell)
                elif not isinstance(cell, str):
                    yield Figure(method, *place, cell)


class PaperTable(BaseModel):
    """A table or figure of a paper, and how ours is laid beside it.

    `protocols`: those in whose report it stands. `beside`: our method → the paper's. `relative`: a metric and a method,
    where the point of the table is what each method has over that one. `by_model`: the settings of one model are shown
    as their mean. `differs`: what is not the same here as there, whatever was run. `remarks`: what reading it takes.
    Without cells and figures the paper has a picture without numbers, and `remarks` says what is known of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    paper: str
    place: str
    title: str
    models: str
    hardware: str
    protocols: list[str]
    beside: dict[str, str] = Field(default_factory=dict)
    relative: tuple[str, str] | None = None
    by_model: bool = False
    differs: list[str]
    remarks: list[str] = []
    cells: list[_Cells] = []
    stated: list[tuple[str, str, str, float]] = Field(default_factory=list, alias="figures")
    speedup_over: Literal["AR"] | float | None = None

    @field_validator("differs", "remarks")
    @classmethod
    def _known(cls, sentences: list[str]) -> list[str]:
        lost = [sentence for sentence in sentences if sentence.startswith("$")]
        if lost:
            raise ValueError(f"{lost[0]!r} is not under [notes]")
        return sentences

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """Every number; behind each throughput its ratio to plain decoding's, where the table asks for that."""
        found = [figure for cells in self.cells for figure in cells.read()]
        found += [Figure(*row) for row in self.stated]
        if self.speedup_over is not None:
            plain = {each.setting: each.value for each in found if each[::2][:2] == ("AR", "throughput")}
            found += [
                each._replace(metric="speedup", value=round(each.value / self._base(plain, each), 3), spread=None)
                for each in found
                if each.metric == "throughput"
            ]
        return tuple(found)

    def _base(self, plain: Mapping[str, float], figure: Figure) -> float:
        return plain[figure.setting] if self.speedup_over == "AR" else float(self.speedup_over or 0)

    @property
    def methods(self) -> list[str]:
        """In the order of the paper."""
        return list(dict.fromkeys(figure.method for figure in self.figures))

    @property
    def settings(self) -> list[str]:
        """In the order of the paper."""
        return list(dict.fromkeys(figure.setting for figure in self.figures))

    @property
    def metrics(self) -> list[str]:
        """In the order of the paper."""
        return list(dict.fromkeys(figure.metric for figure in self.figures))

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Settings under the heading that they are shown as."""
        if not self.by_model:
            return {name: (name,) for name in self.settings}
        split = {name: tuple(own) for name, own in groupby(self.settings, lambda name: name.partition(", ")[0])}
        return {f"{name}, mean of {len(own)}": own for name, own in split.items()}

    def value(self, method: str, setting: str, metric: str) -> Figure | None:
        """The figure of that place, or None where the paper has none."""
        return next((each for each in self.figures if each[:3] == (method, setting, metric)), None)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    notes: dict[str, str]
    beside: dict[str, dict[str, str]]
    table: list[PaperTable]

    @model_validator(mode="before")
    @classmethod
    def _names_replaced(cls, data: dict[str, object]) -> dict[str, object]:
        """`$name` by its note, and the name of a mapping under `beside` by the mapping."""
        notes, beside = data.get("notes", {}), data.get("beside", {})
        assert isinstance(notes, dict)
        assert isinstance(beside, dict)

        def filled(value: object) -> object:
            if isinstance(value, list):
                return [filled(each) for each in value]
            return notes.get(value[1:], value) if isinstance(value, str) and value.startswith("$") else value

        tables = data.get("table")
        assert isinstance(tables, list)
        plain = [{name: filled(value) for name, value in table.items()} for table in tables]
        return data | {
            "table": [t | ({"beside": beside.get(t["beside"], t["beside"])} if "beside" in t else {}) for t in plain]
        }


@cache
def paper_tables() -> dict[str, PaperTable]:
    """Every published table by its id.

    Raises:
        MeasurementError: `papers.toml` is damaged.
    """
    return {table.id: table for table in parse_toml(_File, shipped_toml("papers.toml"), "papers.toml").table}


def beside(paper: PaperTable, found: Sequence[Summary]) -> Table:
    """A paper's table with ours in it: each of its methods, ours that stand for it, and the figures of both.

    Of a sweep there is a row for each swept value.
    """
    if not set(paper.metrics) <= set(METRICS):  # no table of methods: what, of what, how much
        stated = [[one.method, one.setting, f"{one.value:g}"] for one in paper.figures]
        return Table(("the paper's figures", "of", ""), stated, text=2, paper=2)
    swept = [one for one in found if one.x is not None]
    points = list(dict.fromkeys([*paper.settings, *map(_point, swept)])) if swept else [""]
    groups = {} if swept else paper.groups
    metrics, relative = [METRICS[name] for name in paper.metrics], paper.relative
    base = next((one for one in found if relative and paper.beside.get(one.method) == relative[1]), None)
    rows: list[list[Cell]] = []
    for method in paper.methods:
        names = dict.fromkeys(one.method for one in found if paper.beside.get(one.method) == method)
        for name, point in product(names or [NONE], points):
            one = next((one for one in found if one.method == name and point in {"", _point(one)}), None)
            ours = [metric.cell(one, quartiles=not swept) for metric in metrics]
            theirs = [
                _theirs(paper, method, at, metric) for at in groups.values() or [(point,)] for metric in paper.metrics
            ]
            if relative:
                ours.append(_our_change(one, base, METRICS[relative[0]]))
                theirs.append(_their_change(paper, method, *relative))
            if one or set(theirs) != {NONE}:
                rows.append([name, method, *[point] * bool(swept), *ours, *theirs])
    headings = [metric.heading for metric in metrics]
    change = [f"over {relative[1]}"] if relative else []
    text, wide = 2 + bool(swept), len(headings) + len(change)
    head = ("", "the paper's name", *["at"] * bool(swept), *headings, *change, *headings * max(1, len(groups)), *change)
    over = [
        ("", text),
        ("ours, measured", wide),
        *((f"theirs: {name}", len(headings)) for name in groups or ["as printed"]),
    ]
    return Table(head, rows, "", [*over, *[("theirs: mean", 1)] * len(change)], text, text + wide)


def _point(one: Summary) -> str:
    return ", ".join(f"{x:g}" for x in (one.x, one.x2) if x is not None)


def _theirs(paper: PaperTable, method: str, settings: Sequence[str], metric: str) -> Cell:
    """With the digits of the paper; the mean over several settings."""
    known = [figure for at in settings if (figure := paper.value(method, at, metric))]
    if not known:
        return NONE
    amount = mean(one.value for one in known)
    digits = {"throughput": 1, "tokens_per_iteration": 2, "path_length": 2}.get(metric)
    text = METRICS[metric].write(amount) if digits is None else f"{amount:,.{digits}f}"
    return text if len(known) > 1 or known[0].spread is None else (text, f"± {known[0].spread:g}")


def _their_change(paper: PaperTable, method: str, metric: str, base: str) -> str:
    """The mean of the changes over the paper's settings."""
    both = [(paper.value(method, at, metric), paper.value(base, at, metric)) for at in paper.settings]
    return _change([one.value / other.value for one, other in both if one and other])


def _our_change(one: Summary | None, base: Summary | None, metric: Metric) -> str:
    """The mean of the changes over prompts."""
    if one is None or base is None:
        return NONE
    own, other = (each.by_prompt(metric.figure) for each in (one, base))
    return _change([own[at] / other[at] for at in own if other.get(at)])


def _change(ratios: Sequence[float]) -> str:
    return f"{100 * (mean(ratios) - 1):+.1f}%" if ratios else NONE
