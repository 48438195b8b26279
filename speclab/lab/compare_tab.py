"""The tab Compare: switch between the runs of this lab, and compare strategies on this prompt."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from ipywidgets import Button, SelectMultiple, VBox

from speclab.drafters import strategies
from speclab.lab.state import LabConfig
from speclab.trace.records import Trace

if TYPE_CHECKING:
    from speclab.engine.session import Session

CURRENT = "current settings"


@dataclass
class Run:
    """A run of this lab.

    A fork has a `parent` and shares its iterations up to `at`. A file has no session.
    """

    number: int
    name: str
    trace: Trace
    config: LabConfig | None = None
    session: Session | None = None
    parent: int | None = None
    at: int = 0
    cursor: int = 0


class CompareBox(VBox):
    """The choice of strategies and the button Compare; `compare` receives their names."""

    def __init__(self, compare: Callable[[Sequence[str]], Any]) -> None:
        super().__init__(_dom_classes=["speclab-compare"])
        self._chosen = compare

    def fill(self) -> None:
        """Build the choices when the tab is first opened."""
        if hasattr(self, "choice"):
            return
        names = [CURRENT, *strategies(by_hand=False)]
        first = [name for name in (CURRENT, "Autoregressive", "LinearSpeculation") if name in names]
        self.choice = SelectMultiple(options=names, value=first, rows=6, description="strategies")
        self.button = Button(description="Compare", tooltip="decode this prompt with each of them")
        self.button.on_click(lambda _: self._chosen(self.choice.value))
        self.children = [self.choice, self.button]


def runs_html(runs: Sequence[Run], present: Run) -> list[str]:
    """The runs as a tree of buttons; empty if there is only one run."""
    if len(runs) < 2:
        return []
    return [f'<div class="speclab-runs">{_branches(runs, None, present)}</div>']


def _branches(runs: Sequence[Run], parent: int | None, present: Run) -> str:
    rows = ""
    for run in runs:
        if run.parent != parent:
            continue
        count = len(run.session.steps) if run.session is not None else len(run.trace.steps)
        words = f"{run.number} · {run.name} · {count} iterations"
        if run.parent is not None:
            words += f", from iteration {run.at} of run {run.parent}"
        send = escape(json.dumps({"do": "switch", "run": run.number}))
        pressed = "true" if run is present else "false"
        rows += f'<div><button data-send="{send}" aria-pressed="{pressed}">{escape(words)}</button></div>'
        if below := _branches(runs, run.number, present):
            rows += f'<div class="speclab-forks">{below}</div>'
    return rows
