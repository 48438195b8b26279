"""The lab as one widget; every button has a method."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import CancelledError as Dropped
from concurrent.futures import wait
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from ipywidgets import VBox

from speclab.drafters.base import Strategy, checked
from speclab.drafters.chain import Autoregressive
from speclab.drafters.dynatree import DynaTree
from speclab.errors import SettingsError
from speclab.lab.commands import PHASES, Commands
from speclab.lab.compare_tab import CompareBox
from speclab.lab.screen import Screen
from speclab.lab.settings_tab import Sliders, close
from speclab.lab.setup import SetupForm, chats_with, heads_and_draft, setup_line
from speclab.lab.state import LabConfig, LabState, ModelChoice
from speclab.lab.worker import Worker
from speclab.loading.presets import PRESETS, find
from speclab.prompts import PromptInput, as_messages, examples
from speclab.settings import SessionSettings
from speclab.trace.conditions import Condition
from speclab.trace.records import Finding, Step, Trace
from speclab.views import export_html
from speclab.views.run_data import describe, snapshot
from speclab.views.sentences import title

if TYPE_CHECKING:
    from speclab.engine.session import Session
    from speclab.pair import ModelPair

REAL = "smollm2"
"""The preset of a new lab if it was fetched; else the shipped family."""


class Lab(VBox):
    """A microscope over a Session.

    Methods do what the buttons do and wait until it is done. They raise errors, which the page
    shows after a click.

    Args:
        pair: the models, or the name of a preset, which is loaded on first use; by default
            "smollm2" if it was fetched (`speclab fetch smollm2`), else "mini".
        strategy: by default DynaTree, or plain decoding if the models have no draft.
        prompt: text to continue; token ids; or messages, for models with a chat template. By
            default a shipped example.
        predict: each iteration stops after drafting, so the user can predict what will be accepted.
        trace: a run to open, from `load_trace` or `load_steps`; `check` compares it with a given
            `pair`.
        settings: of the session: `max_new_tokens`, `temperature`, `top_k`, `top_p`, `seed`,
            `stop_at_eos`, `check`.

    Raises:
        SpeclabError: the preset does not exist, or the strategy, the prompt or a setting is
            invalid.
    """

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
        given, choice = (
            (None, _preset(pair)) if pair is None or isinstance(pair, str) else (pair, None)
        )
        if strategy is None:
            drafts = any(heads_and_draft(choice, given))
            strategy = DynaTree() if drafts else Autoregressive()
        if prompt is None:
            chats = chats_with(choice, given)
            text = examples(chat=chats)[0].text
            prompt = as_messages(text) if chats else text
        wanted = LabConfig(choice, checked(strategy), prompt, SessionSettings(**settings))
        self.state = state = LabState(wanted)
        state.predict = predict
        self._commands = do = Commands(
            state,
            given,
            self._cancelled,
            self._update,
            lambda m: self._screen.post(m),
            named=pair is not None,
        )
        self._worker = Worker(state, self._update, do.cancel)
        self._screen = Screen(state, self._hear, self._setup, lambda: self._worker.began)
        self._form = SetupForm(state, given, self._preview)
        self._sliders = Sliders(
            state,
            self._preview,
            lambda: self._ask(do.redo, "Decoding again", "step"),
            lambda name: self._ask(lambda: do.curve(name), "Replaying", "settings"),
        )
        self._choices = CompareBox(
            lambda names: self._ask(lambda: do.compare(names), "Comparing", "compare")
        )
        boxes = [self._form, self._screen, self._sliders, self._choices]
        super().__init__(boxes, _dom_classes=["speclab-lab"])
        if trace is not None:
            self._wait(lambda: do.show_trace(trace, str(trace.settings.get("strategy", "run"))))
        elif given is not None:
            self._wait(do.start)

    @property
    def session(self) -> Session | None:
        """The session; None until the models are loaded."""
        return self._commands.session

    def step(self) -> Step:
        """Go on by one iteration.

        The first call returns the first iteration even if a page already shows it.
        """
        return self._wait(self._commands.next, "Decoding")  # type: ignore[no-any-return]

    def back(self) -> Step | None:
        """Show the previous iteration; None at the beginning. No model call."""
        return self._wait(self._commands.back)  # type: ignore[no-any-return]

    def goto(self, index: int) -> Step | None:
        """Show the text after `index` iterations. No model call."""
        return self._wait(lambda: self._commands.goto(index))  # type: ignore[no-any-return]

    def phase(self, name: str) -> None:
        """Show a phase of the iteration: draft, flatten, verify, accept, commit or all."""
        self._wait(lambda: self._commands.phase(name))

    def run(self, until: Condition | None = None) -> Step | None:
        """Decode until `until` holds, the text ends, or `stop` is called; returns the last step.

        `until`: a function of a step, or an expression such as `accepted < 2` (see
        `speclab.trace.conditions`).
        """
        return self._wait(lambda: self._commands.run(until), "Decoding")  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Stop the running work, from any thread; decoded iterations are kept."""
        self._worker.stop()

    def select(self, node: int | None) -> None:
        """Select a node of the current tree, or none."""
        self._wait(lambda: self._commands.select(node))

    def fork(self, strategy: Strategy | None = None, **settings: Any) -> Session:
        """Fork at the cursor with other settings; the former session stays unchanged."""
        return self._wait(lambda: self._commands.fork(strategy, **settings), "Forking")  # type: ignore[no-any-return]

    def check(self) -> tuple[Finding, ...]:
        """Check the run (`clinic.check`), mark the findings in the pictures and list them in the tab Check."""
        return self._wait(self._commands.check, "Checking")  # type: ignore[no-any-return]

    def pin(self) -> None:
        """Pin the current iteration next to later ones (tab Compare), or unpin it."""
        self._wait(self._commands.pin)

    def snapshot(self) -> str:
        """The current iteration as static HTML without scripts."""
        return snapshot(self.state.trace, self.state.cursor)

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write the run as one HTML page that steps through its iterations without a kernel."""
        if self.state.trace is None:
            raise SettingsError("There is no run yet: step() decodes the first iteration.")
        return export_html(self.state.trace, path)

    def close(self) -> None:
        """End the thread and free widgets, session and caches."""
        worker = getattr(self, "_worker", None)  # None: the constructor refused its arguments
        if worker is None or worker.closed:
            return
        worker.close()
        self.state.unobserve_all()
        self._commands.free()
        self._sliders.free()
        for box in self.children:
            close(box)
        self.layout.close()
        super().close()

    # From the page.

    def _hear(self, said: dict[str, Any]) -> None:
        """Handle a message of the page on any thread; commands are queued for the worker."""
        do = self._commands
        node = said.get("node", 0)
        until = said.get("until") or {}
        condition = (until.get("kind", "end"), until.get("value"))
        orders: dict[str, tuple[Callable[[], Any], str, str]] = {
            "hello": (self._begin, "", "step"),
            "step": (do.step, "Decoding", "step"),
            "run": (lambda: do.run_until(*condition), "Decoding", "until"),
            "condition": (lambda: do.hint(*condition), "", "until"),
            "add": (lambda: do.editor.add(node, said.get("token"), said.get("text")), "", "hand"),
            "prune": (lambda: do.editor.prune(node), "", "hand"),
            "undo": (do.editor.undo, "", "hand"),
            "verify": (do.verify, "Verifying", "hand"),
            "switch": (lambda: do.switch(int(said["run"])), "", "compare"),
            "save": (lambda: do.save(said["what"]), "Saving", "files"),
            "check": (do.check, "Checking", "check"),
            "open": (lambda: do.open_trace(said["name"], said["data"]), "Opening", "files"),
        }
        match said.get("do"):
            case "shown":
                self._at(said)
            case "stop":
                self.stop()
            case "change":
                self._form.toggle()
            case "predict_mode":
                self.state.predict = bool(said.get("on"))
            case str(name) if name in orders:
                self._screen.greeted = self._screen.greeted or name == "hello"
                self._ask(*orders[name])

    def _at(self, said: dict[str, Any]) -> None:
        state = self.state
        steps = state.trace.steps if state.trace is not None else ()
        cursor = said.get("cursor")
        phase = said.get("phase")
        node = said.get("node")
        late = said.get("moves", self._screen.moves) != self._screen.moves or state.busy
        if isinstance(cursor, int) and 0 <= cursor <= len(steps) and phase in PHASES and not late:
            node = node if isinstance(node, int) else None
            self._screen.at(cursor, phase, node)
            state.cursor = cursor
            state.phase = phase
            state.selected = node
            self._ask(self._commands.place, key="place")
        if said.get("tab") == "settings":
            self._sliders.fill()
        elif said.get("tab") == "compare":
            self._choices.fill()

    def _begin(self) -> None:
        """Answer a new page with the current state, and decode the first iteration if there is none."""
        self._update()
        self._commands.begin()

    def _preview(self) -> None:
        self._ask(self._commands.preview, "", "prompt", key="preview")

    def _ask(
        self, work: Callable[[], Any], busy: str = "", where: str = "page", key: str = ""
    ) -> None:
        self._worker.submit(work, busy, where, key)

    def _wait(self, work: Callable[[], Any], busy: str = "") -> Any:
        """Wait for the worker and raise its error. Ctrl-C stops the work."""
        result = self._worker.submit(work, busy)
        try:
            # in short waits, so Ctrl-C works on every system
            while not wait([result], timeout=0.2).done:
                pass
            return result.result()
        except Dropped:
            return None
        except KeyboardInterrupt:
            self.stop()
            self._worker.wait(10)
            raise

    def _update(self) -> None:
        self._screen.update()

    def _cancelled(self) -> Event:
        return self._worker.cancelled

    def _setup(self) -> str:
        if self.state.trace is not None and not self.state.live:
            return title(self.state.trace)
        return setup_line(self.state.applied or self.state.wanted, self._commands.pair)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options) or {}
        words = describe(self.state.trace, self.state.cursor)
        return {**bundle, "text/plain": words, "text/html": self.snapshot()}


def _preset(name: str | None) -> ModelChoice:
    """A preset by name, or the default one; raises if it is not on this machine."""
    if name is None:
        return ModelChoice("mini" if PRESETS[REAL].missing else REAL)
    find(name)
    return ModelChoice(name)
