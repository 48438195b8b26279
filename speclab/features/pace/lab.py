"""The form says if the chosen strategy should be slower here than plain decoding."""

from __future__ import annotations

from speclab.features.pace import pace
from speclab.lab._messages import ToPage
from speclab.lab._parts import Part


class Pace(ToPage):
    """A strategy that does not pay; none without fields.

    `times`: as fast as plain decoding.
    """

    strategy: str | None = None
    times: float | None = None


class PacePart(Part):
    """Tells how fast the wanted strategy should be, once the models are loaded."""

    def form_changed(self) -> None:
        self.state.hide("pace")
        wanted = self.state.wanted
        applied = self.state.applied
        pair = self.runs.pair
        if pair is None or applied is None or wanted.models != applied.models:
            return
        if wanted.strategy == applied.strategy or "strategy" in self.state.errors:
            return
        times = pace(wanted.strategy, pair)
        if times is not None and times < 1:
            self.state.show("pace", strategy=type(wanted.strategy).__name__, times=times)

    def decoded(self) -> None:
        """The wanted strategy was applied, or another run is shown."""
        self.form_changed()


PARTS = (PacePart,)
