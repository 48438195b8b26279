"""The row that moves through a run: first, back, step, last, run, run until, stop, and a slider over iterations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ipywidgets import HTML, Button, Dropdown, HBox, IntSlider, Text, ToggleButtons, Widget

from speclab.drafters import setting_names
from speclab.errors import SettingsError
from speclab.lab.commands import Commands
from speclab.lab.state import LabState
from speclab.lab.sync import assign, at_once, on_change, show
from speclab.trace.conditions import ANY_EXPRESSION, BREAKPOINTS, STEP_FIELDS, Breakpoint, Expression
from speclab.trace.records import PHASES as TIMED
from speclab.views.markup import tag
from speclab.views.tokens import escape
from speclab.views.walk import PHASES


def button(name: str, description: str, tooltip: str, icon: str, click: Callable[[], Any], style: str = "") -> Button:
    """A button found by the class `speclab-name`."""
    made = Button(description=description, tooltip=tooltip, icon=icon, button_style=style)
    made.add_class(f"speclab-{name}")
    made.on_click(lambda _: click())
    return made


class Transport(HBox):
    """Buttons, what `more` there is beside them, and the slider; each asks and returns at once."""

    def __init__(self, state: LabState, commands: Commands, *more: Widget) -> None:
        self._state, self._commands = state, commands
        self.first = button("first", "", "to the beginning", "fast-backward", lambda: commands.goto(0))
        self.back = button("back", "Back", "one iteration back; no model runs", "step-backward", commands.back)
        self.step = button("step", "Step", "decode one iteration", "step-forward", commands.step, "primary")
        self.last = button("last", "", "to the newest iteration", "fast-forward", commands.last)
        self.run = button("run", "Run", "decode to the end", "play", commands.run)
        self.stop = button("stop", "Stop", "stop; what was decoded stays", "stop", commands.stop, "warning")
        self.cursor = IntSlider(
            0, 0, 0, description="iteration", tooltip="iterations shown; no model runs", readout=False
        )
        self.cursor.add_class("speclab-cursor")
        on_change(self.cursor, self._slid)
        moves = HBox([self.first, self.back, self.step, self.last])
        moves.add_class("speclab-group")
        runs = HBox([self.run, self.stop])
        runs.add_class("speclab-group")
        self.until = RunUntil(commands)
        super().__init__([moves, runs, *more, self.until, self.cursor, self.until.hint])
        self.add_class("speclab-transport")
        state.observe(self._draw, names="frame")
        self._draw()

    def _slid(self, index: int) -> None:
        if index != self._state.cursor:
            self._commands.goto(index)

    def _draw(self, _: Any = None) -> None:
        state, count = self._state, len(self._state.trace.steps)
        # A browser cuts a value to the range it knows: so the range grows before the value, and shrinks after it.
        shown = {"value": state.cursor, "description": f"{state.cursor} of {count}"}
        for target in (shown, {"max": count}) if count < self.cursor.max else ({"max": count}, shown):
            at_once(self.cursor, **target)


class RunUntil(HBox):
    """A condition, its argument if it takes one, and runs to it in both directions.

    `hint`, below the row, says what is wrong with the argument once it is typed, and names what an expression may.
    """

    def __init__(self, commands: Commands) -> None:
        self.condition = Dropdown(
            options=[(point.label, i) for i, point in enumerate(BREAKPOINTS)],
            tooltip="the condition to run until",
            description="until",
        )
        self.condition.add_class("speclab-condition")
        self.argument = Text(tooltip="the number or the text of the condition", continuous_update=True)
        self.argument.add_class("speclab-argument")
        self.hint = HTML()
        self.hint.add_class("speclab-hint")
        self.forward = button(
            "run-until",
            "Run until",
            "decode until the condition holds",
            "flag-checkered",
            lambda: self._go(commands.run),
        )
        self.backward = button(
            "back-until", "Back until", "back to the last iteration where it held; no model runs", "reply",
            lambda: self._go(commands.back),
        )  # fmt: skip
        self._ask = commands.ask
        on_change(self.condition, self._chosen)
        on_change(self.argument, lambda _: self._check())
        self._chosen(0)
        super().__init__([self.forward, self.condition, self.argument, self.backward])
        self.add_class("speclab-group")

    def read(self) -> Expression:
        """The condition as it stands.

        Raises:
            SettingsError: the argument is not of the condition's type.
        """
        point = BREAKPOINTS[self.condition.value]
        settings = setting_names() if point == ANY_EXPRESSION else ()
        return point.parse(_parse(point, self.argument.value), settings)

    def _chosen(self, index: int) -> None:
        point = BREAKPOINTS[index]
        show(self.argument, point.default is not None)
        assign(self.argument, value="" if point.default is None else str(point.default))
        assign(self.argument.layout, width="min(320px, 60vw)" if point == ANY_EXPRESSION else None)
        self._check()

    def _check(self) -> None:
        """Says at once what is wrong with the argument; an expression gets its names below it."""
        said = ""
        try:
            self.read()
        except SettingsError as error:
            said = tag("div", escape(error), class_="sl-bad", role="alert")
        named = BREAKPOINTS[self.condition.value] == ANY_EXPRESSION
        assign(self.hint, value=said + _names() if named else said)
        show(self.hint, bool(said) or named)

    def _go(self, command: Callable[[Expression], Any]) -> None:
        try:
            until = self.read()
        except SettingsError as error:
            failure = error
            self._ask(lambda: _raise(failure))
            return
        command(until)


def _parse(point: Breakpoint, written: str) -> int | float | str:
    """The argument, of the type of its default."""
    if point.default is None or isinstance(point.default, str):
        return written
    try:
        return int(written) if isinstance(point.default, int) else float(written)
    except ValueError:
        wanted = "whole number" if isinstance(point.default, int) else "number"
        raise SettingsError(f"{point.label}: write a {wanted}, not {written!r}.") from None


@cache
def _names() -> str:
    """What an expression may name, folded."""
    rows = [(name, field.meaning) for name, field in STEP_FIELDS.items()]
    rows.append((", ".join(f"seconds.{phase}" for phase in TIMED), "seconds of one phase"))
    rows.append(("previous.accepted, …", "any of these of the iteration before, as in: route != previous.route"))
    names = [tag("div", tag("code", escape(name)), " ", escape(meaning)) for name, meaning in rows]
    signs = "Between them: < <= == != >= > in, not in, + -, and, or, not, numbers, texts in quotes."
    settings = f"Settings, also as settings.depth where a name above is the same: {', '.join(setting_names())}."
    return tag(
        "details", tag("summary", "names of an expression"), tag("div", *names, class_="sl-names"),
        tag("div", escape(signs)), tag("div", escape(settings)),
    )  # fmt: skip


class Phases(HBox):
    """The phases of the iteration shown, and steps through its moments; no model runs."""

    def __init__(self, state: LabState, commands: Commands) -> None:
        self._state, self._commands = state, commands
        self.back = button("phase-back", "", "the moment before", "chevron-left", lambda: commands.phase_by(-1))
        self.next = button("phase-next", "", "the next moment", "chevron-right", lambda: commands.phase_by(1))
        self.names = ToggleButtons(options=PHASES, value=state.phase, tooltips=[_TOLD[name] for name in PHASES])
        self.names.add_class("speclab-phases")
        on_change(self.names, self._chosen)
        super().__init__([self.back, self.names, self.next])
        self.add_class("speclab-group")
        state.observe(self._draw, names="frame")

    def _chosen(self, name: str | None) -> None:
        if name is not None and name != self._state.phase:
            self._commands.phase(name)

    def _draw(self, _: Any = None) -> None:
        assign(self.names, value=self._state.phase)


_TOLD = {
    "draft": "who was expanded, with how many branches, and which gate stopped it",
    "flatten": "the tree in breadth-first order, and its mask",
    "verify": "the target's choice after every node",
    "accept": "the walk from the root, one decision at a time",
    "commit": "the caches before and after",
    "adapt": "what the drafter changed for the next iteration: the whole iteration",
}


def _raise(error: Exception) -> None:
    raise error
