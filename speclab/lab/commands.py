"""Commands that move: start, step, run, back, go to, fork, decode again, select.

They run on the worker's thread, and nothing else touches the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from speclab.drafters import setting_names
from speclab.errors import SettingsError
from speclab.lab.editing import Editor
from speclab.lab.messages import EMPTY, to_page
from speclab.lab.runs import Runs
from speclab.lab.state import PHASES, differences
from speclab.lab.tasks import Throttle
from speclab.trace.conditions import Condition, compiled, stateful
from speclab.trace.records import Step
from speclab.views.run_data import step_data

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session

UNTIL = {"accepts_fewer": "accepted < {}", "nodes_more": "nodes > {}", "expression": "{}"}
"""The conditions that the page can run until."""


class Commands:
    """The commands of one lab."""

    def __init__(self, runs: Runs, editor: Editor) -> None:
        self._runs = runs
        self._state = runs.state
        self._worker = runs.worker
        self._editor = editor

    def step(self, start: str = "here") -> Step:
        """Apply pending changes of the form, then decode one iteration; "start" begins a new run."""
        session = self._runs.ready(start)
        try:
            session.step()
        finally:
            self._show(session)
        step = self._state.step
        assert step is not None
        return step

    def run(self, until: Condition | None = None, why: str = "") -> Step | None:
        """Decode until `until` holds, the text ends or Stop is pressed; returns the last step."""
        condition = compiled(until, setting_names())
        session = self._runs.ready()
        throttle = Throttle()
        held = False
        holds = stateful(condition, self._state.step)
        most = session.settings.max_new_tokens

        def each(step: Step) -> bool:
            nonlocal held
            held = holds(step)
            if not held and throttle():
                self._show(session)
                self._worker.report(self._state.busy, len(session.token_ids) / most)
            return held or self._worker.cancelled

        try:
            session.run(until=each)
        finally:
            self._show(session)
        if held:
            reason = why or getattr(condition, "text", "the condition holds")
            self._state.message = f"Stopped: {reason}."
        elif not session.done:
            self._state.message = "Stopped."
        return self._state.step

    def run_until(self, until: Mapping[str, Any]) -> Step | None:
        """Run until one of the page's conditions holds."""
        return self.run(*self._condition(until))

    def hint(self, until: Mapping[str, Any]) -> None:
        """Tell the page whether the typed condition is valid."""
        sentence = ""
        try:
            self._condition(until)
        except SettingsError as error:
            sentence = str(error)
        self._state.posts.append(to_page("hint", sentence=sentence))

    def back(self) -> Step | None:
        """Show the previous iteration; no model call."""
        return self.goto(max(0, self._state.cursor - 1))

    def goto(self, index: int) -> Step | None:
        """Show the text after `index` iterations; no model call."""
        count = len(self._state.steps)
        if not 0 <= index <= count:
            raise SettingsError(f"There is no iteration {index}: {count} are decoded.")
        self._state.cursor = index
        self._state.phase = "all"
        self._state.selected = None
        self.place()
        return self._state.step

    def place(self) -> None:
        """Move the session to the current iteration, and drop what belongs to another one."""
        session = self._runs.session
        if session is not None and self._state.live:
            session.goto(min(self._state.cursor, len(session.steps)))
        self._editor.place()
        self._state.moved()

    def phase(self, name: str) -> None:
        """Show one phase of the iteration."""
        if name not in PHASES:
            raise SettingsError(f"There is no phase {name!r}: choose one of {', '.join(PHASES)}.")
        self._state.phase = name

    def select(self, node: int | None) -> None:
        """Select a node of the current tree, or none."""
        step = self._state.step
        if node is not None and (step is None or not 0 <= node < len(step.tree)):
            raise SettingsError(f"There is no node {node} in the iteration shown.")
        self._state.selected = node

    def fork(self, strategy: Strategy | None = None, **settings: Any) -> Session:
        """Fork at the cursor with other settings; the former session stays unchanged."""
        if self._runs.session is None:
            self._runs.ready()
        assert self._state.applied is not None
        config = self._state.applied.changed(strategy, settings)
        session = self._runs.fork(self._state.cursor, config)
        self._editor.leave()
        return session

    def redo(self) -> Step:
        """Decode the current iteration again in a fork with the form's settings; the page shows both trees."""
        state = self._state
        wanted = self._runs.wanted()
        old = state.step
        if old is None or state.applied is None or not wanted.forks_from(state.applied):
            return self.step()
        changes = differences(state.applied, wanted)
        self._runs.fork(state.cursor - 1, wanted)
        new = self.step()
        state.show(to_page("redone", index=new.index, old=step_data(old), changes=changes))
        return new

    def pin(self) -> None:
        """Pin the current iteration next to later ones, or unpin it."""
        step = self._state.step
        pinned = self._state.panels.get("pinned", EMPTY["pinned"])["step"]
        if pinned is not None or step is None:
            self._state.hide("pinned")
        else:
            self._state.show(to_page("pinned", step=step_data(step)))

    def _show(self, session: Session) -> None:
        self._runs.update(session)
        self._editor.leave()

    def _condition(self, until: Mapping[str, Any]) -> tuple[Condition | None, str]:
        """A condition of the page, and its description; None for the end of the text.

        Raises:
            SettingsError: the typed text is empty, or not a condition.
        """
        kind = until.get("kind", "end")
        value = until.get("value")
        if kind == "end":
            return None, ""
        if value in ("", None):
            raise SettingsError("Enter what to run until.")
        if kind == "token":
            wanted = str(value)
            start = max(0, len(self._shown_text()) - len(wanted) + 1)
            # a match may span two iterations
            return lambda _: wanted in self._shown_text()[start:], f"“{wanted}” came"
        if kind not in UNTIL:
            raise SettingsError(f"There is no condition {kind!r}: choose one from the list.")
        expression = UNTIL[kind].format(value)
        compiled(expression, setting_names())
        return expression, expression

    def _shown_text(self) -> str:
        return self._runs.session.text if self._runs.session is not None else ""
