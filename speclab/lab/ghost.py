"""What the tree shown would have been with the settings that the pickers say, while they are not applied."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock

from ipywidgets import HTML

from speclab.analysis.whatif import in_force, what_if
from speclab.drafters.base import Strategy
from speclab.errors import NotRecordedError, SpeclabError
from speclab.lab.choices import Change
from speclab.lab.state import LabState
from speclab.lab.sync import assign, show
from speclab.settings import SessionSettings
from speclab.trace.records import Step
from speclab.views.ghost import ghost_svg, told
from speclab.views.markup import tag
from speclab.views.tokens import escape

_log = logging.getLogger(__name__)


class Ghost(HTML):
    """A sentence, and where the record suffices a picture that stands in for the tree; empty without a change.

    It is drawn where the change is made, not on the worker's thread: a slider must not wait for a model.

    Args:
        state: `change` and `frame` decide what is drawn.
        covers: called when the picture comes or goes.

    Attributes:
        covering: whether the picture stands in for the tree.
    """

    def __init__(self, state: LabState, covers: Callable[[], None]) -> None:
        super().__init__()
        self.covering = False
        self._state, self._covers, self._lock = state, covers, Lock()
        self.add_class("speclab-ghost")
        show(self, visible=False)
        state.observe(lambda _: self.update(), names=["change", "frame"])
        self.update()

    def update(self) -> None:
        """Draws what the state says by now; threads take turns, so the newest stands."""
        with self._lock:
            change, step, selected = self._state.change, self._state.step, self._state.selected
            sentence, picture = _seen(step, change, selected) if change is not None and step is not None else ("", "")
            way = "Apply forks here." if self._state.frame.live else "Step decodes with the change."
            said = tag("p", tag("b", "Not applied. "), escape(f"{sentence} {way}"), role="status", class_="sl-ghost")
            assign(self, value=said + picture if sentence else "")
            show(self, visible=bool(sentence))
            covered, self.covering = self.covering, bool(picture)
        if covered != self.covering:
            self._covers()


def _seen(step: Step, change: Change, selected: int | None) -> tuple[str, str]:
    """The sentence, and the picture or nothing."""
    try:
        found = what_if(step, _meant(step, change), SessionSettings(**change.settings))
        return told(step, found), ghost_svg(step, found, selected)
    except SpeclabError as error:
        return f"What this iteration's tree would have been is not in its record: {str(error).rstrip('.')}.", ""
    except Exception as error:  # noqa: BLE001  # a view that fails must not take the slider along
        _log.exception("the tree could not be grown again")
        return f"What this iteration's tree would have been could not be drawn: {error}.", ""


def _meant(step: Step, change: Change) -> Strategy:
    """The settings in force in this step, history's moves included, with what a person changed."""
    if not change.alone:
        raise NotRecordedError("more than the strategy has changed")
    if type(change.before) is not type(change.after):
        raise NotRecordedError(f"{type(change.after).__name__} drafts in another way")
    before, after = change.before.model_dump(), change.after.model_dump()
    return in_force(step).changed(**{name: value for name, value in after.items() if before[name] != value})
