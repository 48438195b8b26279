"""Moving through what is decoded or recorded, by iterations, phases, nodes and breakpoints. No model runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from speclab.drafters import setting_names
from speclab.errors import SettingsError
from speclab.lab.actions import action
from speclab.lab.predicting import Asking, most_tokens, path_to
from speclab.lab.prediction import Sentence
from speclab.lab.state import LabState, SetBreakpoint
from speclab.trace.conditions import Condition, compiled, stateful
from speclab.trace.records import Step
from speclab.views.explain import plural, position_summary, summary
from speclab.views.export import describe
from speclab.views.node_chart import draws
from speclab.views.playback import PHASES, WHOLE, PlaybackPosition, positions
from speclab.views.registry import Frame

if TYPE_CHECKING:
    from speclab.engine.session import Session


_NOTHING_ASKED = "Nothing is asked: switch Predict on, and Step to an iteration that is not revealed yet."


class Navigator:
    """What of the run is shown. A session that is shown follows; a recording needs none."""

    def __init__(self, state: LabState) -> None:
        self.session: Session | None = None
        self._state = state
        self.asking = Asking()

    @action(key="goto")
    def goto(self, index: int) -> Step | None:
        """Shows the text after `index` iterations; no model call."""
        count = len(self._state.trace.steps)
        if index not in range(count + 1):
            raise SettingsError(f"There is no iteration {index}: {count} are decoded; Step or Run decodes more.")
        return self._show_at(index)

    @action(key="goto")
    def last(self) -> Step | None:
        """The newest iteration decoded."""
        return self.goto(len(self._state.trace.steps))

    @action()
    def back(self, until: Condition | None = None) -> Step | None:
        """Goes back by one iteration, or to the last one before it where `until` holds; no model call."""
        before = max(self._state.cursor - (not self._state.frame.asked), 0)
        if until is None:
            return self.goto(before)
        # Asked from the beginning on: an expression may look at the step before.
        holds = stateful(compiled(until, setting_names()), None)
        found = [i + 1 for i, step in enumerate(self._state.trace.steps[:before]) if holds(step)]
        if found:
            return self.goto(found[-1])
        self._state.status = "No earlier iteration meets the condition."
        return None

    @action(key="phase")
    def phase(self, name: str, level: int | None = None) -> None:
        """Shows the iteration as it stood when this phase was over; with `level`, after that level or decision."""
        if name not in PHASES:
            raise SettingsError(f"There is no phase {name!r}: choose one of {', '.join(PHASES)}.")
        self._show_position(PlaybackPosition(name, level))

    @action()
    def phase_by(self, count: int) -> None:
        """The next (1) or the previous (-1) position; past the ends, of the neighbouring iteration."""
        if not self._moved(count):
            end = "This is the end of what is decoded: Step goes on."
            if self._state.frame.asked:
                self._reveal(PlaybackPosition("verify"))
            else:
                self._state.status = end if count > 0 else "This is the beginning."

    @action(key="select")
    def select(self, node: int | None) -> None:
        """Marks a node in every view; None marks none."""
        step = self._state.step
        if node is not None and (step is None or not 0 <= node < len(step.tree)):
            count = len(step.tree) if step else 0
            raise SettingsError(f"There is no node {node}: this tree has {count}, numbered from 0.")
        if self._state.frame.asked and node is not None:
            self.predict(node)
        else:
            self._state.change_frame(selected=node)

    @action()
    def draw_by(self, count: int) -> None:
        """The next (1) or the previous (-1) of the draws where sampling stopped."""
        state = self._state
        total = len(draws(state.step)) if state.step else 0
        shown = (total if state.frame.draw is None else state.frame.draw) + count
        state.change_frame(draw=None if shown >= total else max(shown, 0))

    def leave_edit(self) -> None:
        """Shows the iteration as it was decoded, and no tree that is edited."""
        if self._state.frame.edited is not None and not self._state.frame.asked:
            self._show_at(self._state.cursor)

    def resize(self, room: Mapping[str, Any]) -> None:
        """Lays the stage out for these pixels; from any thread, for a run goes on meanwhile."""
        sizes = {name: int(room[name]) for name in ("tree", "mask", "height") if 0 < room.get(name, 0) < 10_000}
        self._state.change_frame(room=replace(self._state.frame.room, **sizes))

    # Breakpoints: conditions that stay, each with the iterations at which it holds.

    @action()
    def add_breakpoint(self, condition: Condition, label: str = "") -> SetBreakpoint:
        """Sets a breakpoint; one with the same label is the same."""
        holds = compiled(condition, setting_names())
        point = SetBreakpoint(label or str(getattr(holds, "text", "the condition holds")), holds)
        others = [other for other in self._state.breakpoints if other.label != point.label]
        self._show_frame(self._state.frame, breakpoints=(*others, point))
        return point

    @action()
    def remove_breakpoint(self, label: str | None = None) -> None:
        """Lets the breakpoint of this label go; None lets all go."""
        kept = [point for point in self._state.breakpoints if label is not None and point.label != label]
        self._show_frame(self._state.frame, breakpoints=tuple(kept))

    @action()
    def back_until(self) -> Step | None:
        """Back to the last iteration before this one at which a breakpoint holds."""
        self._needs_breakpoints()
        earlier = [hit for hit in self._state.frame.hits if hit < self._state.cursor]
        if not earlier:
            self._state.status = "No breakpoint holds at an earlier iteration."
            return None
        return self._show_at(earlier[-1], f"Back at {counted(self._state.breakpoints, earlier[-1])}. ")

    # Predict mode.

    @action(key="predicting")
    def predicting(self, wanted: bool = True, *, at_once: bool = False) -> None:
        """Asks from the next iteration on, `at_once` of the one shown too, what will be accepted; or no longer."""
        asking, frame = self.asking, self._state.frame
        if wanted and not asking.on:
            asking.on, asking.silent = True, not at_once
            try:
                self._show_frame(replace(frame, edited=None))
            finally:
                asking.silent = False
        elif asking.on and not wanted:
            run, cursor = asking.whole(frame), frame.cursor + frame.asked
            asking.on = False
            self._show_frame(frame.at(cursor, run), status=describe(frame.at(cursor, run)), **asking.held)

    @action()
    def predict(
        self, nodes: int | Sequence[int] | None = None, *, tokens: int | None = None, hands: Sequence[int] | None = None
    ) -> None:
        """Says what will be accepted: the path to these nodes, or how many tokens the pass gives.

        `hands`: of a class, how many say 1 token, 2 tokens, and so on; most of them count where nothing else is said.
        """
        frame, step, answer = self._state.frame, self._state.step, self.asking.answer
        if not frame.asked or step is None:
            raise SettingsError(_NOTHING_ASKED)
        if tokens is not None and not 1 <= tokens <= most_tokens(step):
            raise SettingsError(f"This pass can give 1 to {most_tokens(step)} tokens, not {tokens}.")
        marked, selected = None, None
        if nodes is not None:
            marked = path_to(step, [nodes] if isinstance(nodes, int) else list(nodes))
            selected = max(marked, default=0)
        if hands is not None:
            self.asking.answer = replace(answer, hands=tuple(hands))
        elif nodes is not None or tokens is not None:
            self.asking.answer = replace(answer, marked=marked, tokens=tokens)
            self._state.change_frame(selected=selected, marked=marked)

    @action(key="reveal")
    def reveal(self) -> Sentence:
        """Shows the iteration that is asked about; what came of the prediction, which counts, in words."""
        if not self._state.frame.asked:
            raise SettingsError(_NOTHING_ASKED)
        return self._reveal()

    def _reveal(self, position: PlaybackPosition = WHOLE) -> Sentence:
        frame, run = self._state.frame, self.asking.whole(self._state.frame)
        at = frame.cursor + 1
        step = run.steps[frame.cursor]
        words = self.asking.reveal(step, self.asking.answer)
        shown = replace(frame.at(at, run), position=position)
        status = summary(step) if position == WHOLE else position_summary(step, position)
        self._show_frame(shown, status=status, **self.asking.held)
        return Sentence(words)

    @contextmanager
    def _unasked(self) -> Iterator[None]:
        """While a run goes on, iterations are shown and none is asked about."""
        asking, frame, before = self.asking, self._state.frame, len(self.asking.revealed)
        if asking.on:
            run = asking.whole(frame)
            asking.silent = True
            self._state.change_frame(
                trace=run, cursor=frame.cursor + frame.asked, edited=None, asked=False, marked=None
            )
        try:
            yield
        finally:
            asking.silent = False
            if count := len(asking.revealed) - before:
                self._state.status += f" Predict: {plural(count, 'iteration')} shown without being asked about."

    # What the controller builds on.

    def _needs_breakpoints(self) -> None:
        if not self._state.breakpoints:
            raise SettingsError("No breakpoint is set: add a condition, and the run stops where it holds.")

    def _moved(self, count: int) -> bool:
        """Whether there was a position to move to: of the iteration shown, else of its neighbour in the record."""
        self.leave_edit()
        state = self._state
        places = positions(state.step) if state.step else ()
        asked = state.frame.asked
        if asked:
            places = tuple([place for place in places if not place.reached("verify")])
        at = _index(places, state.position) + count
        if asked and at < 0:
            self._show_at(state.cursor)
        elif asked and at >= len(places):
            return False
        elif 0 <= at < len(places):
            self._show_position(places[at])
        elif not 0 <= state.cursor + count <= len(self.asking.whole(state.frame).steps):
            return False
        else:
            self._show_at(state.cursor + count, begins=count > 0)
        return True

    def _show_position(self, position: PlaybackPosition) -> None:
        self.leave_edit()
        step = self._state.step
        if step is None:
            raise SettingsError("No iteration is shown: Step first, then look at its phases.")
        if self._state.frame.asked and position.reached("verify"):
            self._reveal(position)
        else:
            words = summary(step) if position == WHOLE else position_summary(step, position)
            self._state.update(status=words, frame=replace(self._state.frame, position=position))

    def _show_at(self, index: int, reason: str = "", *, begins: bool = False) -> Step | None:
        """Another iteration of the run shown: whole, or (`begins`) as its first moment is."""
        if self._state.frame.live and self.session is not None:
            self.session.goto(index)
        frame = self._state.frame.at(index, self.asking.whole(self._state.frame))
        self._show_frame(begun(frame) if begins else frame, status=reason + describe(frame))
        return self._state.step  # type: ignore[no-any-return]

    def _show_frame(self, frame: Frame, **changes: Any) -> None:
        """Shows the frame, its breakpoints counted over its run."""
        if self.asking.on:
            frame = self.asking.veil(frame, changes)
        points = changes.get("breakpoints", self._state.breakpoints)
        if points or frame.hits:
            points = changes["breakpoints"] = tuple([point.over(frame.trace.steps) for point in points])
            frame = replace(frame, hits=tuple(sorted({hit for point in points for hit in point.hits})))
        self._state.update(**changes, frame=frame)


def begun(frame: Frame) -> Frame:
    """The same iteration at its first moment."""
    return replace(frame, position=positions(frame.step)[0]) if frame.step else frame


def counted(points: Sequence[SetBreakpoint], iteration: int) -> str:
    """The breakpoints that hold at an iteration, and how often they have: `accepted < 2 (2nd hit)`."""
    hits = [(point.label, point.hits.index(iteration) + 1) for point in points if iteration in point.hits]
    return "; ".join([f"{label} ({_ordinal(number)} hit)" for label, number in hits])


def _ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _index(places: tuple[PlaybackPosition, ...], position: PlaybackPosition) -> int:
    """Where a position is among all; one whose phase is over is the phase's last."""
    same = [i for i, place in enumerate(places) if place.phase == position.phase]
    exact = [i for i in same if places[i] == position]
    return (exact or same or [-1])[-1]
