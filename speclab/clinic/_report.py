"""The report: acceptance, then gaps to the plain pass beside those of a measured reference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from speclab.display import counted
from speclab.trace.metrics import survival
from speclab.trace.records import TIE, Finding, Step, Trace

BY = ("part", "depth", "width", "iteration")
COLUMNS = ("iteration", "node", "depth", "width", "part", "gap", "reference")
QUANTILES = {"median": 0.5, "90 %": 0.9, "largest": 1.0}


@dataclass(frozen=True)
class Report:
    """What a check found. Iterations count from 0, as in `Trace.steps`; sentences from 1.

    `trace`: the run, with findings and gaps in its steps. `findings`: the first wrong iteration
    first, ties last. `cause`: of the first wrong answers or proposals, None if all are right.
    `with_tables`: whether tables of gaps are part of the text.
    """

    trace: Trace
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    cause: Finding | None = None
    with_tables: bool = False

    @cached_property
    def gaps(self) -> pd.DataFrame:
        """A row per compared node: iteration, node, depth, width (rows of its pass), part ("root"
        or "drafted"), gap (largest difference of a recorded log-probability to the plain pass), and
        reference (the same of the pair's own pass in the recorded precision; NaN where not
        measured).
        """
        rows = []
        for step in self.trace.steps:
            part = "root"
            for node, gap in enumerate(step.gaps):
                if gap is not None:
                    depth = int(step.tree.depth[node])
                    rows.append((step.index, node, depth, len(step.tree), part, *gap))
                part = "drafted"
        return pd.DataFrame(rows, columns=COLUMNS).astype({"gap": float, "reference": float})

    @property
    def rows(self) -> int:
        """Nodes of the run."""
        return sum([len(step.nodes) for step in self.trace.steps])

    @property
    def acceptance(self) -> dict[int, tuple[int, int]]:
        """By depth: (accepted nodes, passes in which the target looked at that depth)."""
        return acceptance(self.trace.steps)

    @property
    def accepted(self) -> float:
        """Accepted nodes per pass."""
        return self.trace.metrics.counts.accepted / len(self.trace.steps)

    @property
    def misses(self) -> tuple[int, int]:
        """Passes with a draft of which nothing was accepted; and those whose choice the draft
        cannot propose."""
        missed = [step for step in self.trace.steps if step.counts.looked and not step.accepted]
        beyond = [step for step in missed if step.nodes[0].beyond_draft]
        return len(missed), len(beyond)

    @property
    def exit_status(self) -> int:
        """0 nothing is wrong, 1 the text or the target's answers, 3 only the draft's proposals."""
        kinds = {finding.kind for finding in self.findings} - {TIE}
        if not kinds:
            return 0
        return 3 if kinds == {"draft"} else 1

    def table(self, by: str) -> pd.DataFrame:
        """Quantiles of gap and reference by iteration, depth, width, part or node."""
        groups = self.gaps.groupby(by)
        columns = {"rows": groups["gap"].size()}
        for column in ("gap", "reference"):
            for name, share in QUANTILES.items():
                columns[f"{column}, {name}"] = groups[column].quantile(share)
        return pd.DataFrame(columns)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        tables = {}
        if self.with_tables and len(self.gaps):
            for by in BY:
                tables[by] = json.loads(self.table(by).reset_index().to_json(orient="records"))
        return {
            "accepted": self.accepted,
            "acceptance": self.acceptance,
            "rows": self.rows,
            "compared": len(self.gaps),
            "iterations": len(self.trace.steps),
            "dtype": self.trace.models.get("target_dtype"),
            "findings": [asdict(finding) for finding in self.findings],
            "notes": list(self.notes),
            "gaps": tables,
            "status": self.exit_status,
        }

    def __str__(self) -> str:
        lines = [f"{self.accepted:.2f} tokens accepted per pass; {by_depth(self.acceptance)}."]
        missed, beyond = self.misses
        if beyond:
            misses = counted(missed, "miss", "misses")
            lines.append(
                f"In {beyond} of {misses} at depth 1 the draft cannot propose the choice: its vocabulary "
                "has no such token."
            )
        wrong = 0
        for finding in self.findings:
            if finding.kind != TIE:
                wrong += 1
            if finding.kind != TIE or not self.with_tables:
                lines.append(str(finding))
        for note in self.notes:
            lines.append(f"Note: {note}")
        ties = len(self.findings) - wrong
        lines.append(
            f"{counted(len(self.trace.steps), 'iteration')}, answers of {len(self.gaps)} of "
            f"{counted(self.rows, 'row')} compared: {counted(wrong, 'finding')}, {counted(ties, 'tie')}."
        )
        if self.with_tables and len(self.gaps):
            dtype = self.trace.models.get("target_dtype")
            lines.append(f"\nGaps by depth, beside the reference (ref: {dtype}):")
            table = self.table("depth")
            table.columns = table.columns.str.replace("reference", "ref")
            lines.append(table.to_string(float_format="{:.2g}".format, index_names=False))
        return "\n".join(lines)


def acceptance(steps: Sequence[Step]) -> dict[int, tuple[int, int]]:
    """By depth: accepted nodes, and passes in which the target looked at that depth. Their ratio is
    the hazard, which does not depend on how many tokens are drafted."""
    rows = survival([step.counts for step in steps])
    return {row.depth: (row.accepted, row.looked) for row in rows}


def by_depth(acceptance: Mapping[int, tuple[int, int]]) -> str:
    """`at depth 1 0.80 (8 of 10), at depth 2 …`."""
    words = []
    for depth, (hits, looked) in acceptance.items():
        words.append(f"at depth {depth} {hits / looked:.2f} ({hits} of {looked})")
    return ", ".join(words) or "nothing was drafted"
