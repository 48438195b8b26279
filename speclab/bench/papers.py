"""What the papers measured, as plain figures: `papers.toml`, each table with its models and what differs from ours."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from speclab.bench.protocol import parse_toml, shipped_toml

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
    """A table or figure of a paper, and what of ours stands beside it.

    `protocols`: those that measure the same. `beside`: our method → the paper's. `differs`: what is not the same here
    as there, whatever was run. `remarks`: what reading it takes.
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
    differs: list[str]
    remarks: list[str] = []
    cells: list[_Cells] = []
    stated: list[tuple[str, str, str, float]] = Field(default_factory=list, alias="figures")
    speedup_over: Literal["AR"] | float | None = None

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """Every number; behind each throughput its ratio to plain decoding's, where the table asks for that."""
        found = [figure for cells in self.cells for figure in cells.read()]
        found += [Figure(*row) for row in self.stated]
        if self.speedup_over is not None:
            plain = {each.setting: each.value for each in found if each[::2][:2] == ("AR", "throughput")}
            for each in [each for each in found if each.metric == "throughput"]:
                base = plain[each.setting] if self.speedup_over == "AR" else self.speedup_over
                found.append(Figure(*each[:2], "speedup", round(each.value / base, 3)))
        return tuple(found)

    @property
    def methods(self) -> list[str]:
        """In the order of the paper."""
        return list(dict.fromkeys(figure.method for figure in self.figures))

    @property
    def settings(self) -> list[str]:
        """In the order of the paper."""
        return list(dict.fromkeys(figure.setting for figure in self.figures))

    def value(self, method: str, setting: str, metric: str) -> Figure | None:
        """The figure of that place, or None where the paper has none."""
        return next((each for each in self.figures if each[:3] == (method, setting, metric)), None)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    papers: dict[str, dict[str, Any]]
    table: list[PaperTable]

    @model_validator(mode="before")
    @classmethod
    def _whole_tables(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Each table with what holds for its whole paper."""
        tables = []
        for table in data["table"]:
            paper = data["papers"].get(table.get("paper"), {})
            differs = [*paper.get("differs", []), *table.get("differs", [])]
            tables.append(paper | table | {"differs": differs})
        return data | {"table": tables}


@cache
def paper_tables() -> dict[str, PaperTable]:
    """Every published table by its id.

    Raises:
        MeasurementError: `papers.toml` is damaged.
    """
    return {table.id: table for table in parse_toml(_File, shipped_toml("papers.toml"), "papers.toml").table}
