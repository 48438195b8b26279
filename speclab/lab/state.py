"""What the lab shows and does, as one traitlets object that everything else observes; what a person chose, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from threading import RLock
from typing import Any

from traitlets import HasTraits, Instance, Int, Tuple, Unicode, Union

from speclab.analysis.compare import Comparison
from speclab.analysis.curves import Curve
from speclab.drafters.base import Strategy
from speclab.lab.widgets import batch_updates
from speclab.models.presets import PRESETS
from speclab.prompts import PromptInput
from speclab.trace.conditions import stateful
from speclab.trace.records import Step
from speclab.views.registry import Frame

Prompt = PromptInput


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Which models, and where they run. `name`: of a preset, empty if `target` names the models; None: as loaded.

    `heads`: hub ids or folders of draft heads, for models of one's own.
    """

    name: str = "mini"
    target: str = ""
    draft: str = ""
    device: str | None = None
    dtype: str | None = None
    heads: tuple[str, ...] = ()

    def arguments(self) -> dict[str, Any]:
        """For `load_pair`."""
        own = {"target": self.target, "draft": self.draft or None, "heads": self.heads}
        return {**(own if self.target else {"name": self.name}), "device": self.device, "dtype": self.dtype}

    @property
    def all_heads(self) -> tuple[str, ...]:
        """Those named, or those of the preset."""
        return self.heads if self.target else tuple(PRESETS[self.name].heads)


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A strategy in force and the one that Apply would put in its place, for a session of these `settings`.

    `alone`: whether nothing else would change: not the models, the prompt or the settings of the session.
    """

    before: Strategy
    after: Strategy
    settings: Mapping[str, Any]
    alone: bool


@dataclass(frozen=True, slots=True)
class LabConfig:
    """Everything a session is made of. `models` None: the pair that was given to the lab."""

    models: ModelChoice | None
    strategy: Strategy
    prompt: Prompt
    settings: Mapping[str, Any] = field(default_factory=dict)

    def change_from(self, other: LabConfig) -> PendingChange | None:
        """What Apply would change of the strategy; None where that is nothing."""
        if self.strategy == other.strategy:
            return None
        alone = replace(self, strategy=other.strategy) == other
        return PendingChange(other.strategy, self.strategy, self.settings, alone=alone)

    def forks_from(self, other: LabConfig) -> bool:
        """Whether a fork of the other's session is enough: models and prompt are the same."""
        return (self.models, self.prompt) == (other.models, other.prompt)


@dataclass(frozen=True, slots=True)
class SetBreakpoint:
    """A condition to run until, and how it is called. `hits`: the iterations of `steps` where it holds, from 1 on."""

    label: str
    condition: Callable[[Step], bool]
    hits: tuple[int, ...] = ()
    steps: tuple[Step, ...] = field(default=(), repr=False, compare=False)

    def over(self, steps: tuple[Step, ...]) -> SetBreakpoint:
        """The same over this run; asked only of the iterations that are new."""
        known = len(self.steps)
        if known > len(steps) or (known and self.steps[-1] is not steps[known - 1]):
            return replace(self, hits=(), steps=()).over(steps)
        holds = stateful(self.condition, steps[known - 1] if known else None)
        new = [index for index, step in enumerate(steps[known:], known + 1) if holds(step)]
        return self if known == len(steps) else replace(self, hits=(*self.hits, *new), steps=steps)


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a comparison: the strategies in their order, the tokens of each so far, and those it may have."""

    tokens: Mapping[str, int]
    most: int
    at_work: str


class LabState(HasTraits):
    """One change of `frame` is one redraw; what stays equal is not drawn again.

    `busy`: what the worker does, empty when it is idle. `done` of `total`: tokens of the run under way. `error`: one
    sentence, empty when there is none; `details`: what a developer wants to know of it. `applied`: what the run shown,
    or else the session, was made of, forks included; None before there is one. `change`: of the strategy, set in the
    form and not applied; None where there is none; `pending`: everything that Step would apply first, in words, and
    `refused`: why what is set cannot be; both empty where there is nothing. `breakpoints`: what a run stops at, counted
    over the run shown. `forks`: every run kept. `compared`: strategies on one prompt, once they ran; `progress` while
    they do. `sampled`: runs of example prompts, kept as records alone; `sampling`: while they are decoded, how many are
    done, of how many, and which is at work. `curve`: replays of the text with other settings, as far as they have come;
    a sentence where there can be none.
    """

    frame: Any = Instance(Frame)
    busy = Unicode()
    done = Int()
    total = Int()
    status = Unicode()
    error = Unicode()
    details = Unicode()
    applied: Any = Instance(LabConfig, allow_none=True)
    change: Any = Instance(PendingChange, allow_none=True)
    pending = Unicode()
    refused = Unicode()
    breakpoints: Any = Tuple()
    forks: Any = Tuple()
    compared: Any = Instance(Comparison, allow_none=True)
    progress: Any = Instance(Progress, allow_none=True)
    sampled: Any = Tuple()
    sampling: Any = Tuple()
    curve: Any = Union([Instance(Curve), Unicode()], allow_none=True)

    trace = property(attrgetter("frame.trace"), doc="The run on the screen.")
    cursor = property(attrgetter("frame.cursor"), doc="Iterations shown.")
    step = property(attrgetter("frame.step"), doc="The iteration shown; None before the first.")
    position = property(attrgetter("frame.position"), doc="How much of the iteration is shown.")
    phase = property(
        attrgetter("frame.position.phase"), doc="The phase shown: draft, flatten, verify, accept, commit, adapt."
    )
    selected = property(attrgetter("frame.selected"), doc="The selected node.")
    pinned = property(attrgetter("frame.pinned"), doc="The step kept for comparison.")

    def __init__(self, **traits: Any) -> None:
        self._lock = RLock()
        super().__init__(**traits)

    def change_frame(self, **changes: Any) -> None:
        """Shows the frame with these attributes changed; from any thread."""
        with self._lock:
            self._set(frame=replace(self.frame, **changes))

    def update(self, **changes: Any) -> None:
        """Changes several traits, and notifies of each when all are changed: what depends on two is drawn once.

        Name `status` first: a browser then has it last, when all it speaks of is on the screen. Another frame is laid
        out for the same room: a page may have told of a new one since that frame was made.
        """
        with self._lock:
            if "frame" in changes:
                changes["frame"] = replace(changes["frame"], room=self.frame.room)
            self._set(**changes)

    def _set(self, **changes: Any) -> None:
        with self._lock, batch_updates(), self.hold_trait_notifications():
            for name, value in changes.items():
                setattr(self, name, value)

    def fail(self, sentence: str, details: str = "") -> None:
        """Shows an error until it is dismissed."""
        self.details, self.error = details, sentence
