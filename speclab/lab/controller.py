"""All that can be asked for of a lab: what `Decoder` does, comparisons and measurements, and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from speclab.analysis.compare import Comparison
from speclab.analysis.routing import Regret, regret
from speclab.errors import SettingsError
from speclab.files import byte_count
from speclab.lab.actions import action
from speclab.lab.decoding import REDRAW_SECONDS, Decoder
from speclab.lab.models import prompt_ids
from speclab.lab.prompt_picker import examples_in_turn
from speclab.lab.runs import CURRENT, cache_bytes, named_strategies
from speclab.lab.state import Progress
from speclab.prompts import as_messages, is_conversation
from speclab.settings import SessionSettings
from speclab.trace.files import load_trace
from speclab.trace.metrics import Counts, Metrics
from speclab.trace.records import Trace
from speclab.views.explain import plural
from speclab.views.export import export_html, save_view
from speclab.views.proposals import regret_words
from speclab.views.registry import Frame
from speclab.views.runs import text_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from speclab.engine.session import Session
    from speclab.trace.records import Lookup

TRACE, PAGE = "trace", "page"


class SessionController(Decoder):
    """The one part of the lab that talks to the session. Its methods run on the worker's thread."""

    @action("comparing", yields=True)
    def compare(self, strategies: Sequence[Any] = (CURRENT,), **settings: Any) -> Comparison:
        """Runs several strategies on the prompt of the form, one after another; the table.

        `strategies`: strategies, classes of them or their names; "current settings" is the one in the form. `settings`:
        of the sessions, by default as in the form. `stop` keeps what had run by then.
        """
        config = self._read()
        given = named_strategies([config.strategy if one == CURRENT else one for one in strategies])
        if not given:
            raise SettingsError("No strategy is chosen: mark at least one to run.")
        state, chosen = self._state, SessionSettings(**{**config.settings, **settings})
        pair = self.models.load(config.models)
        from speclab.analysis.compare import compare

        tokens, drawn = dict.fromkeys(given, 0), 0.0

        def watch(name: str, session: Session) -> bool:
            nonlocal drawn
            self.other, begins, tokens[name] = session, not tokens[name], len(session.token_ids)
            if begins or monotonic() - drawn > REDRAW_SECONDS:
                drawn = monotonic()
                state.progress = Progress(dict(tokens), chosen.max_new_tokens, name)
            return self._cancelled.is_set()

        state.status = f"Comparing on the prompt above: {', '.join(given)}…"
        try:
            found = compare(pair, given, prompt_ids(pair, config.prompt), watch=watch, **chosen.model_dump())
        finally:
            self.other = state.progress = None
        state.compared = found
        ran = f"Compared {sum([entry.complete for entry in found.runs])} of {len(given)} strategies"
        state.status = f"{ran}{', then stopped' if found.stopped else ''}. {text_words(found)}"
        return found

    @action("decoding the example prompts", yields=True)
    def sample(self, count: int = 12, max_new_tokens: int = 48) -> tuple[Trace, ...]:
        """Decodes shipped example prompts with what the form says, of each kind in turn; the runs, as records alone.

        They are chat prompts where the prompt of the form is. `stop` keeps those that were decoded by then.
        """
        config, state = self._read(), self._state
        found: list[Trace] = []
        chat = is_conversation(config.prompt)
        prompts, settings = examples_in_turn(count, chat=chat), {**config.settings, "max_new_tokens": max_new_tokens}
        try:
            state.sampling = 0, len(prompts), "loading the models"
            pair = replace(self.models.load(config.models), shared_state={})  # nothing is carried over to the lab
            from speclab.engine.session import Session

            began = monotonic()
            for prompt in prompts:
                state.sampling = len(found), len(prompts), f"{prompt.kind} · {prompt.name}"
                given = as_messages(prompt.text) if chat else prompt.text
                session = self.other = Session(pair, config.strategy, prompt_ids(pair, given), **settings)
                if not self._cancelled.is_set():
                    session.run(until=lambda _: self._cancelled.is_set())
                if self._cancelled.is_set():
                    break
                found.append(made := session.trace)
                same = made.prompt_ids, made.settings  # decoded before: the newer one stays
                state.sampled = (*[one for one in state.sampled if (one.prompt_ids, one.settings) != same], made)
        finally:
            self.other, state.sampling = None, ()
        total = sum([one.metrics.counts for one in found], Counts())
        spent = total.seconds + sum([one.prefill_seconds for one in found])
        stopped = "Stopped: " if len(found) < len(prompts) else ""
        state.status = (
            f"{stopped}{len(found)} of {plural(len(prompts), 'example')} decoded in {monotonic() - began:.1f} s, "
            f"{spent:.1f} s of them in the models: {Metrics(total).tokens_per_iteration:.2f} tokens per iteration."
        )
        return tuple(found)

    @action(key="goto")
    def show_node(self, source: int | Trace, iteration: int, node: int, words: str = "") -> None:
        """Shows a node of run `source`, or of a recorded one: its iteration, counted from 0, with the node selected."""
        frame = self._state.frame
        if isinstance(source, Trace):
            if frame.trace is not source:
                self.open_trace(lambda: source, "a run")
        elif not frame.live or source != self.runs.present.number:
            self.switch(source)
        self._show_at(iteration + 1, words)
        self.select(node)

    @action("verifying both trees", "regret")
    def verify_all(self) -> Regret:
        """Both trees of the iteration shown, verified, each in a fork of its own."""
        self.leave_edit()
        if self.session is None or not self._state.frame.live or not self._state.cursor:
            raise SettingsError("No iteration of a live run is shown: Step decodes one, then verify its trees.")
        found = regret(self.session, self._state.cursor - 1)
        self._state.change_frame(regret=found)
        assert self._state.step is not None
        self._state.status = regret_words(self._state.step, found)
        return found

    def lookup(self, frame: Frame, written: str) -> Lookup | None:
        """What the drafter had learned, at the position shown, of the tokens written, else of the node selected."""
        return None

    def attention(self, frame: Frame) -> NDArray[np.float32]:
        """What the selected node attends to, of every layer and head."""
        raise SettingsError("Attention weights are not recorded.")

    @action()
    def drop(self, number: int) -> None:
        """Lets a run go that is not shown, its caches with it."""
        dropped, beside = self.runs.drop(number), self._state.frame.beside
        if beside is not None and beside.number == number:
            self._state.change_frame(beside=None)
        self._state.forks = self.runs.describe()
        freed = byte_count(cache_bytes(dropped.session.pair))
        self._state.status = f"Dropped run {number}, {dropped.name}: {freed} of KV caches."

    # Files.

    @action("saving")
    def save(self, what: str, path: str | os.PathLike[str]) -> Path:
        """Writes the run (`what` is "trace" or "page"), or a view of the iteration shown."""
        if not str(path):
            raise SettingsError("No path is named: write one, such as run.json.gz.")
        frame = self._state.frame
        if what == TRACE:
            written: Path = frame.trace.save(path)
        elif what == PAGE:
            written = export_html(frame.trace, path, frame.cursor, frame.beside)
        else:
            written = save_view(frame.trace, frame.cursor, what, path, None if frame.edited else frame.selected)
        self._state.status = f"Saved {written}."
        return written

    @action("opening")
    def open_trace(self, source: str | os.PathLike[str] | Callable[[], Trace], name: str = "") -> None:
        """Shows a recorded run, from a path or from what reads it; Step walks through it, and a session waits for it.

        No model runs.
        """
        trace = source() if callable(source) else load_trace(source)
        ran = f"{trace.settings.get('strategy', 'a strategy')} on {trace.models.get('target', 'other models')}"
        words = f"Opened {name or source}: {plural(len(trace.steps), 'iteration')} of {ran}, recorded."
        kept, changes = self._state.frame, {"regret": None, "live": False}
        if kept.trace.prompt_ids != trace.prompt_ids:
            changes |= {"pinned": None, "beside": None}
        frame = kept.at(min(1, len(trace.steps)), trace, **changes)
        self._show_frame(frame, status=words, done=0, total=0)
