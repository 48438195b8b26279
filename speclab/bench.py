"""Measuring methods side by side, and the figures that the papers publish."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """One number of a paper, in the unit of `metric`: tokens/s, ×, ms, MB, tokens, or a share of 1.

    `spread`: standard deviation over prompts, where the paper gives one.
    """

    method: str
    setting: str
    metric: str
    value: float
    spread: float | None = None


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of a paper. `beside`: our method → the paper's; `differs`: what differs from speclab."""

    id: str
    paper: str
    place: str
    title: str
    models: str
    hardware: str
    beside: dict[str, str]
    differs: list[str]
    remarks: list[str]
    figures: tuple[Figure, ...]

    def value(self, method: str, setting: str, metric: str) -> Figure | None:
        """The figure of that place, or None where the paper has none."""
        return next((figure for figure in self.figures if figure[:3] == (method, setting, metric)), None)


@cache
def paper_tables() -> dict[str, PaperTable]:
    """Every published table of `papers.toml` by its id."""
    data = tomllib.loads(files("speclab").joinpath("papers.toml").read_text(encoding="utf-8"))
    tables = {}
    for entry in data["table"]:
        paper = data["papers"].get(entry["paper"], {})
        values = {"beside": {}, "remarks": []} | paper | entry
        values["differs"] = [*paper.get("differs", []), *entry.get("differs", [])]
        cells, speedup_over = values.pop("cells", []), values.pop("speedup_over", None)
        values["figures"] = _figures(cells, values.get("figures", []), speedup_over)
        tables[entry["id"]] = PaperTable(**values)
    return tables


def _figures(blocks: list[dict[str, Any]], stated: list[Any], speedup_over: str | float | None) -> tuple[Figure, ...]:
    """The cells of each block, row by row; with `speedup_over` the ratio of each throughput to that figure's."""
    figures = [Figure(*row) for row in stated]
    for block in blocks:
        places = [(setting, metric) for setting in block["settings"] for metric in block["metrics"]]
        for method, row in block["rows"].items():
            for place, cell in zip(places, row, strict=True):
                if cell != "–":
                    figures.append(Figure(method, *place, *(cell if isinstance(cell, list) else [cell])))
    if speedup_over is None:
        return tuple(figures)
    speeds = [figure for figure in figures if figure.metric == "throughput"]
    plain = {figure.setting: figure.value for figure in speeds if figure.method == speedup_over}
    for figure in speeds:
        base = plain[figure.setting] if isinstance(speedup_over, str) else speedup_over
        figures.append(Figure(figure.method, figure.setting, "speedup", round(figure.value / base, 3)))
    return tuple(figures)
