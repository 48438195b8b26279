"""The what-if in the lab: settings of the form that were not applied are previewed on the tree."""

from __future__ import annotations

from typing import Annotated

from speclab.errors import NotRecordedError
from speclab.lab._messages import Record, ToPage
from speclab.lab._parts import Part


class Preview(ToPage):
    """Another tree of the iteration shown; none without fields."""

    index: int | None = None
    what_if: Annotated[Record | None, "WhatIf | null"] = None


class WhatIfPart(Part):
    """Previews the wanted settings."""

    def form_changed(self) -> None:
        """Preview the wanted settings on the current tree, if its record is enough."""
        state = self.state
        step = state.step
        strategy = state.wanted.strategy
        state.hide("preview")
        if step is None or state.applied is None or state.new_run:
            return
        if strategy == state.applied.strategy:
            return
        from speclab.features.whatif import what_if

        try:
            answer = what_if(step, strategy, state.wanted.settings)
        except NotRecordedError:
            return
        state.show("preview", index=step.index, what_if=answer.data())

    def decoded(self) -> None:
        """The preview was of the iteration before."""
        self.state.hide("preview")


PARTS = (WhatIfPart,)
