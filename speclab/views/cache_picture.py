"""The KV caches over one iteration: a strip per cache, 64 slots per row, during the pass and after
the commit.

Kept rows are numbered along the path (1, 2, 3 …), so a moved row keeps its number; arrows show the
moves. `page/caches.js` draws the same in the page.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from speclab.files import byte_count
from speclab.trace.records import CacheRecord, Step
from speclab.views.theme import (
    INK,
    MUTED,
    PLOT_MONO,
    STYLE,
    Spec,
    code_map,
    frame,
    note,
    spec,
    trace,
)
from speclab.views.tokens import plot_text
from speclab.views.words import fill

ROW = 64
PITCH = 18
"""Slots per row, and pixels of a row."""
ORDER = "123456789abcdefghijklmnopqrstuvwxyz"
TARGET = "target"
STATES: dict[str, dict[str, str]] = STYLE["caches"]
_CODES = {state: code for code, state in enumerate(STATES)}


def slots(
    record: CacheRecord, prefix: int, prompt: int, *, after: bool, first: int = 0
) -> list[str]:
    """The state of every slot in use from `first` on, during the pass or after the commit.

    `prefix`: entries of the committed text; `prompt`: how many of them belong to the prompt.
    """
    kept = set(record.kept)
    old = min(record.before, prefix)
    end = record.after if after else record.before + record.written

    def state(slot: int) -> str:
        if slot < old:
            return "prompt" if slot < prompt else "committed"
        if slot < prefix:
            return "written now"
        if after:
            return "kept" if kept else "rebuilt"
        return "kept" if slot in kept else "dropped"

    return [state(slot) for slot in range(first, end)]


def first_slot(record: CacheRecord, prefix: int) -> int:
    """The first slot that is drawn: what lies before was there and stays."""
    return max(min(record.before, record.after, prefix) - 1, 0) // ROW * ROW


@dataclass(frozen=True, slots=True)
class _Sign:
    x: int
    y: int
    sign: str
    tip: str
    strong: bool
    node: int | None


@dataclass
class _Strips:
    """The picture under construction, from top to bottom."""

    cells: list[list[int]] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)
    notes: list[Spec] = field(default_factory=list)
    signs: list[_Sign] = field(default_factory=list)
    moves: list[tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=list)

    def heading(self, text: str) -> None:
        self.notes.append(note(plot_text(text), -0.5, len(self.cells), **STYLE["heading"]))
        self.cells.append([])

    def row(self, label: str, states: list[str]) -> int:
        self.labels[len(self.cells)] = label
        self.cells.append([_CODES[state] for state in states])
        return len(self.cells) - 1


def draw_cache(step: Step, selected: int | None = None, *, prompt_length: int = 0) -> Spec:
    """The caches of an iteration. `selected`: a node whose slot gets a frame."""
    strips = _Strips()
    for record in step.caches:
        _add(strips, step, record, prompt_length)
    framed = [sign for sign in strips.signs if selected is not None and sign.node == selected]
    count = len(strips.cells)
    return spec(
        _traces(strips),
        " ".join(cache_lines(step)),
        "caches",
        height=PITCH * count + 16,
        yaxis={
            "range": [count - 0.5, -0.5],
            "tickvals": list(strips.labels),
            "ticktext": list(strips.labels.values()),
        },
        annotations=strips.notes,
        shapes=[frame(one.x - 0.5, one.x + 0.5, one.y - 0.5, one.y + 0.5) for one in framed],
    )


def _add(strips: _Strips, step: Step, record: CacheRecord, prompt: int) -> None:
    prefix = step.prefix_length
    strips.heading(fill("cache", "heading", _values(record)))
    first = first_slot(record, prefix)
    if first:
        values = {"last": first - 1, "prompt": min(prompt, first)}
        strips.heading(fill("cache", "folded prompt" if prompt else "folded", values))
    places: dict[bool, dict[int, tuple[int, int]]] = {False: {}, True: {}}
    landed = {slot: record.after - len(record.kept) + i for i, slot in enumerate(record.kept)}
    origins = {goal: slot for slot, goal in landed.items()}
    for after in (False, True):
        if after:
            strips.cells.append([])  # room for arrows
        states = slots(record, prefix, prompt, after=after, first=first)
        used = -(-len(states) // ROW) * ROW
        most = max(len(states), min(record.capacity - first, max(used, ROW)))
        states += ["free"] * (most - len(states))
        for start in range(0, len(states), ROW):
            label = f"from {first + start}" if start else "after" if after else "during"
            y = strips.row(label, states[start : start + ROW])
            for x, state in enumerate(states[start : start + ROW]):
                slot = first + start + x
                places[after][slot] = (x, y)
                origin = origins.get(slot, -1) if after else slot
                if STATES[state]["sign"]:
                    strips.signs.append(_sign(step, record, (x, y), slot, state, origin, landed))
    for old, new in record.moved:
        if old in places[False] and new in places[True]:
            strips.moves.append((places[False][old], places[True][new]))


def _sign(
    step: Step,
    record: CacheRecord,
    place: tuple[int, int],
    slot: int,
    state: str,
    origin: int,
    landed: dict[int, int],
) -> _Sign:
    """The sign in a slot, and what it holds; a draft's slots are not recorded per node."""
    sign = STATES[state]["sign"]
    node = origin - step.prefix_length
    known = record.name == TARGET and 0 <= node < len(step.tree)
    values: dict[str, Any] = {
        "slot": slot,
        "label": STATES[state]["label"],
        "held": "",
        "moved": "",
    }
    if known:
        token = {"node": node, "token": step.nodes[node].token}
        values["held"] = fill("cache", "node", token, step.texts)
    goal = landed.get(slot, slot)
    if origin == slot and goal != slot:
        values["moved"] = fill("cache", "moved", {"goal": goal})
    if state == "kept" and origin in record.kept:
        order = record.kept.index(origin)
        sign = ORDER[order] if order < len(ORDER) else "•"
    tip = plot_text(fill("cache", "slot", values))
    strong = state in {"kept", "rebuilt"}
    return _Sign(*place, sign, tip, strong, node if known else None)


def _traces(strips: _Strips) -> list[Spec]:
    colors = [state["color"] for state in STATES.values()]
    traces: list[Spec] = [{**code_map(strips.cells, colors), "ygap": 2}]
    signs = strips.signs
    if signs:
        color = ["#FFFFFF" if sign.strong else INK for sign in signs]
        traces.append(
            trace(
                "signs",
                x=[sign.x for sign in signs],
                y=[sign.y for sign in signs],
                text=[sign.sign for sign in signs],
                hovertext=[sign.tip for sign in signs],
                customdata=[sign.node for sign in signs],
                textfont={"size": 11, "family": PLOT_MONO, "color": color},
            )
        )
    if strips.moves:
        points = [point for start, end in strips.moves for point in (start, end, (None, None))]
        size = [0, 9, 0] * len(strips.moves)
        marker = {"symbol": "arrow", "angleref": "previous", "size": size, "color": MUTED}
        x, y = zip(*points, strict=True)
        traces.append(trace("moves", x=list(x), y=list(y), marker=marker))
    return traces


def _values(record: CacheRecord) -> dict[str, Any]:
    marks = [f"{'✓' if passed else '✗'} {name}" for name, passed in checks(record).items()]
    return {
        "name": record.name[:1].upper() + record.name[1:],
        "full": record.before + record.written,
        "after": record.after,
        "capacity": record.capacity,
        "memory": byte_count(record.after * record.slot_bytes),
        "written": record.written,
        "kept": len(record.kept),
        "moved": len(record.moved),
        "checks": " ".join(marks),
    }


def cache_lines(step: Step) -> list[str]:
    """A line per cache, such as `Target cache: 73 → 55 slots, 2.4 MiB; 3 kept, 1 moved; checks: ✓ length …`"""
    return [fill("cache", "line", _values(record)) for record in step.caches]


def checks(record: CacheRecord) -> dict[str, bool]:
    """Check a cache after a commit; whether each check passed, by name.

    The target holds exactly the committed entries, a draft at most as many; positions increase;
    rows move only towards the front, each to its own slot; the allocated slots suffice.
    """
    goals = [goal for _, goal in record.moved]
    exact = record.name == TARGET
    return {
        "length": record.after == record.committed if exact else record.after <= record.committed,
        "positions": list(record.kept) == sorted(set(record.kept)),
        "moves": all(slot > goal and slot in record.kept for slot, goal in record.moved)
        and goals == sorted(set(goals)),
        "space": max(record.before + record.written, record.after) <= record.capacity,
    }
