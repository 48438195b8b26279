"""The lab as one widget: the last value of a cell shows it, and what its controls do, its methods do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipywidgets import HTML, VBox

from speclab.analysis.compare import Comparison
from speclab.drafters.chain import Autoregressive
from speclab.drafters.dynatree import DynaTree
from speclab.errors import SettingsError
from speclab.lab import static
from speclab.lab.choices import Choices, Prompt
from speclab.lab.commands import Commands
from speclab.lab.comparer import CURRENT
from speclab.lab.files import Files
from speclab.lab.panels import Panels
from speclab.lab.pickers import Pickers
from speclab.lab.player import Player
from speclab.lab.recorded import recorded
from speclab.lab.state import Frame, LabState
from speclab.lab.status import Status
from speclab.lab.style import STYLE
from speclab.lab.transport import Transport
from speclab.lab.worker import Worker
from speclab.settings import SessionSettings
from speclab.trace.conditions import Condition
from speclab.trace.records import Step
from speclab.views.fork_tree import Fork
from speclab.views.still import still

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session
    from speclab.models.pair import ModelPair


class Lab(VBox):
    """A microscope over a Session.

    Methods do what the buttons do, but return only when it is done and drawn. What a person can get wrong (a prompt, a
    setting, a model that is not there) is said in the error panel, and in `state.error`, and nothing is raised.

    Args:
        pair: the models; by default the shipped family, loaded when the lab is first shown or stepped.
        strategy: by default DynaTree with settings for a draft that is seldom sure.
        prompt: text or token ids; by default the first shipped example.
        settings: of the session: `max_new_tokens`, `temperature`, `top_k`, `top_p`, `seed`, `stop_at_eos`, `check`.
    """

    def __init__(
        self,
        pair: ModelPair | None = None,
        strategy: Strategy | None = None,
        *,
        prompt: Prompt | None = None,
        **settings: Any,
    ) -> None:
        self._prepared = False
        run = recorded()
        self.state = LabState(frame=Frame(run, min(1, len(run.steps))))
        self._worker = Worker(self._interrupt)
        self._player = Player(self.state, self._worker.cancelled, self._worker.stopped, pair)
        self._commands = Commands(self.state, self._player, self._worker, self._read, self._follow)
        strategy = strategy or _default_strategy(pair)
        self.pickers = Pickers(
            self.state, pair, strategy, prompt, self._session_settings(settings), self._commands.apply
        )
        self.files = Files(self._commands)
        self.transport = Transport(self.state, self._commands, self.files.toggle)
        self.status = Status(self.state, self._player.models.usage)
        self.panels = Panels(self.state, self._commands, self.pickers.strategy.panel)
        style = HTML(f"<style>{STYLE}</style>")
        rows = [self.pickers, self.transport, self.files, self.status, self.pickers.pending, self.panels]
        super().__init__([style, *rows])
        self.add_class("speclab-lab")
        if pair is not None and not self.state.error:
            self._wait(self._commands.start())

    @property
    def session(self) -> Session | None:
        """The session; None until the models are loaded and the first step is asked for."""
        return self._player.session

    def step(self) -> Step | None:
        """Decodes one iteration, or goes on by one in what is decoded; the step, None where it failed."""
        return self._wait(self._commands.step())  # type: ignore[no-any-return]

    def back(self, until: Condition | None = None) -> Step | None:
        """Goes back by one iteration, or to the last one before it where `until` holds; no model call."""
        return self._wait(self._commands.back(until))  # type: ignore[no-any-return]

    def goto(self, index: int) -> Step | None:
        """Shows the text after `index` iterations; no model call."""
        return self._wait(self._commands.goto(index))  # type: ignore[no-any-return]

    def phase(self, name: str, level: int | None = None) -> None:
        """Shows the iteration as it stood when this phase was over; with `level`, after that level or decision."""
        self._wait(self._commands.phase(name, level))

    def run(self, until: Condition | None = None) -> Step | None:
        """Decodes until `until` holds, the text ends, or `stop`; the last step.

        `until`: a function of a step, or an expression such as `accepted < 2` (see `speclab.trace.conditions`).
        """
        return self._wait(self._commands.run(until))  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Stops what runs; what was decoded stays."""
        self._commands.stop()

    def select(self, node: int | None) -> None:
        """Marks a node in every view; None marks none."""
        self._wait(self._commands.select(node))

    def fork(self, strategy: Strategy | None = None, **settings: Any) -> Session | None:
        """Goes on from the cursor with other settings, in a session of its own; the former stays as it is."""
        session: Session | None = self._wait(self._commands.fork(strategy=strategy, **settings))
        if session is not None:
            self.pickers.follow(session.strategy, session.settings.model_dump())
        return session

    @property
    def forks(self) -> list[Fork]:
        """Every run of this lab and every fork of one, with what its caches take; `present` marks the one shown."""
        return list(self._commands.runs.forks)

    def switch(self, number: int) -> Session | None:
        """Goes on with another run of `forks`, at the iteration where it was left; no model call."""
        return self._wait(self._commands.runs.switch(number))  # type: ignore[no-any-return]

    def drop(self, number: int) -> None:
        """Lets a run go that is not shown, its caches with it; its own forks stay."""
        self._wait(self._commands.runs.drop(number))

    def pin(self, number: int | None = None) -> None:
        """Keeps the iteration shown, or all of run `number`, beside what comes; once more lets it go."""
        self._wait(self._commands.pin() if number is None else self._commands.runs.beside(number))

    def compare(self, strategies: Sequence[Any] = (CURRENT,), **settings: Any) -> Comparison | None:
        """Runs several strategies on the prompt of the pickers, one after another; the table, None if it failed.

        `strategies`: strategies, classes of them or their names; "as set above" is the one in the pickers. `settings`:
        of the sessions, by default as in the pickers. `stop` keeps what had run by then.
        """
        return self._wait(self._commands.runs.compare(strategies, **settings))  # type: ignore[no-any-return]

    def save_comparison(self, path: str | os.PathLike[str]) -> Path | None:
        """Writes the newest comparison as comma-separated values; the path, None if it failed."""
        return self._wait(self._commands.runs.save_comparison(path))  # type: ignore[no-any-return]

    def snapshot(self) -> str:
        """What is shown as static HTML, which needs no kernel."""
        return static.snapshot(self.state.frame, self.state.comparison)

    def export(self, path: str | os.PathLike[str]) -> Path | None:
        """Writes the run, and the one kept beside it, as one HTML page whose steps can be scrubbed without a kernel.

        The path; None if it failed.
        """
        return self._wait(self._commands.save("page", path))  # type: ignore[no-any-return]

    def save_view(self, name: str, path: str | os.PathLike[str]) -> Path | None:
        """Writes a view of the iteration shown as .svg or .png (see `speclab.views.files.VIEWS`); None if it failed."""
        return self._wait(self._commands.save(name, path))  # type: ignore[no-any-return]

    def save_trace(self, path: str | os.PathLike[str]) -> Path | None:
        """Writes the run shown, to be opened again; the path, None if it failed."""
        return self._wait(self._commands.save("trace", path))  # type: ignore[no-any-return]

    def open_trace(self, path: str | os.PathLike[str]) -> None:
        """Shows a run saved earlier; no model runs, and a session under way stays for Step to go on with."""
        self._wait(self._commands.open_trace(path))

    def close(self) -> None:
        """Stops the workers and lets the widgets go."""
        self.pickers.models.close()
        self._worker.close()
        super().close()

    def _session_settings(self, given: dict[str, Any]) -> SessionSettings:
        """The settings given; where one cannot be, the panel says so and its default stands in."""
        kept = {}
        for name, value in given.items():
            try:
                SessionSettings(**{name: value})
            except SettingsError as error:
                self.state.fail(f"{error}; its default stands in.")
            else:
                kept[name] = value
        return SessionSettings(**kept)

    def _read(self) -> Choices:
        return self.pickers.read()

    def _follow(self, choices: Choices) -> None:
        self.pickers.prompt.write(choices.prompt)
        self.pickers.follow(choices.strategy, dict(choices.settings))

    def _interrupt(self) -> None:
        self._player.interrupt()

    def _wait(self, result: Future[Any]) -> Any:
        try:
            while not wait([result], timeout=0.2).done:  # in pieces, so that Ctrl-C is heard on every system
                pass
            return result.result()
        except CancelledError:
            return None
        except KeyboardInterrupt:
            self.stop()
            self._worker.wait()
            raise

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        if not self._prepared:
            self._prepared = True
            self._commands.prepare()
            self._commands.ask(self.pickers.models.look)
        bundle: dict[str, str] = super()._repr_mimebundle_(**options) or {}
        return {**bundle, "text/plain": static.plain(self.state.frame), "text/html": still(self.snapshot())}


def _default_strategy(pair: ModelPair | None) -> Strategy:
    return DynaTree.for_unsure_draft() if pair is None or pair.draft is not None else Autoregressive()
