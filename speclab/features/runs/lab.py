"""The list of runs in the lab."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from speclab.lab._commands import command
from speclab.lab._messages import Record, ToPage
from speclab.lab._parts import Part

if TYPE_CHECKING:
    from speclab.lab._runs import Run


class Runs(ToPage):
    """All runs of the lab."""

    runs: Annotated[list[Record], "Run[]"]


class RunsPart(Part):
    """Lists the runs, and switches to one of them."""

    @command(where="compare")
    def on_switch(self, run: int) -> None:
        """Show another run, by its number, at its last position."""
        self.runs.show(self.runs.numbered(run))

    @command()
    def on_close(self, run: int) -> None:
        """Forget a run that is not shown."""
        self.runs.forget(self.runs.numbered(run))
        self.decoded()

    def decoded(self) -> None:
        """List the runs: forks beside the run that they were made from."""
        rows = []
        for run in sorted(self.runs.all, key=_family):
            rows.append(
                {
                    "number": run.number,
                    "at": run.at,
                    "name": run.name,
                    "iterations": len(run.trace.steps),
                    "shown": run is self.runs.shown(),
                }
            )
        self.state.show("runs", runs=rows)


PARTS = (RunsPart,)


def _family(run: Run) -> tuple[int, str]:
    """A, B, … Z, AA, …"""
    return len(run.family), run.family
