"""Tasks beside a run: the form's wishes, previews, curves, comparisons, checks, files.

They run on the worker's thread.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from speclab.clinic.steps_file import load_steps
from speclab.drafters import strategies
from speclab.errors import NotRecordedError, SettingsError, SpeclabError, TraceError
from speclab.lab.catalog import CURRENT, chats_with, chosen_models, offered
from speclab.lab.messages import Message, to_page
from speclab.lab.runs import Runs
from speclab.lab.state import (
    FORM,
    LabConfig,
    prompt_of,
    prompt_text,
    refuse_empty,
    refuse_long,
)
from speclab.prompts import as_messages, is_conversation
from speclab.trace.files import load_trace
from speclab.trace.records import Finding, Trace
from speclab.views.run_data import curve_data, what_if_data

if TYPE_CHECKING:
    from speclab.analysis.compare import ComparedRun, Comparison
    from speclab.clinic._diff import Diff
    from speclab.engine.session import Session
    from speclab.pair import ModelPair


class Throttle:
    """True at most every `seconds`; a running task redraws only then."""

    def __init__(self, seconds: float = 0.3) -> None:
        self._seconds = seconds
        self._next = 0.0

    def __call__(self) -> bool:
        if monotonic() < self._next:
            return False
        self._next = monotonic() + self._seconds
        return True


class Tasks:
    """The tasks of one lab. `given`: the pair that the lab was given."""

    def __init__(self, runs: Runs, given: ModelPair | None) -> None:
        self._runs = runs
        self._state = runs.state
        self._worker = runs.worker
        self._given = given
        self._typed: dict[str, Any] = {}  # settings of a refused strategy

    # The form.

    def want(self, **parts: Any) -> None:
        """Take over parts of the form; a refused part shows its error and changes nothing."""
        changes: dict[str, Callable[[LabConfig, Any], LabConfig]] = {
            "models": self._with_models,
            "strategy": self._with_strategy,
            "session": self._with_session,
            "prompt": self._with_prompt,
        }
        for where in FORM:
            if where in parts:
                self._take(where, changes[where], parts[where])
        if {"models", "strategy"} & set(parts) and "strategy" not in self._state.errors:
            wanted = self._state.wanted
            if sentence := wanted.strategy.missing(offered(wanted.models, self._given)):
                self._state.fail("strategy", sentence)

    def reset(self) -> None:
        """Take over the setup of the run shown."""
        self._typed = {}
        self._state.mend(FORM)
        if self._state.applied is not None:
            self._state.wanted = self._state.applied

    def _take(self, where: str, change: Callable[[LabConfig, Any], LabConfig], value: Any) -> None:
        state = self._state
        try:
            state.wanted = change(state.wanted, value)
        except SpeclabError as error:
            state.fail(where, str(error))
        else:
            state.mend([where])

    def _with_models(self, config: LabConfig, value: Any) -> LabConfig:
        choice = chosen_models(value)
        if choice is None and self._given is None:
            raise SettingsError("No models were given in Python: choose some from the list.")
        chats = chats_with(choice, self._given)
        prompt = config.prompt
        if choice != config.models and is_conversation(prompt) != chats:
            text = prompt_text(prompt)
            prompt = as_messages(text) if chats else text
        self._state.mend(["strategy"])  # it may suit the new models
        return replace(config, models=choice, prompt=prompt)

    def _with_strategy(self, config: LabConfig, value: Any) -> LabConfig:
        name = str(value.get("name", ""))
        settings = dict(value.get("settings") or {})
        kind = strategies().get(name)
        if kind is None:
            raise SettingsError(f"There is no strategy {name!r}: choose one from the list.")
        if type(config.strategy).__name__ == name:
            settings = config.strategy.model_dump() | self._typed | settings
        else:
            self._typed = {}
        try:
            strategy = kind(**settings)
        except SettingsError:
            self._typed = settings
            raise
        self._typed = {}
        return replace(config, strategy=strategy)

    def _with_session(self, config: LabConfig, value: Any) -> LabConfig:
        return replace(config, settings=config.settings.changed(**value))

    def _with_prompt(self, config: LabConfig, value: Any) -> LabConfig:
        text = str(value)
        refuse_empty(text)
        if text == prompt_text(config.prompt):
            return config
        if is_conversation(config.prompt):
            config = replace(config, prompt=(*config.prompt[:-1], *as_messages(text)))
        else:
            config = replace(config, prompt=text)
        applied = self._state.applied
        if applied is not None and applied.models == config.models:
            refuse_long(self._runs.pair, config)
        return config

    # Answers in numbers.

    def preview(self) -> None:
        """Preview the wanted settings on the current tree, if its record is enough."""
        state = self._state
        step = state.step
        wanted = state.wanted
        if (
            step is None
            or state.applied is None
            or state.new_run
            or wanted.strategy == state.applied.strategy
        ):
            state.hide("preview")
            return
        from speclab.analysis.whatif import what_if

        try:
            found = what_if(step, wanted.strategy, wanted.settings)
        except NotRecordedError:
            state.hide("preview")
            return
        state.show(to_page("preview", index=step.index, what_if=what_if_data(found)))

    def curve(self, name: str) -> None:
        """Replay the text over the range of a setting, for its curve of tokens per iteration."""
        strategy = self._runs.wanted().strategy
        session = self._runs.session
        if session is None or not session.steps or not self._state.live:
            raise SettingsError("There is no text to replay: Step decodes the first iteration.")
        from speclab.analysis.curves import sweep
        from speclab.analysis.replay import Replayer

        throttle = Throttle()
        for curve in sweep(Replayer(session), strategy, name, check=self._worker.check):
            done = len(curve.points) / len(curve.values)
            if throttle() or done == 1:
                self._state.show(to_page("curve", **curve_data(curve)))
                self._worker.report("Replaying", done)

    def compare(self, names: Sequence[str]) -> Comparison:
        """Decode the prompt with several strategies, one after another."""
        config = self._runs.wanted()
        known = strategies()
        unknown = [name for name in names if name not in known and name != CURRENT]
        if unknown or not names:
            wrong = f"There is no strategy {unknown[0]!r}" if unknown else "No strategy is chosen"
            raise SettingsError(f"{wrong}: choose at least one of the list to compare.")
        chosen = {name: known[name]() if name in known else config.strategy for name in names}
        pair = self._runs.load(config.models)
        from speclab.analysis.compare import compare

        throttle = Throttle()
        most = config.settings.max_new_tokens
        order = list(chosen)

        def watch(name: str, session: Session) -> bool:
            self._runs.working = session
            if throttle():
                share = len(session.token_ids) / most
                self._worker.report(f"Comparing: {name}", (order.index(name) + share) / len(order))
            return self._worker.cancelled

        prompt = prompt_of(pair, config)
        try:
            result = compare(pair, chosen, prompt, watch=watch, **config.settings.model_dump())
        finally:
            self._runs.working = None
        rows = [_row(result, run) for run in result.runs]
        self._state.show(
            to_page("compared", rows=rows, stopped=result.stopped, greedy=result.greedy)
        )
        return result

    def check(self) -> tuple[Finding, ...]:
        """Check the run shown against its session's models, or those the user named, and mark the findings."""
        from speclab.clinic import TIE, marked

        state = self._state
        trace = self._runs.trace()
        pair = self._runs.models_of_check()
        throttle = Throttle()

        def progress(done: int, total: int) -> None:
            self._worker.check()
            if throttle():
                self._worker.report("Checking", done / total)

        state.trace = marked(trace, pair, progress)
        assert self._runs.shown is not None
        self._runs.shown.trace = state.trace
        findings = tuple([finding for step in state.trace.steps for finding in step.findings])
        ties = sum(finding.kind == TIE for finding in findings)
        way = "and the models' answers" if pair else "without models: pass a pair to Lab"
        state.message = (
            f"Checked the record of {len(trace.steps)} iterations, {way}. "
            f"Findings: {len(findings) - ties}, ties: {ties}."
        )
        return findings

    def diff(self, run: int | Trace) -> Diff:
        """Compare the run shown with another one, given by its number or opened; the models decide
        which is wrong."""
        from speclab.clinic._diff import diff

        shown = self._runs.trace()
        assert self._runs.shown is not None
        name = "the other run"
        if isinstance(run, int):
            other = self._runs.numbered(run)
            name = other.name
            run = other.session.trace if other.session else other.trace
        names = (f"a: {self._runs.shown.name}", f"b: {name}")
        result = replace(diff(shown, run, self._runs.models_of_check()), names=names)
        self._state.show(to_page("diffed", diff=result.as_dict()))
        return result

    # Files.

    def save(self, what: str) -> None:
        """Send the page the run as a file to download: an HTML page, or a trace."""
        trace = self._runs.trace()
        if what == "page":
            from speclab.views.exported_page import page

            name = "run.html"
            mime = "text/html"
            content = page(trace, "run", diff=self._state.diff).encode()
        else:
            name = "run.json.gz"
            mime = "application/gzip"
            with tempfile.TemporaryDirectory() as folder:
                content = trace.save(Path(folder) / name).read_bytes()
        data = base64.b64encode(content).decode()
        self._state.posts.append(to_page("file", name=name, mime=mime, data=data))

    def open(self, name: str, data: str) -> None:
        """Show a run from an uploaded file; the tree of runs switches back."""
        steps = name.endswith(".jsonl")
        try:
            content = base64.b64decode(data, validate=True)
        except ValueError:
            raise TraceError(f"{name} did not arrive whole: open it again") from None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / ("run.jsonl" if steps else "run.json.gz")
            path.write_bytes(content)
            trace = load_steps(path) if steps else load_trace(path)
        self._runs.open(trace, Path(name).name)


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
