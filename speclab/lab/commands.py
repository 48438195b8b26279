"""The commands of a lab. They run on the worker's thread, and nothing else touches the session."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any

from speclab.drafters import setting_names, strategies
from speclab.drafters.by_hand import ByHand
from speclab.errors import CancelledError, NotRecordedError, SettingsError, SpeclabError
from speclab.lab.compare_tab import Run, runs_html
from speclab.lab.editing import Editor, against, comparison
from speclab.lab.state import LabConfig, LabState, ModelChoice, differences, prompt_of, refuse_long
from speclab.lab.worker import OWNED
from speclab.trace.conditions import Condition, compiled, stateful
from speclab.trace.files import load_trace
from speclab.trace.records import Finding, Step, Trace
from speclab.trace.steps import load_steps
from speclab.views.tokens import plural

if TYPE_CHECKING:
    from speclab.analysis.compare import Comparison
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session
    from speclab.pair import ModelPair

PHASES = ("draft", "flatten", "verify", "accept", "commit", "all")
REDRAW_SECONDS = 0.3
"""Least time between two redraws during a run."""
UNTIL = {"accepts_fewer": "accepted < {}", "nodes_more": "nodes > {}", "expression": "{}"}
"""The conditions that the page can run until."""


class Commands:
    """The commands of one lab. `pair`: given models; None: models are loaded by name.

    `cancelled`: set to end running work. `update`: sends the changes to the page. `post`: sends the
    page one message. `named`: the user named models, so an opened run is checked against them.
    """

    def __init__(
        self,
        state: LabState,
        pair: ModelPair | None,
        cancelled: Callable[[], Event],
        update: Callable[[], None],
        post: Callable[[dict[str, Any]], None],
        *,
        named: bool = False,
    ) -> None:
        self.state = state
        self.pair = pair
        self.session: Session | None = None
        self.runs: list[Run] = []
        self.present: Run | None = None
        self._given = pair
        self._choice = None if pair else ModelChoice("")
        self._cancelled = cancelled
        self._update = update
        self._post = post
        self._named = named
        self._working: Session | None = None  # running, but not on the screen
        self._unasked = False
        self.editor = Editor(state, lambda: self.pair)
        self._pinned: Step | None = None

    # Sessions.

    def begin(self) -> None:
        """Decode the first iteration for a page that shows none yet."""
        opened = self.state.trace is not None and not self.state.live
        if not opened and (self.session is None or not self.session.steps):
            self.state.busy = "Decoding the first iteration"
            self._update()
            self.step()
            self._unasked = True

    def next(self) -> Step:
        """As `step`, but if a page has already decoded the first iteration, return that one."""
        if self._unasked and self.state.cursor == 1 and not self.state.pending:
            self._unasked = False
            return self._shown()
        return self.step()

    def start(self) -> Session:
        """Start a session with the form's settings, before its first iteration."""
        config = self._wanted()
        pair = self._load(config.models)
        from speclab.engine.session import Session

        session = Session(
            pair, config.strategy, prompt_of(pair, config), **config.settings.model_dump()
        )
        self._take(session, config)
        return session

    def step(self) -> Step:
        """Apply pending changes of the form, then go on by one iteration."""
        self._unasked = False
        session = self._ready()
        try:
            session.step()
        finally:
            self._show(session)
        return self._shown()

    def run(self, until: Condition | None = None, why: str = "") -> Step | None:
        """Decode until `until` holds, the text ends or Stop is pressed; returns the last step."""
        self._unasked = False
        condition = compiled(until, setting_names())
        session = self._ready()
        drawn = monotonic()
        held = False
        holds = stateful(condition, self.state.step)

        def each(step: Step) -> bool:
            nonlocal drawn, held
            held = holds(step)
            if not held and monotonic() - drawn > REDRAW_SECONDS:
                self._show(session)
                self._update()
                drawn = monotonic()
            return held or self._cancelled().is_set()

        try:
            session.run(until=each)
        finally:
            self._show(session)
        if held:
            self.state.sentence = (
                f"Stopped: {why or getattr(condition, 'text', 'the condition holds')}."
            )
        else:
            self.state.sentence = f"Ended: {session.finished}." if session.done else "Stopped."
        return self.state.step

    def run_until(self, kind: str, value: Any = "") -> Step | None:
        """Run until one of the page's conditions holds."""
        return self.run(*page_condition(kind, value, self._text))

    def back(self) -> Step | None:
        """Show the previous iteration; no model call."""
        return self.goto(max(0, self.state.cursor - 1))

    def goto(self, index: int) -> Step | None:
        """Show the text after `index` iterations; no model call."""
        steps = self.state.trace.steps if self.state.trace else ()
        if not 0 <= index <= len(steps):
            raise SettingsError(f"There is no iteration {index}: {len(steps)} are decoded.")
        self._unasked = False
        self.state.cursor = index
        self.state.phase = "all"
        self.state.selected = None
        self.place()
        return self.state.step

    def place(self) -> None:
        """Move the session to the current iteration, and drop what belongs to another one."""
        if self.session is not None and self.state.live:
            self.session.goto(min(self.state.cursor, len(self.session.steps)))
        self.editor.place()

    def phase(self, name: str) -> None:
        """Show one phase of the iteration."""
        if name not in PHASES:
            raise SettingsError(f"There is no phase {name!r}: choose one of {', '.join(PHASES)}.")
        self.state.phase = name

    def select(self, node: int | None) -> None:
        """Select a node of the current tree, or none."""
        step = self.state.step
        if node is not None and (step is None or not 0 <= node < len(step.tree)):
            raise SettingsError(f"There is no node {node} in the iteration shown.")
        self.state.selected = node

    def fork(self, strategy: Strategy | None = None, **settings: Any) -> Session:
        """Fork at the cursor with other settings; the former session stays unchanged."""
        self._unasked = False
        if self.session is None:
            self.start()
        assert self.state.applied is not None
        return self._fork(self.state.cursor, self.state.applied.changed(strategy, settings))

    def redo(self) -> Step:
        """Decode the current iteration again in a fork with the sliders' settings, and show both trees."""
        state = self.state
        wanted = self._wanted()
        old = self.state.step
        if old is None or state.applied is None or not wanted.forks_from(state.applied):
            return self.step()
        changed = "; ".join(differences(state.applied, wanted)) or "the same settings"
        self._fork(state.cursor - 1, wanted)
        new = self.step()
        from speclab.views.decisions import draw_pair

        names = ("As it was", f"With {changed}")
        sentence = f"Iteration {new.index + 1} decoded again with {changed}: {against(new, old)}."
        state.put("settings", "redone", draw_pair(old, new, names), _paragraph(sentence))
        state.sentence = sentence
        return new

    def pin(self) -> None:
        """Pin the current iteration next to later ones, or unpin it."""
        self._pinned = None if self._pinned is not None else self.state.step
        self._show_pinned()

    # Previews, curves, and trees built by hand.

    def preview(self) -> None:
        """Preview the wanted settings on the current tree; refuses a prompt that is too long."""
        state = self.state
        step = self.state.step
        wanted = self._wanted()
        same_models = self.pair is not None and wanted.models == (
            state.applied and state.applied.models
        )
        if same_models and (state.applied is None or wanted.prompt != state.applied.prompt):
            refuse_long(self.pair, wanted)
        if step is None or state.applied is None or wanted.strategy == state.applied.strategy:
            state.preview(None)
            return
        from speclab.analysis.whatif import what_if
        from speclab.views.preview import whatif_preview

        try:
            state.preview(whatif_preview(step, what_if(step, wanted.strategy, wanted.settings)))
        except NotRecordedError as error:
            state.preview(None)
            state.sentence = f"No preview: {error}."

    def curve(self, name: str) -> None:
        """Replay the text over the range of a setting, for its curve of tokens per iteration."""
        strategy = self._wanted().strategy
        state = self.state
        if self.session is None or not self.session.steps:
            raise SettingsError("There is no text to replay: Step decodes the first iteration.")
        from speclab.analysis.curves import sweep
        from speclab.analysis.replay import Replayer
        from speclab.views.compare_picture import curve_sentence, draw_curve

        drawn = 0.0
        for curve in sweep(Replayer(self.session), strategy, name, check=self._check):
            if monotonic() - drawn > REDRAW_SECONDS or len(curve.points) == len(curve.values):
                drawn = monotonic()
                state.busy = f"Replaying: {len(curve.points)} of {len(curve.values)}"
                state.put("settings", "curve", draw_curve(curve), _paragraph(curve_sentence(curve)))
                self._update()

    def verify(self) -> Step:
        """Verify the tree built by hand in a fork; afterwards the strategy goes on."""
        edit, old = self.editor.tree()
        assert self.session is not None
        assert self.state.applied is not None
        config = self.state.applied
        parent = self.session
        by_hand = self._working = parent.fork(old.index, strategy=ByHand())
        try:
            step = by_hand.verify(edit)
        finally:
            self._working = None
        session = by_hand.fork(strategy=config.strategy)
        self._take(session, config, self.present, old.index, "by hand")
        words = comparison(step, old)
        self.state.put("settings", "byhand", _paragraph(words))
        self.state.sentence = words
        return step

    # Runs, comparisons, files.

    def switch(self, number: int) -> None:
        """Show another run of this lab at its last position."""
        run = next((run for run in self.runs if run.number == number), None)
        if run is None:
            raise SettingsError(f"There is no run {number}.")
        self._leave()
        self._put_on_screen(run)

    def compare(self, names: Sequence[str]) -> Comparison:
        """Decode the prompt with several strategies, one after another."""
        config = self._wanted()
        if not names:
            raise SettingsError("No strategy is chosen: choose at least one to compare.")
        known = strategies()
        given = {name: known[name]() if name in known else config.strategy for name in names}
        pair = self._load(config.models)
        from speclab.analysis.compare import compare
        from speclab.views.compare_picture import compare_table, draw_compare

        drawn = 0.0
        most = config.settings.max_new_tokens

        def watch(name: str, session: Session) -> bool:
            nonlocal drawn
            self._working = session
            if monotonic() - drawn > REDRAW_SECONDS:
                drawn = monotonic()
                self.state.busy = f"Comparing: {name}, {len(session.token_ids)} of {most} tokens"
                self._update()
            return self._cancelled().is_set()

        try:
            result = compare(
                pair, given, prompt_of(pair, config), watch=watch, **config.settings.model_dump()
            )
        finally:
            self._working = None
        self.state.put("compare", "compared", draw_compare(result), compare_table(result))
        return result

    def check(self) -> tuple[Finding, ...]:
        """Check the run on the screen against its session's models, or those the user named, and mark the findings."""
        from speclab.analysis.clinic import TIE, marked

        state = self.state
        trace = self._trace()
        run = self.present
        drawn = monotonic()
        assert run is not None
        pair = (
            run.session.pair
            if run.session
            else self._load(state.wanted.models)
            if self._named
            else None
        )

        def progress(done: int, total: int) -> None:
            nonlocal drawn
            self._check()
            if monotonic() - drawn > REDRAW_SECONDS:
                drawn = monotonic()
                state.busy = f"Checking: {done} of {total} iterations"
                self._update()

        state.trace = run.trace = marked(trace, pair, progress)
        findings = tuple([finding for step in run.trace.steps for finding in step.findings])
        ties = sum(finding.kind == TIE for finding in findings)
        beside = (
            "compared with the models run plainly"
            if pair
            else "the record alone, since Lab was given no models"
        )
        state.sentence = (
            f"Checked {plural(len(trace.steps), 'iteration')}, {beside}: "
            f"{plural(len(findings) - ties, 'finding')}, {plural(ties, 'tie')}."
        )
        return findings

    def save(self, what: str) -> None:
        """Send the page the run as a file to download: an HTML page, or a trace."""
        trace = self._trace()
        if what == "page":
            from speclab.views.run_data import page

            name = "run.html"
            mime = "text/html"
            content = page(trace, "run").encode()
        else:
            name = "run.json.gz"
            mime = "application/gzip"
            with tempfile.TemporaryDirectory() as folder:
                content = trace.save(Path(folder) / name).read_bytes()
        self._post(
            {"type": "file", "name": name, "mime": mime, "data": base64.b64encode(content).decode()}
        )

    def open_trace(self, name: str, data: str) -> None:
        """Show a run from an uploaded file; Compare switches back to the session."""
        with tempfile.TemporaryDirectory() as folder:
            steps = name.endswith(".jsonl")
            path = Path(folder) / ("run.jsonl" if steps else "run.json.gz")
            path.write_bytes(base64.b64decode(data))
            trace = load_steps(path) if steps else load_trace(path)
        self.show_trace(trace, Path(name).name)

    def show_trace(self, trace: Trace, name: str) -> None:
        """Show a recorded run."""
        self._leave()
        self._put_on_screen(self._add_run(Run(0, name, trace, cursor=min(1, len(trace.steps)))))

    def hint(self, kind: str, value: Any = "") -> None:
        """Tell the page whether the typed condition is valid."""
        try:
            page_condition(kind, value, self._text)
            sentence = ""
        except SpeclabError as error:
            sentence = str(error)
        self._post({"type": "hint", "sentence": sentence})

    def cancel(self) -> None:
        """Stop the running iteration, from any thread; earlier iterations are kept."""
        for session in (self.session, self._working):
            if session is not None:
                session.cancel()

    def free(self) -> None:
        """Release sessions, caches and models."""
        self.session = self.pair = self.present = self._given = self._working = None
        self.runs.clear()
        self.editor.leave()
        self.state.panels = {}

    # Shared steps.

    def _load(self, choice: ModelChoice | None) -> ModelPair:
        """Load the models of a choice once, None for the given pair; if loading fails, the former models stay."""
        if choice is None:
            assert self._given is not None
            self.pair = self._given
            self._choice = None
        elif choice != self._choice or self.pair is None:
            busy = self.state.busy
            self.state.busy = f"Loading {choice}"
            self._update()
            from speclab.pair import load_pair

            self.pair = load_pair(**choice.arguments(), report=lambda _: self._check())
            self._choice = choice
            self.state.busy = busy
            self._update()
        assert self.pair is not None
        return self.pair

    def _wanted(self) -> LabConfig:
        if self.state.where in OWNED and self.state.error:
            raise SettingsError(self.state.error)
        return self.state.wanted

    def _ready(self) -> Session:
        """The session at the cursor, with all changes applied."""
        state = self.state
        if state.trace is not None and not state.live:
            raise SettingsError(
                "This run was opened from a file: switch to one of your runs in Compare to decode."
            )
        wanted = self._wanted()
        if self.session is None or state.applied is None:
            return self.start()
        if wanted == state.applied:
            self.session.goto(state.cursor)
            return self.session
        applied = f"Applied: {'; '.join(differences(state.applied, wanted))}."
        session = (
            self._fork(state.cursor, wanted) if wanted.forks_from(state.applied) else self.start()
        )
        state.sentence = applied
        return session

    def _fork(self, at: int, config: LabConfig) -> Session:
        assert self.session is not None
        session = self.session.fork(at, strategy=config.strategy, **config.settings.model_dump())
        words = "; ".join(differences(self.state.applied or config, config)) or "the same settings"
        self._take(session, config, self.present, at, words)
        return session

    def _take(
        self,
        session: Session,
        config: LabConfig,
        parent: Run | None = None,
        at: int = 0,
        name: str = "",
    ) -> None:
        self._leave()
        run = Run(
            0,
            name or type(config.strategy).__name__,
            session.trace,
            config,
            session,
            cursor=session.cursor,
        )
        if parent is not None:
            run.parent = parent.number
            run.at = at
        self._put_on_screen(self._add_run(run))

    def _add_run(self, run: Run) -> Run:
        run.number = len(self.runs)
        self.runs.append(run)
        return run

    def _leave(self) -> None:
        if self.present is not None:
            self.present.cursor = self.state.cursor
            self.present.trace = self._trace()

    def _put_on_screen(self, run: Run) -> None:
        state = self.state
        self.present = run
        if run.session is not None and run.config is not None:
            self.session = run.session
            state.applied = run.config
            state.wanted = run.config
        state.number = run.number
        state.live = run.session is not None
        state.trace = run.trace
        state.cursor = run.cursor
        state.phase = "all"
        state.selected = None
        self.place()
        self.editor.leave()
        for place in ("redone", "curve", "byhand"):
            state.put("settings", place)
        state.put("compare", "runs", *runs_html(self.runs, run))
        state.preview(None)

    def _show(self, session: Session) -> None:
        state = self.state
        state.trace = session.trace
        state.cursor = session.cursor
        state.phase = "all"
        state.selected = None
        state.preview(None)
        self.editor.leave()
        self._show_pinned()

    def _show_pinned(self) -> None:
        step = self.state.step
        if self._pinned is None or step is None:
            self.state.put("compare", "pinned")
            return
        from speclab.views.decisions import draw_pair

        names = (f"Pinned: iteration {self._pinned.index + 1}", f"Iteration {step.index + 1}")
        self.state.put("compare", "pinned", draw_pair(self._pinned, step, names))

    def _shown(self) -> Step:
        step = self.state.step
        assert step is not None
        return step

    def _trace(self) -> Trace:
        if self.state.trace is None:
            raise SettingsError("There is no run yet: Step decodes the first iteration.")
        return self.state.trace

    def _text(self) -> str:
        return self.session.text if self.session is not None else ""

    def _check(self) -> None:
        if self._cancelled().is_set():
            raise CancelledError("Stopped; nothing changed.")


def _paragraph(sentence: str) -> str:
    return f"<p>{escape(sentence)}</p>"


def page_condition(kind: str, value: Any, text: Callable[[], str]) -> tuple[Condition | None, str]:
    """A condition of the page, and its description; None for "end".

    Args:
        kind: end, token, or one of `UNTIL`.
        value: the typed text.
        text: returns the text decoded so far; a match may span two iterations.

    Raises:
        SettingsError: the typed text is empty, or not a condition.
    """
    if kind == "end":
        return None, ""
    if value in ("", None):
        raise SettingsError("Enter what to run until.")
    if kind == "token":
        wanted = str(value)
        start = max(0, len(text()) - len(wanted) + 1)
        return lambda _: wanted in text()[start:], f"“{wanted}” came"
    expression = UNTIL[kind].format(value)
    compiled(expression, setting_names())
    return expression, expression
