"""The tab "Sweep": settings over their range, and every strategy, on the text shown; drawn while the replays run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from ipywidgets import HTML, BoundedIntText, Checkbox, Dropdown, HBox, Text

from speclab.analysis.curves import COUNT, GRID, MOST, Curve, every_strategy, span, sweep, variable
from speclab.errors import CancelledError, SettingsError, SpeclabError
from speclab.lab.actions import Actions
from speclab.lab.decoding import REDRAW_SECONDS
from speclab.lab.form import main_fields
from speclab.lab.screen import Screen, Slot, TabPanel, placeholder
from speclab.lab.state import LabState
from speclab.lab.widgets import button, heading, on_change, set_if_changed, set_visible
from speclab.lab.worker import Worker
from speclab.views.figures import Drawing
from speclab.views.markup import escape, tag
from speclab.views.registry import Frame
from speclab.views.setting_curve import curve_drawing, point_words, spaced

if TYPE_CHECKING:
    from speclab.analysis.replay import Replayer
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session

ALL = NONE = ""
_ALL, _ALONE = ("every strategy", ALL), ("one setting alone", NONE)
_log = logging.getLogger(__name__)


class RangePicker(HBox):
    """A setting, and its range: empty ends are as far as the setting goes."""

    def __init__(self, number: int, names: list[tuple[str, str]], count: int) -> None:
        self.setting = Dropdown(options=names, description="setting" if number == 1 else "and", tooltip="what to vary")
        self.low, self.high = (
            Text(placeholder=which, description=word, tooltip=f"the {which} value; empty: as far as it goes")
            for which, word in (("lowest", "from"), ("highest", "to"))
        )
        self.count = BoundedIntText(count, min=2, max=MOST, description="points", tooltip="values to replay")
        super().__init__([self.setting, self.low, self.high, self.count], _dom_classes=["speclab-range"])
        self.add_class(f"speclab-range-{number}")
        on_change(self.setting, lambda _: self.clear())

    def clear(self) -> None:
        """Forgets the ends: they were another setting's."""
        for end in (self.low, self.high):
            set_if_changed(end, value="")

    def read(self, strategy: Strategy) -> tuple[Any, ...]:
        """The values; raises SettingsError where an end is no number, or there are no two values."""
        name = self.setting.value
        return span(strategy, name, _number(name, self.low.value), _number(name, self.high.value), self.count.value)


class CurvesPanel(TabPanel):
    """Made when the tab is first looked at. Replays run on a thread of their own: Step and Run go on meanwhile.

    A replay needs what the session holds at its beginning and nothing that changes later, so the run shown may change;
    what is drawn stays, and says what it is of.
    """

    def __init__(self, state: LabState, actions: Actions, screen: Screen) -> None:
        self._state, self._actions, self._visible = state, actions, False
        self.worker = Worker(lambda: None)
        actions.workers.append(self.worker)
        self._known: tuple[Session, int, bool, Replayer] | None = None
        self.picture = Slot(screen, "curves", self._draw, lambda _: (state.curve,))
        super().__init__([], _dom_classes=["speclab-curves-panel"])
        state.observe(self._other_run, names="applied")
        state.observe(lambda _: self._names(), names="change")
        state.observe(lambda _: self.update(state.frame), names="curve")

    def make(self) -> None:
        """The controls."""
        self.first, self.second = RangePicker(1, [_ALL], COUNT), RangePicker(2, [_ALONE], GRID)
        self.go = button("sweep", "Draw", "replay the text with each value; no target runs", "line-chart", self.draw,
                         "primary")  # fmt: skip
        self.end = button("sweep-stop", "Cancel", "stop; what is drawn stays", "stop", self.worker.cancel)
        self.exact = Checkbox(
            value=False, description="ask the target for what was not kept", indent=False,
            tooltip="tables of transitions learn from rejected rows too: each is run once, and no replay is inexact",
        )  # fmt: skip
        self.progress = HTML().add_class("speclab-sweep-progress")
        self.point = Dropdown(options=[], description="use", tooltip="a point: choose one, or click in the picture")
        self.point.add_class("speclab-point")
        self.use = button(
            "use-point", "Use this: fork at the beginning", "decodes the text anew with these settings, in a fork",
            "code-fork", self._use,
        )  # fmt: skip
        self.chosen = HBox([self.point, self.use]).add_class("speclab-files")
        bar = HBox([self.go, self.end, self.exact, self.progress]).add_class("speclab-files")
        for picker in (self.first, self.second):
            on_change(picker.setting, lambda _: self._fit())
        on_change(self.second.setting, lambda name: set_if_changed(self.first.count, value=GRID if name else COUNT))
        self.children = [
            heading("Other settings on this text"), self.first, self.second, bar, self.picture, self.chosen,
        ]  # fmt: skip
        set_visible(self.chosen, visible=False)
        set_visible(self.end, visible=False)

    def set_visible(self, visible: bool) -> None:
        """Says whether the panel is on the screen."""
        self._visible = visible
        super().set_visible(visible)
        self._names()

    @property
    def strategy(self) -> Strategy | None:
        """The one whose settings are varied: that of the form."""
        change, applied = self._state.change, self._state.applied
        return change.after if change is not None else applied.strategy if applied is not None else None

    def draw(self) -> None:
        """Begins to replay what the pickers say; what still runs gives way."""
        self.worker.submit(self._work, "sweep", yields=True)

    def choose(self, index: int) -> None:
        """Marks the point of this number."""
        if self.children and index in [value for _, value in self.point.options]:
            set_if_changed(self.point, value=index)

    # On a thread of its own.

    def _work(self) -> None:
        found: Curve | None = None
        drawn, failed = 0.0, ""
        set_visible(self.end, visible=True)
        try:
            for found in self._curves():
                if monotonic() - drawn > REDRAW_SECONDS:
                    drawn = monotonic()
                    self._say(f"{len(found.points)} of {found.total} replays")
                    self._state.update(curve=found)
        except CancelledError:
            failed = "" if found else "Cancelled before the first replay was done."
            found = found and replace(found, ended="Cancelled: these are the replays that were done.")
        except SpeclabError as error:
            said = str(error).rstrip(".")
            failed = f"{said[:1].upper()}{said[1:]}."
        except Exception as error:  # noqa: BLE001  # a bug too must be seen
            _log.exception("the sweep failed")
            failed = f"Something went wrong inside speclab ({type(error).__name__}: {error})."
        self._offer(None if failed else found)
        self._say("")
        set_visible(self.end, visible=False)
        self._state.update(curve=failed or found)

    def _curves(self) -> Iterator[Curve]:
        strategy, session = self.strategy, self._actions.controller.session
        if not self._state.frame.live and self._state.trace.steps:
            raise SettingsError("A recording holds no models: Run live lets them take over, then draw.")
        if session is None or strategy is None or not session.steps:
            raise SettingsError("No text is decoded yet: Step or Run decodes it, then it can be replayed.")
        first, second = self.first, self.second
        ranges = {first.setting.value: first.read(strategy)} if first.setting.value != ALL else {}
        if ranges and second.setting.value != NONE:
            if second.setting.value in ranges:
                raise SettingsError(f"{spaced(second.setting.value)} is chosen twice: choose two settings, or one.")
            ranges[second.setting.value] = second.read(strategy)
        self._say("Preparing the text…")
        replayer = self._replayer(session)
        if ranges:
            return sweep(replayer, strategy, ranges, self._check)
        return every_strategy(replayer, strategy, self._check)

    def _replayer(self, session: Session) -> Replayer:
        """Kept for as long as the text is the same: its replays share what the draft said."""
        key = session, len(session.steps), self.exact.value
        known = self._known
        if known is None or known[:3] != key:
            from speclab.analysis.replay import Replayer

            known = self._known = *key, Replayer(session, ask_target=self.exact.value)
        return known[3]

    def _check(self) -> None:
        if self.worker.cancelled.is_set():
            raise CancelledError("Cancelled.")

    def _say(self, words: str) -> None:
        set_if_changed(self.progress, value=tag("span", escape(words), class_="sl-muted", role="status"))

    def _offer(self, found: Curve | None) -> None:
        """The points to choose from, told once all are there."""
        points = () if found is None else [(point_words(found, p), found.points.index(p)) for p in found.replayed]
        best = None if found is None or found.best is None else found.points.index(found.best)
        with self.point.hold_sync():
            set_if_changed(self.point, options=points)
            set_if_changed(self.point, value=best)
        set_visible(self.chosen, visible=bool(points))

    def _use(self) -> None:
        found, index = self._state.curve, self.point.value
        if isinstance(found, Curve) and index is not None:
            self._actions.ask(self._actions.controller.restart, found.points[index].strategy)

    # What stands in the pickers.

    def _other_run(self, _: Any) -> None:
        self._known = None  # it holds on to the former session, and so to its caches
        found, applied = self._state.curve, self._state.applied
        if isinstance(found, Curve) and any(point.strategy == applied.strategy for point in found.points):
            self._state.update(curve=replace(found, strategy=applied.strategy))
        self._names()

    def _names(self) -> None:
        if not self._visible or not self.children:
            return
        strategy = self.strategy
        names = [] if strategy is None else variable(strategy)
        main = main_fields(type(strategy)) if strategy is not None else []
        settings = [(spaced(name), name) for name in sorted(names, key=lambda name: name not in main)]
        for picker, none in ((self.first, _ALL), (self.second, _ALONE)):
            options, kept = (none, *settings), picker.setting.value
            if options != tuple(picker.setting.options):
                with picker.setting.hold_sync():
                    picker.setting.options = options
                    picker.setting.value = kept if kept in {value for _, value in options} else none[1]
        self._fit()

    def _fit(self) -> None:
        """Shows the ends of a number, and the second setting where there is a first."""
        strategy = self.strategy
        one = self.first.setting.value != ALL
        set_visible(self.second, one)
        for picker in (self.first, self.second):
            name = picker.setting.value
            numeric = strategy is not None and isinstance(getattr(strategy, name, None), float | int)
            ranged = numeric and not isinstance(getattr(strategy, name), bool)
            for control in (picker.low, picker.high, picker.count):
                set_visible(control, ranged)

    def _draw(self, _: Frame) -> Drawing:
        found = self._state.curve
        if isinstance(found, Curve):
            return curve_drawing(found)
        if found:
            return tag("p", tag("b", "Not drawn. "), escape(found), class_="sl-why", role="alert")
        return placeholder(
            "Choose a setting, or every strategy, and press Draw: the text shown is replayed with each value. "
            "No target runs."
        )


def _number(name: str, written: str) -> float | None:
    if not written.strip():
        return None
    try:
        return float(written)
    except ValueError:
        raise SettingsError(f"{spaced(name)}: {written!r} is no number: write one, or leave it empty.") from None
