"""The KV caches over one iteration: a strip for each, 64 slots per row, while the pass ran and after the commit.

Kept rows carry their place on the path (1, 2, 3 …), so that a move shows as the same sign elsewhere; arrows lead there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from speclab.files import byte_count
from speclab.trace.records import CacheRecord, Step
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.figures import INK, MUTED, Spec, escape, spec, table_of
from speclab.views.palette import LOOKS, PLOT_MONO
from speclab.views.playback import WHOLE, PlaybackPosition

ROW = 64
"""Slots per row."""
LEFT, HIGH, LEAST, TALLEST, NAMED = 84, 18, 11, 390, 96
"""Pixels: the room for names; a row of slots, and at least, where many are to stay below the next. Then:
nodes up to which tooltips quote their tokens."""
ORDER = "123456789abcdefghijklmnopqrstuvwxyz"
TARGET = "target"
MOVES = 12
"""Moves written out; the table has them all."""
_BLUE = LOOKS["accepted"].color
STATES: dict[str, tuple[str, str, str]] = {
    "prompt": ("prompt", "#8FA3B5", "·"),
    "committed": ("committed", "rgba(143,163,181,.5)", ""),
    "caught up": ("committed, caught up now", "rgba(143,163,181,.7)", "+"),
    "speculative": ("speculative", "rgba(140,107,177,.3)", "?"),
    "kept": ("on the path: kept", _BLUE, "1"),
    "dropped": ("off the path: dropped", "rgba(213,94,0,.2)", "×"),
    "rebuilt": ("committed, passed again", _BLUE, "r"),
    "free": ("allocated, free", "rgba(125,135,145,.13)", ""),
}
"""Of every state of a slot: its meaning, its colour, its sign."""
STRONG = {"kept", "rebuilt"}
"""Their signs are white."""
_CODES = {state: code for code, state in enumerate(STATES)}


@dataclass(frozen=True)
class Strip:
    """One cache over one iteration, whose committed text had `prefix` entries, `prompt` of them the prompt's."""

    record: CacheRecord
    prefix: int
    prompt: int
    position: PlaybackPosition

    @cached_property
    def after(self) -> list[str]:
        """The state of every slot in use after the commit."""
        new = "kept" if self.record.kept else "rebuilt"
        return [*self._old(self.record.after), *[new] * (self.record.after - self.prefix)]

    @cached_property
    def during(self) -> list[str]:
        """The state of every slot in use while the pass ran."""
        record = self.record
        end = record.before + (record.written if self.wrote else 0)
        kept, names = set(record.kept), ("dropped", "kept")
        if not self.position.reached("commit"):
            names = ("speculative", "speculative")
        return self._old(end) + [names[slot in kept] for slot in range(self.prefix, end)]

    @property
    def wrote(self) -> bool:
        """Whether the rows of this pass are in the cache."""
        return self.record.name != "target" or self.position.reached("verify")

    def _old(self, end: int) -> list[str]:
        """The states of the slots before `end` that the prefix fills."""
        end = min(end, self.prefix)
        known = min(end, self.record.before)
        prompt = min(known, self.prompt)
        return ["prompt"] * prompt + ["committed"] * (known - prompt) + ["caught up"] * (end - known)

    def used(self) -> set[str]:
        """The states that the picture shows."""
        return {*self.during, *(self.after if self.position.reached("commit") else ()), "free"}

    def landed(self) -> dict[int, int]:
        """Where each kept slot stands after the commit."""
        base = self.record.after - len(self.record.kept)
        return {slot: base + place for place, slot in enumerate(self.record.kept)}

    def nodes(self, *, after: bool) -> dict[int, int]:
        """The node in each slot of the target's cache; where a draft keeps its nodes, no record says."""
        if self.record.name != TARGET:
            return {}
        if after:
            return {goal: slot - self.prefix for slot, goal in self.landed().items()}
        return {slot: slot - self.prefix for slot in range(self.prefix, len(self.during))}


class _Row(NamedTuple):
    """One row of the picture: slots from `start` on, or none; beside it `label`, on it `text` from slot `at` on."""

    states: Sequence[str] = ()
    start: int = 0
    after: bool = False
    label: str = ""
    text: str = ""
    at: float = -0.5


def _rows(strip: Strip, *, compact: bool) -> list[_Row]:
    """One cache while the pass ran and after the commit; before it, the room for the latter stays empty."""
    record, committed = strip.record, strip.position.reached("commit")
    old = min(record.before, record.after, strip.prefix)
    first = max(old - 4, 0) if compact else max(old - 1, 0) // ROW * ROW
    path = {(slot - first) // ROW for slot in record.kept} | {0}
    rows = [_Row(text=_title(strip))]
    if first and not compact:
        prompt = f", {min(strip.prompt, first)} of them the prompt" if strip.prompt else ""
        rows.append(_Row(["committed"] * ROW, label="0", text=f"slots 0 to {first - 1}: committed{prompt}", at=ROW / 2))
    for after, states, most, name in (
        (False, strip.during, record.before + record.written, "pass" if strip.wrote else "before"),
        (True, strip.after, record.after, "after"),
    ):
        rows += [_Row()] * (after * (1 + compact))
        end = first + max(-(-(most - first) // ROW), 1) * ROW
        end = max(min(end, record.capacity), most, first + 1)
        for number, start in enumerate(range(first, end, ROW)):
            shown = [states[slot] if slot < len(states) else "free" for slot in range(start, min(start + ROW, end))]
            if compact and not after and number not in path:
                continue
            label = f"{name} {start} " if start == first else f"{start} "
            rows.append(_Row(shown, start, after, label) if committed or not after else _Row())
    return rows


def cache_spec(
    step: Step,
    selected: int | None = None,
    *,
    position: PlaybackPosition = WHOLE,
    prompt_length: int = 0,
    width: float | None = None,
    scale: float = 1.0,
    compact: bool = False,
) -> Spec:
    """The caches as a figure; a click on a slot of the target's selects its node.

    Args:
        step: an iteration.
        selected: a node whose slot is framed.
        position: how much of the iteration is shown; at commit rows move to their new slots.
        prompt_length: how many of the first slots hold the prompt.
        width: pixels; as wide as its place by default.
        scale: of type.
        compact: the target's cache alone, and of it the rows that hold the path.
    """
    strips = [strip for strip in _strips(step, prompt_length, position) if strip.record.name == TARGET or not compact]
    names = markup.all_quoted(step.tree.token.tolist(), step.texts) if len(step.tree) <= NAMED else ()
    rows: list[_Row] = []
    signs: list[_Sign] = []
    moves: list[tuple[_Place, _Place]] = []
    frames: list[_Place] = []
    for strip in strips:
        places: tuple[dict[int, _Place], dict[int, _Place]] = {}, {}
        new = _rows(strip, compact=compact)
        for y, row in enumerate(new, start=len(rows)):
            places[row.after].update({row.start + x: (x, y) for x in range(len(row.states)) if row.at < 0})
        rows += new
        for after in (False, True):
            signs += _signs(strip, places[after], names, after=after)
            nodes = strip.nodes(after=after)
            frames += [place for slot, place in places[after].items() if nodes.get(slot, -1) == selected]
        if position.reached("commit"):
            before, later = places
            moves += [(before[old], later[new]) for old, new in strip.record.moved if old in before and new in later]
    high = max(LEAST, min(HIGH, TALLEST / max(len(rows), 1))) * scale
    font = {"size": round(11 * scale), "family": PLOT_MONO, "color": MUTED}
    labels = {y: row.label for y, row in enumerate(rows) if row.label}
    return spec(
        [_heatmap(rows, scale), *_texts(signs, font), _arrows(moves, scale)],
        label=summary(step, position), height=len(rows) * high + 16, width=width, hoverdistance=6,
        xaxis={"visible": False, "range": [-0.5, ROW - 0.5]},
        yaxis={"range": [len(rows) - 0.5, -0.5], "tickvals": [y + 0.02 for y in labels], "showgrid": False,
               "ticktext": [*labels.values()], "tickfont": font, "showline": False,
               "labelalias": {str(y): f"slots {rows[y].start} to {rows[y].start + len(rows[y].states) - 1}"
                              for y in labels}},
        meta={"name": "caches", "selected": selected}, margin={"l": LEFT * scale, "r": 12, "t": 8, "b": 8},
        shapes=[{"type": "rect", "x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5,
                 "line": {"color": INK, "width": 2 * scale}} for x, y in frames],
        annotations=[
            {"text": escape(row.text), "x": row.at, "y": y, "showarrow": False, "font": font | {"color": INK},
             "xanchor": "left" if row.at < 0 else "center"}
            for y, row in enumerate(rows) if row.text
        ],
    )  # fmt: skip


_Place = tuple[int, int]


class _Sign(NamedTuple):
    """What stands in a slot, and what its tooltip says; a click selects `node`."""

    x: int
    y: int
    sign: str
    said: str
    node: int | None
    state: str


def _signs(strip: Strip, places: dict[int, _Place], names: Sequence[str], *, after: bool) -> list[_Sign]:
    """Of every slot in use that has a sign; kept ones carry their place on the path."""
    record, landed, nodes = strip.record, strip.landed(), strip.nodes(after=after)
    order = {landed[slot] if after else slot: sign for slot, sign in zip(record.kept, ORDER, strict=False)}
    found = []
    for slot, state in enumerate(strip.after if after else strip.during):
        if slot not in places or not STATES[state][2]:
            continue
        node = nodes.get(slot)
        held = "" if node is None else f"node {node} {names[node]}, " if node < len(names) else f"node {node}, "
        goal = f", moved to slot {landed[slot]}" if not after and landed.get(slot, slot) != slot else ""
        sign = order.get(slot, STATES[state][2]) if state == "kept" else STATES[state][2]
        found.append(_Sign(*places[slot], sign, escape(f"slot {slot}: {held}{state}{goal}"), node, state))
    return found


def _heatmap(rows: Sequence[_Row], scale: float) -> dict[str, Any]:
    blank = len(STATES)
    codes = np.full((len(rows), ROW), blank, dtype=np.uint8)
    for y, row in enumerate(rows):
        codes[y, : len(row.states)] = [_CODES[state] for state in row.states]
    colors = [*(color for _, color, _ in STATES.values()), "rgba(0,0,0,0)"]
    return {
        "type": "heatmap", "z": table_of(codes), "zmin": -0.5, "zmax": blank + 0.5, "xgap": scale, "ygap": 2 * scale,
        "colorscale": [[at / (blank + 1), color] for code, color in enumerate(colors) for at in (code, code + 1)],
        "showscale": False, "meta": {"words": [*(meaning for meaning, _, _ in STATES.values()), "no slot"]},
        "hovertemplate": "%{y}: %{text}<extra></extra>",
    }  # fmt: skip


def _texts(signs: Sequence[_Sign], font: dict[str, Any]) -> list[dict[str, Any]]:
    """The signs with their tooltips, white on what is kept."""
    return [
        {"x": [sign.x for sign in some], "y": [sign.y for sign in some], "mode": "text",
         "text": [sign.sign for sign in some], "textfont": font | {"color": color},
         "hovertext": [sign.said for sign in some], "hovertemplate": "%{hovertext}<extra></extra>",
         "customdata": [sign.node for sign in some], "meta": {"click": "node"}}
        for strong, color in ((False, INK), (True, "#fff"))
        if (some := [sign for sign in signs if (sign.state in STRONG) is strong])
    ]  # fmt: skip


def _arrows(moves: Sequence[tuple[_Place, _Place]], scale: float) -> dict[str, Any]:
    """From the slot where a kept row was to where it is now."""
    return {
        "x": [x for (start, _), (end, _) in moves for x in (start, end, None)],
        "y": [y for (_, start), (_, end) in moves for y in (start + 0.5, end - 0.5, None)],
        "mode": "lines+markers", "line": {"color": MUTED, "width": 1.5 * scale}, "hoverinfo": "skip",
        "marker": {"symbol": "arrow", "angleref": "previous", "size": [0, 9 * scale, 0] * len(moves), "color": MUTED},
    }  # fmt: skip


def _strips(step: Step, prompt: int, position: PlaybackPosition) -> list[Strip]:
    return [Strip(record, step.prefix_length, prompt, position) for record in step.caches]


def _title(strip: Strip) -> str:
    """`Target cache: 62 slots (1.2 MiB) → 15 (300.0 KiB)`."""
    sizes = [len(strip.during), *([strip.record.after] if strip.position.reached("commit") else [])]
    written = [f"{size} ({byte_count(size * strip.record.slot_bytes)})" for size in sizes]
    return f"{strip.record.name.capitalize()} cache, slots: {' → '.join(written)}"


def cache_notes(step: Step, position: PlaybackPosition = WHOLE) -> str:
    """What the signs mean, and of every cache its bytes, the rows that moved and what was checked, as HTML."""
    strips = _strips(step, 1, position)
    used = {state for strip in strips for state in strip.used()}
    key = [_swatch(state) for state in STATES if state in used]
    lines = [markup.tag("p", *key, class_="sl-key")]
    for record in [strip.record for strip in strips]:
        size = byte_count(record.slot_bytes)
        said = [f"{record.name.capitalize()}: {size} per slot, {record.capacity} allocated"]
        if position.reached("commit"):
            moves = ", ".join([f"{old}→{new}" for old, new in record.moved[:MOVES]])
            more = f" and {len(record.moved) - MOVES} more" if len(record.moved) > MOVES else ""
            said.append(f"moved {moves or 'nothing'}{more}")
            said += [f"{'✓' if ok else '✗'} {name}" for name, ok in checks(record)]
        lines.append(markup.tag("p", markup.escape(" · ".join(said)), class_="sl-said"))
    return "".join(lines)


def _swatch(state: str) -> str:
    meaning, color, sign = STATES[state]
    ink = "#fff" if state in STRONG else "inherit"
    style = f"display:inline-block;width:1.2em;text-align:center;margin-right:.3em;background:{color};color:{ink}"
    box = markup.tag("span", markup.escape(sign) or "\u00a0", style=style, aria_hidden="true")
    return markup.tag("span", box, markup.escape(meaning), style="margin-right:1.1em;white-space:nowrap")


@lru_cache(maxsize=256)
def checks(record: CacheRecord) -> tuple[tuple[str, bool], ...]:
    """What must hold after a commit, and whether it does."""
    exact = record.name == TARGET
    length = record.after == record.committed if exact else record.after <= record.committed
    goals = [goal for _, goal in record.moved]
    moves = all(slot > goal and slot in record.kept for slot, goal in record.moved) and goals == sorted(set(goals))
    peak = max(record.before + record.written, record.after)
    return (
        (f"length {record.after} {'equals' if exact else 'is at most'} the committed {record.committed}", length),
        ("positions increasing", list(record.kept) == sorted(set(record.kept))),
        ("moved rows only go forward, none onto another", moves),
        (f"{record.capacity} allocated slots hold them all", peak <= record.capacity),
    )


def summary(step: Step, position: PlaybackPosition = WHOLE) -> str:
    """One sentence per cache, on what is known of it by then."""
    if position.reached("commit"):
        return " ".join([_told(record) for record in step.caches]) or "Caches: none."
    strips = _strips(step, 0, position)
    return " ".join([f"{strip.record.name.capitalize()} cache: {len(strip.during)} slots." for strip in strips])


def _told(record: CacheRecord) -> str:
    good = all(ok for _, ok in checks(record))
    return (
        f"{record.name.capitalize()} cache: {plural(record.before, 'slot')}, {record.written} written, "
        f"{len(record.kept)} kept, {len(record.moved)} moved, {record.after} after the commit "
        f"({byte_count(record.after * record.slot_bytes)}); checks {'hold' if good else 'FAIL'}."
    )


def table(step: Step) -> str:
    """Every figure of every cache, as an HTML table."""
    rows = (
        (r.name, r.before, r.written, len(r.kept), ", ".join([f"{old}→{new}" for old, new in r.moved]) or "nothing",
         r.after, r.committed, r.capacity, r.slot_bytes, byte_count(r.after * r.slot_bytes),
         "; ".join([f"{name}: {'yes' if ok else 'NO'}" for name, ok in checks(r)]))
        for r in step.caches
    )  # fmt: skip
    head = ("cache", "before", "written", "kept", "moved", "after", "committed", "capacity", "bytes per slot", "in use",
            "checks")  # fmt: skip
    return markup.table(f"KV caches over iteration {step.index + 1}, in slots", head, rows)
