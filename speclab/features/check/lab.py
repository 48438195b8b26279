"""Checks a run of the lab, and compares it with another one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from speclab import clinic
from speclab.lab._commands import command, method
from speclab.lab._messages import Record, ToPage
from speclab.lab._parts import Part

if TYPE_CHECKING:
    from speclab.clinic._diff import Diff
    from speclab.lab._runs import Run
    from speclab.pair import ModelPair
    from speclab.trace.records import Finding, Trace


class Diffed(ToPage):
    """The comparison of two runs; none without fields."""

    kept: ClassVar[bool] = True
    diff: Annotated[Record | None, "Diff | null"] = None


class CheckPart(Part):
    """Runs are compared with their session's models; a file with those that the user named, if any."""

    @command("Checking")
    def on_check(self) -> None:
        """Check the run shown."""
        self.check()

    @method("Checking")
    def check(self) -> tuple[Finding, ...]:
        """Check the run (`clinic.check`), mark the findings in the pictures and list them in the tab
        Check.
        """
        run = self.runs.shown()
        pair = self._models_of(run)

        def progress(done: int, total: int) -> None:
            self.worker.check()
            if self.worker.due():
                self.worker.report("Checking", done / total)

        run.trace = self.state.trace = clinic.marked(run.trace, pair, progress)
        findings: list[Finding] = []
        for step in run.trace.steps:
            findings.extend(step.findings)
        if pair is None:
            self.state.message = "Checked without models: pass a pair to Lab to compare with them."
        return tuple(findings)

    @command("Comparing two runs")
    def on_diff(self, run: int) -> None:
        """Compare the run shown with another run of this lab, by its number."""
        self.diff(run)

    @method("Comparing two runs")
    def diff(self, run: int | Trace) -> Diff:
        """Compare the run with another one of the same prompt (`clinic.diff`), a trace or a run's
        number; the tab Check and an exported page show both timelines, joined where they part."""
        shown = self.runs.shown()
        name = "the other run"
        if isinstance(run, int):
            other = self.runs.numbered(run)
            name = other.name
            run = other.trace
        result = clinic.diff(shown.trace, run, self._models_of(shown))
        result = replace(result, names=(f"a: {shown.name}", f"b: {name}"))
        self.state.show("diffed", diff=result.as_dict())
        return result

    def decoded(self) -> None:
        """The comparison was of the iterations before."""
        self.state.hide("diffed")

    def _models_of(self, run: Run) -> ModelPair | None:
        if run.session is not None:
            return run.session.pair
        return self.runs.load(self.state.wanted.models) if self.state.named else None


PARTS = (CheckPart,)
