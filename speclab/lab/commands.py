"""What a person can ask of the lab. Buttons ask and return at once; the lab's methods ask and wait."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from speclab.drafters import setting_names
from speclab.errors import CancelledError, SettingsError, SpeclabError
from speclab.lab.choices import Choices
from speclab.lab.comparer import Comparer
from speclab.lab.player import Player
from speclab.lab.run_commands import RunCommands
from speclab.lab.saving import save
from speclab.lab.state import Frame, LabState
from speclab.lab.worker import Worker
from speclab.trace.conditions import Condition, compiled, stateful
from speclab.trace.files import load_trace
from speclab.trace.records import Lookup, Step, Trace
from speclab.views.summary import moment_summary, summary
from speclab.views.walk import PHASES, WHOLE, Moment, moments

_log = logging.getLogger(__name__)


class Commands:
    """Every action of the lab, queued for its worker; a failure ends in the error panel and in the log.

    Args:
        state: what is shown.
        player: what talks to the session.
        worker: where it runs.
        choices: reads the pickers.
        follow: writes them, where another run is switched to.
    """

    def __init__(
        self,
        state: LabState,
        player: Player,
        worker: Worker,
        choices: Callable[[], Choices],
        follow: Callable[[Choices], None],
    ) -> None:
        self._state, self._player, self._worker, self._choices = state, player, worker, choices
        self.runs = RunCommands(state, player, Comparer(state, player, worker.cancelled), self.ask, choices, follow)

    def ask(self, work: Callable[[], Any], name: str = "", key: str = "", *, yields: bool = False) -> Future[Any]:
        """Queues any work; its result is None where it failed."""
        return self._worker.submit(lambda: self._guarded(work, name), key, yields=yields)

    def stop(self) -> None:
        """Ends what runs and forgets what waits, leaving a load behind; what was decoded stays."""
        self._worker.cancel()

    def step(self) -> Future[Any]:
        """One iteration on."""
        return self.ask(lambda: self._player.step(self._choices()), "decoding")

    def run(self, until: Condition | None = None) -> Future[Any]:
        """Iterations until the condition holds or the text ends."""
        return self.ask(lambda: self._player.run(self._choices(), until), "decoding", yields=True)

    def back(self, until: Condition | None = None) -> Future[Any]:
        """One iteration back, or back to the last one before it for which the condition holds."""
        return self.ask(lambda: self._back(until))

    def goto(self, index: int) -> Future[Any]:
        """The text after `index` iterations."""
        return self.ask(lambda: self._player.goto(index), key="goto")

    def last(self) -> Future[Any]:
        """The newest iteration decoded."""
        return self.ask(lambda: self._player.goto(len(self._state.trace.steps)), key="goto")

    def phase(self, name: str, level: int | None = None) -> Future[Any]:
        """The iteration as it stands when this phase is over, or after a level of drafting or a decision of it."""
        return self.ask(lambda: self._phase(name, level), key="phase")

    def phase_by(self, count: int) -> Future[Any]:
        """The next (1) or the previous (-1) moment; past the ends, of the neighbouring iteration."""
        return self.ask(lambda: self._phase_by(count))

    def select(self, node: int | None) -> Future[Any]:
        """Selects a node in every view; None selects none."""
        return self.ask(lambda: self._select(node), key="select")

    def pin(self) -> Future[Any]:
        """Keeps the iteration shown beside those to come; once more lets it go."""
        return self.ask(self._pin)

    def measure(self) -> Future[Any]:
        """The tokens per iteration of the strategy's baselines over the text shown."""
        return self.ask(self._player.measure, "measuring the baselines", yields=True)

    def regret(self) -> Future[Any]:
        """What each tree of the iteration shown has accepted, by verifying them all."""
        return self.ask(self._player.regret, "verifying both trees", key="regret")

    @property
    def has_baselines(self) -> bool:
        """Whether the session's strategy names any."""
        session = self._player.session
        return session is not None and bool(session.strategy.baselines())

    def lookup(self, frame: Frame, written: str) -> Lookup | None:
        """What the drafter had learned of a token; at once, so on the worker's thread alone."""
        return self._player.lookup(frame, written)

    def prepare(self) -> Future[Any]:
        """Loads the models that the pickers name, before the first step asks for them."""
        return self.ask(lambda: self._player.models.load(self._choices().models), "loading", key="prepare")

    def start(self) -> Future[Any]:
        """A new session of what the pickers say."""
        return self.ask(lambda: self._player.start(self._choices()), "loading", key="apply")

    def apply(self) -> Future[Any]:
        """Brings about what the pickers say: forks at the cursor, or starts anew."""
        return self.ask(lambda: self._player.apply(self._choices()), "loading", key="apply")

    def fork(self, **changes: Any) -> Future[Any]:
        """Goes on from the cursor with other settings."""
        return self.ask(lambda: self._player.fork(**changes), "forking", key="apply")

    def save(self, what: str, path: str | os.PathLike[str]) -> Future[Any]:
        """Writes the run, or a view of the iteration shown (see `speclab.lab.saving.save`)."""
        return self.ask(lambda: self._save(what, path), "saving")

    def open_trace(self, source: str | os.PathLike[str] | Callable[[], Trace], name: str = "") -> Future[Any]:
        """Shows a recorded run, from a path or from what reads it; no model runs."""
        read = source if callable(source) else lambda: load_trace(source)
        return self.ask(lambda: self._player.open(read(), name or str(source)), "opening")

    def _save(self, what: str, path: str | os.PathLike[str]) -> Path:
        if not str(path):
            raise SettingsError("No path is named: write one, such as run.json.gz.")
        written = save(self._state.frame, what, path)
        self._state.status = f"Saved {written}."
        return written

    def _guarded(self, work: Callable[[], Any], name: str) -> Any:
        state = self._state
        state.busy = name
        try:
            return work()
        except CancelledError as error:
            state.status = str(error)
        except SpeclabError as error:
            _log.info("%s", error)
            state.fail(str(error), "".join(traceback.format_exception_only(error)))
        except Exception as error:  # noqa: BLE001  # a bug too must end in the panel, not in a silent thread
            _log.exception("the lab failed")
            details = "".join(traceback.format_exception(error))
            state.fail(
                f"Something went wrong inside speclab ({type(error).__name__}): nothing decoded is lost.", details
            )
        finally:
            state.busy = ""

    def _back(self, until: Condition | None) -> Step | None:
        before = max(self._state.cursor - 1, 0)
        if until is None:
            return self._player.goto(before)
        # Asked from the beginning on: an expression may look at the step before.
        holds = stateful(compiled(until, setting_names()), None)
        found = [i + 1 for i, step in enumerate(self._state.trace.steps[:before]) if holds(step)]
        if not found:
            self._state.status = "No earlier iteration meets the condition."
            return None
        return self._player.goto(found[-1])

    def _phase(self, name: str, level: int | None) -> None:
        if name not in PHASES:
            raise SettingsError(f"There is no phase {name!r}: choose one of {', '.join(PHASES)}.")
        self._show(Moment(name, level))

    def _show(self, moment: Moment) -> None:
        step = self._state.step
        if step is None:
            raise SettingsError("No iteration is shown: Step first, then look at its phases.")
        said = summary(step) if moment == WHOLE else moment_summary(step, moment)
        self._state.tell(status=said, frame=replace(self._state.frame, moment=moment))

    def _phase_by(self, count: int) -> None:
        state = self._state
        places = moments(state.step) if state.step else ()
        at = _place(places, state.moment) + count
        if 0 <= at < len(places):
            self._show(places[at])
        elif not 0 <= state.cursor + count <= len(state.trace.steps):
            state.status = (
                "This is the end of what is decoded: Step goes on." if count > 0 else "This is the beginning."
            )
        else:
            self._player.goto(state.cursor + count)
            if count > 0 and state.step:
                self._show(moments(state.step)[0])

    def _select(self, node: int | None) -> None:
        step = self._state.step
        if node is not None and (step is None or not 0 <= node < len(step.tree)):
            count = len(step.tree) if step else 0
            raise SettingsError(f"There is no node {node}: this tree has {count}, numbered from 0.")
        self._state.show(selected=node)

    def _pin(self) -> None:
        state = self._state
        state.show(pinned=None if state.pinned is state.step else state.step)


def _place(places: tuple[Moment, ...], moment: Moment) -> int:
    """Where a moment stands among all; one whose phase is over stands at the phase's last."""
    same = [i for i, place in enumerate(places) if place.phase == moment.phase]
    exact = [i for i in same if places[i] == moment]
    return (exact or same or [-1])[-1]
