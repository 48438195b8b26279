"""The KV caches over one iteration: a strip per cache, 64 slots per row, during the pass and after
the commit.

Kept rows are numbered along the path (1, 2, 3 …), so a moved row keeps its number; arrows show the
moves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from speclab.files import byte_count
from speclab.trace.records import CacheRecord, Step
from speclab.views.theme import INK, LOOKS, MUTED, PLOT_MONO, Spec, code_map, note, spec
from speclab.views.tokens import plot_text, plural, quoted

ROW = 64
PITCH = 18
LEFT = 84
"""Slots per row, pixels of a row, and pixels left of it."""
ORDER = "123456789abcdefghijklmnopqrstuvwxyz"
TARGET = "target"
_BLUE = LOOKS["accepted"].color
STATES: dict[str, tuple[str, str, str]] = {
    "prompt": ("prompt", "#8FA3B5", "·"),
    "committed": ("committed", "rgba(143,163,181,.5)", ""),
    "written now": ("committed, written now", "rgba(143,163,181,.7)", "+"),
    "kept": ("on the path: kept", _BLUE, "1"),
    "dropped": ("off the path: dropped", "rgba(213,94,0,.25)", "×"),
    "rebuilt": ("committed, passed again", _BLUE, "r"),
    "free": ("allocated, free", "rgba(125,135,145,.13)", ""),
}
"""The meaning, colour and sign of every slot state."""
_CODES = {state: code for code, state in enumerate(STATES)}


def slots(record: CacheRecord, prefix: int, prompt: int, *, after: bool) -> list[str]:
    """The state of every slot in use, during the pass or after the commit.

    `prefix`: entries of the committed text; `prompt`: how many of them belong to the prompt.
    """
    end = record.after if after else record.before + record.written
    states = []
    for slot in range(end):
        if slot < min(record.before, prefix):
            states.append("prompt" if slot < prompt else "committed")
        elif slot < prefix:
            states.append("written now")
        elif after:
            states.append("kept" if record.kept else "rebuilt")
        else:
            states.append("kept" if slot in record.kept else "dropped")
    return states


@dataclass
class _Strips:
    """The picture under construction, from top to bottom."""

    cells: list[list[int]] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)
    notes: list[Spec] = field(default_factory=list)
    signs: list[tuple[int, int, str, str, bool, int | None]] = field(default_factory=list)
    moves: list[tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=list)

    def heading(self, text: str) -> None:
        font = {"size": 12, "color": INK}
        place = {"xref": "x", "yref": "y", "yanchor": "middle"}
        self.notes.append(note(plot_text(text), -0.5, len(self.cells), **place, font=font))
        self.cells.append([])

    def row(self, label: str, states: list[str]) -> int:
        self.labels[len(self.cells)] = label
        self.cells.append([_CODES[state] for state in states])
        return len(self.cells) - 1


def draw_cache(step: Step, selected: int | None = None, *, prompt_length: int = 0) -> Spec:
    """The caches of an iteration; empty if none was recorded.

    `selected`: a node whose slot gets a frame.
    """
    strips = _Strips()
    for record in step.caches:
        _add(strips, step, record, prompt_length)
    framed = [sign for sign in strips.signs if selected is not None and sign[5] == selected]
    line = {"color": INK, "width": 2}
    shapes = [
        {"type": "rect", "x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5, "line": line}
        for x, y, *_ in framed
    ]
    font = {"size": 11, "family": PLOT_MONO, "color": MUTED}
    count = len(strips.cells)
    ticks = {
        "tickvals": list(strips.labels),
        "ticktext": list(strips.labels.values()),
        "tickfont": font,
    }
    return spec(
        _traces(strips, font),
        " ".join(cache_lines(step)) or "Caches: none.",
        "caches",
        height=PITCH * max(count, 1) + 16,
        margin={"l": LEFT, "r": 12, "t": 8, "b": 8},
        xaxis={"visible": False, "range": [-0.5, ROW - 0.5], "fixedrange": True},
        yaxis={
            "range": [count - 0.5, -0.5],
            **ticks,
            "showgrid": False,
            "showline": False,
            "fixedrange": True,
        },
        annotations=strips.notes,
        shapes=shapes,
        dragmode=False,
    )


def _add(strips: _Strips, step: Step, record: CacheRecord, prompt: int) -> None:
    prefix = step.prefix_length
    strips.heading(f"{record.name.capitalize()} cache: {_sizes(record)}")
    first = max(min(record.before, record.after, prefix) - 1, 0) // ROW * ROW
    if first:
        held = f", {min(prompt, first)} of the prompt" if prompt else ""
        strips.heading(f"slots 0 to {first - 1}: committed{held}")
    nodes: dict[int, tuple[int, str]] = {}  # a draft's slots are not recorded per node
    if record.name == TARGET:
        tokens = enumerate(step.tree.token.tolist())
        nodes = {prefix + node: (node, quoted(token, step.texts)) for node, token in tokens}
    places: dict[bool, dict[int, tuple[int, int]]] = {False: {}, True: {}}
    landed = {slot: record.after - len(record.kept) + i for i, slot in enumerate(record.kept)}
    origins = {goal: slot for slot, goal in landed.items()}
    for after in (False, True):
        if after:
            strips.cells.append([])  # room for arrows
        states = slots(record, prefix, prompt, after=after)
        end = max(min(-(-len(states) // ROW) * ROW, record.capacity), len(states), first + 1)
        states += ["free"] * (end - len(states))
        for start in range(first, end, ROW):
            label = ("after" if after else "during") if start == first else f"from {start}"
            y = strips.row(label, states[start : start + ROW])
            for x, state in enumerate(states[start : start + ROW]):
                slot = start + x
                places[after][slot] = (x, y)
                origin = origins.get(slot, -1) if after else slot
                if STATES[state][2]:
                    strips.signs.append(
                        _sign(record, (x, y), slot, state, origin, landed.get(slot, slot), nodes)
                    )
    for old, new in record.moved:
        if old in places[False] and new in places[True]:
            strips.moves.append((places[False][old], places[True][new]))


def _sign(
    record: CacheRecord,
    place: tuple[int, int],
    slot: int,
    state: str,
    origin: int,
    goal: int,
    nodes: dict[int, tuple[int, str]],
) -> tuple[int, int, str, str, bool, int | None]:
    """The sign in a slot, its tooltip, whether its background is blue, its node.

    `nodes`: node and token by slot.
    """
    meaning, _, sign = STATES[state]
    node, word = nodes.get(origin, (None, ""))
    held = "" if node is None else f" node {node} {word},"
    moved = f", moved to slot {goal}" if goal != slot and origin == slot else ""
    if state == "kept" and origin in record.kept:
        order = record.kept.index(origin)
        sign = ORDER[order] if order < len(ORDER) else "•"
    return (
        *place,
        sign,
        plot_text(f"slot {slot}:{held} {meaning}{moved}"),
        state in {"kept", "rebuilt"},
        node,
    )


def _traces(strips: _Strips, font: Spec) -> list[Spec]:
    heat = code_map(strips.cells, [color for _, color, _ in STATES.values()])
    traces: list[Spec] = [{**heat, "ygap": 2, "hoverinfo": "skip"}]
    if strips.signs:
        x, y, sign, tip, strong, node = zip(*strips.signs, strict=True)
        color = ["#FFFFFF" if each else INK for each in strong]
        traces.append({
            "type": "scatter", "mode": "text", "x": x, "y": y, "text": sign, "hovertext": tip, "hoverinfo": "text",
            "customdata": node, "textfont": {**font, "color": color},
        })  # fmt: skip
    if strips.moves:
        steps: list[Any] = [each for start, end in strips.moves for each in (start, end, None)]
        marker = {
            "symbol": "arrow",
            "angleref": "previous",
            "size": [0, 9, 0] * len(strips.moves),
            "color": MUTED,
        }
        traces.append({
            "type": "scatter", "mode": "lines+markers", "x": [each and each[0] for each in steps],
            "y": [each and each[1] for each in steps], "line": {"color": MUTED, "width": 1.5}, "marker": marker,
            "hoverinfo": "skip",
        })  # fmt: skip
    return traces


def key(step: Step) -> list[tuple[str, str, str]]:
    """The legend of the states that occur."""
    used = {"free"}
    for record in step.caches:
        used |= {
            *slots(record, step.prefix_length, 1, after=False),
            *slots(record, step.prefix_length, 1, after=True),
        }
    return [look for state, look in STATES.items() if state in used]


def _sizes(record: CacheRecord) -> str:
    return f"{record.before + record.written} → {record.after} slots"


def cache_lines(step: Step) -> list[str]:
    """A line per cache, such as `Target cache: 73 → 55 slots, 2.4 MiB; 3 kept, 1 moved; checks: ✓ length …`"""
    lines = []
    for record in step.caches:
        memory = byte_count(record.after * record.slot_bytes)
        marks = " ".join(
            [f"{'✓' if passed else '✗'} {name}" for name, passed in checks(record).items()]
        )
        kept = f"{plural(record.written, 'row')} written, {len(record.kept)} kept, {len(record.moved)} moved"
        lines.append(
            f"{record.name.capitalize()} cache: {_sizes(record)}, {memory}; {kept}; checks: "
            f"{marks}."
        )
    return lines


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
