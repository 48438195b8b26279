"""The runs of a lab as a tree: a line a run over its iterations, leaving its parent's where it was forked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from speclab.views import markup
from speclab.views.cache import size
from speclab.views.palette import LOOKS, ThemeName, css
from speclab.views.summary import plural
from speclab.views.tokens import clip

ROW, LEFT, WIDE, WORDS = 24.0, 12.0, 260.0, 92


@dataclass(frozen=True, slots=True)
class Fork:
    """One run. `number` 0 is the first; numbers are never given twice.

    `name`: its strategy, or what it changed of its parent. `parent`: number of the run it was forked from, None where
    it was started anew; `at`: iterations it shares with it. `tokens`: generated ids, the prefill's first included.
    `cache_bytes`: allocated for its KV caches. `present`: whether the lab goes on with it.
    """

    number: int
    name: str
    parent: int | None
    at: int
    iterations: int
    tokens: int
    tokens_per_iteration: float
    cache_bytes: int
    present: bool

    @property
    def label(self) -> str:
        """`run 0: DynaTree`, `fork 2 of 0 at iteration 3: node budget 24 → 8`."""
        if self.parent is None:
            return f"run {self.number}: {self.name}"
        return f"fork {self.number} of {self.parent} at iteration {self.at}: {self.name}"


def forks_svg(forks: Sequence[Fork], theme: ThemeName = "light") -> str:
    """The tree as one SVG string; the run shown is told by the word "shown" and a heavier line."""
    colors, ordered = css(theme), _ordered(forks)
    row = {fork.number: i for i, fork in enumerate(ordered)}
    by_number = {fork.number: fork for fork in forks}
    unit = WIDE / max([fork.iterations for fork in forks] + [1])
    parts = []
    for fork in ordered:
        y, start, end = _y(row[fork.number]), LEFT + fork.at * unit, LEFT + fork.iterations * unit
        trunk = _trunk(fork, by_number)
        top = y if trunk is None else _y(row[trunk.number])
        ink, wide = (LOOKS["accepted"].color, 3) if fork.present else (colors.muted, 1.5)
        line = f"M{start:.1f} {top:.1f}V{y:.1f}H{max(end, start + 4):.1f}"
        parts.append(markup.tag("path", d=line, style=f"fill:none;stroke:{ink};stroke-width:{wide}"))
        if trunk is not None:  # a dot where it leaves, for it may cross the lines of others below
            dot = f"fill:none;stroke:{ink};stroke-width:6;stroke-linecap:round"
            parts.append(markup.tag("path", d=f"M{start:.1f} {top:.1f}h0.1", style=dot))
        parts.append(markup.tag("circle", cx=max(end, start + 4), cy=y, r=4.0, style=f"fill:{ink}"))
        style = "font-size:12px" + (";font-weight:600" if fork.present else "")
        parts.append(markup.text(clip(_words(fork), WORDS), LEFT + WIDE + 16, y + 4, style=style))
    return markup.svg(LEFT + WIDE + 640, ROW * len(ordered) + 8, summary(forks), colors, parts)


def summary(forks: Sequence[Fork]) -> str:
    """One sentence: how many runs there are, which is shown, and what their caches take."""
    if not forks:
        return "No run has begun: Step decodes the first iteration."
    shown = next((fork.label for fork in forks if fork.present), "none")
    caches = size(sum(fork.cache_bytes for fork in forks))
    return f"{plural(len(forks), 'run')}, their KV caches {caches}; shown: {shown}."


def forks_table(forks: Sequence[Fork]) -> str:
    """One row a run, as an HTML table."""
    rows = (
        (fork.number, fork.name, "–" if fork.parent is None else fork.parent, fork.at, fork.iterations, fork.tokens,
         f"{fork.tokens_per_iteration:.2f}", size(fork.cache_bytes), "shown" if fork.present else "")
        for fork in forks
    )  # fmt: skip
    head = (
        "run",
        "what",
        "forked from",
        "at iteration",
        "iterations",
        "tokens",
        "tokens per iteration",
        "KV caches",
        "",
    )
    return markup.table("Runs of this lab", head, rows)


def _words(fork: Fork) -> str:
    figures = f"{plural(fork.tokens, 'token')}, {fork.tokens_per_iteration:.2f} an iteration"
    return f"{fork.number}{' · shown' if fork.present else ''} · {figures} · {fork.name}"


def _trunk(fork: Fork, by_number: Mapping[int, Fork]) -> Fork | None:
    """The run whose line it leaves: its parent, or the nearest run above whose own line reaches so far back."""
    above = None if fork.parent is None else by_number.get(fork.parent)
    while above is not None and fork.at < above.at and above.parent is not None and above.parent in by_number:
        above = by_number[above.parent]
    return above


def _y(row: int) -> float:
    return ROW * row + ROW / 2 + 2


def _ordered(forks: Iterable[Fork]) -> list[Fork]:
    """Every run right before its forks."""
    below: dict[int | None, list[Fork]] = {}
    numbers = {fork.number for fork in forks}
    for fork in forks:
        below.setdefault(fork.parent if fork.parent in numbers else None, []).append(fork)
    ordered: list[Fork] = []
    waiting = below.get(None, [])[::-1]
    while waiting:
        fork = waiting.pop()
        ordered.append(fork)
        waiting += below.get(fork.number, [])[::-1]
    return ordered
