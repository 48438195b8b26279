"""The page of a checked draft head, and the same in a terminal: pure functions of a `HeadReport`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from speclab.analysis.head_report import NORMAL, HeadReport, Share, percent
from speclab.bench import figures
from speclab.bench.report import Figure, rendered
from speclab.bench.summary import Spread, Table
from speclab.files import write_whole

_FIRST, _OF = "right first guesses", "of places"


def write_head_page(report: HeadReport, path: str | os.PathLike[str]) -> Path:
    """Writes the page of a report; returns its path.

    Raises:
        SpeclabError: the file cannot be written.
    """
    return write_whole(Path(path), head_page_html(report).encode())


def head_page_html(report: HeadReport) -> str:
    """The page of a report, one file that fetches nothing."""
    return rendered("head_page.html.j2", HeadPage(report))


def _spread(share: Share) -> Spread:
    return Spread(share.value, *share.interval, share.places)


def _range(share: Share) -> str:
    low, high = share.interval
    return f"{100 * low:.0f} to {100 * high:.0f}%" if share.places else "–"


@dataclass(frozen=True)
class HeadPage:
    """The tables and figures of a report."""

    report: HeadReport

    normal: ClassVar = NORMAL
    sections: ClassVar = {
        "short": "In short", "checks": "What was checked", "tried": "Other ways to run it", "depth": "By depth",
        "sure": "How sure it is", "how": "The head and the texts",
    }  # fmt: skip

    @property
    def lead(self) -> str:
        """Acceptance in one sentence."""
        found, first = self.report, self.report.first
        return (
            f"{percent(first)} of its first guesses are the target's own token ({_range(first)} with 95 % confidence), "
            f"and a greedy chain of {len(found.accepted)} gives {found.tokens_per_iteration:.2f} tokens per iteration."
        )

    @property
    def checks(self) -> Table:
        """Every finding, what costs most first."""
        ranked = sorted(self.report.findings, key=lambda one: (not one.cause, -one.weight if one.cause else 0.0))
        rows = [["✗ " + one.check if one.cause else "✓ " + one.check, one.text, one.out if one.cause else "–"]
                for one in ranked]  # fmt: skip
        best = f"✗ {self.report.likeliest.check}" if self.report.likeliest else ""
        return Table(("check", "measured", "way out"), rows, text=3, best=best)

    @property
    def tried(self) -> Table:
        """The head as it is loaded, then every other way, the best first."""
        rows = [["as it is loaded", "", percent(self.report.first), "", "", ""]]
        for one in sorted(self.report.tried, key=lambda each: (-each.gain, -each.nats)):
            points, nats = f"{100 * one.gain:+.1f} points", f"{one.nats:+.2f}"
            sure = f"{max(one.gain_errors, one.nats_errors, key=abs):+.1f}"
            rows.append(
                [
                    ("✗ " if one.better else "") + one.how + ", second guesses" * (one.depth > 1),
                    one.cause,
                    percent(one.right),
                    points,
                    nats,
                    sure,
                ]
            )
        head = ("way", "then the cause is", _FIRST, "more than as loaded", "nats less per token", "in standard errors")
        return Table(head, rows, "✗ marks a way that does better than the head as it is loaded", text=2)

    @property
    def depths(self) -> Table:
        """Acceptance and right guesses by depth."""
        both = zip(self.report.accepted, self.report.guessed, strict=True)
        rows = [
            [str(depth), percent(mine), _range(mine), str(mine.places), percent(any_), str(any_.places)]
            for depth, (mine, any_) in enumerate(both, 1)
        ]
        return Table(("depth", "accepted", "95 % interval", _OF, "guessed", _OF), rows)

    @property
    def by_depth(self) -> Figure:
        """Both of `depths` as lines."""
        series = {
            name: {float(depth): _spread(share) for depth, share in enumerate(shares, 1) if share.places}
            for name, shares in (("accepted", self.report.accepted), ("guessed", self.report.guessed))
        }
        plot = figures.lines(series, "depth", "share")
        plot.update_xaxes(dtick=1)
        plot.update_yaxes(range=[0, 1], tickformat=".0%")
        return Figure(plot, "Acceptance and right first guesses by depth, with intervals of 95 %.")

    @property
    def bins(self) -> Table:
        """First guesses by confidence."""
        rows = [
            [f"{one.confidence:.2f}", f"{one.target:.2f}", percent(one.right), _range(one.right), str(one.right.places)]
            for one in self.report.calibration
        ]
        return Table(("head's confidence", "target's probability", "right", "95 % interval", _OF), rows, text=0)

    @property
    def calibration(self) -> Figure:
        """Both of a bin's probabilities and its right share."""
        bins = self.report.calibration
        series = {
            "right": {one.confidence: _spread(one.right) for one in bins},
            "target's probability": {
                one.confidence: Spread(one.target, one.target, one.target, one.right.places) for one in bins
            },
        }
        plot: Any = figures.lines(series, "the head's confidence in its first guess", "share")
        plot.add_scatter(x=[0, 1], y=[0, 1], mode="lines", name="confidence", line={"dash": "longdash", "width": 1})
        plot.update_xaxes(range=[0, 1])
        plot.update_yaxes(range=[0, 1], tickformat=".0%")
        return Figure(plot, "Right first guesses, and the target's probability of them, by the head's confidence.")

    @property
    def kinds(self) -> Table:
        """By kind of prompt."""
        rows = [[kind, percent(share), _range(share), str(share.places)] for kind, share in self.report.kinds.items()]
        return Table(("kind of prompt", _FIRST, "95 % interval", _OF), rows)
