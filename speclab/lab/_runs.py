"""The runs of a lab and all that is done to them: decode, move, fork, build a tree by hand, replay,
compare, check, save.

A message of the page calls the method of its name. All of it runs on the worker's thread, and
nothing else touches a session.
"""

from __future__ import annotations

import base64
import gzip
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclab.clinic.steps_file import load_steps
from speclab.drafters import setting_names, strategies
from speclab.drafters.by_hand import ByHand, TreeEdit
from speclab.errors import NotRecordedError, PromptError, SettingsError, SpeclabError, TraceError
from speclab.lab._form import (
    CURRENT,
    FORM,
    LabConfig,
    Message,
    ModelChoice,
    differences,
    offered,
    prompt_of,
    refuse_long,
    with_models,
    with_prompt,
)
from speclab.lab._state import PHASES, LabState
from speclab.lab._worker import Worker
from speclab.trace.codecs import adapter
from speclab.trace.conditions import Condition, compiled, stateful
from speclab.trace.files import unpack_trace
from speclab.trace.records import Finding, Step, Trace
from speclab.views.run_data import curve_data, step_data, tree_data, what_if_data

if TYPE_CHECKING:
    from speclab.analysis.compare import ComparedRun, Comparison
    from speclab.clinic._diff import Diff
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session
    from speclab.pair import ModelPair

UNTIL = {"accepts_fewer": "accepted < {}", "nodes_more": "nodes > {}", "expression": "{}"}
"""The conditions that the page can run until."""


@dataclass
class Run:
    """A run of this lab.

    A fork has a `parent` and shares its iterations up to `at`. A file has no session.
    """

    number: int
    name: str
    trace: Trace
    config: LabConfig | None = None
    session: Session | None = None
    parent: int | None = None
    at: int = 0
    cursor: int = 0


class Runs:
    """All runs of a lab, one of which is shown.

    `named`: the user named models, so an opened run is checked against them.
    """

    def __init__(self, state: LabState, worker: Worker, *, named: bool) -> None:
        self.session: Session | None = None
        self._state = state
        self._worker = worker
        self._named = named
        self._pair = state.given
        self._loaded: ModelChoice | None = None  # the choice that `_pair` was loaded for
        self._all: list[Run] = []
        self._shown: Run | None = None
        self._working: Session | None = None  # runs, but is not shown
        self._edits: list[TreeEdit] = []  # of the tree shown, newest last
        self._typed: dict[str, Any] = {}  # settings of a refused strategy

    # The form

    def want(self, **parts: Any) -> None:
        """Take over parts of the form; a refused part shows its error and changes nothing."""
        state = self._state
        for part in FORM:
            if part in parts:
                try:
                    state.wanted = self._changed(part, parts[part])
                except SpeclabError as error:
                    state.fail(part, str(error))
                else:
                    state.mend([part])
        if parts.keys() & {"models", "strategy"} and "strategy" not in state.errors:
            offer = offered(state.wanted.models, state.given)
            if sentence := state.wanted.strategy.missing(offer):
                state.fail("strategy", sentence)
        self._worker.submit(self.preview, where="page", key="preview")

    def reset(self) -> None:
        """Take over the setup of the run shown."""
        self._typed = {}
        self._state.mend(FORM)
        if self._state.applied is not None:
            self._state.wanted = self._state.applied
        self._worker.submit(self.preview, where="page", key="preview")

    def _changed(self, part: str, value: Any) -> LabConfig:
        config = self._state.wanted
        match part:
            case "models":
                config = with_models(config, value, self._state.given)
                self._state.mend(["strategy"])  # it may suit the new models
            case "strategy":
                strategy = self._strategy(str(value.get("name")), value.get("settings") or {})
                config = replace(config, strategy=strategy)
            case "session":
                config = replace(config, settings=config.settings.changed(**value))
            case "prompt":
                config = with_prompt(config, value)
                applied = self._state.applied
                if self.session and applied and applied.models == config.models:
                    refuse_long(self.session.pair, config.prompt)
        return config

    def _strategy(self, name: str, settings: dict[str, Any]) -> Strategy:
        kind = strategies().get(name)
        if kind is None:
            raise SettingsError(f"There is no strategy {name!r}: choose one from the list.")
        former = self._state.wanted.strategy
        if type(former).__name__ == name:
            # settings that contradict each other are kept until a later one mends them
            settings = self._typed = former.model_dump() | self._typed | settings
        strategy = kind(**settings)
        self._typed = {}
        return strategy

    def _wanted(self) -> LabConfig:
        """The setup of the form; raises while one of its parts is refused."""
        for part in FORM:
            if sentence := self._state.errors.get(part):
                raise SettingsError(sentence)
        return self._state.wanted

    # Models and sessions

    def load(self, choice: ModelChoice | None) -> ModelPair:
        """Load the models of a choice once, None for the given pair; if loading fails, the former models stay."""
        if choice is None:
            self._pair = self._state.given
        elif choice != self._loaded or self._pair is None:
            busy = self._state.busy
            self._pair = self._load(choice)
            self._worker.report(busy)
        self._loaded = choice
        assert self._pair is not None
        return self._pair

    def _load(self, choice: ModelChoice) -> ModelPair:
        reports = 0

        def report(_: str) -> None:
            nonlocal reports
            self._worker.check()
            reports += 1
            # a share of an unknown number of reports: each takes a quarter of what is left
            self._worker.report(f"Loading {choice}", 0.95 - 0.85 * 0.75**reports)

        self._worker.report(f"Loading {choice}", 0.02)
        from speclab.pair import load_pair

        self._worker.report(f"Loading {choice}", 0.1)
        return load_pair(**choice.arguments(), report=report)

    def start(self) -> Session:
        """A new session with the form's setup, before its first iteration."""
        config = self._wanted()
        pair = self.load(config.models)
        from speclab.drafters import cost
        from speclab.engine.session import Session

        prompt = prompt_of(pair, config.prompt)
        busy = self._state.busy
        self._worker.report("Timing the models", 0.97)
        cost.prepare(config.strategy, pair)
        self._worker.report(busy)
        session = Session(pair, config.strategy, prompt, **config.settings.model_dump())
        self._take(session, config)
        return session

    def _ready(self, start: str = "here") -> Session:
        """The session at the cursor with all changes applied, or a new one if `start` is "start"."""
        self._check_live()
        state = self._state
        wanted = self._wanted()
        if self.session is None or state.applied is None or start == "start" or state.starts_over:
            return self.start()
        if wanted != state.applied:
            return self._fork(state.cursor, wanted)
        self.session.goto(state.cursor)
        return self.session

    def _check_live(self) -> None:
        if self._state.trace is not None and not self._state.live:
            raise SettingsError(
                "This run was opened from a file: switch to one of your own runs to decode."
            )

    def _fork(self, at: int, config: LabConfig) -> Session:
        """Fork the session after `at` iterations, and show the fork."""
        self._check_live()
        assert self.session is not None
        session = self.session.fork(at, strategy=config.strategy, **config.settings.model_dump())
        changes = differences(self._state.applied or config, config)
        self._take(session, config, at, "; ".join(changes) or "the same settings")
        return session

    # Decode and move

    def step(self, start: str = "here") -> Step:
        """Apply pending changes of the form, then decode one iteration; "start" begins a new run."""
        session = self._ready(start)
        try:
            session.step()
        finally:
            self._update(session)
        step = self._state.step
        assert step is not None
        return step

    def run(self, until: Condition | Mapping[str, Any] | None = None) -> Step | None:
        """Decode until `until` holds, the text ends or Stop is pressed; returns the last step.

        `until`: a condition, or one of the page's.
        """
        reason = ""
        if isinstance(until, Mapping):
            until, reason = self._condition(until)
        condition = compiled(until, setting_names())
        session = self._ready()
        holds = stateful(condition, self._state.step)
        held = False

        def each(step: Step) -> bool:
            nonlocal held
            held = holds(step)
            if not held and self._worker.due():
                self._update(session)
                share = len(session.token_ids) / session.settings.max_new_tokens
                self._worker.report(self._state.busy, share)
            return held or self._worker.cancelled

        try:
            session.run(until=each)
        finally:
            self._update(session)
        if held:
            reason = reason or getattr(condition, "text", "the condition holds")
            self._state.message = f"Stopped: {reason}."
        elif not session.done:
            self._state.message = "Stopped."
        return self._state.step

    def condition(self, until: Mapping[str, Any]) -> None:
        """Tell the page whether the typed condition is valid."""
        sentence = ""
        try:
            self._condition(until)
        except SettingsError as error:
            sentence = str(error)
        self._state.post("hint", sentence=sentence)

    def _condition(self, until: Mapping[str, Any]) -> tuple[Condition | None, str]:
        """A condition of the page, and its description; None for the end of the text.

        Raises:
            SettingsError: the typed text is empty, or not a condition.
        """
        kind = until.get("kind", "end")
        value = until.get("value")
        if kind == "end":
            return None, ""
        if value in ("", None):
            raise SettingsError("Enter what to run until.")
        if kind == "token":
            wanted = str(value)
            start = max(0, len(self._text()) - len(wanted) + 1)
            # a match may span two iterations
            return lambda _: wanted in self._text()[start:], f"“{wanted}” came"
        if kind not in UNTIL:
            raise SettingsError(f"There is no condition {kind!r}: choose one from the list.")
        expression = UNTIL[kind].format(value)
        compiled(expression, setting_names())
        return expression, expression

    def _text(self) -> str:
        return self.session.text if self.session is not None else ""

    def back(self) -> Step | None:
        """Show the previous iteration; no model call."""
        return self.goto(max(0, self._state.cursor - 1))

    def goto(self, index: int) -> Step | None:
        """Show the text after `index` iterations; no model call."""
        count = len(self._state.steps)
        if not 0 <= index <= count:
            raise SettingsError(f"There is no iteration {index}: {count} are decoded.")
        self._arrive(index)
        self.place()
        return self._state.step

    def place(self) -> None:
        """Move the session to the current iteration, and drop what belongs to another one."""
        if self.session is not None and self._state.live:
            self.session.goto(min(self._state.cursor, len(self.session.steps)))
        if self._edits and self._edits[-1].step is not self._state.step:
            self._leave_edits()
        self._state.moved()

    def phase(self, name: str) -> None:
        """Show one phase of the iteration."""
        if name not in PHASES:
            raise SettingsError(f"There is no phase {name!r}: choose one of {', '.join(PHASES)}.")
        self._state.phase = name

    def select(self, node: int | None) -> None:
        """Select a node of the current tree, or none."""
        step = self._state.step
        if node is not None and (step is None or not 0 <= node < len(step.tree)):
            raise SettingsError(f"There is no node {node} in the iteration shown.")
        self._state.selected = node

    def fork(self, strategy: Strategy | None = None, **settings: Any) -> Session:
        """Fork at the cursor with other settings; the former session stays unchanged."""
        if self.session is None:
            self._ready()
        assert self._state.applied is not None
        return self._fork(self._state.cursor, self._state.applied.changed(strategy, settings))

    def redo(self) -> Step:
        """Decode the current iteration again in a fork with the form's settings; the page shows both trees."""
        state = self._state
        wanted = self._wanted()
        old = state.step
        if old is None or state.applied is None or state.new_run:
            return self.step()
        changes = differences(state.applied, wanted)
        if not changes:
            raise SettingsError("No setting has changed: change one, then apply it.")
        self._fork(state.cursor - 1, wanted)
        new = self.step()
        state.show("redone", index=new.index, old=step_data(old), changes=changes)
        return new

    def pin(self) -> None:
        """Pin the current iteration next to later ones, or unpin it."""
        step = self._state.step
        if self._state.panels.get("pinned") or step is None:
            self._state.hide("pinned")
        else:
            self._state.show("pinned", step=step_data(step))

    # The run shown

    def open_trace(self, trace: Trace, name: str) -> None:
        """Show a recorded run."""
        self._add(Run(len(self._all), name, trace, cursor=min(1, len(trace.steps))))

    def switch(self, run: int) -> None:
        """Show another run, by its number, at its last position."""
        self._show(self._numbered(run))

    def cancel(self) -> None:
        """Stop the running iteration, from any thread; earlier iterations are kept."""
        for session in (self.session, self._working):
            if session is not None:
                session.cancel()

    def free(self) -> None:
        """Release sessions, caches and models."""
        self.session = self._pair = self._shown = self._working = self._state.given = None
        self._all.clear()
        self._leave_edits()

    def _take(
        self, session: Session, config: LabConfig, at: int | None = None, name: str = ""
    ) -> None:
        """Show a new session; a fork continues the run shown after `at` iterations."""
        name = name or type(config.strategy).__name__
        run = Run(len(self._all), name, session.trace, config, session, cursor=session.cursor)
        if at is not None and self._shown is not None:
            run.parent = self._shown.number
            run.at = at
        self._add(run)

    def _add(self, run: Run) -> None:
        self._all.append(run)
        self._show(run)

    def _numbered(self, run: int) -> Run:
        if not 0 <= run < len(self._all):
            raise SettingsError(f"There is no run {run}: {len(self._all)} exist.")
        return self._all[run]

    def _show(self, run: Run) -> None:
        state = self._state
        if self._shown is not None:
            self._shown.cursor = state.cursor
        self._shown = run
        if run.session is not None and run.config is not None:
            self.session = run.session
            self.session.goto(run.cursor)
            state.applied = run.config
            state.wanted = run.config
        state.number = run.number
        state.live = run.session is not None
        state.trace = run.trace
        state.hide("redone", "curve")
        self._settle(run.cursor)

    def _update(self, session: Session) -> None:
        """Show what the session shown has decoded."""
        assert self._shown is not None
        self._state.trace = self._shown.trace = session.trace
        self._settle(session.cursor)

    def _settle(self, cursor: int) -> None:
        self._arrive(cursor)
        self._leave_edits()
        self._state.hide("preview", "diffed")
        rows = [
            {
                "number": run.number,
                "parent": run.parent,
                "at": run.at,
                "name": run.name,
                "iterations": len(run.trace.steps),
                "shown": run is self._shown,
            }
            for run in self._all
        ]
        self._state.show("runs", runs=rows)

    def _arrive(self, cursor: int) -> None:
        self._state.cursor = cursor
        self._state.phase = "all"
        self._state.selected = None

    def _trace(self) -> tuple[Run, Trace]:
        """The run shown and its record; raises if there is none."""
        if self._shown is None or self._state.trace is None:
            raise SettingsError("There is no run yet: Step decodes the first iteration.")
        return self._shown, self._state.trace

    # A tree built by hand

    def add(self, node: int | str, token: int | None = None, text: str | None = None) -> None:
        """Add a child to a node, by token id or as typed."""
        edit = self._edit()
        assert self._pair is not None
        parent = index_in(edit, node)
        child = token_of(self._pair, token, text)
        if child in [edit.tree.token[other] for other in edit.tree.children[parent]]:
            name = self._pair.token_text(child)
            raise SettingsError(f"Node {node} has the child {name!r} already: add another token.")
        self._take_edit(edit.add(parent, child))

    def prune(self, node: int | str) -> None:
        """Remove a node and its descendants."""
        edit = self._edit()
        self._take_edit(edit.prune(index_in(edit, node)))

    def undo(self) -> None:
        """Undo the last edit."""
        if len(self._edits) > 1:
            self._edits.pop()
            self._take_edit(self._edits.pop())
        else:
            self._leave_edits()

    def verify(self) -> Step:
        """Verify the tree built by hand in a fork; afterwards the strategy goes on."""
        if not self._edits:
            raise SettingsError("The tree was not edited: add or prune a node first.")
        edit = self._edits[-1]
        old = edit.step
        config = self._state.applied
        assert old is not None
        assert config is not None
        assert self.session is not None
        by_hand = self._working = self.session.fork(old.index, strategy=ByHand())
        try:
            step = by_hand.verify(edit)
        finally:
            self._working = None
        fork = by_hand.fork(strategy=config.strategy)
        self._take(fork, config, old.index, f"by hand, then {type(config.strategy).__name__}")
        self._state.message = comparison(step, old)
        return step

    def _edit(self) -> TreeEdit:
        """The newest edit; at first the tree of the iteration shown."""
        step = self._state.step
        if step is None or not self._state.live:
            raise SettingsError("There is no tree to edit: Step decodes the first iteration.")
        return self._edits[-1] if self._edits else TreeEdit.of(step)

    def _take_edit(self, edit: TreeEdit) -> None:
        """Show an edited tree as a preview."""
        assert self._pair is not None
        assert edit.step is not None
        self._edits.append(edit)
        self._state.edited = True
        texts = self._pair.token_texts(edit.tree.token.tolist())
        data = {
            **tree_data(edit.tree, recorded_nodes(edit)),
            "texts": {str(token): text for token, text in texts.items()},
            "by": "hand",
        }
        self._state.show("preview", index=edit.step.index, what_if=data)

    def _leave_edits(self) -> None:
        if self._edits:
            self._edits.clear()
            self._state.edited = False
            self._state.hide("preview")

    # Answers in numbers

    def preview(self) -> None:
        """Preview the wanted settings on the current tree, if its record is enough."""
        state = self._state
        step = state.step
        strategy = state.wanted.strategy
        state.hide("preview")
        if (
            step is None
            or state.applied is None
            or state.new_run
            or strategy == state.applied.strategy
        ):
            return
        from speclab.analysis.whatif import what_if

        try:
            answer = what_if(step, strategy, state.wanted.settings)
        except NotRecordedError:
            return
        state.show("preview", index=step.index, what_if=what_if_data(answer))

    def curve(self, name: str) -> None:
        """Replay the text over the range of a setting, for its curve of tokens per iteration."""
        strategy = self._wanted().strategy
        session = self.session
        if session is None or not session.steps or not self._state.live:
            raise SettingsError("There is no text to replay: Step decodes the first iteration.")
        from speclab.analysis.curves import sweep
        from speclab.analysis.replay import Replayer

        for curve in sweep(Replayer(session), strategy, name, check=self._worker.check):
            done = len(curve.points) / len(curve.values)
            if self._worker.due() or done == 1:
                self._state.show("curve", **curve_data(curve))
                self._worker.report("Replaying", done)

    def compare(self, names: Sequence[str]) -> Comparison:
        """Decode the prompt with several strategies, one after another."""
        config = self._wanted()
        known = strategies()
        unknown = [name for name in names if name not in known and name != CURRENT]
        if unknown or not names:
            wrong = f"There is no strategy {unknown[0]!r}" if unknown else "No strategy is chosen"
            raise SettingsError(f"{wrong}: choose at least one of the list to compare.")
        chosen = {name: known[name]() if name in known else config.strategy for name in names}
        pair = self.load(config.models)
        from speclab.analysis.compare import compare

        order = list(chosen)

        def watch(name: str, session: Session) -> bool:
            self._working = session
            if self._worker.due():
                share = len(session.token_ids) / config.settings.max_new_tokens
                self._worker.report(f"Comparing: {name}", (order.index(name) + share) / len(order))
            return self._worker.cancelled

        prompt = prompt_of(pair, config.prompt)
        try:
            result = compare(pair, chosen, prompt, watch=watch, **config.settings.model_dump())
        finally:
            self._working = None
        rows = [_row(result, run) for run in result.runs]
        self._state.show("compared", rows=rows, stopped=result.stopped, greedy=result.greedy)
        return result

    def check(self) -> tuple[Finding, ...]:
        """Check the run shown against its session's models, or those the user named, and mark the findings."""
        from speclab.clinic import TIE, marked

        run, trace = self._trace()
        pair = self._models_of_check(run)

        def progress(done: int, total: int) -> None:
            self._worker.check()
            if self._worker.due():
                self._worker.report("Checking", done / total)

        run.trace = self._state.trace = marked(trace, pair, progress)
        findings = tuple([finding for step in run.trace.steps for finding in step.findings])
        ties = sum(finding.kind == TIE for finding in findings)
        way = "and the models' answers" if pair else "without models: pass a pair to Lab"
        self._state.message = (
            f"Checked the record of {len(trace.steps)} iterations, {way}. "
            f"Findings: {len(findings) - ties}, ties: {ties}."
        )
        return findings

    def diff(self, run: int | Trace) -> Diff:
        """Compare the run shown with another one, given by its number or opened; the models decide
        which is wrong."""
        from speclab.clinic._diff import diff

        shown, trace = self._trace()
        name = "the other run"
        if isinstance(run, int):
            other = self._numbered(run)
            name = other.name
            run = other.trace
        result = diff(trace, run, self._models_of_check(shown))
        result = replace(result, names=(f"a: {shown.name}", f"b: {name}"))
        self._state.show("diffed", diff=result.as_dict())
        return result

    def _models_of_check(self, run: Run) -> ModelPair | None:
        if run.session is not None:
            return run.session.pair
        return self.load(self._state.wanted.models) if self._named else None

    # Files

    def save(self, what: str) -> None:
        """Send the page the run as a file to download: an HTML page, or a trace."""
        _, trace = self._trace()
        if what == "page":
            from speclab.views.exported_page import page

            name = "run.html"
            mime = "text/html"
            content = page(trace, "run", diff=self._state.diff).encode()
        else:
            name = "run.json.gz"
            mime = "application/gzip"
            content = gzip.compress(adapter(Trace).dump_json(trace))
        self._state.post("file", name=name, mime=mime, data=base64.b64encode(content).decode())

    def open(self, name: str, data: str) -> None:
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


def recorded_nodes(edit: TreeEdit) -> list[int | None]:
    """For each node of the edited tree, the same node of the iteration; None if it is new."""
    return [edit.recorded(node) for node in range(len(edit.tree))]


def index_in(edit: TreeEdit, node: int | str) -> int:
    """Convert the page's name of a node, a number of the iteration or "new 3", to its number in the edited tree."""
    if isinstance(node, str):
        number = node.removeprefix("new ")
        if not number.isdecimal() or int(number) >= len(edit.tree):
            raise SettingsError("Select a node of the tree first.")
        return int(number)
    nodes = recorded_nodes(edit)
    if node not in nodes:
        raise SettingsError(f"Node {node} was pruned: choose another, or undo.")
    return nodes.index(node)


def token_of(pair: ModelPair, token: int | None, text: str | None) -> int:
    """Parse a token: an id, or a text as displayed (`␣the`, or `#17` for an id)."""
    if token is not None:
        return token
    if not text:
        raise PromptError("Choose a token from the list, or type one.")
    if text.startswith("#") and text[1:].isdecimal():
        return int(text[1:])
    plain = text.replace("␣", " ").replace("⏎", "\n").replace("⇥", "\t")
    ids = pair.plain_ids(plain)
    if len(ids) != 1:
        pieces = ", ".join(repr(pair.token_text(piece)) for piece in ids[:6])
        raise PromptError(f"{text!r} is {len(ids)} tokens ({pieces}): add one after the other.")
    return int(ids[0])


def comparison(mine: Step, theirs: Step) -> str:
    """`By hand 1 token from 13 drafted nodes; DynaTree had 3 from 23.`"""
    count = len(mine.committed)
    tokens = "1 token" if count == 1 else f"{count} tokens"
    name = theirs.settings.get("strategy")
    return (
        f"By hand {tokens} from {len(mine.tree) - 1} drafted nodes; {name} had "
        f"{len(theirs.committed)} from {len(theirs.tree) - 1}."
    )


def _row(result: Comparison, run: ComparedRun) -> Message:
    """A compared run in numbers."""
    row: Message = {
        "name": run.name,
        "problem": run.problem,
        "tokens": len(run.token_ids),
        "differs_at": result.differs_at(run) if run.token_ids else None,
    }
    if run.trace is not None:
        steps = run.trace.steps
        row |= run.trace.metrics.as_dict()
        row["seconds"] = sum(sum(step.seconds.values()) for step in steps)
        row["committed"] = [len(step.committed) for step in steps]
    return row
