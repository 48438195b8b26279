"""The curve of a setting in the lab."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speclab.lab._commands import command
from speclab.lab._messages import Record, ToPage
from speclab.lab._parts import Part

if TYPE_CHECKING:
    from speclab.lab._runs import Runs


class Curve(ToPage):
    """The replays of a text over the values of a setting; none without fields."""

    name: str | None = None
    values: list[Any] | None = None
    points: list[Record] | None = None
    plain: Record | None = None
    here: Any | None = None


class CurvePart(Part):
    """Replays the text shown over the range of a setting."""

    def __init__(self, runs: Runs) -> None:
        super().__init__(runs)
        self._run = -1  # whose curve is shown

    @command("Replaying", where="strategy")
    def on_curve(self, name: str) -> None:
        """Replay the text over the range of a setting, for its curve of tokens per iteration."""
        from speclab.features.replay.curves import sweep
        from speclab.features.replay.replayer import Replayer

        strategy = self.runs.ready_setup().strategy
        session, _ = self.runs.live()
        self._run = self.state.number
        for curve in sweep(Replayer(session), strategy, name, check=self.worker.check):
            done = len(curve.points) / len(curve.values)
            if self.worker.due() or done == 1:
                self.state.show("curve", **curve.data())
                self.worker.report("Replaying", done)

    def decoded(self) -> None:
        """The curve of another run does not hold here."""
        if self._run != self.state.number:
            self.state.hide("curve")


PARTS = (CurvePart,)
