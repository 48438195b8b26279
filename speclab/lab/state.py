"""What the lab shows and does, as one traitlets object that everything else observes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from traitlets import HasTraits, Instance, Int, Tuple, Unicode

from speclab.analysis.compare import Comparison
from speclab.analysis.routing import Regret
from speclab.lab.choices import Change, Choices
from speclab.lab.sync import together
from speclab.trace.records import Step, Trace
from speclab.views.beside import Beside
from speclab.views.walk import WHOLE, Moment


@dataclass(frozen=True, slots=True)
class Frame:
    """What is on the screen; every picture is a function of it.

    `cursor`: iterations shown. `moment`: how much of the newest of them. `selected`: a node of it. `pinned`: a step to
    compare with; `beside`: a whole run to compare with, at the same cursor. `live`: whether the trace is this lab's
    session, not the recorded run.
    """

    trace: Trace
    cursor: int = 0
    moment: Moment = WHOLE
    selected: int | None = None
    pinned: Step | None = None
    beside: Beside | None = None
    live: bool = False

    @property
    def step(self) -> Step | None:
        """The iteration shown; None before the first."""
        return self.trace.steps[self.cursor - 1] if self.cursor else None

    @property
    def committed(self) -> int:
        """Iterations whose tokens are committed at the moment shown."""
        return self.cursor if self.moment.reached("commit") else self.cursor - 1

    def at(self, cursor: int, trace: Trace | None = None) -> Frame:
        """Another iteration, whole, nothing selected."""
        return replace(self, trace=trace or self.trace, cursor=cursor, moment=WHOLE, selected=None)


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a comparison: the strategies in their order, the tokens of each so far, and those it may have."""

    tokens: Mapping[str, int]
    most: int
    at_work: str


class LabState(HasTraits):
    """One change of `frame` is one redraw; what stays equal is not drawn again.

    `busy`: what the worker does, empty when it is idle. `done` of `total`: tokens of the run under way. `error`: one
    sentence, empty when there is none; `details`: what a developer wants to know of it. `applied`: what the session was
    made of, forks included; None before there is one. `change`: of the strategy, set in the pickers and not applied;
    None where there is none.
    `comparison`: of this session with its baselines, once measured.
    `forks`: every run kept. `compared`: strategies on one prompt, once they ran;
    `progress` while they do.
    `regret`: of the newest iteration both of whose trees were verified on request; None where none was.
    """

    frame: Any = Instance(Frame)
    busy = Unicode()
    done = Int()
    total = Int()
    status = Unicode()
    error = Unicode()
    details = Unicode()
    applied: Any = Instance(Choices, allow_none=True)
    change: Any = Instance(Change, allow_none=True)
    comparison: Any = Instance(Comparison, allow_none=True)
    regret: Any = Instance(Regret, allow_none=True)
    forks: Any = Tuple()
    compared: Any = Instance(Comparison, allow_none=True)
    progress: Any = Instance(Progress, allow_none=True)

    @property
    def trace(self) -> Trace:
        """The run on the screen."""
        return self.frame.trace  # type: ignore[no-any-return]

    @property
    def cursor(self) -> int:
        """Iterations shown."""
        return self.frame.cursor  # type: ignore[no-any-return]

    @property
    def step(self) -> Step | None:
        """The iteration shown; None before the first."""
        return self.frame.step  # type: ignore[no-any-return]

    @property
    def moment(self) -> Moment:
        """How much of the iteration is shown."""
        return self.frame.moment  # type: ignore[no-any-return]

    @property
    def phase(self) -> str:
        """The phase of the iteration shown: draft, flatten, verify, accept, commit, adapt."""
        return self.frame.moment.phase  # type: ignore[no-any-return]

    @property
    def selected(self) -> int | None:
        """The selected node."""
        return self.frame.selected  # type: ignore[no-any-return]

    @property
    def pinned(self) -> Step | None:
        """The step kept for comparison."""
        return self.frame.pinned  # type: ignore[no-any-return]

    def show(self, **changes: Any) -> None:
        """Changes the frame."""
        self.tell(frame=replace(self.frame, **changes))

    def tell(self, **changes: Any) -> None:
        """Changes several traits, and tells of each when all are changed: what depends on two is drawn once.

        Name `status` first: a browser then has it last, when all it speaks of is on the screen.
        """
        with together(), self.hold_trait_notifications():
            for name, value in changes.items():
                setattr(self, name, value)

    def fail(self, sentence: str, details: str = "") -> None:
        """Shows an error until it is dismissed."""
        self.details, self.error = details, sentence
