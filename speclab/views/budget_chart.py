"""How many nodes were worth verifying: what a pass costs by nodes, and the expected tokens per second.

The first panel is the measured cost curve, the second what follows from it, with the point that was chosen; the table
says what would have been chosen on other machines, which are modelled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from speclab.costs.budget import rates
from speclab.costs.curve import Curve, modelled, seconds_by_rows
from speclab.trace.records import BudgetRecord, Step
from speclab.tree import Floats
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.figures import Part, Spec, spec, stacked, upright
from speclab.views.markup import bar, labelled
from speclab.views.palette import LOOKS, PHASE_COLORS

_NOTES = {
    "wide GPU": "64 rows cost hardly more than one",
    "memory-bound": "64 rows are free, then each costs 2% of a pass",
    "slow CPU": "each further row costs a quarter of a pass",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """What is expected on one machine, by nodes verified, from 1: seconds of the pass, tokens per second; the best."""

    name: str
    note: str
    seconds: Floats
    rate: Floats

    @property
    def best(self) -> int:
        """Nodes that give the most tokens per second."""
        return int(self.rate.argmax()) + 1


def machines(record: BudgetRecord) -> tuple[Machine, ...]:
    """This machine, as measured, then the modelled ones, on which a pass of one node takes as long as here.

    The draft passes are taken to cost the same everywhere.
    """
    gains = np.asarray(((0.0,) if record.verified_root else ()) + record.probabilities)
    count = len(gains)
    curve = Curve(name="target", rows=record.rows, seconds=record.seconds, prefix=0, rounds=1)
    here = seconds_by_rows(curve, count + record.extra)[record.extra + 1 :]
    found = [("this machine", "measured", here)]
    for name, note in _NOTES.items():
        found.append((name, f"modelled: {note}", modelled(name, float(here[0]), count)[1:]))
    return tuple([Machine(name, note, times, rates(gains, times, record.spent)) for name, note, times in found])


def summary(step: Step, record: BudgetRecord) -> str:
    """One sentence: what was chosen, and what it was expected to give."""
    here = machines(record)[0]
    rate = float(here.rate[record.verified - 1])
    seconds = record.spent + float(here.seconds[record.verified - 1])
    return (
        f"Verified {record.verified} of {plural(len(here.rate), 'node')}: {rate * seconds:.2f} tokens expected in "
        f"{1000 * seconds:.1f} ms ({1000 * record.spent:.1f} ms of it for drafting), {rate:.0f} tokens/s; "
        f"{len(step.committed)} came of it."
    )


def cost_drawing(step: Step) -> list[Part]:
    """Sentence, picture and table of one step; nothing where no budget was chosen."""
    if step.budget is None:
        return []
    drawn = cost_spec(summary(step, step.budget), step.budget)
    return [labelled("Budget", drawn["layout"]["meta"]["label"]), drawn, table(step.budget)]


def cost_spec(said: str, record: BudgetRecord) -> Spec:
    """What a pass costs and the tokens per second that are expected of it, over the nodes verified."""
    here, chosen = machines(record)[0], record.verified
    most = max(len(here.rate), min(16, record.rows[-1]))
    nodes = list(range(1, len(here.rate) + 1))
    measured = [(rows - record.extra, 1000 * seconds) for rows, seconds in zip(record.rows, record.seconds, strict=True)
                if 1 <= rows - record.extra <= most]  # fmt: skip
    cost, rate = (1000 * here.seconds).round(3).tolist(), here.rate.round(2).tolist()
    blue, green = LOOKS["accepted"].color, PHASE_COLORS["verify"]
    data = [
        {"x": nodes, "y": cost, "line": {"color": green}, "hovertemplate": "%{x} nodes: %{y:.2f} ms"},
        {"x": [n for n, _ in measured], "y": [round(ms, 3) for _, ms in measured], "mode": "markers",
         "marker": {"symbol": "circle-open", "color": green, "size": 8}, "hovertemplate": "measured: %{y:.2f} ms"},
        {"x": nodes, "y": rate, "yaxis": "y2", "line": {"color": blue}, "hovertemplate": "%{x} nodes: %{y:.0f} /s"},
        {"x": [chosen], "y": [rate[chosen - 1]], "yaxis": "y2", "mode": "markers+text", "cliponaxis": False,
         "text": [f"you are here: {chosen} verified"], "marker": {"color": blue, "size": 11}, "hoverinfo": "skip",
         "textposition": "top right" if chosen < most / 2 else "top left"},
    ]  # fmt: skip
    title = {"text": "nodes verified, the most probable first"}
    xaxis = {"title": title, "range": [0.5, most + 0.5], "tickformat": "d"}
    layout = stacked([100, 100], ["pass, ms (measured)", "expected tokens/s"], ["", ""], xaxis)
    layout["yaxis"]["rangemode"], layout["yaxis2"]["range"] = "tozero", [0, 1.3 * max(rate)]
    return spec(data, label=said, shapes=[upright(chosen)], meta={"name": "budget"}, **layout)


def table(record: BudgetRecord) -> str:
    """What would have been chosen on each machine, as an HTML table."""
    found, rows = machines(record), []
    most = max(len(machine.rate) for machine in found)
    for machine in found:
        best = machine.best
        seconds, rate = record.spent + float(machine.seconds[best - 1]), float(machine.rate[best - 1])
        cells = f"{rate * seconds:.2f}", f"{1000 * seconds:.1f}", f"{rate:.0f}", machine.note
        rows.append((machine.name, best, bar(best / most, room=80), *cells))
    head = ("machine", "nodes", "", "tokens expected", "ms", "tokens/s", "")
    return markup.table("What it would verify on other machines", head, rows)
