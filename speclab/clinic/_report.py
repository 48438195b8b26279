"""The report: acceptance, then gaps to the plain pass beside those of a measured reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from speclab.trace.records import TIE, Finding

BY = ("part", "depth", "width", "iteration")
COLUMNS = ("iteration", "node", "depth", "width", "part", "gap", "reference")
QUANTILES = {"median": 0.5, "90 %": 0.9, "largest": 1.0}
SHOWN = 12
"""Most rows of a table in the text."""


@dataclass(frozen=True)
class Report:
    """What `clinic.report` measured. Iterations count from 0, as in `Trace.steps`; the text prints them
    from 1.

    `gaps`: a row per compared node: iteration, node, depth, width (rows of its pass), part ("root"
    or "drafted"), gap (largest difference of a recorded log-probability to the plain pass), and
    reference (the same of the pair's own pass in `dtype`; NaN where not measured). `rows`: nodes of
    the run. `measured`: whether tables of gaps are part of the text. `exit_status`: 0 nothing is
    wrong, 1 the text or the target's answers, 3 only the draft's proposals. `acceptance`: by depth:
    (accepted nodes, passes in which the target looked at that depth).
    """

    gaps: pd.DataFrame
    rows: int
    iterations: int
    dtype: str
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    measured: bool = True
    acceptance: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def accepted(self) -> float:
        """Accepted nodes per pass."""
        return sum(hits for hits, _ in self.acceptance.values()) / max(self.iterations, 1)

    @property
    def exit_status(self) -> int:
        kinds = {finding.kind for finding in self.findings} - {TIE}
        return 0 if not kinds else 3 if kinds == {"draft"} else 1

    def table(self, by: str) -> pd.DataFrame:
        """Quantiles of gap and reference by iteration, depth, width, part or node."""
        groups = self.gaps.groupby(by)
        columns = {"rows": groups["gap"].size()}
        for column in ("gap", "reference"):
            for name, share in QUANTILES.items():
                columns[f"{column}, {name}"] = groups[column].quantile(share)
        return pd.DataFrame(columns)

    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables that are not empty."""
        return {by: self.table(by) for by in BY} if self.measured and len(self.gaps) else {}

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        tables = {}
        for by, table in self.tables().items():
            frame = table.reset_index().astype(object)
            tables[by] = frame.where(frame.notna(), None).to_dict("records")
        return {
            "accepted": self.accepted,
            "acceptance": dict(self.acceptance),
            "rows": self.rows,
            "compared": len(self.gaps),
            "iterations": self.iterations,
            "dtype": self.dtype,
            "findings": [asdict(finding) for finding in self.findings],
            "notes": list(self.notes),
            "gaps": tables,
            "status": self.exit_status,
        }

    def __str__(self) -> str:
        lines = [f"{self.accepted:.2f} tokens accepted per pass{by_depth(self.acceptance)}."]
        wrong = [finding for finding in self.findings if finding.kind != TIE]
        lines += [str(finding) for finding in (self.findings if not self.measured else wrong)]
        lines += [f"Note: {note}" for note in self.notes]
        lines.append(
            f"{self.iterations} iterations, answers of {len(self.gaps)} of {self.rows} rows "
            f"compared: {len(wrong)} findings, {len(self.findings) - len(wrong)} ties."
        )
        for by, table in self.tables().items():
            if len(table) == 1 and by != "part":
                continue
            columns = [name.replace("reference", "ref") for name in table.columns]
            shown = table.set_axis(columns, axis=1).iloc[:SHOWN]
            if by == "iteration":
                shown = shown.set_axis(shown.index + 1)
            text = shown.to_string(float_format="{:.2g}".format, na_rep="-", index_names=False)
            lines += ["", f"Gaps by {by}, beside the reference (ref: {self.dtype}):", text]
        return "\n".join(lines)


def by_depth(acceptance: Mapping[int, tuple[int, int]]) -> str:
    """`; at depth 1 0.80 (8 of 10), at depth 2 …`."""
    parts = [
        f"at depth {depth} {hits / tries:.2f} ({hits} of {tries})"
        for depth, (hits, tries) in acceptance.items()
    ]
    return "; " + ", ".join(parts) if parts else ""
