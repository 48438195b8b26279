"""What a person asks of a lab besides decoding: other settings and their preview, a tree built by
hand, curves, comparisons, checks, files.
"""

from __future__ import annotations

import base64
import gzip
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, Unpack

from traitlets import Dict
from typing_extensions import TypedDict  # pydantic asks for this one before Python 3.12

from speclab import clinic
from speclab.analysis.compare import Comparison, compare
from speclab.analysis.curves import sweep
from speclab.clinic.steps_file import load_steps
from speclab.drafters import strategies
from speclab.drafters.by_hand import ByHand
from speclab.errors import NotRecordedError, PromptError, SettingsError, SpeclabError, TraceError
from speclab.lab._commands import command
from speclab.lab._form import (
    CURRENT,
    FORM,
    LabConfig,
    offered,
    with_models,
    with_prompt,
)
from speclab.lab._runs import Run, Runs
from speclab.trace.codecs import adapter
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

_PLAIN = str.maketrans("␣⏎⇥", " \n\t")
"""How the page writes white space."""


class FormStrategy(TypedDict):
    """A strategy as the page's form has it."""

    name: str
    settings: NotRequired[dict[str, Any]]


class FormParts(TypedDict, total=False):
    """What the page's form may send: the parts that were changed."""

    models: dict[str, Any] | None
    strategy: FormStrategy
    prompt: str
    session: dict[str, Any]


class Tasks(Runs):
    """The state of a lab, its runs, and all that the page asks.

    `named`: the user named models, so an opened run is checked against them.
    """

    named = False
    _typed = Dict()  # settings of a refused strategy

    # The form

    @command()
    def on_want(self, **parts: Unpack[FormParts]) -> None:
        """Take over parts of the form; a refused part shows its error and changes nothing."""
        given: dict[str, Any] = {**parts}
        for part in FORM:
            if part in given:
                self.mend([part])
                try:
                    self.wanted = self._changed(part, given[part])
                except SpeclabError as error:
                    self.fail(part, str(error))
        if "strategy" not in self.errors:
            offer = offered(self.wanted.models, self.given)
            if sentence := self.wanted.strategy.missing(offer):
                self.fail("strategy", sentence)
        self.worker.submit(self.preview, where="page", key="preview")

    @command()
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
                strategy = self._strategy(value["name"], value.get("settings", {}))
                config = replace(config, strategy=strategy)
            case "session":
                config = replace(config, settings=config.settings.changed(**value))
            case "prompt":
                config = with_prompt(config, value)
        return config

    def _strategy(self, name: str, settings: dict[str, Any]) -> Strategy:
        former = self.wanted.strategy
        if type(former).__name__ == name:
            # settings that contradict each other are kept until a later one mends them
            settings = self._typed = former.model_dump() | self._typed | settings
        strategy = strategies()[name](**settings)
        self._typed = {}
        return strategy

    # A tree built by hand

    @command()
    def on_add(self, node: int, token: int | None = None, text: str | None = None) -> None:
        """Add a child to a node of the edited tree, by token id or as typed."""
        edit = self._edit()
        assert self._pair is not None
        self._take_edit(edit.add(node, token_of(self._pair, token, text)))

    @command()
    def on_prune(self, node: int) -> None:
        """Remove a node of the edited tree and its descendants."""
        self._take_edit(self._edit().prune(node))

    @command()
    def on_undo(self) -> None:
        """Undo the last edit."""
        if len(self.edits) > 1:
            *earlier, edit, _ = self.edits
            self.edits = tuple(earlier)
            self._take_edit(edit)
        else:
            self.leave_edits()

    @command("Verifying")
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

    @command("Replaying", where="strategy")
    def on_curve(self, name: str) -> None:
        """Replay the text over the range of a setting, for its curve of tokens per iteration."""
        strategy = self.ready_setup().strategy
        session, _ = self._live()
        from speclab.analysis.replay import Replayer

        for curve in sweep(Replayer(session), strategy, name, check=self.worker.check):
            done = len(curve.points) / len(curve.values)
            if self.worker.due() or done == 1:
                self.show("curve", **curve_data(curve))
                self.worker.report("Replaying", done)

    @command("Comparing", where="compare")
    def on_compare(self, names: list[str]) -> Comparison:
        """Decode the prompt with several strategies, one after another."""
        config = self.ready_setup()
        if not names:
            raise SettingsError("No strategy is chosen: choose at least one of the list.")
        kinds = strategies()
        chosen = {name: config.strategy if name == CURRENT else kinds[name]() for name in names}
        pair = self.load(config.models)

        def watch(name: str, session: Session) -> bool:
            self._working = session
            if self.worker.due():
                share = len(session.token_ids) / config.settings.max_new_tokens
                self.worker.report(f"Comparing: {name}", (names.index(name) + share) / len(names))
            return self.worker.cancelled.is_set()

        try:
            result = compare(
                pair, chosen, config.prompt, watch=watch, **config.settings.model_dump()
            )
        finally:
            self._working = None
        rows = [
            {
                **(run.trace.metrics.as_dict() if run.trace else {}),
                "name": run.name,
                "problem": run.problem,
                "differs_at": result.differs_at(run),
                "tokens": len(run.token_ids),
            }
            for run in result.runs
        ]
        self.show("compared", rows=rows)
        return result

    @command("Checking")
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
        if pair is None:
            self.message = "Checked without models: pass a pair to Lab to compare with them."
        return findings

    @command("Comparing two runs")
    def on_diff(self, run: int) -> None:
        """Compare the run shown with another run of this lab, by its number."""
        self.diff_with(run)

    def diff_with(self, run: int | Trace) -> Diff:
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

    @command("Saving")
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

    @command("Opening")
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
        pieces = ", ".join(map(repr, pair.token_texts(ids[:6]).values()))
        raise PromptError(f"{text!r} is {len(ids)} tokens ({pieces}): add one after the other.")
    return int(ids[0])
