"""The pinned iteration of the lab."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from speclab.lab._commands import method
from speclab.lab._messages import Record, ToPage
from speclab.lab._parts import Part
from speclab.views.run_data import step_data

if TYPE_CHECKING:
    from speclab.trace.records import Step


class Pinned(ToPage):
    """An iteration that stays beside later ones; none without fields."""

    step: Annotated[Record | None, "Step | null"] = None


class PinPart(Part):
    """Pins an iteration; one that was decoded again pins itself."""

    @method()
    def pin(self) -> None:
        """Pin the current iteration next to later ones, or unpin it."""
        step = self.state.step
        if self.state.panels.get("pinned") or step is None:
            self.state.hide("pinned")
        else:
            self.state.show("pinned", step=step_data(step))

    def decoded_again(self, old: Step) -> None:
        self.state.show("pinned", step=step_data(old))


PARTS = (PinPart,)
