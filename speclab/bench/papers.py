"""What the papers measured, as plain figures: each with its table, its models, and what is known to differ from ours.

A figure that survives only in a picture is not here; a published table says so. Facts only: no text of a paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a paper.

    Args:
        method: as the paper calls it.
        setting: the data set, and the model where a table has several.
        metric: by our name for it, such as `throughput` or `tokens_per_iteration`.
        value: in the metric's unit: tokens/s, ×, ms, MB, tokens, or a share of 1.
        spread: standard deviation over prompts, where the paper gives one.
    """

    method: str
    setting: str
    metric: str
    value: float
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """A table or figure of a paper.

    `differs`: what is not the same here as there, whatever was run. `remarks`: what reading it takes, such as a slip in
    the paper or a definition of its own. `figures` is empty where the paper shows a picture without numbers, and
    `remarks` then says what is known of it.
    """

    paper: str
    place: str
    title: str
    models: str
    hardware: str
    figures: tuple[Figure, ...] = ()
    differs: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

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

    def value(self, method: str, setting: str, metric: str) -> Figure | None:
        """The figure of that place, or None where the paper has none."""
        place = (method, setting, metric)
        return next((each for each in self.figures if (each.method, each.setting, each.metric) == place), None)


Cell = float | tuple[float, float] | None
"""A value, a value with its spread, or a dash."""


def figures(settings: Sequence[str], metrics: Sequence[str], rows: Mapping[str, Sequence[Cell]]) -> tuple[Figure, ...]:
    """The cells of a table: `rows` gives each method its values, setting by setting and in it metric by metric.

    Raises:
        ValueError: a row has too many or too few cells.
    """
    return tuple(_read(settings, metrics, rows))


def with_speedups(table: Sequence[Figure], plain: float | None = None) -> tuple[Figure, ...]:
    """The figures, and behind each throughput its ratio to that of "AR" in its setting, or to `plain`."""
    base = {figure.setting: figure.value for figure in table if figure.method == "AR" and figure.metric == "throughput"}
    ratios = (
        Figure(each.method, each.setting, "speedup", round(each.value / (plain or base[each.setting]), 3))
        for each in table
        if each.metric == "throughput"
    )
    return (*table, *ratios)


def _read(settings: Sequence[str], metrics: Sequence[str], rows: Mapping[str, Sequence[Cell]]) -> Iterator[Figure]:
    places = [(setting, metric) for setting in settings for metric in metrics]
    for method, cells in rows.items():
        for (setting, metric), cell in zip(places, cells, strict=True):
            if isinstance(cell, tuple):
                yield Figure(method, setting, metric, *cell)
            elif cell is not None:
                yield Figure(method, setting, metric, cell)
