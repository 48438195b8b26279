"""The lab as one widget: the last value of a cell shows it, and what its controls do, its methods do."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import CancelledError, wait
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ipywidgets import HTML, VBox

from speclab.drafters.base import Strategy, checked
from speclab.drafters.chain import Autoregressive
from speclab.drafters.dynatree import DynaTree
from speclab.errors import SettingsError, TraceError
from speclab.lab.actions import Actions
from speclab.lab.config import ConfigForm
from speclab.lab.controller import SessionController
from speclab.lab.models import drafts_of
from speclab.lab.panels import Panels, WhatIfPreview
from speclab.lab.screen import Screen
from speclab.lab.state import LabState, ModelChoice, Prompt
from speclab.lab.status import Status
from speclab.lab.transport import Transport
from speclab.lab.widgets import on_change
from speclab.lab.worker import Worker
from speclab.models.presets import PRESETS
from speclab.settings import SessionSettings
from speclab.trace.files import load_trace
from speclab.trace.records import Trace
from speclab.views.export import describe, snapshot
from speclab.views.registry import Frame
from speclab.views.runs import Fork

if TYPE_CHECKING:
    from speclab.engine.session import Session
    from speclab.models.pair import ModelPair

P = ParamSpec("P")
T = TypeVar("T")
RECORDINGS = Path(__file__).parent
REAL = "smollm2"
"""The pair that a lab opens with, where it was fetched; else the shipped family does."""
_NOTHING = Trace((), 0, (), {}, {}, {})
_STYLE = Path(__file__).with_name("style.css")
_log = logging.getLogger(__name__)


def recording(name: str) -> Path:
    """Where the run lies that is shown before the models of this preset are loaded."""
    return RECORDINGS / f"recorded_{name}.json.gz"


def recorded(name: str = "mini") -> Trace:
    """The run that is shown before these models are loaded; an empty one where there is none or it is damaged."""
    try:
        return load_trace(recording(name)) if recording(name).exists() else _NOTHING
    except TraceError as error:
        _log.warning("%s", error)
        return _NOTHING


def _asked(work: Callable[Concatenate[SessionController, P], T]) -> Callable[Concatenate[Lab, P], T | None]:
    """A method of the lab that asks the controller for its own, and waits; None where it failed."""

    @wraps(work)
    def asked(lab: Lab, *arguments: P.args, **named: P.kwargs) -> T | None:
        return lab._wait(getattr(lab._controller, work.__name__), *arguments, **named)  # type: ignore[no-any-return]

    return asked  # type: ignore[return-value]


class Lab(VBox):
    """A microscope over a Session.

    Methods do what the buttons do, but return only when it is done and drawn. What a person can get wrong (a prompt, a
    setting, a model that is not there) is said in the error panel, and in `state.error`, and nothing is raised.

    Args:
        pair: the models, or the name of a preset, loaded when the lab is first shown or stepped; by default "smollm2"
            where it was fetched (`speclab fetch smollm2`), else "mini".
        strategy: by default DynaTree with settings for a low-confidence draft.
        prompt: text, which is continued as it is; token ids; or messages, for models with a chat template. By default
            the first shipped example: a user's question where there is a template, else a text to continue.
        predict: whether it is asked of each iteration what will be accepted, before that is shown.
        settings: of the session: `max_new_tokens`, `temperature`, `top_k`, `top_p`, `seed`, `stop_at_eos`, `check`.
    """

    def __init__(
        self,
        pair: ModelPair | str | None = None,
        strategy: Strategy | None = None,
        *,
        prompt: Prompt | None = None,
        predict: bool = False,
        **settings: Any,
    ) -> None:
        self._prepared = False
        self.state = LabState(frame=Frame(_NOTHING))
        self._worker = Worker(self._interrupt)
        models = self._named(pair) if pair is None or isinstance(pair, str) else None
        given = None if isinstance(pair, str) else pair
        if strategy is None:
            strategy = DynaTree() if any(drafts_of(models, given)) else Autoregressive()
        checked(strategy)
        session = self._session_settings(settings)
        self.config = form = ConfigForm(
            self.state, given, models, strategy, prompt, session,
            lambda redo: self._actions.ask(do.redo if redo else do.apply), lambda: do.session,
        )  # fmt: skip
        stops = self._worker.cancelled, self._worker.stopped
        self._controller = do = SessionController(self.state, *stops, given, form.read, form.write)
        self._actions = Actions(self.state, self._worker, do)
        self.screen, preview = Screen(self._hear), WhatIfPreview(self.state)
        self.transport = Transport(self.state, self._actions, self.screen, self.config.note)
        present = "speclab-presenting"
        on_change(self.transport.present, lambda on: (self.add_class if on else self.remove_class)(present))
        self.status = Status(self.state, self.screen, do.models.usage, preview.sentence)
        self.panels = Panels(self.state, self._actions, self.screen, preview, self.status, self.config.strategy)
        style = HTML(f"<style>{_STYLE.read_text(encoding='utf-8')}</style>")
        rows = [self.config, self.transport, self.transport.unfolded, self.panels]
        self.screen.complete()
        super().__init__([style, *rows, self.screen], _dom_classes=["speclab-lab"])
        if given is not None and not self.state.error:
            self._wait(do.start)
        elif models is not None and prompt is None:
            do.begin(recorded(models.name))
        if predict:
            self._wait(do.predicting, at_once=True)
        if pair is None and models != ModelChoice(REAL):
            self.state.status = f"{self.state.status} A real model in place of the mini family: speclab fetch {REAL}."

    @property
    def session(self) -> Session | None:
        """The session; None until the models are loaded and the first step is asked for."""
        return self._controller.session

    run_live = _asked(SessionController.live)
    step = _asked(SessionController.step)
    back = _asked(SessionController.back)
    goto = _asked(SessionController.goto)
    phase = _asked(SessionController.phase)
    run = _asked(SessionController.run)
    play = _asked(SessionController.play)
    predicting = _asked(SessionController.predicting)
    predict = _asked(SessionController.predict)
    reveal = _asked(SessionController.reveal)
    redo = _asked(SessionController.redo)
    verify = _asked(SessionController.verify)
    select = _asked(SessionController.select)
    switch = _asked(SessionController.switch)
    drop = _asked(SessionController.drop)
    pin = _asked(SessionController.pin)
    sample = _asked(SessionController.sample)
    compare = _asked(SessionController.compare)  # type: ignore[arg-type]  # a setting could be called self
    open_trace = _asked(SessionController.open_trace)

    def stop(self) -> None:
        """Stops what runs; what was decoded stays."""
        self._actions.stop()

    def fork(self, strategy: Strategy | None = None, **settings: Any) -> Session | None:
        """Goes on from the cursor with other settings, in a session of its own; the former stays as it is."""
        session: Session | None = self._wait(self._controller.fork, strategy=strategy, **settings)
        if session is not None:
            self.config.write_settings(session.strategy, session.settings.model_dump())
        return session

    @property
    def forks(self) -> list[Fork]:
        """Every run of this lab and every fork of one, with what its caches take; `present` marks the one shown."""
        return list(self._controller.runs.describe())

    def snapshot(self) -> str:
        """What is shown as static HTML, which needs no kernel."""
        return snapshot(self.state.frame)

    def export(self, path: str | os.PathLike[str]) -> Path | None:
        """Writes the run, and the one kept beside it, as one HTML page whose steps can be scrubbed without a kernel.

        The path; None if it failed.
        """
        return self._wait(self._controller.save, "page", path)  # type: ignore[no-any-return]

    def save_view(self, name: str, path: str | os.PathLike[str]) -> Path | None:
        """Writes a view of `speclab.views.registry` as .svg, .png or .html; the path, None if it failed."""
        return self._wait(self._controller.save, name, path)  # type: ignore[no-any-return]

    def save_trace(self, path: str | os.PathLike[str]) -> Path | None:
        """Writes the run shown, to be opened again; the path, None if it failed."""
        return self._wait(self._controller.save, "trace", path)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Stops the workers and lets the widgets go."""
        if hasattr(self, "config"):  # else it was never finished
            self.config.close()
            self._actions.close()
        super().close()

    def _named(self, name: str | None) -> ModelChoice:
        """A preset by name, or the default one; where there is none of this name, the panel says so."""
        default = "mini" if PRESETS[REAL].missing else REAL
        if name is not None and name not in PRESETS:
            self.state.fail(
                f"There is no pair named {name!r}: choose one of {', '.join(PRESETS)}; {default} stands in."
            )
            name = default
        return ModelChoice(name or default)

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

    def _hear(self, said: dict[str, Any]) -> None:
        """What a person did on the screen, or how large it is."""
        do, ask = self._controller, self._actions.ask
        if isinstance(said.get("node"), int):
            ask(do.select, said["node"])
        elif isinstance(said.get("cell"), list):
            ask(self.panels.editor.flip_cell, *map(int, said["cell"]))
        elif isinstance(said.get("iteration"), int):
            ask(do.goto, said["iteration"])
        elif isinstance(said.get("run"), int):
            ask(do.switch, said["run"])
        elif isinstance(said.get("key"), str):
            self.transport.key(said["key"])
        elif isinstance(said.get("room"), dict):
            do.resize(said["room"])
        elif said.get("drawn") and not self._prepared:  # not before: to load models would hold up the first pictures
            self._prepared = True
            ask(do.prepare)

    def _interrupt(self) -> None:
        self._controller.interrupt()

    def _wait(self, work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        result = self._actions.ask(work, *arguments, **named)
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
        bundle: dict[str, str] = super()._repr_mimebundle_(**options) or {}
        return {**bundle, "text/plain": describe(self.state.frame), "text/html": self.snapshot()}
