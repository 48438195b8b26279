"""The lab as one widget; every button has a method."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import CancelledError as Dropped
from concurrent.futures import wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from anywidget import AnyWidget
from traitlets import Dict, Int, TraitType, Unicode, observe, validate

from speclab.drafters.base import Strategy, checked
from speclab.drafters.chain import Autoregressive
from speclab.drafters.dynatree import DynaTree
from speclab.errors import CancelledError, SettingsError
from speclab.lab.catalog import chats_with, offered
from speclab.lab.commands import Commands
from speclab.lab.editing import Editor
from speclab.lab.messages import Message, from_page
from speclab.lab.outbox import Outbox
from speclab.lab.runs import Runs
from speclab.lab.saved import Saved
from speclab.lab.state import PHASES, LabConfig, LabState, ModelChoice, refuse_empty
from speclab.lab.tasks import Tasks
from speclab.lab.worker import Worker
from speclab.loading.presets import PRESETS, find
from speclab.prompts import PromptInput, as_messages, examples
from speclab.settings import SessionSettings
from speclab.trace.conditions import Condition
from speclab.trace.records import Finding, Step, Trace
from speclab.views import export_html
from speclab.views.modules import joined
from speclab.views.run_data import plotly_js, style

if TYPE_CHECKING:
    from speclab.clinic._diff import Diff
    from speclab.engine.session import Session
    from speclab.loading.presets import Offer
    from speclab.pair import ModelPair

MOVES = ("cursor", "phase", "selected")
"""The traits that say what is shown."""
REAL = "smollm2"
"""The preset of a new lab if it was fetched; else the shipped family."""
Result = TypeVar("Result")
_log = logging.getLogger(__name__)


class PhaseName(str):
    """The name of a phase; calling it shows another phase: `lab.phase("verify")`."""

    _show: Callable[[str], None]

    def __new__(cls, name: str, show: Callable[[str], None]) -> PhaseName:
        phase = super().__new__(cls, name)
        phase._show = show
        return phase

    def __call__(self, name: str) -> None:
        """Show a phase of the iteration: draft, flatten, verify, accept, commit or all."""
        self._show(name)


class _Phase(TraitType[str, str]):
    """A trait with the phase shown, whose value can be called."""

    default_value = "all"

    def get(self, obj: Any, cls: type[Any] | None = None) -> Any:
        return PhaseName(super().get(obj, cls) or "all", obj.show_phase)


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
        cursor, phase, selected: what is shown; settings: of the strategy that the next Step uses.
            Other widgets can be linked to these traits in both directions.
        iterations: decoded iterations; text: the text at the cursor; busy: the running work, empty
            when idle. These traits can be read only.

    Raises:
        SpeclabError: the preset does not exist, or the strategy, the prompt or a setting is
            invalid.
    """

    _esm = joined(Path(__file__).with_name("screen.js"))
    _css = style()

    cursor = Int()
    phase = _Phase()
    selected = Int(None, allow_none=True)
    settings = Dict()
    iterations = Int()
    text = Unicode()
    busy = Unicode()

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
        given = None
        choice = None
        if pair is None or isinstance(pair, str):
            choice = _preset(pair)
        else:
            given = pair
        if strategy is None:
            strategy = _opening(offered(choice, given))
        if prompt is None:
            chats = chats_with(choice, given)
            text = examples(chat=chats)[0].text
            prompt = as_messages(text) if chats else text
        elif given is None:
            refuse_empty(prompt)
        wanted = LabConfig(choice, checked(strategy), prompt, SessionSettings(**settings))
        super().__init__()
        self.state = state = LabState(wanted, guess=predict)
        self._outbox = Outbox(state, given, self.send)
        self._worker = Worker(state, self._flush)
        self._runs = runs = Runs(state, self._worker, given, named=pair is not None)
        self._editor = editor = Editor(runs)
        self._tasks = tasks = Tasks(runs, given)
        self._commands = commands = Commands(runs, editor)
        self._saved = Saved(state)
        self._orders = self._commanded(commands, tasks, editor)
        self._mirror()
        self.on_msg(self._receive)
        if trace is not None:
            self._wait(partial(runs.open, trace, str(trace.settings.get("strategy", "run"))))
            return
        if given is not None:
            self._wait(runs.start)
        self._worker.submit(commands.step, "Decoding the first iteration", "start")

    @property
    def session(self) -> Session | None:
        """The session; None until the models are loaded."""
        return self._runs.session

    def step(self) -> Step:
        """Decode one iteration."""
        return self._wait(self._commands.step, "Decoding")

    def back(self) -> Step | None:
        """Show the previous iteration; None at the beginning. No model call."""
        return self._wait(self._commands.back)

    def goto(self, index: int) -> Step | None:
        """Show the text after `index` iterations. No model call."""
        return self._wait(partial(self._commands.goto, index))

    def run(self, until: Condition | None = None) -> Step | None:
        """Decode until `until` holds, the text ends, or `stop` is called; returns the last step.

        `until`: a function of a step, or an expression such as `accepted < 2` (see
        `speclab.trace.conditions`).
        """
        return self._wait(partial(self._commands.run, until), "Decoding")

    def stop(self) -> None:
        """Stop the running work, from any thread; decoded iterations are kept."""
        if self._worker.stop():
            self._runs.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is running, at most `timeout` seconds; False if work is left."""
        return self._worker.wait(timeout)

    def show_phase(self, name: str) -> None:
        """Show a phase of the iteration: draft, flatten, verify, accept, commit or all."""
        self._wait(partial(self._commands.phase, name))

    def select(self, node: int | None) -> None:
        """Select a node of the current tree, or none."""
        self._wait(partial(self._commands.select, node))

    def fork(self, strategy: Strategy | None = None, **settings: Any) -> Session:
        """Fork at the cursor with other settings; the former session stays unchanged."""
        return self._wait(partial(self._commands.fork, strategy, **settings), "Forking")

    def check(self) -> tuple[Finding, ...]:
        """Check the run (`clinic.check`), mark the findings in the pictures and list them in the tab Check."""
        return self._wait(self._tasks.check, "Checking")

    def diff(self, other: Trace | int) -> Diff:
        """Compare the run with another one of the same prompt (`clinic.diff`), a trace or a run's
        number; the tab Check and an exported page show both timelines, joined where they part."""
        return self._wait(partial(self._tasks.diff, other), "Comparing two runs")

    def pin(self) -> None:
        """Pin the current iteration next to later ones (tab Compare), or unpin it."""
        self._wait(self._commands.pin)

    def snapshot(self) -> str:
        """The current iteration as static HTML without scripts."""
        return self._saved.html()

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write the run as one HTML page that steps through its iterations without a kernel."""
        if self.state.trace is None:
            raise SettingsError("There is no run yet: step() decodes the first iteration.")
        return export_html(self.state.trace, path, diff=self.state.diff)

    def close(self) -> None:
        """End the thread and free widgets, session and caches."""
        worker = getattr(self, "_worker", None)  # None: the constructor refused its arguments
        if worker is not None and not worker.closed:
            self.stop()
            worker.close()
            self.unobserve_all()
            self.state.unobserve_all()
            self._runs.free()
            self._editor.leave()
            self.state.panels = {}
            self.layout.close()
        super().close()

    # From the page.

    def _commanded(
        self, commands: Commands, tasks: Tasks, editor: Editor
    ) -> dict[str, tuple[Callable[..., Any], str, str]]:
        """By the message: what does it, what the page shows meanwhile, where its error belongs."""
        return {
            "step": (commands.step, "Decoding", "step"),
            "run": (commands.run_until, "Decoding", "until"),
            "condition": (commands.hint, "", "until"),
            "want": (tasks.want, "", "page"),
            "reset": (tasks.reset, "", "page"),
            "redo": (commands.redo, "Decoding again", "step"),
            "curve": (tasks.curve, "Replaying", "strategy"),
            "add": (editor.add, "", "hand"),
            "prune": (editor.prune, "", "hand"),
            "undo": (editor.undo, "", "hand"),
            "verify": (editor.verify, "Verifying", "hand"),
            "switch": (self._runs.switch, "", "compare"),
            "compare": (tasks.compare, "Comparing", "compare"),
            "check": (tasks.check, "Checking", "check"),
            "diff": (tasks.diff, "Comparing two runs", "check"),
            "save": (tasks.save, "Saving", "files"),
            "open": (tasks.open, "Opening", "files"),
        }

    def _receive(self, _widget: object, content: Any, _buffers: object) -> None:
        """Handle a message of the page on any thread; commands are queued for the worker."""
        try:
            name, fields = from_page(content)
        except ValueError as error:
            _log.warning("a message of the page was ignored: %s", error)
            return
        match name:
            case "plotly":
                self.send({"plotly": True}, [plotly_js()])
            case "hello":
                self._outbox.greet()
            case "stop":
                self.stop()
            case "shown":
                self._shown(**fields)
            case "guess":
                self.state.guess = fields["on"]
            case "picture":
                self._saved.picture(**fields)
            case _:
                self._order(name, fields)

    def _order(self, name: str, fields: Message) -> None:
        """Queue a command of the page."""
        work, busy, where = self._orders[name]
        if "from" in fields:  # a word of Python
            fields["start"] = fields.pop("from")
        self._worker.submit(partial(work, **fields), busy, where)
        if name in {"want", "reset"}:
            self._worker.submit(self._tasks.preview, where="page", key="preview")

    def _shown(self, cursor: int, phase: str, tab: str, **others: Any) -> None:
        """Follow the page to the position that a person chose."""
        state = self.state
        moves = others.get("moves")
        late = state.busy or moves not in (None, self._outbox.moves)
        if late or not 0 <= cursor <= len(state.steps) or phase not in PHASES:
            return
        node = others.get("node")
        node = node if isinstance(node, int) else None
        self._outbox.reported(cursor, phase, node)
        moved = cursor != state.cursor
        state.cursor = cursor
        state.phase = phase
        state.selected = node
        if moved:
            self._worker.submit(self._commands.place, key="place")
        else:
            self._mirror()

    # From linked widgets.

    @validate("settings")
    def _merged(self, proposal: Any) -> dict[str, Any]:
        """Settings that are not named keep their values."""
        if not hasattr(self, "state"):
            return dict(proposal["value"])
        strategy = self.state.wanted.strategy
        return strategy.changed(**proposal["value"]).model_dump()

    @observe("settings", *MOVES)
    def _linked(self, change: Any) -> None:
        """Do what a linked widget, or a person in Python, asks for."""
        name = change["name"]
        value = change["new"]
        wanted = self.state.wanted.strategy
        if name == "settings":
            if value != wanted.model_dump():
                strategy = {"name": type(wanted).__name__, "settings": value}
                self._order("want", {"strategy": strategy})
        elif value != getattr(self.state, name):
            commands = self._commands
            moves: dict[str, Callable[[Any], object]] = {
                "cursor": commands.goto,
                "phase": commands.phase,
                "selected": commands.select,
            }
            self._worker.submit(partial(moves[name], value), where="page", key=name)

    def _mirror(self) -> None:
        """Copy the state to the traits."""
        state = self.state
        self.iterations = len(state.steps)
        for name in (*MOVES, "busy"):
            setattr(self, name, getattr(state, name))
        self.settings = state.wanted.strategy.model_dump()
        if state.trace is not None:
            tokens = state.trace.tokens_at(state.cursor)
            self.text = "".join([state.trace.texts.get(token, "") for token in tokens])

    # The worker.

    def _flush(self) -> None:
        self._outbox.flush()
        self._mirror()
        if not self._outbox.has_page:  # a page sends pictures when it pauses
            self._saved.update()

    def _wait(self, work: Callable[[], Result], busy: str = "") -> Result:
        """Wait for the worker and raise its error. Ctrl-C stops the work."""
        result = self._worker.submit(work, busy)
        try:
            # in short waits, so Ctrl-C works on every system
            while not wait([result], timeout=0.2).done:
                pass
            return result.result()
        except Dropped:
            raise CancelledError("Stopped before it began; nothing changed.") from None
        except KeyboardInterrupt:
            self.stop()
            self._worker.wait(10)
            raise

    def _ipython_display_(self) -> None:
        data, metadata = super()._repr_mimebundle_() or ({}, {})
        self._saved.display(self, data, metadata)

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        data, metadata = super()._repr_mimebundle_(**options) or ({}, {})
        words = {"text/plain": self._saved.sentence(), "text/html": self.snapshot()}
        return {**data, **words}, metadata


def _preset(name: str | None) -> ModelChoice:
    """A preset by name, or the default one; raises if it is not on this machine."""
    if name is None:
        return ModelChoice("mini" if PRESETS[REAL].missing else REAL)
    find(name)
    return ModelChoice(name)


def _opening(offer: Offer) -> Strategy:
    """A tree that a person can read, the same on every machine; plain decoding without a draft."""
    choices = (DynaTree(node_budget=16), Autoregressive())
    return next(strategy for strategy in choices if not strategy.missing(offer))
