"""The lab as one widget; every button has a method."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import CancelledError as Dropped
from concurrent.futures import wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from anywidget import AnyWidget
from traitlets import Dict, Int, Unicode, observe, validate

from speclab.drafters.base import Strategy, checked
from speclab.drafters.chain import Autoregressive
from speclab.drafters.dynatree import DynaTree
from speclab.errors import CancelledError, SettingsError
from speclab.lab._form import LabConfig, ModelChoice, chats_with, offered, refuse_empty
from speclab.lab._page import Outbox, from_page
from speclab.lab._runs import Runs
from speclab.lab._saved import Saved
from speclab.lab._state import PHASES, LabState
from speclab.lab._worker import Worker
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

MOVES = {"cursor": "goto", "phase": "phase", "selected": "select"}
"""The traits that say what is shown, and what shows another value."""
BUSY = {
    "step": "Decoding",
    "run": "Decoding",
    "redo": "Decoding again",
    "fork": "Forking",
    "verify": "Verifying",
    "curve": "Replaying",
    "compare": "Comparing",
    "check": "Checking",
    "diff": "Comparing two runs",
    "save": "Saving",
    "open": "Opening",
}
"""What the page shows while a method of `Runs` works."""
PLACES = {
    "step": "step",
    "redo": "step",
    "run": "until",
    "condition": "until",
    "curve": "strategy",
    "add": "hand",
    "prune": "hand",
    "undo": "hand",
    "verify": "hand",
    "switch": "compare",
    "compare": "compare",
    "check": "check",
    "diff": "check",
    "save": "files",
    "open": "files",
}
"""Where the page shows the error of a message; else above the stage."""
REAL = "smollm2"
"""The preset of a new lab if it was fetched; else the shipped family."""
Result = TypeVar("Result")
Given = ParamSpec("Given")
_log = logging.getLogger(__name__)


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
    phase = Unicode("all")
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
        choice = _preset(pair) if pair is None or isinstance(pair, str) else None
        given = None if pair is None or isinstance(pair, str) else pair
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
        self.state = LabState(wanted, given, guess=predict)
        self._outbox = Outbox(self.state, self.send)
        self._worker = Worker(self.state, self._flush)
        self._runs = Runs(self.state, self._worker, named=pair is not None)
        self._saved = Saved(self.state)
        self._mirror()
        self.on_msg(self._receive)
        if trace is not None:
            self._do(self._runs.open_trace, trace, str(trace.settings.get("strategy", "run")))
            return
        if given is not None:
            self._do(self._runs.start)
        self._worker.submit(self._runs.step, "Decoding the first iteration", "start")

    @property
    def session(self) -> Session | None:
        """The session; None until the models are loaded."""
        return self._runs.session

    def step(self) -> Step:
        """Decode one iteration."""
        return self._do(self._runs.step)

    def back(self) -> Step | None:
        """Show the previous iteration; None at the beginning. No model call."""
        return self._do(self._runs.back)

    def goto(self, index: int) -> Step | None:
        """Show the text after `index` iterations. No model call."""
        return self._do(self._runs.goto, index)

    def run(self, until: Condition | None = None) -> Step | None:
        """Decode until `until` holds, the text ends, or `stop` is called; returns the last step.

        `until`: a function of a step, or an expression such as `accepted < 2` (see
        `speclab.trace.conditions`).
        """
        return self._do(self._runs.run, until)

    def stop(self) -> None:
        """Stop the running work, from any thread; decoded iterations are kept."""
        if self._worker.stop():
            self._runs.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is running, at most `timeout` seconds; False if work is left."""
        return self._worker.wait(timeout)

    def show_phase(self, name: str) -> None:
        """Show a phase of the iteration: draft, flatten, verify, accept, commit or all."""
        self._do(self._runs.phase, name)

    def select(self, node: int | None) -> None:
        """Select a node of the current tree, or none."""
        self._do(self._runs.select, node)

    def fork(self, strategy: Strategy | None = None, **settings: Any) -> Session:
        """Fork at the cursor with other settings; the former session stays unchanged."""
        return self._do(self._runs.fork, strategy, **settings)

    def check(self) -> tuple[Finding, ...]:
        """Check the run (`clinic.check`), mark the findings in the pictures and list them in the tab Check."""
        return self._do(self._runs.check)

    def diff(self, other: Trace | int) -> Diff:
        """Compare the run with another one of the same prompt (`clinic.diff`), a trace or a run's
        number; the tab Check and an exported page show both timelines, joined where they part."""
        return self._do(self._runs.diff, other)

    def pin(self) -> None:
        """Pin the current iteration next to later ones (tab Compare), or unpin it."""
        self._do(self._runs.pin)

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
            self.state.panels = {}
            self.layout.close()
        super().close()

    # From the page.

    def _receive(self, _widget: object, content: Any, _buffers: object) -> None:
        """Handle a message of the page on any thread: by the method `_on_NAME` here, at once, or on
        the worker's thread by the method `NAME` of `Runs`."""
        try:
            name, fields = from_page(content)
        except ValueError as error:
            _log.warning("a message of the page was ignored: %s", error)
            return
        at_once = getattr(self, f"_on_{name}", None)
        if at_once is not None:
            at_once(**fields)
        else:
            self._submit(name, **fields)

    def _submit(self, name: str, /, **fields: Any) -> None:
        """Queue a method of `Runs`; the page shows its error."""
        if "from" in fields:  # a word of Python
            fields["start"] = fields.pop("from")
        work = partial(getattr(self._runs, name), **fields)
        self._worker.submit(work, BUSY.get(name, ""), PLACES.get(name, "page"))

    def _on_plotly(self) -> None:
        self.send({"plotly": True}, [plotly_js()])

    def _on_hello(self) -> None:
        self._outbox.greet()

    def _on_stop(self) -> None:
        self.stop()

    def _on_guess(self, on: bool) -> None:
        self.state.guess = on

    def _on_picture(self, cursor: int, images: list[Any]) -> None:
        self._saved.picture(cursor, images)

    def _on_shown(self, cursor: int, phase: str, tab: str, **others: Any) -> None:
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
            self._worker.submit(self._runs.place, key="place")
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
                self._submit("want", strategy={"name": type(wanted).__name__, "settings": value})
        elif value != getattr(self.state, name):
            work = partial(getattr(self._runs, MOVES[name]), value)
            self._worker.submit(work, where="page", key=name)

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

    def _do(
        self, work: Callable[Given, Result], *args: Given.args, **named: Given.kwargs
    ) -> Result:
        """Do work on the worker's thread, wait, and raise its error. Ctrl-C stops the work."""
        busy = BUSY.get(work.__name__, "")
        result = self._worker.submit(partial(work, *args, **named), busy)
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
