"""The runs of a lab and all that is done to them: decode, move, fork, build a tree by hand, replay,
compare, check, save.

The message NAME of the page calls the method `on_NAME`. All of it runs on the worker's thread, and
nothing else touches a session.
"""

from __future__ import annotations

import base64
import gzip
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traitlets import Dict

from speclab import clinic
from speclab.analysis.compare import Comparison, compare
from speclab.analysis.curves import sweep
from speclab.clinic.steps_file import load_steps
from speclab.drafters import cost, setting_names, strategies
from speclab.drafters.by_hand import ByHand
from speclab.errors import NotRecordedError, PromptError, SettingsError, SpeclabError, TraceError
from speclab.lab._form import (
    CURRENT,
    FORM,
    LabConfig,
    ModelChoice,
    offered,
    prompt_of,
    refuse_long,
    short_name,
    with_models,
    with_prompt,
)
from speclab.lab._state import PHASES, LabState
from speclab.lab._worker import Worker
from speclab.trace.codecs import adapter
from speclab.trace.conditions import Condition, compiled, stateful
from speclab.trace.edit import TreeEdit
from speclab.trace.files import unpack_trace
from speclab.trace.records import Finding, Step, Trace
from speclab.views.exported_page import page
from speclab.views.run_data import curve_data, step_data, tree_data, what_if_data

if TYPE_CHECKING:
    from speclab.clinic._diff import Diff
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session
    from speclab.pair import ModelPair

UNTIL = {"accepts_fewer": "accepted < {}", "nodes_more": "nodes > {}", "expression": "{}"}
"""The conditions that the page can run until."""
_PLAIN = str.maketrans("␣⏎⇥", " \n\t")
"""How the page writes white space."""


@dataclass
class Run:
    """A run of this lab.

    `family`: a letter, the same for all forks of a run. A fork shares the first `at` iterations of
    the run that it was made from; other runs have -1. A file has no session.
    """

    number: int
    name: str
    family: str
    trace: Trace
    cursor: int = 0
    config: LabConfig | None = None
    session: Session | None = None
    at: int = -1


class Runs(LabState):
    """The state of a lab, and what changes it: all runs, one of which is shown.

    `named`: the user named models, so an opened run is checked against them.
    """

    worker: Worker
    named = False
    session: Session | None = None
    _pair: ModelPair | None = None
    _loaded: ModelChoice | None = None  # the choice that `_pair` was loaded for
    _all: tuple[Run, ...] = ()
    _made: tuple[str, ...] = ()  # the family of every run, also of closed ones
    _shown: Run | None = None
    _working: Session | None = None  # runs, but is not shown
    _typed = Dict()  # settings of a refused strategy

    # The form

    def on_want(self, **parts: Any) -> None:
        """Take over parts of the form; a refused part shows its error and changes nothing."""
        for part in FORM:
            if part in parts:
                self.mend([part])
                try:
                    self.wanted = self._changed(part, parts[part])
                except SpeclabError as error:
                    self.fail(part, str(error))
        if "strategy" not in self.errors:
            offer = offered(self.wanted.models, self.given)
            if sentence := self.wanted.strategy.missing(offer):
                self.fail("strategy", sentence)
        self.worker.submit(self.preview, where="page", key="preview")

    def on_reset(self) -> None:
        """Take over the setup of the run shown."""
        self._typed = {}
        self.mend(FORM)
        if self.applied is not None:
            self.wanted = self.applied
        self.on_want()

    def _changed(self, part: str, value: Any) -> LabConfig:
        config = self.wanted
        match part:
            case "models":
                config = with_models(config, value, self.given)
                self.mend(["strategy"])  # it may suit the new models
            case "strategy":
                strategy = self._strategy(str(value.get("name")), value.get("settings") or {})
                config = replace(config, strategy=strategy)
            case "session":
                config = replace(config, settings=config.settings.changed(**value))
            case "prompt":
                config = with_prompt(config, value)
                if self._pair is not None and self._loaded == config.models:
                    refuse_long(self._pair, config.prompt)
        return config

    def _strategy(self, name: str, settings: dict[str, Any]) -> Strategy:
        kind = kind_of(name)
        former = self.wanted.strategy
        if type(former).__name__ == name:
            # settings that contradict each other are kept until a later one mends them
            settings = self._typed = former.model_dump() | self._typed | settings
        strategy = kind(**settings)
        self._typed = {}
        return strategy

    def _wanted(self) -> LabConfig:
        """The setup of the form; raises while one of its parts is refused."""
        for part in FORM:
            if sentence := self.errors.get(part):
                raise SettingsError(sentence)
        return self.wanted

    # Models and sessions

    def load(self, choice: ModelChoice | None) -> ModelPair:
        """Load the models of a choice once, None for the given pair; if loading fails, the former models stay."""
        if choice is None:
            self._pair = self.given
        elif choice != self._loaded or self._pair is None:
            self.worker.report(f"Loading {choice}", 0.02)
            from speclab.pair import load_pair

            def report(_: str) -> None:
                self.worker.check()
                # a share of an unknown number of reports: each takes a quarter of what is left
                done = self.progress or 0.0
                self.worker.report(f"Loading {choice}", done + (0.95 - done) / 4)

            named: dict[str, Any] = {name: value or None for name, value in asdict(choice).items()}
            self._pair = load_pair(**named, report=report)
        self._loaded = choice
        assert self._pair is not None
        return self._pair

    def start(self) -> Session:
        """A new session with the form's setup, before its first iteration."""
        config = self._wanted()
        busy = self.busy
        pair = self.load(config.models)
        from speclab.engine.session import Session

        prompt = prompt_of(pair, config.prompt)
        self.worker.report("Timing the models", 0.97)
        cost.with_node_budget(config.strategy, pair.target)
        self.worker.report(busy)
        session = Session(pair, config.strategy, prompt, **config.settings.model_dump())
        name = type(config.strategy).__name__
        self._add(name, session.trace, session=session, config=config)
        return session

    def _ready(self, start: str = "here") -> Session:
        """The session at the cursor with all changes applied, or a new one if `start` is "start"."""
        wanted = self._wanted()
        if self._shown is None:
            return self.start()
        session, applied = self._live()
        if start == "start" or self.starts_over:
            return self.start()
        if wanted != applied:
            return self._fork(self.cursor, wanted.strategy, **wanted.settings.model_dump())
        session.goto(self.cursor)
        return session

    def _fork(self, at: int, strategy: Strategy | None, **settings: Any) -> Session:
        """Fork the session after `at` iterations, and show the fork."""
        session, old = self._live()
        fork = session.fork(at, strategy, **settings)
        config = replace(old, strategy=fork.strategy, settings=fork.settings)
        name = short_name(old, config)
        self._add(name, fork.trace, at, session=fork, config=config, cursor=fork.cursor)
        return fork

    # Decode and move

    def on_step(self, start: str = "here") -> Step:
        """Apply pending changes of the form, then decode one iteration; "start" begins a new run."""
        session = self._ready(start)
        try:
            return session.step()
        finally:
            self._update(session)

    def on_run(self, until: Condition | Mapping[str, Any] | None = None) -> Step | None:
        """Decode until `until` holds, the text ends or Stop is pressed; returns the last step.

        `until`: a function of a step, or an expression such as `accepted < 2` (see
        `speclab.trace.conditions`), or what the page's field says.
        """
        reason = ""
        if isinstance(until, Mapping):
            until, reason = self._condition(until)
        condition = compiled(until, setting_names())
        reason = reason or getattr(condition, "text", "the condition holds")
        session = self._ready()
        holds = stateful(condition, self.step)

        def each(step: Step) -> bool:
            if holds(step):
                self.message = f"Stopped: {reason}."
                return True
            if self.worker.due():
                self._update(session)
                share = len(session.token_ids) / session.settings.max_new_tokens
                self.worker.report(self.busy, share)
            return self.worker.cancelled.is_set()

        self.message = ""
        try:
            session.run(until=each)
        finally:
            self._update(session)
        if not session.done and not self.message:
            self.message = "Stopped."
        return self.step

    def on_condition(self, until: Mapping[str, Any]) -> None:
        """Tell the page whether the typed condition is valid."""
        sentence = ""
        try:
            self._condition(until)
        except SettingsError as error:
            sentence = str(error)
        self.post("hint", sentence=sentence)

    def _condition(self, until: Mapping[str, Any]) -> tuple[Condition | None, str]:
        """A condition of the page, and its description; None for the end of the text.

        Raises:
            SettingsError: the typed text is empty, or not a condition.
        """
        kind = until.get("kind", "end")
        value = until.get("value")
        if kind == "end":
            return None, ""
        if kind == "token":
            wanted = str(value)
            start = max(0, len(self._text()) - len(wanted) + 1)
            # a match may span two iterations
            return lambda _: wanted in self._text()[start:], f"“{wanted}” came"
        expression = UNTIL[kind].format(value)
        compiled(expression, setting_names())
        return expression, expression

    def _text(self) -> str:
        return self.session.text if self.session is not None else ""

    def back(self) -> Step | None:
        """Show the previous iteration; None at the beginning. No model call."""
        return self.goto(max(0, self.cursor - 1))

    def goto(self, index: int) -> Step | None:
        """Show the text after `index` iterations; no model call."""
        count = len(self.steps)
        if not 0 <= index <= count:
            raise SettingsError(f"There is no iteration {index}: {count} are decoded.")
        self.arrive(index)
        self.place()
        return self.step

    def place(self) -> None:
        """Move the session to the current iteration, and drop what belongs to another one."""
        if self.session is not None and self.live:
            self.session.goto(self.cursor)
        if self.edits and self.edits[-1].step is not self.step:
            self._leave_edits()
        self.moved()

    def show_phase(self, name: str) -> None:
        """Show a phase of the iteration: draft, flatten, verify, accept, commit or all."""
        if name not in PHASES:
            raise SettingsError(f"There is no phase {name!r}: choose one of {', '.join(PHASES)}.")
        self.phase = name

    def select(self, node: int | None) -> None:
        """Select a node of the current tree, or none."""
        step = self.step
        if node is not None and (step is None or not 0 <= node < len(step.tree)):
            raise SettingsError(f"There is no node {node} in the iteration shown.")
        self.selected = node

    def fork(self, /, strategy: Strategy | None = None, **settings: Any) -> Session:
        """Fork at the cursor with other settings; the former session stays unchanged."""
        if self._shown is None:
            self._ready()
        return self._fork(self.cursor, strategy, **settings)

    def on_redo(self) -> Step:
        """Decode the current iteration again in a fork with the form's settings, the old one pinned."""
        old = self.step
        wanted = self._wanted()
        if old is None or self.new_run:
            return self.on_step()
        if not self.pending:
            raise SettingsError("No setting has changed: change one, then apply it.")
        self._fork(self.cursor - 1, wanted.strategy, **wanted.settings.model_dump())
        self.show("pinned", step=step_data(old))
        return self.on_step()

    def pin(self) -> None:
        """Pin the current iteration next to later ones (tab Compare), or unpin it."""
        step = self.step
        if self.panels.get("pinned") or step is None:
            self.hide("pinned")
        else:
            self.show("pinned", step=step_data(step))

    # The run shown

    def open_trace(self, trace: Trace, name: str) -> None:
        """Show a recorded run."""
        self._add(name, trace, cursor=min(1, len(trace.steps)))

    def on_switch(self, run: int) -> None:
        """Show another run, by its number, at its last position."""
        self._show(self._numbered(run))

    def on_close(self, run: int) -> None:
        """Forget a run that is not shown."""
        closed = self._numbered(run)
        if closed is not self._shown:
            self._all = tuple([other for other in self._all if other is not closed])
            self._list_runs()

    def cancel(self) -> None:
        """Stop the running iteration, from any thread; earlier iterations are kept."""
        for session in (self.session, self._working):
            if session is not None:
                session.cancel()

    def free(self) -> None:
        """Release sessions, caches and models."""
        self.session = self._pair = self._shown = self._working = self.given = None
        self._all = self.edits = ()
        self.panels = {}

    def _add(self, name: str, trace: Trace, at: int = -1, **fields: Any) -> None:
        """Show a new run, such as `B Goose`; with `at` a fork of the run shown, such as
        `A2 τ_ℓ 0.75 from 4`."""
        family = chr(65 + len({*self._made}) % 26) if at < 0 else self.shown().family
        self._made = (*self._made, family)
        count = self._made.count(family)
        label = family if count == 1 else f"{family}{count}"
        words = [label, name, f"from {at}" if at >= 0 else ""]
        number = len(self._made) - 1
        run = Run(number, " ".join(filter(None, words)), family, trace, at=at, **fields)
        self._all = (*self._all, run)
        self._show(run)

    def _numbered(self, number: int) -> Run:
        for run in self._all:
            if run.number == number:
                return run
        raise SettingsError(f"There is no run {number}: it was closed.")

    def _show(self, run: Run) -> None:
        if self._shown is not None:
            self._shown.cursor = self.cursor
        self._shown = run
        if run.session is not None and run.config is not None:
            self.session = run.session
            self.session.goto(run.cursor)
            self.applied = run.config
            self.wanted = run.config
        self.number = run.number
        self.live = run.session is not None
        self.trace = run.trace
        self.hide("curve")
        self._settle(run.cursor)

    def _update(self, session: Session) -> None:
        """Show what the session shown has decoded."""
        assert self._shown is not None
        self.trace = self._shown.trace = session.trace
        self._settle(session.cursor)

    def _settle(self, cursor: int) -> None:
        self.arrive(cursor)
        self._leave_edits()
        self.hide("preview", "diffed")
        self._list_runs()

    def _list_runs(self) -> None:
        rows = [
            {
                "number": run.number,
                "at": run.at,
                "name": run.name,
                "iterations": len(run.trace.steps),
                "shown": run is self._shown,
            }
            for run in sorted(self._all, key=lambda run: run.family)
        ]
        self.show("runs", runs=rows)

    def shown(self) -> Run:
        """The run shown; raises if there is none."""
        if self._shown is None:
            raise SettingsError("There is no run yet: Step decodes the first iteration.")
        return self._shown

    def _live(self) -> tuple[Session, LabConfig]:
        """The session shown and its setup; raises if a file is shown."""
        run = self.shown()
        if run.session is None or run.config is None:
            raise SettingsError(
                "This run was opened from a file: switch to one of your own runs to decode."
            )
        return run.session, run.config

    # A tree built by hand

    def on_add(self, node: int, token: int | None = None, text: str | None = None) -> None:
        """Add a child to a node of the edited tree, by token id or as typed."""
        edit = self._edit()
        assert self._pair is not None
        self._take_edit(edit.add(node, token_of(self._pair, token, text)))

    def on_prune(self, node: int) -> None:
        """Remove a node of the edited tree and its descendants."""
        self._take_edit(self._edit().prune(node))

    def on_undo(self) -> None:
        """Undo the last edit."""
        if len(self.edits) > 1:
            *earlier, edit, _ = self.edits
            self.edits = tuple(earlier)
            self._take_edit(edit)
        else:
            self._leave_edits()

    def on_verify(self) -> Step:
        """Verify the tree built by hand in a fork; afterwards the strategy goes on."""
        if not self.edits:
            raise SettingsError("The tree was not edited: add or prune a node first.")
        edit = self.edits[-1]
        old = edit.step
        assert old is not None
        session, config = self._live()
        by_hand = self._working = session.fork(old.index, strategy=ByHand())
        try:
            step = by_hand.verify(edit)
        finally:
            self._working = None
        fork = by_hand.fork(strategy=config.strategy)
        name = f"by hand, then {type(config.strategy).__name__}"
        self._add(name, fork.trace, old.index, session=fork, config=config, cursor=fork.cursor)
        self.show("pinned", step=step_data(old))
        return step

    def _edit(self) -> TreeEdit:
        """The newest edit; at first the tree of the iteration shown."""
        self._live()
        step = self.step
        if step is None:
            raise SettingsError("There is no tree to edit: go to an iteration.")
        return self.edits[-1] if self.edits else TreeEdit.of(step)

    def _take_edit(self, edit: TreeEdit) -> None:
        """Show an edited tree as a preview."""
        assert self._pair is not None
        assert edit.step is not None
        self.edits = (*self.edits, edit)
        texts = self._pair.token_texts(edit.tree.token.tolist())
        data = {
            **tree_data(edit.tree, [edit.recorded(row) for row in range(len(edit.tree))]),
            "texts": {str(token): text for token, text in texts.items()},
            "by": "hand",
        }
        self.show("preview", index=edit.step.index, what_if=data)

    def _leave_edits(self) -> None:
        if self.edits:
            self.edits = ()
            self.hide("preview")

    # Answers in numbers

    def preview(self) -> None:
        """Preview the wanted settings on the current tree, if its record is enough."""
        step = self.step
        strategy = self.wanted.strategy
        self.hide("preview")
        if (
            step is None
            or self.applied is None
            or self.new_run
            or strategy == self.applied.strategy
        ):
            return
        from speclab.analysis.whatif import what_if

        try:
            answer = what_if(step, strategy, self.wanted.settings)
        except NotRecordedError:
            return
        self.show("preview", index=step.index, what_if=what_if_data(answer))

    def on_curve(self, name: str) -> None:
        """Replay the text over the range of a setting, for its curve of tokens per iteration."""
        strategy = self._wanted().strategy
        session, _ = self._live()
        from speclab.analysis.replay import Replayer

        for curve in sweep(Replayer(session), strategy, name, check=self.worker.check):
            done = len(curve.points) / len(curve.values)
            if self.worker.due() or done == 1:
                self.show("curve", **curve_data(curve))
                self.worker.report("Replaying", done)

    def on_compare(self, names: Sequence[str]) -> Comparison:
        """Decode the prompt with several strategies, one after another."""
        config = self._wanted()
        chosen = {name: config.strategy if name == CURRENT else kind_of(name)() for name in names}
        if not chosen:
            raise SettingsError("No strategy is chosen: choose at least one of the list.")
        pair = self.load(config.models)

        def watch(name: str, session: Session) -> bool:
            self._working = session
            if self.worker.due():
                share = len(session.token_ids) / config.settings.max_new_tokens
                self.worker.report(f"Comparing: {name}", (names.index(name) + share) / len(names))
            return self.worker.cancelled.is_set()

        prompt = prompt_of(pair, config.prompt)
        try:
            result = compare(pair, chosen, prompt, watch=watch, **config.settings.model_dump())
        finally:
            self._working = None
        rows = []
        for run in result.runs:
            differs = result.differs_at(run)
            row = {"name": run.name, "problem": run.problem, "differs_at": differs}
            counts = run.trace.metrics.as_dict() if run.trace is not None else {}
            rows.append({**counts, **row, "tokens": len(run.token_ids)})
        self.show("compared", rows=rows)
        return result

    def on_check(self) -> tuple[Finding, ...]:
        """Check the run (`clinic.check`), mark the findings in the pictures and list them in the tab
        Check.

        It is compared with its session's models; a file with those that the user named, if any.
        """
        run = self.shown()
        pair = self._models_of_check(run)

        def progress(done: int, total: int) -> None:
            self.worker.check()
            if self.worker.due():
                self.worker.report("Checking", done / total)

        run.trace = self.trace = clinic.marked(run.trace, pair, progress)
        findings = tuple([finding for step in run.trace.steps for finding in step.findings])
        compared = "compared with the models" if pair else "without models: pass a pair to Lab"
        self.message = f"Checked {len(run.trace.steps)} iterations, {compared}."
        return findings

    def on_diff(self, run: int | Trace) -> Diff:
        """Compare the run with another one of the same prompt (`clinic.diff`), a trace or a run's
        number; the tab Check and an exported page show both timelines, joined where they part."""
        shown = self.shown()
        name = "the other run"
        if isinstance(run, int):
            other = self._numbered(run)
            name = other.name
            run = other.trace
        result = clinic.diff(shown.trace, run, self._models_of_check(shown))
        result = replace(result, names=(f"a: {shown.name}", f"b: {name}"))
        self.show("diffed", diff=result.as_dict())
        return result

    def _models_of_check(self, run: Run) -> ModelPair | None:
        if run.session is not None:
            return run.session.pair
        return self.load(self.wanted.models) if self.named else None

    # Files

    def on_save(self, what: str) -> None:
        """Send the page the run as a file to download: an HTML page, or a trace."""
        trace = self.shown().trace
        if what == "page":
            name = "run.html"
            mime = "text/html"
            content = page(trace, "run", diff=self.diff).encode()
        else:
            name = "run.json.gz"
            mime = "application/gzip"
            content = gzip.compress(adapter(Trace).dump_json(trace))
        self.post("file", name=name, mime=mime, data=base64.b64encode(content).decode())

    def on_open(self, name: str, data: str) -> None:
        """Show a run from an uploaded file; the tree of runs switches back."""
        try:
            content = base64.b64decode(data, validate=True)
        except ValueError:
            raise TraceError(f"{name} did not arrive whole: open it again") from None
        if name.endswith(".jsonl"):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "run.jsonl"
                path.write_bytes(content)
                trace = load_steps(path)
        else:
            trace = unpack_trace(content, name)
        self.open_trace(trace, Path(name).name)


def kind_of(name: str) -> type[Strategy]:
    """A strategy by its name in the list."""
    known = strategies()
    if name not in known:
        raise SettingsError(f"There is no strategy {name!r}: choose one from the list.")
    return known[name]


def token_of(pair: ModelPair, token: int | None, text: str | None) -> int:
    """Parse a token: an id, or a text as displayed (`␣the`, or `#17` for an id)."""
    if token is not None:
        return token
    if not text:
        raise PromptError("Choose a token from the list, or type one.")
    if text.startswith("#") and text[1:].isdecimal():
        return int(text[1:])
    ids = pair.plain_ids(text.translate(_PLAIN))
    if len(ids) != 1:
        pieces = ", ".join(repr(pair.token_text(piece)) for piece in ids[:6])
        raise PromptError(f"{text!r} is {len(ids)} tokens ({pieces}): add one after the other.")
    return int(ids[0])
