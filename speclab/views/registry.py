"""Every view, declared once: the lab's panels, snapshots, exported pages, saved files and the gallery read it here.

To add a view, write one function that makes a figure or HTML of plain records, and declare it:

    registry.register(View("entropy", entropy_html, ("step",), sentence=entropy_sentence, table=entropy_table))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from speclab.errors import SettingsError
from speclab.trace.records import Step, Trace
from speclab.views import (
    attention_mask,
    cache_slots,
    draft_tree,
    explain,
    metrics_chart,
    node_chart,
    proposals,
    race_chart,
)
from speclab.views.attention_mask import Mode
from speclab.views.drafter_state import course_drawing, strategy_drawing
from speclab.views.figures import Drawing, Spec
from speclab.views.legends import legend_html
from speclab.views.markup import escape, tag
from speclab.views.playback import WHOLE, PlaybackPosition
from speclab.views.side_by_side import Beside, beside_drawing, pair_facts, twice_drawing
from speclab.views.token_text import table as text_table
from speclab.views.token_text import text_html

if TYPE_CHECKING:
    from speclab.analysis.routing import Regret

EDITED = "This tree is edited by hand and not verified yet: Verify runs the target's pass."
ASKED = "What comes of this tree is not shown yet: predict it, then Reveal."
"""What stands in place of a view that needs a whole iteration."""
Place = Literal["above", "stage", "below", "text", "tab", "file"]


@dataclass(frozen=True, slots=True)
class Room:
    """The stage in pixels: how wide the tree and the mask may be, how high both; `scale` of type and marks."""

    tree: int = 640
    mask: int = 420
    height: int = 420
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Frame:
    """What is on the screen; every view is a function of it.

    `cursor`: iterations shown. `position`: how much of the newest of them. `selected`: a node of it. `pinned`: a step
    to compare with; `beside`: a whole run to compare with, at the same cursor. `regret`: of the newest iteration both
    of whose trees were verified on request. `live`: whether the trace is a session's, not a recorded one. `room`: how
    large the pictures of the stage may be. `redone`: the iteration shown as it was before it was decoded anew with
    other settings. `hits`: iterations, counted from 1, at which a breakpoint holds. `draw`: draws shown of those where
    sampling stopped; None: all. `edited`: a tree that a person builds in place of the newest iteration's, or for the
    next one; it is not verified yet. `asked`: whether `edited` is what was drafted next, its verdicts left out, because
    a person is to predict them; `marked`: the nodes that were predicted to be accepted in the iteration shown, None
    where none were marked.
    """

    trace: Trace
    cursor: int = 0
    position: PlaybackPosition = WHOLE
    selected: int | None = None
    pinned: Step | None = None
    beside: Beside | None = None
    regret: Regret | None = None
    live: bool = False
    room: Room = Room()
    redone: Step | None = None
    hits: tuple[int, ...] = ()
    draw: int | None = None
    edited: Step | None = None
    asked: bool = False
    marked: frozenset[int] | None = None
    step: Step | None = field(init=False)
    """The iteration shown; None before the first."""

    def __post_init__(self) -> None:
        decoded = self.trace.steps[self.cursor - 1] if self.cursor else None
        object.__setattr__(self, "step", self.edited or decoded)

    @property
    def committed(self) -> int:
        """Iterations whose tokens are committed at the position shown."""
        shown = self.cursor if self.edited is None else self.edited.index + 1
        return shown if self.position.reached("commit") else shown - 1

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt."""
        return len(self.trace.prompt_ids)

    def at(self, cursor: int, trace: Trace | None = None, **changes: Any) -> Frame:
        """Another iteration, whole, nothing selected."""
        fresh = {"trace": trace or self.trace, "cursor": cursor, "position": WHOLE, "selected": None}
        shown = {"redone": None, "draw": None, "edited": None, "asked": False, "marked": None}
        return replace(self, **{**fresh, **shown, **changes})


@dataclass(frozen=True, slots=True)
class View:
    """One view: a function and what everything around it must know.

    Args:
        name: of files and of its CSS class, `speclab-name`.
        draw: gives figures and HTML (`figures.Drawing`); "" where it has nothing to show.
        needs: attributes of a `Frame`, handed to `draw` under these names; it may depend on nothing else.
        title: in headings and tabs; by default the name.
        place: where the lab shows it: above the stage, side by side on it, below it, as the text, in a tab, or not (a
            file only).
        sentence, table: what it shows in words, and as an HTML table; functions of the step if it needs the step, else
            of the trace and the cursor.
        page: whether it stands in snapshots and exported pages, of each iteration, or once of the whole run.
        empty: what stands in its place before the first iteration.
        unfolded: whether its table stands below it; else it is in the tab "Tables".
        tab: the tab it stands in, by its title; one of its own by default.
        always: whether it is drawn before the first iteration, too.
    """

    name: str
    draw: Callable[..., Drawing]
    needs: tuple[str, ...]
    title: str = ""
    place: Place = "tab"
    sentence: Callable[..., str] | None = None
    table: Callable[..., str] | None = None
    page: Literal["iteration", "run", "no"] = "iteration"
    empty: str = "This view of an iteration appears here. Step decodes the first."
    unfolded: bool = False
    tab: str = ""
    always: bool = False

    @property
    def heading(self) -> str:
        """Its title."""
        return self.title or self.name.capitalize()

    def key(self, frame: Frame) -> tuple[Any, ...]:
        """What of the frame it depends on."""
        return tuple([getattr(frame, name) for name in self.needs])

    def render(self, frame: Frame) -> Drawing:
        """The drawing; what stands in its place where the frame has no iteration."""
        if frame.edited is not None and self.place == "tab" and "step" in self.needs:
            return tag("div", escape(ASKED if frame.asked else EDITED), class_="sl-empty")
        missing = frame.step is None if "step" in self.needs else not frame.cursor
        if missing and not self.always and "committed" not in self.needs:
            return tag("div", escape(self.empty), class_="sl-empty") if self.empty else ""
        return self.draw(**dict(zip(self.needs, self.key(frame), strict=True)))

    def describe(self, frame: Frame) -> str:
        """Its sentence; "" where it has none."""
        return self._of(self.sentence, frame)

    def tabulate(self, frame: Frame) -> str:
        """Its table; "" where it has none."""
        return self._of(self.table, frame)

    def _of(self, function: Callable[..., str] | None, frame: Frame) -> str:
        if function is None or frame.asked or (not frame.cursor if frame.edited is None else self.place == "tab"):
            return ""
        return function(frame.step) if "step" in self.needs else function(frame.trace, frame.cursor)


VIEWS: dict[str, View] = {}
"""Every view by its name, in the order in which they are shown."""


def register(view: View) -> View:
    """Declares a view, or replaces the one of this name; labs made from now on show it."""
    VIEWS[view.name] = view
    return view


def find(name: str) -> View:
    """The view of this name.

    Raises:
        SettingsError: there is none.
    """
    if name not in VIEWS:
        raise SettingsError(f"There is no view {name!r}: choose one of {', '.join(VIEWS)}.")
    return VIEWS[name]


def placed(*places: Place) -> list[View]:
    """The views shown at these places, in order."""
    return [view for view in VIEWS.values() if view.place in places]


def _tree(
    step: Step,
    selected: int | None,
    position: PlaybackPosition,
    room: Room,
    redone: Step | None,
    prompt_length: int,
    marked: frozenset[int] | None,
) -> Drawing:
    """The tree. Where the iteration was decoded anew, as it was above as it is; at commit, the rows that move below."""
    if redone is not None and position == WHOLE:
        return twice_drawing(redone, step, room.tree, room.height, room.scale)
    caches: list[Spec] = []
    if position.phase == "commit" and step.caches:
        where = partial(cache_slots.cache_spec, width=room.tree, scale=room.scale, compact=True)
        caches.append(where(step, selected, position=position, prompt_length=prompt_length))
    height = room.height - sum([drawn["layout"]["height"] for drawn in caches if drawn])
    tree = draft_tree.tree_spec(
        step, selected, position=position, width=room.tree, height=height, scale=room.scale, marked=marked
    )
    return [tree, *filter(None, caches)]


def _decisions(step: Step, selected: int | None, draw: int | None) -> Drawing:
    """Where sampling stopped; with the node selected, that stands in its own view."""
    left = step.residual
    return [] if left is None or selected == (left.node or 0) else node_chart.residual_parts(step, draw)


def tables_html(trace: Trace, cursor: int) -> str:
    """The tables of all views that do not show theirs, and of the iterations."""
    frame = Frame(trace, cursor)
    parts = [view.tabulate(frame) for view in VIEWS.values() if not view.unfolded] + [explain.table(trace, cursor)]
    return "".join([tag("div", part, class_="sl-scroll") for part in parts if part])


def _mask(step: Step, selected: int | None, position: PlaybackPosition, room: Room, mode: Mode = "folded") -> Drawing:
    return attention_mask.mask_spec(
        step, selected, position=position, mode=mode, height=room.height, width=room.mask, scale=room.scale
    )


def _cache(step: Step, selected: int | None, position: PlaybackPosition, prompt_length: int) -> Drawing:
    drawn = cache_slots.cache_spec(step, selected, position=position, prompt_length=prompt_length)
    return [drawn, cache_slots.key_html(step, position)]


_MASK = (_mask, ("step", "selected", "position", "room"))
for _view in (
    View("timeline", metrics_chart.timeline_spec, ("trace", "cursor", "hits"), place="above", always=True),
    View("tree", _tree, ("step", "selected", "position", "room", "redone", "prompt_length", "marked"), "Draft tree",
         "stage", table=draft_tree.table,
         empty="No iteration yet. Step decodes the first: its draft tree appears here."),
    View("mask", *_MASK, "Attention mask", "stage", attention_mask.summary, attention_mask.table,
         empty="The tree attention mask of an iteration appears here."),
    View("mask-whole", partial(_MASK[0], mode="full"), _MASK[1], "Attention mask, the prefix in full", "file"),
    View("mask-check", partial(_MASK[0], mode="compare"), _MASK[1], "Attention mask, expected and given", "file"),
    View("legend", legend_html, ("step", "position"), place="below", empty=""),
    View("redone", lambda step, redone: pair_facts(redone, step) if redone else "", ("step", "redone"), "Decoded anew",
         "below", empty=""),
    View("beside", beside_drawing, ("trace", "cursor", "beside", "pinned"), "Side by side", "below", empty=""),
    View("text", lambda committed, trace: text_html(trace, committed), ("trace", "committed"), place="text",
         table=text_table),
    View("cache", _cache, ("step", "selected", "position", "prompt_length"), "Caches",
         table=cache_slots.table, empty="What the KV caches hold appears here.", unfolded=True),
    View("metrics", metrics_chart.metrics_drawing, ("trace", "cursor"), sentence=explain.run_words,
         table=metrics_chart.metrics_table, page="run"),
    View("race", race_chart.race_at, ("trace", "cursor"), page="no", empty="", tab="Metrics"),
    View("strategy", strategy_drawing, ("trace", "cursor"),
         empty="What the drafter knew and decided in an iteration appears here."),
    View("drafts", proposals.drafts_drawing, ("step", "regret"), "Proposed trees", table=proposals.nodes_table,
         empty="", tab="Strategy"),
    View("routing", proposals.routing_drawing, ("trace", "cursor"), "Routing over the run", page="run", empty="",
         tab="Strategy"),
    View("course", course_drawing, ("trace", "cursor"), "Strategy over the run", page="run", empty="", tab="Strategy"),
    View("node", node_chart.node_parts, ("step", "selected", "draw"), page="no"),
    View("decisions", _decisions, ("step", "selected", "draw"), table=explain.events_table, unfolded=True, tab="Node"),
    View("tables", tables_html, ("trace", "cursor"), page="no"),
):  # fmt: skip
    register(_view)
