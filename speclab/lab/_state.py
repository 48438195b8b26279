"""The state of the lab as one traitlets object."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from traitlets import Bool, Dict, Float, HasTraits, Instance, Int, List, Tuple, Unicode

from speclab.lab._form import FORM, LabConfig, Message, differences, on_screen
from speclab.trace.records import Step, Trace

if TYPE_CHECKING:
    from speclab.pair import ModelPair
    from speclab.trace.edit import TreeEdit

PHASES = ("draft", "flatten", "verify", "accept", "commit", "all")


class LabState(HasTraits):
    """The state of a lab. The worker's thread changes it, and the outbox sends the changes to the
    page.

    `trace`: the current run, or None; `number`: its number; `live`: whether it has a session.
    `cursor`: iterations shown. `phase`: draft, flatten, verify, accept, commit or all. `selected`:
    a node. `busy`: the running work, empty when idle; `progress`: its share that is done, None if
    unknown. `message`: its result. `errors`: sentences by place, newest last. `wanted`: the setup
    that the next Step applies; `applied`: that of the current run. `panels`: what stage and tabs
    show (preview, curve, pinned, …), None if nothing; `posts`: messages to send once. `edits`: of
    the tree shown, newest last. `guess`: whether the user guesses before verifying.
    `given`: the pair that the lab was given.
    """

    trace = Instance(Trace, allow_none=True)
    number = Int(-1)
    live = Bool()
    cursor = Int()
    phase = Unicode("all")
    selected = Int(None, allow_none=True)
    busy = Unicode()
    progress = Float(None, allow_none=True)
    message = Unicode()
    errors = Dict()
    wanted = Instance(LabConfig)
    applied = Instance(LabConfig, allow_none=True)
    panels = Dict()
    posts = List(Tuple())
    edits: tuple[TreeEdit, ...] = ()
    guess = Bool()
    given: ModelPair | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The decoded iterations of the current run."""
        return self.trace.steps if self.trace is not None else ()

    @property
    def step(self) -> Step | None:
        """The current iteration; None before the first."""
        return self.steps[self.cursor - 1] if 0 < self.cursor <= len(self.steps) else None

    @property
    def pending(self) -> list[str]:
        """The changes that the next Step applies."""
        return [] if self.applied is None else differences(self.applied, self.wanted)

    @property
    def new_run(self) -> bool:
        """Whether the changes need a new run."""
        return self.applied is not None and not self.wanted.forks_from(self.applied)

    @property
    def starts_over(self) -> bool:
        """Whether Step begins a new run: the changes need one, or the text shown has ended."""
        if self.trace is None or self.applied is None or not self.pending:
            return False
        longer = self.wanted.settings.max_new_tokens > self.applied.settings.max_new_tokens
        open_end = self.trace.finished in {"", "max_new_tokens" if longer else ""}
        return self.new_run or (self.cursor == len(self.steps) and not open_end)

    @property
    def diff(self) -> Message | None:
        """The comparison shown of two runs."""
        panel = self.panels.get("diffed")
        return None if panel is None else panel["diff"]

    def fail(self, where: str, sentence: str) -> None:
        """Show an error next to its cause, in the words of the page."""
        if where != "until":  # a condition has the names of Python
            sentence = on_screen(sentence)
        self.mend([where])
        self.errors = {**self.errors, where: sentence}

    def mend(self, places: Iterable[str]) -> None:
        """Remove the errors of these places."""
        gone = set(places)
        self.errors = {where: words for where, words in self.errors.items() if where not in gone}

    def arrive(self, cursor: int) -> None:
        """Show another position, at its last phase."""
        self.cursor = cursor
        self.phase = "all"
        self.selected = None

    def moved(self) -> None:
        """Remove what belongs to the former position: its message, and errors outside the form."""
        self.message = ""
        self.mend(set(self.errors) - set(FORM))

    def show(self, panel: str, /, **fields: Any) -> None:
        """Show a panel; it stays until it is shown again or hidden."""
        self.panels = {**self.panels, panel: fields}

    def hide(self, *panels: str) -> None:
        """Clear panels that were shown."""
        self.panels = {**self.panels, **dict.fromkeys(self.panels.keys() & set(panels))}

    def post(self, name: str, /, **fields: Any) -> None:
        """Send the page a message once."""
        self.posts.append((name, fields))
