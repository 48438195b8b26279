"""The lab as one widget; every button has a method."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError as Dropped
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from anywidget import AnyWidget
from traitlets import Int, Unicode, observe

from speclab.drafters.base import Strategy, checked
from speclab.drafters.chain import Autoregressive
from speclab.drafters.dynatree import DynaTree
from speclab.errors import CancelledError
from speclab.lab._commands import Command, command, commands, methods
from speclab.lab._form import LabConfig, ModelChoice, chats_with, offered, refuse_empty
from speclab.lab._messages import kept_panels
from speclab.lab._parts import feature_parts
from speclab.lab._runs import Runs
from speclab.lab._saved import Saved
from speclab.lab._setup import Setup
from speclab.lab._state import LabState, Outbox
from speclab.lab._worker import Worker
from speclab.loading.presets import PRESETS, find
from speclab.prompts import PromptInput, as_messages, examples
from speclab.settings import SessionSettings
from speclab.trace.records import Trace, trace_of
from speclab.views import export_html
from speclab.views.modules import page_with_features
from speclab.views.run_data import plotly_js, style

if TYPE_CHECKING:
    from speclab.engine.session import Session
    from speclab.pair import ModelPair

MOVES = {"cursor": "goto", "phase": "show_phase", "selected": "select"}
"""The traits that say what is shown, and what shows another value."""
REAL = "smollm2"
"""The preset of a new lab if it was fetched; else the shipped family."""
Result = TypeVar("Result")
Given = ParamSpec("Given")
_log = logging.getLogger(__name__)


def _waiting(
    work: Callable[Concatenate[Any, Given], Result], busy: str = "", owner: type = Runs
) -> Callable[Concatenate[Lab, Given], Result]:
    """A method of a part as one of the lab: it waits until the worker's thread has done it.

    `busy`: what the page shows meanwhile.
    """

    @wraps(work)
    def method(lab: Lab, /, *args: Given.args, **named: Given.kwargs) -> Result:
        return lab._do(partial(work, lab._part(owner), *args, **named), busy)

    return method


class Lab(AnyWidget):
    """A microscope over a Session.

    Methods do what the buttons do and wait until it is done. They raise errors, which the page
    shows after a click. A new lab decodes the first iteration by itself.

    Args:
        pair: the models, or the name of a preset, which is loaded at once; by default "smollm2" if
            it was fetched (`speclab fetch smollm2`), else "mini".
        strategy: by default DynaTree with 16 nodes, which look the same on every machine; plain
            decoding if nothing can draft.
        prompt: text to continue; token ids; or messages, for models with a chat template. By
            default a shipped example.
        predict: each iteration stops after drafting, so the user can guess what will be accepted.
        trace: a run to open, from `load_trace` or `load_steps`; `check` compares it with a given
            `pair`.
        settings: of the session: `max_new_tokens`, `temperature`, `top_k`, `top_p`, `seed`,
            `stop_at_eos`, `check`.

    Attributes:
        cursor, phase, selected: what is shown. Other widgets can be linked to these traits in both
            directions.
        iterations: decoded iterations, to be read only.

    Raises:
        SpeclabError: the preset does not exist, or the strategy, the prompt or a setting is
            invalid.
    """

    _esm = page_with_features(Path(__file__).with_name("screen.js"))
    _css = style()

    cursor = Int()
    phase = Unicode("all")
    selected = Int(None, allow_none=True)
    iterations = Int()

    def __init__(
        self,
        pair: ModelPair | str | None = None,
        strategy: Strategy | None = None,
        *,
        prompt: PromptInput | None = None,
        predict: bool = False,
        trace: Trace | None = None,
        **settings: Any,
    ) -> None:
        choice = None
        given = None
        if trace is not None:
            trace = trace_of(trace)
        if pair is None:
            choice = ModelChoice("mini" if PRESETS[REAL].missing else REAL)
        elif isinstance(pair, str):
            find(pair)
            choice = ModelChoice(pair)
        else:
            given = pair
        if strategy is None:
            # a tree that a person can read, the same on every machine
            choices = (DynaTree(node_budget=16), Autoregressive())
            offer = offered(choice, given)
            strategy = next(strategy for strategy in choices if not strategy.missing(offer))
        if prompt is None:
            chats = chats_with(choice, given)
            text = examples(chat=chats)[0].text
            prompt = as_messages(text) if chats else text
        elif given is None:
            refuse_empty(prompt)
        wanted = LabConfig(choice, checked(strategy), prompt, SessionSettings(**settings))
        super().__init__()
        self.state = LabState(wanted=wanted, guess=predict, named=pair is not None)
        self.state.given = given
        self._worker = Worker(self.state, self._flush)
        self._runs = Runs(self.state, self._worker)
        self._runs.parts = [kind(self._runs) for kind in feature_parts()]
        self._parts = (self._runs, Setup(self._runs), *self._runs.parts)
        self._outbox = Outbox(self.state, self.send)
        self._saved = Saved(self.state)
        self._mirror()
        self.on_msg(self._receive)
        if trace is not None:
            name = str(trace.settings.get("strategy", "run"))
            self._do(partial(self._runs.open_trace, trace, name))
            return
        if given is not None:
            self._do(self._runs.start)
        self._worker.submit(self._runs.on_step, "Decoding the first iteration", "start")

    @property
    def session(self) -> Session | None:
        """The session; None until the models are loaded."""
        return self._runs.session

    step = _waiting(Runs.on_step, "Decoding")
    back = _waiting(Runs.back)
    goto = _waiting(Runs.goto)
    run = _waiting(Runs.run, "Decoding")
    show_phase = _waiting(Runs.show_phase)
    select = _waiting(Runs.select)
    fork = _waiting(Runs.fork, "Forking")

    def stop(self) -> None:
        """Stop the running work, from any thread; decoded iterations are kept."""
        self._worker.stop()
        self._runs.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is running, at most `timeout` seconds; False if work is left."""
        return self._worker.wait(timeout)

    def snapshot(self) -> str:
        """The current iteration as static HTML without scripts."""
        return self._saved.html()

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write the run as one HTML page that steps through its iterations without a kernel."""
        trace = self._runs.shown().trace
        return export_html(trace, path, panels=kept_panels(self.state.panels))

    def close(self) -> None:
        """End the thread and free widgets, session and caches."""
        worker = getattr(self, "_worker", None)  # None: the constructor refused its arguments
        if worker is not None and not worker.closed:
            self.stop()
            worker.close()
            self.unobserve_all()
            self._runs.free()
            self.layout.close()
        super().close()

    # From the page.

    def _receive(self, _widget: object, content: Any, _buffers: object) -> None:
        """Handle a message of the page, on any thread: at once, or on the worker's thread."""
        try:
            name, fields = from_page(content)
        except (TypeError, KeyError, ValueError) as error:
            _log.warning("the page sent %r, which was ignored: %s", content, error)
            return
        owners: list[Hashable] = [self, *self._parts]
        for owner in owners:
            asked = commands(type(owner)).get(name)
            if asked is None:
                continue
            work = partial(getattr(owner, asked.method), **fields)
            if asked.at_once:
                work()
            else:
                self._worker.submit(work, asked.busy, asked.where)

    def _part(self, kind: type) -> Any:
        """The part of this class."""
        for part in self._parts:
            if isinstance(part, kind):
                return part
        raise LookupError(kind)

    def _queue(self, work: Callable[..., object], *args: Any) -> None:
        """Queue a move; it replaces one of the same kind that waits."""
        self._worker.submit(partial(work, *args), where="page", key=work.__name__)

    @command(at_once=True)
    def _on_plotly(self) -> None:
        self.send({"plotly": True}, [plotly_js()])

    @command(at_once=True)
    def _on_hello(self) -> None:
        self._outbox.greet()

    @command(at_once=True)
    def _on_stop(self) -> None:
        self.stop()

    @command(at_once=True)
    def _on_picture(self, cursor: int, images: list[Any]) -> None:
        self._saved.picture(cursor, images)

    @command(at_once=True)
    def _on_shown(
        self,
        cursor: int,
        phase: str,
        tab: str,
        level: int | None = None,
        node: int | str | None = None,
        moves: int | None = None,
    ) -> None:
        """Follow the page to the position that a person chose."""
        state = self.state
        late = state.busy or moves not in (None, self._outbox.moves)
        if late or cursor > len(state.steps):
            return
        node = node if isinstance(node, int) else None
        self._outbox.position = (cursor, phase, node)
        moved = cursor != state.cursor
        state.cursor = cursor
        state.phase = phase
        state.selected = node
        if moved:
            self._queue(self._runs.place)
        else:
            self._mirror()

    # From linked widgets.

    @observe(*MOVES)
    def _linked(self, change: Any) -> None:
        """Do what a linked widget, or a person in Python, asks for."""
        name = change["name"]
        value = change["new"]
        if value != getattr(self.state, name):
            self._queue(getattr(self._runs, MOVES[name]), value)

    def _mirror(self) -> None:
        """Copy the state to the traits."""
        state = self.state
        self.iterations = len(state.steps)
        for name in MOVES:
            setattr(self, name, getattr(state, name))

    # The worker.

    def _flush(self) -> None:
        self._outbox.flush()
        self._mirror()
        if not self._outbox.has_page:  # a page sends pictures when it pauses
            self._saved.update()

    def _do(self, work: Callable[[], Result], busy: str = "") -> Result:
        """Do work on the worker's thread, wait, and raise its error. Ctrl-C stops the work."""
        result = self._worker.submit(work, busy)
        try:
            self._worker.wait_for([result])
            return result.result()
        except Dropped:
            raise CancelledError("Stopped before it began; nothing changed.") from None
        except KeyboardInterrupt:
            self.stop()
            self._worker.wait(10)
            raise

    def _ipython_display_(self) -> None:
        data, metadata = super()._repr_mimebundle_() or ({}, {})
        self._saved.display(self.wait, data, metadata)

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        data, metadata = super()._repr_mimebundle_(**options) or ({}, {})
        words = {"text/plain": self._saved.sentence(), "text/html": self.snapshot()}
        return {**data, **words}, metadata


def from_page(content: Any) -> tuple[str, dict[str, Any]]:
    """The name and the fields of a message from the page.

    Raises:
        TypeError, KeyError, ValueError: this is not a message, there is no such command, or it has
            other fields.
    """
    name = content["do"]
    fields = {key: value for key, value in content.items() if key != "do"}
    every_command()[name].fields.model_validate(fields)
    return name, fields


def every_command() -> dict[str, Command]:
    """All that the page may ask, by the names of the messages."""
    found: dict[str, Command] = {}
    for kind in (Lab, Runs, Setup, *feature_parts()):
        found.update(commands(kind))
    return found


for _kind in feature_parts():
    for _name, _busy in methods(_kind).items():
        setattr(Lab, _name, _waiting(getattr(_kind, _name), _busy, _kind))
