"""The bar above the pictures: moving through a run and its phases, playing, stopping where a condition holds, files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

from ipywidgets import HTML, Button, Dropdown, FileUpload, HBox, Text, ToggleButtons, VBox, Widget

from speclab.drafters import setting_names
from speclab.errors import SettingsError
from speclab.lab.actions import Actions, action
from speclab.lab.controller import PAGE, TRACE
from speclab.lab.screen import Screen, Slot
from speclab.lab.state import LabState
from speclab.lab.widgets import button, on_change, set_if_changed, set_visible, toggle
from speclab.trace.conditions import EXAMPLE, STEP_FIELDS, Expression, parse
from speclab.trace.files import unpack_trace
from speclab.trace.records import PHASES as TIMED
from speclab.views.explain import plural
from speclab.views.markup import clip, escape, tag
from speclab.views.playback import PHASES
from speclab.views.race_chart import beats, race
from speclab.views.registry import VIEWS

SPEEDS = {"0.5×": 0.5, "1×": 1.0, "2×": 2.0, "4×": 4.0}
PLAYING = "playing"
BEAT = 0.15
"""Seconds that a beat of the race stays."""
SCALE = 1.6
"""Type and marks while presenting."""


class Breakpoint(NamedTuple):
    """A condition to choose from a list; its argument replaces {} in `expression`."""

    label: str
    expression: str
    default: int | float | str | None = None

    def parse(self, argument: float | str | None, settings: Any = ()) -> Expression:
        """The condition with this argument."""
        if self == ANY_EXPRESSION:
            return parse(str(argument), settings)
        return parse(self.expression.format(repr(argument)))


ANY_EXPRESSION = Breakpoint("the expression holds", "{}", EXAMPLE)
BREAKPOINTS = (
    Breakpoint("fewer accepted than", "accepted < {}", 2),
    Breakpoint("the tree has more nodes than", "nodes > {}", 24),
    ANY_EXPRESSION,
)


class Transport(VBox):
    """One row of buttons, which ask and return at once; what "⋯" unfolds stands below, in `unfolded`.

    `note`: what is pending, in words; it stands below Step.
    """

    def __init__(self, state: LabState, actions: Actions, screen: Screen, note: Widget) -> None:
        self._state, self._actions, ask, do = state, actions, actions.ask, actions.controller
        self.first = button("first", "|◀", "to the beginning", "", lambda: ask(do.goto, 0))
        self.back = button("back", "◀", "one iteration back (←)", "", lambda: ask(do.back))
        self.step = button("step", "Step", "", "", lambda: ask(do.step), "primary")
        self.next = button("next", "▶", "one iteration on in what is decoded (→)", "", lambda: ask(self._forward))
        self.last = button("last", "▶|", "to the newest iteration", "", lambda: ask(do.last))
        self.phases = Phases(state, actions)
        self.play = button("play", "▶ Play", "a moment after the other, decoding at the end", "", self._play)
        self.speed = Dropdown(options=SPEEDS, value=1.0, tooltip="moments per second").add_class("speclab-speed")
        self.run = button("run", "Run", "decode to the end", "", lambda: ask(do.run))
        self.live = button("live", "Run live", "the models take over from the recording", "", lambda: ask(do.live))
        self.until = RunUntil(state, actions)
        self.stop = button("stop", "■", "stop; what was decoded stays (Esc)", "", actions.stop)
        self.present = toggle(
            "present", "Present", "full width and large type; Esc ends it",
            lambda wanted: ask(self._scale, SCALE if wanted else 1.0),
        )  # fmt: skip
        self.more = toggle(
            "more",
            "⋯",
            "save and open files, inject a fault and check a run, race against plain decoding",
            self._show_more,
        )
        self.note, self._beat = note, 0
        key = lambda frame: (frame.trace, self._beat)  # noqa: E731
        self.race = Slot(screen, "race-beats", lambda frame: race(frame.trace, self._beat), key)
        self.unfolded = VBox().add_class("speclab-unfolded")
        groups = [
            [self.first, self.back, self.step, self.next, self.last], [self.phases], [self.play, self.speed],
            [self.live, self.run, *self.until.controls, self.stop], [self.present, self.more],
        ]  # fmt: skip
        row = HBox([HBox(group).add_class("speclab-group") for group in groups]).add_class("speclab-bar")
        super().__init__([row, note, self.until], _dom_classes=["speclab-transport"])
        on_change(self.speed, lambda speed: self._play(speed) if state.busy == PLAYING else None)
        state.observe(self._draw, names=["pending", "refused", "busy", "frame"])
        self._draw()

    @cached_property
    def files(self) -> Files:
        """Saving and opening; made when it is first unfolded."""
        return Files(self._actions)

    def key(self, name: str) -> None:
        """What a key does while the lab has the focus and nothing is typed."""
        do, step = self._actions.controller, self._actions.controller.step
        wanted: dict[str, tuple[Any, ...]] = {
            "ArrowLeft": (do.back,), "ArrowRight": (self._forward,), " ": (step,), "apply": (step,),
            "[": (do.phase_by, -1), "]": (do.phase_by, 1),
        }  # fmt: skip
        if name == "Escape":
            if self.present.value and not self._state.busy:
                self.present.value = False
            else:
                self._actions.stop()
        elif name in wanted and not (self.step.disabled and wanted[name][0] == step):
            self._actions.ask(*wanted[name])

    @action()
    def _forward(self) -> None:
        state, do = self._state, self._actions.controller
        if state.cursor < len(state.trace.steps):
            do.goto(state.cursor + 1)
        else:
            state.status = "This is the end of what is decoded: Step goes on."

    def _play(self, speed: float | None = None) -> None:
        """Plays, at another speed too; a click while it plays pauses."""
        if self._state.busy == PLAYING and speed is None:
            self._actions.stop()
        else:
            self._actions.ask(self._actions.controller.play, speed or self.speed.value)

    def _show_more(self, wanted: bool) -> None:
        if wanted and not self.unfolded.children:
            race = lambda: self._actions.ask(self._run_race)  # noqa: E731
            run = button("race", "Race", "this run against plain decoding, a pass a beat", "", race)
            self.unfolded.children = [HBox([run, self.files]), self.race]
        set_visible(self.unfolded, wanted)

    @action("racing", yields=True)
    def _run_race(self) -> None:
        for beat in range(beats(self._state.trace) + 1):
            self._beat = beat
            self.race.update(self._state.frame)
            if self._actions.cancelled.wait(BEAT):
                return

    @action(key="scale")
    def _scale(self, scale: float) -> None:
        self._state.change_frame(room=replace(self._state.frame.room, scale=scale))

    def _draw(self, _: Any = None) -> None:
        state = self._state
        asked, does = state.frame.asked, "one iteration on: recorded, decoded before, or decoded now (Space)"
        does = "what was accepted, and why (Space)" if asked else state.refused or state.pending or does
        words = "Reveal" if asked else "Apply & step" if state.pending else "Step"
        set_if_changed(self.step, description=words, tooltip=does, disabled=bool(state.refused and not asked))
        set_visible(self.note, bool(state.pending or state.refused))
        set_visible(self.live, bool(state.trace.steps) and not state.frame.live)
        set_if_changed(self.play, description="❚❚ Pause" if state.busy == PLAYING else "▶ Play")


class Phases(HBox):
    """The phases of the iteration shown, and steps through its positions; no model runs."""

    def __init__(self, state: LabState, actions: Actions) -> None:
        self._state, self._actions, ask, do = state, actions, actions.ask, actions.controller
        self.back = button("phase-back", "‹", "the sub-step before ([)", "", lambda: ask(do.phase_by, -1))
        self.next = button("phase-next", "›", "the next sub-step (])", "", lambda: ask(do.phase_by, 1))
        self.names = ToggleButtons(options=PHASES, value=state.phase, tooltips=[_MEANINGS[name] for name in PHASES])
        self.names.add_class("speclab-phases")
        on_change(self.names, self._chosen)
        super().__init__([self.back, self.names, self.next], _dom_classes=["speclab-group"])
        state.observe(lambda _: set_if_changed(self.names, value=state.phase), names="frame")

    def _chosen(self, name: str | None) -> None:
        if name is not None and name != self._state.phase:  # drafting is entered at its first level
            self._actions.ask(self._actions.controller.phase, name, 1 if name == PHASES[0] else None)


_MEANINGS = {
    "draft": "who was expanded, with how many branches, and which gate stopped it",
    "flatten": "the tree in breadth-first order, and its mask",
    "verify": "the target's choice after every node",
    "accept": "the accept path from the root, one decision at a time",
    "commit": "the caches before and after",
    "learn": "what the drafter changed for the next iteration: an overview of the whole iteration",
}


class RunUntil(VBox):
    """The breakpoints: each as a button that says how often it held, and a row that adds another.

    `controls` stand in the bar: what unfolds the row, and runs to the nearest breakpoint in both directions. `hint`
    says what is wrong with a condition as it is typed, and names what an expression may.
    """

    def __init__(self, state: LabState, actions: Actions) -> None:
        self._state, self._actions, do = state, actions, actions.controller
        self.toggle = toggle("until", "until…", "the conditions at which a run stops", partial(set_visible, self))
        self.backward = button(
            "back-until", "◀", "back to where a condition held; no model runs", "", lambda: self._go(do.back_until)
        )
        self.forward = button("run-until", "▶", "decode until a condition holds", "", lambda: self._go(do.run_until))
        self.controls = [self.toggle, self.backward, self.forward]
        self.condition = Dropdown(
            options=[(point.label, i) for i, point in enumerate(BREAKPOINTS)], tooltip="a condition to stop at"
        ).add_class("speclab-condition")
        enter = "the number or the text of the condition; Enter runs until it holds"
        self.argument = Text(tooltip=enter).add_class("speclab-argument")
        self.add = button("add-breakpoint", "+ Add", "stop at this condition too", "", self._add)
        self.hint = HTML().add_class("speclab-hint")
        self.chips = HBox().add_class("speclab-chips")
        super().__init__([HBox([self.condition, self.argument, self.add, self.chips]), self.hint])
        self.add_class("speclab-breakpoints")
        set_visible(self, visible=False)
        on_change(self.condition, self._chosen)
        on_change(self.argument, lambda _: self._check())
        self.argument.on_msg(
            lambda _, said, __: self._go(do.run_until, add=True) if said.get("event") == "submit" else None
        )
        state.observe(lambda _: self._draw(), names="breakpoints")
        self._chosen(0)

    def read(self) -> Expression:
        """The condition as it stands; raises SettingsError where the argument is not of its type."""
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
        set_if_changed(self.add, disabled=bool(words))

    def _add(self) -> bool:
        """Whether what is written is a condition; it is one of the breakpoints then."""
        try:
            condition = self.read()
        except SettingsError:  # said in the hint
            set_if_changed(self.toggle, value=True)
            return False
        point = BREAKPOINTS[self.condition.value]
        words = "" if point == ANY_EXPRESSION else point.label, "" if point.default is None else self.argument.value
        self._actions.ask(self._actions.controller.add_breakpoint, condition, " ".join(words).strip())
        return True

    def _go(self, command: Callable[[], Any], *, add: bool = False) -> None:
        """Asks for the command; where there is no breakpoint yet, what is written becomes one."""
        if not (add or not self._state.breakpoints) or self._add():
            self._actions.ask(command)

    def _draw(self) -> None:
        """A button for each breakpoint."""
        points, chips = self._state.breakpoints, list(self.chips.children)
        labels = [point.label for point in points]
        if [chip.label for chip in chips] != labels:
            for chip in chips:
                chip.close()
            chips = [self._chip(label) for label in labels]
            self.chips.children = chips
            named = f"until {clip(labels[0], 20)}" + f" +{len(labels) - 1}" * (len(labels) > 1) if labels else "until…"
            set_if_changed(self.toggle, description=named)
        for chip, point in zip(chips, points, strict=True):
            set_if_changed(chip, description=f"{point.label} · {plural(len(point.hits), 'hit')} ✕")

    def _chip(self, label: str) -> Button:
        take = self._actions.controller.remove_breakpoint
        made = button("breakpoint", label, f"no longer stop at: {label}", "", lambda: self._actions.ask(take, label))
        made.label = label
        return made


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
    rows = [(", ".join(STEP_FIELDS), "of the iteration")]
    rows.append((", ".join(f"seconds.{phase}" for phase in TIMED), "seconds of one phase"))
    rows.append(("previous.accepted, …", "any of these of the iteration before, as in: route != previous.route"))
    names = [tag("div", tag("code", escape(name)), " ", escape(meaning)) for name, meaning in rows]
    signs = "Between them: < <= == != >= > in, not in, + -, and, or, not, numbers, texts in quotes."
    settings = f"Settings, also as settings.depth where a name above is the same: {', '.join(setting_names())}."
    return tag(
        "details", tag("summary", "names"), tag("div", *names, class_="sl-names"),
        tag("div", escape(signs)), tag("div", escape(settings)),
    )  # fmt: skip


_NAMES = {TRACE: "trace, to open again", PAGE: "page, to read anywhere"}
_ENDINGS = {TRACE: ".json.gz", PAGE: ".html"}


class Files(HBox):
    """What to save and where, and what to open."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        views = [(view.heading, name) for name, view in VIEWS.items()]
        self.what = Dropdown(
            options=[*((label, name) for name, label in _NAMES.items()), *views],
            tooltip="what to save", description="save",
        )  # fmt: skip
        self.path = Text(tooltip="a path on the machine that runs the notebook; a picture ends in .html, .svg or .png")
        self.path.add_class("speclab-path")
        ask, do, path = actions.ask, actions.controller, self.path
        self.save_button = button(
            "save", "Save", "write the file", "", lambda: ask(do.save, self.what.value, path.value.strip())
        )
        self.open_button = button(
            "open", "Open", "show the trace at this path; no model runs", "",
            lambda: ask(do.open_trace, path.value.strip()),
        )  # fmt: skip
        self.upload = FileUpload(accept=".gz", description="Upload", tooltip="show a trace from your computer")
        self.upload.add_class("speclab-upload")
        on_change(self.what, self._chosen)
        on_change(self.upload, lambda _: self._uploaded())
        self._chosen(TRACE)
        super().__init__([self.what, self.path, self.save_button, self.open_button, self.upload])
        self.add_class("speclab-files")

    def _chosen(self, what: str) -> None:
        name = f"run{_ENDINGS[what]}" if what in _ENDINGS else f"{what}.html"
        set_if_changed(self.path, value=name)

    def _uploaded(self) -> None:
        for file in self.upload.value:
            name, content = file["name"], bytes(file["content"])
            self._actions.ask(self._actions.controller.open_trace, partial(unpack_trace, content, name), name)
        set_if_changed(self.upload, value=())
