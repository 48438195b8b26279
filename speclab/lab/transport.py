"""The rows above the views: moving through a run, what happened in words, saving and opening."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from ipywidgets import (
    HTML,
    Button,
    Dropdown,
    FileUpload,
    HBox,
    IntSlider,
    Text,
    ToggleButton,
    ToggleButtons,
    Widget,
)

from speclab.drafters import setting_names
from speclab.errors import SettingsError
from speclab.lab.actions import Actions
from speclab.lab.controller import PAGE, TRACE
from speclab.lab.state import LabState
from speclab.lab.widgets import button, on_change, set_if_changed, set_visible
from speclab.trace.conditions import ANY_EXPRESSION, BREAKPOINTS, STEP_FIELDS, Breakpoint, Expression
from speclab.trace.files import unpack_trace
from speclab.trace.records import PHASES as TIMED
from speclab.views.markup import escape, tag
from speclab.views.playback import PHASES
from speclab.views.registry import VIEWS


class Transport(HBox):
    """Buttons, what `more` there is beside them, and the slider; each asks and returns at once."""

    def __init__(self, state: LabState, actions: Actions, *more: Widget) -> None:
        self._state, self._actions, ask, do = state, actions, actions.ask, actions.controller
        self.first = button("first", "", "to the beginning", "fast-backward", lambda: ask(do.goto, 0))
        self.back = button("back", "Back", "one iteration back; no model runs", "step-backward", lambda: ask(do.back))
        self.step = button("step", "Step", "decode one iteration", "step-forward", lambda: ask(do.step), "primary")
        self.last = button("last", "", "to the newest iteration", "fast-forward", lambda: ask(do.last))
        self.run = button("run", "Run", "decode to the end", "play", lambda: ask(do.run))
        self.stop = button("stop", "Stop", "stop; what was decoded stays", "stop", actions.stop, "warning")
        self.cursor = IntSlider(
            0, 0, 0, description="iteration", tooltip="iterations shown; no model runs", readout=False
        )
        self.cursor.add_class("speclab-cursor")
        on_change(self.cursor, self._slid)
        moves = HBox([self.first, self.back, self.step, self.last])
        moves.add_class("speclab-group")
        runs = HBox([self.run, self.stop])
        runs.add_class("speclab-group")
        self.until = RunUntil(actions)
        super().__init__([moves, runs, *more, self.until, self.cursor, self.until.hint])
        self.add_class("speclab-transport")
        state.observe(self._draw, names="frame")
        self._draw()

    def key(self, name: str) -> None:
        """What a key does while the lab has the focus and nothing is typed."""
        do = self._actions.controller
        wanted: dict[str, tuple[Any, ...]] = {
            "ArrowLeft": (do.back,), "ArrowRight": (do.goto, self._state.cursor + 1), " ": (do.step,),
            "[": (do.phase_by, -1), "]": (do.phase_by, 1), "apply": (do.apply,),
        }  # fmt: skip
        if name == "Escape":
            self._actions.stop()
        elif name in wanted:
            self._actions.ask(*wanted[name])

    def _slid(self, index: int) -> None:
        if index != self._state.cursor:
            self._actions.ask(self._actions.controller.goto, index)

    def _draw(self, _: Any = None) -> None:
        state, count = self._state, len(self._state.trace.steps)
        # A browser cuts a value to the range it knows: so the range grows before the value, and shrinks after it.
        shown = {"value": state.cursor, "description": f"{state.cursor} of {count}"}
        for target in (shown, {"max": count}) if count < self.cursor.max else ({"max": count}, shown):
            set_if_changed(self.cursor, at_once=True, **target)


class RunUntil(HBox):
    """A condition, its argument if it takes one, and runs to it in both directions.

    `hint`, below the row, says what is wrong with the argument once it is typed, and names what an expression may.
    """

    def __init__(self, actions: Actions) -> None:
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
            lambda: self._go(actions.controller.run),
        )
        self.backward = button(
            "back-until", "Back until", "back to the last iteration where it held; no model runs", "reply",
            lambda: self._go(actions.controller.back),
        )  # fmt: skip
        self._actions = actions
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
        set_visible(self.argument, point.default is not None)
        set_if_changed(self.argument, value="" if point.default is None else str(point.default))
        set_if_changed(self.argument.layout, width="min(320px, 60vw)" if point == ANY_EXPRESSION else None)
        self._check()

    def _check(self) -> None:
        """Says at once what is wrong with the argument; an expression gets its names below it."""
        words = ""
        try:
            self.read()
        except SettingsError as error:
            words = tag("div", escape(str(error)), class_="sl-bad", role="alert")
        named = BREAKPOINTS[self.condition.value] == ANY_EXPRESSION
        set_if_changed(self.hint, value=words + _names() if named else words)
        set_visible(self.hint, bool(words) or named)

    def _go(self, command: Callable[[Expression], Any]) -> None:
        try:
            until = self.read()
        except SettingsError:
            self._actions.ask(self.read)  # read again there, what is wrong ends in the error panel
        else:
            self._actions.ask(command, until)


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
    """The phases of the iteration shown, and steps through its positions; no model runs."""

    def __init__(self, state: LabState, actions: Actions) -> None:
        self._state, self._actions, ask, do = state, actions, actions.ask, actions.controller
        self.back = button("phase-back", "", "the previous sub-step", "chevron-left", lambda: ask(do.phase_by, -1))
        self.next = button("phase-next", "", "the next sub-step", "chevron-right", lambda: ask(do.phase_by, 1))
        self.names = ToggleButtons(options=PHASES, value=state.phase, tooltips=[_MEANINGS[name] for name in PHASES])
        self.names.add_class("speclab-phases")
        on_change(self.names, self._chosen)
        super().__init__([self.back, self.names, self.next])
        self.add_class("speclab-group")
        state.observe(self._draw, names="frame")

    def _chosen(self, name: str | None) -> None:
        if name is not None and name != self._state.phase:
            self._actions.ask(self._actions.controller.phase, name)

    def _draw(self, _: Any = None) -> None:
        set_if_changed(self.names, value=self._state.phase)


_MEANINGS = {
    "draft": "who was expanded, with how many branches, and which gate stopped it",
    "flatten": "the tree in breadth-first order, and its mask",
    "verify": "the target's choice after every node",
    "accept": "the accept path from the root, one decision at a time",
    "commit": "the caches before and after",
    "adapt": "what the drafter changed for the next iteration: an overview of the whole iteration",
}


_NAMES = {TRACE: "trace, to open again", PAGE: "page, to read anywhere"}
_ENDINGS = {TRACE: ".json.gz", PAGE: ".html"}


class Files(HBox):
    """A row that `toggle` shows: what to save and where, and what to open."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self.toggle = ToggleButton(description="Files", icon="save", tooltip="save the run or a view, open a trace")
        self.toggle.add_class("speclab-files-toggle")
        views = [(view.heading, name) for name, view in VIEWS.items()]
        self.what = Dropdown(
            options=[*((label, name) for name, label in _NAMES.items()), *views],
            tooltip="what to save", description="save",
        )  # fmt: skip
        self.path = Text(tooltip="a path on the machine that runs the notebook; pictures end in .svg or .png")
        self.path.add_class("speclab-path")
        self.save_button: Button = button("save", "Save", "write the file", "save", self._save)
        self.open_button: Button = button(
            "open", "Open", "show the trace at this path; no model runs", "folder-open", self._open
        )
        self.upload = FileUpload(accept=".gz", description="Upload", tooltip="show a trace from your computer")
        self.upload.add_class("speclab-upload")
        on_change(self.what, self._chosen)
        on_change(self.upload, lambda _: self._uploaded())
        on_change(self.toggle, lambda wanted: set_visible(self, wanted))
        self._chosen(TRACE)
        note = HTML('<span class="sl-muted">PNG is drawn with the fonts of that machine; SVG needs none</span>')
        super().__init__([self.what, self.path, self.save_button, self.open_button, self.upload, note])
        self.add_class("speclab-files")
        set_visible(self, visible=False)

    def _chosen(self, what: str) -> None:
        name = f"run{_ENDINGS[what]}" if what in _ENDINGS else what + VIEWS[what].ending
        set_if_changed(self.path, value=name)

    def _save(self) -> None:
        self._actions.ask(self._actions.controller.save, self.what.value, self.path.value.strip())

    def _open(self) -> None:
        self._actions.ask(self._actions.controller.open_trace, self.path.value.strip())

    def _uploaded(self) -> None:
        for file in self.upload.value:
            name, content = file["name"], bytes(file["content"])
            self._actions.ask(self._actions.controller.open_trace, partial(unpack_trace, content, name), name)
        set_if_changed(self.upload, value=())
