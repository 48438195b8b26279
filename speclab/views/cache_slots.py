"""The KV caches over one iteration: a strip for each, 64 slots per row, while the pass ran and after the commit.

Kept rows carry their place on the path (1, 2, 3 …), so that a move shows as the same sign elsewhere; arrows lead there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from speclab.files import byte_count
from speclab.trace.records import CacheRecord, Step
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.figures import CLEAR, INK, MUTED, Spec, coded, escape, frame, note, spec
from speclab.views.palette import LOOKS, PLOT_MONO
from speclab.views.playback import WHOLE, PlaybackPosition

ROW = 64
"""Slots per row."""
LEFT, HIGH, LEAST, TALLEST, NAMED = 84, 18, 11, 390, 96
"""Pixels: the room for names; a row of slots, and at least, where many are to stay below the next. Then:
nodes up to which tooltips quote their tokens."""
ORDER = "123456789abcdefghijklmnopqrstuvwxyz"
TARGET = "target"
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
_CODES = {state: code for code, state in enumerate((*STATES, ""))}
_Place = tuple[int, int]


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
        kept, names = set(record.kept), ("dropped", "kept") if self.committed else ("speculative", "speculative")
        return self._old(end) + [names[slot in kept] for slot in range(self.prefix, end)]

    @property
    def committed(self) -> bool:
        """Whether the path is kept and the rest dropped by then."""
        return self.position.reached("commit")

    @property
    def wrote(self) -> bool:
        """Whether the rows of this pass are in the cache."""
        return self.record.name != TARGET or self.position.reached("verify")

    def _old(self, end: int) -> list[str]:
        """The states of the slots before `end` that the prefix fills."""
        end = min(end, self.prefix)
        known = min(end, self.record.before)
        prompt = min(known, self.prompt)
        return ["prompt"] * prompt + ["committed"] * (known - prompt) + ["caught up"] * (end - known)

    def landed(self) -> dict[int, int]:
        """Where each kept slot stands after the commit."""
        base = self.record.after - len(self.record.kept)
        return {slot: base + place for place, slot in enumerate(self.record.kept)}


class _Row(NamedTuple):
    """One row of the picture: slots from `start` on, or none; `label` stands beside it, `text` in it."""

    states: Sequence[str] = ()
    start: int = 0
    after: bool = False
    label: str = ""
    text: str = ""


def _rows(strip: Strip, *, compact: bool) -> list[_Row]:
    """One cache while the pass ran and after the commit; before it, the room for the latter stays empty."""
    record = strip.record
    first = max(min(record.before, record.after, strip.prefix) - 1, 0) // ROW * ROW
    path = {slot // ROW * ROW for slot in (first, *record.kept)}
    sizes = [len(strip.during), *([record.after] if strip.committed else [])]
    written = " → ".join([f"{size} ({byte_count(size * record.slot_bytes)})" for size in sizes])
    rows = [_Row(text=f"{record.name.capitalize()} cache, slots: {written}")]
    if first and not compact:
        prompt = f", {min(strip.prompt, first)} of them the prompt" if strip.prompt else ""
        old = "prompt" if strip.prompt >= first else "committed"
        rows.append(_Row([old] * ROW, label="0 ", text=f"slots 0 to {first - 1}: committed{prompt}"))
    for after, states, most, name in (
        (False, strip.during, record.before + record.written, "pass" if strip.wrote else "before"),
        (True, strip.after, record.after, "after"),
    ):
        rows += [_Row()] * after
        end = max(min(-(-max(most, first + 1) // ROW) * ROW, record.capacity), most, first + 1)
        filled = [*states, *["free"] * (end - len(states))]
        for start in range(first, end, ROW):
            label = f"{name} {start} " if start == first else f"{start} "
            row = _Row(filled[start : min(start + ROW, end)], start, after, label)
            if not compact or after or start in path:
                rows.append(row if strip.committed or not after else _Row())
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
    """The caches as a figure, nothing where no cache was recorded; a click on a slot of the target's selects its node.

    `selected`: a node whose slot is framed. `position`: at commit rows move to their new slots. `prompt_length`: how
    many of the first slots hold the prompt. `width`: pixels; as wide as its place by default. `scale`: of type.
    `compact`: the target's cache alone, and of it the rows that hold the path.
    """
    strips = [Strip(record, step.prefix_length, prompt_length, position) for record in step.caches
              if record.name == TARGET or not compact]  # fmt: skip
    if not strips:
        return {}
    names = markup.all_quoted(step.tree.token.tolist(), step.texts) if len(step.tree) <= NAMED else ()
    rows, signs, moves = _laid_out(strips, names, compact=compact)
    high = max(LEAST, min(HIGH, TALLEST / len(rows))) * scale
    font = {"size": round(11 * scale), "family": PLOT_MONO, "color": MUTED}
    labels = {y: row.label for y, row in enumerate(rows) if row.label}
    tips = {str(y): f"slots {rows[y].start} to {rows[y].start + len(rows[y].states) - 1}" for y in labels}
    notes = [
        note(escape(row.text), -0.5 if not row.states else ROW / 2, y, xref="x", yref="y", yanchor="middle",
             xanchor="center" if row.states else "left", font=font | {"color": INK})
        for y, row in enumerate(rows) if row.text
    ]  # fmt: skip
    return spec(
        [_slots(rows, scale), *_written(signs, font), _arrows(moves, scale)],
        label=summary(step, position), height=len(rows) * high + 16, width=width, hoverdistance=6,
        xaxis={"visible": False, "range": [-0.5, ROW - 0.5]},
        yaxis={"range": [len(rows) - 0.5, -0.5], "tickvals": [y + 0.02 for y in labels], "ticktext": [*labels.values()],
               "tickfont": font, "labelalias": tips, "showgrid": False, "showline": False},
        meta={"name": "caches", "selected": selected}, margin={"l": LEFT * scale, "r": 12, "t": 8, "b": 8},
        shapes=[frame((sign.x - 0.5, sign.x + 0.5), (sign.y - 0.5, sign.y + 0.5), 2 * scale)
                for sign in signs if sign.node == selected is not None], annotations=notes,
    )  # fmt: skip


def _laid_out(
    strips: Sequence[Strip], names: Sequence[str], *, compact: bool
) -> tuple[list[_Row], list[_Sign], list[tuple[_Place, _Place]]]:
    """All caches below one another: rows of slots, signs in them, and from where to where each moved row goes."""
    rows: list[_Row] = []
    signs: list[_Sign] = []
    moves: list[tuple[_Place, _Place]] = []
    for strip in strips:
        added = _rows(strip, compact=compact)
        before, later = places = dict[int, _Place](), dict[int, _Place]()
        for y, row in enumerate(added, start=len(rows)):
            if not row.text:
                places[row.after].update({row.start + x: (x, y) for x in range(len(row.states))})
        rows += added
        signs += [*_signs(strip, before, names, after=False), *_signs(strip, later, names, after=True)]
        if strip.committed:
            moves += [(before[old], later[new]) for old, new in strip.record.moved if old in before and new in later]
    return rows, signs, moves


def _slots(rows: Sequence[_Row], scale: float) -> Spec:
    """The coloured cells."""
    codes = [[_CODES[state] for state in (*row.states, *[""] * (ROW - len(row.states)))] for row in rows]
    colors = [*(color for _, color, _ in STATES.values()), CLEAR]
    return coded(np.array(codes, np.uint8), colors, [*_CODES], xgap=scale, ygap=2 * scale,
                 hovertemplate="%{y}: %{text}<extra></extra>")  # fmt: skip


def _written(signs: Sequence[_Sign], font: Spec) -> list[Spec]:
    """The signs in the cells, dark and white ones."""
    return [
        {"x": [sign.x for sign in some], "y": [sign.y for sign in some], "mode": "text",
         "text": [sign.sign for sign in some], "textfont": font | {"color": color},
         "hovertext": [sign.said for sign in some], "hovertemplate": "%{hovertext}<extra></extra>",
         "customdata": [sign.node for sign in some], "meta": {"click": "node"}}
        for strong, color in ((False, INK), (True, "#fff"))
        if (some := [sign for sign in signs if (sign.state in STRONG) is strong])
    ]  # fmt: skip


def _arrows(moves: Sequence[tuple[_Place, _Place]], scale: float) -> Spec:
    """From where each moved row was to where it lies now."""
    return {
        "x": [x for (start, _), (end, _) in moves for x in (start, end, None)],
        "y": [y for (_, start), (_, end) in moves for y in (start + 0.5, end - 0.5, None)],
        "mode": "lines+markers", "line": {"color": MUTED, "width": 1.5 * scale}, "hoverinfo": "skip",
        "marker": {"symbol": "arrow", "angleref": "previous", "size": [0, 9 * scale, 0] * len(moves), "color": MUTED},
    }  # fmt: skip


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
    record, landed = strip.record, strip.landed()
    origins = {goal: slot for slot, goal in landed.items()}
    order = dict(zip(record.kept, ORDER, strict=False))
    found = []
    for slot, state in enumerate(strip.after if after else strip.during):
        if slot not in places or not STATES[state][2]:
            continue
        origin = origins.get(slot, -1) if after else slot
        # Where a draft keeps its nodes, no record says.
        node = origin - strip.prefix if record.name == TARGET and origin >= strip.prefix else None
        held = "" if node is None else f"node {node} {names[node]}, " if node < len(names) else f"node {node}, "
        goal = f", moved to slot {landed[slot]}" if not after and landed.get(slot, slot) != slot else ""
        sign = order.get(origin, STATES[state][2]) if state == "kept" else STATES[state][2]
        found.append(_Sign(*places[slot], sign, escape(f"slot {slot}: {held}{state}{goal}"), node, state))
    return found


def key_html(step: Step, position: PlaybackPosition = WHOLE) -> str:
    """What the signs mean that occur."""
    used: set[str] = set()
    for record in step.caches:
        strip = Strip(record, step.prefix_length, 1, position)
        used |= {"free", *strip.during, *(strip.after if strip.committed else ())}
    box = "display:inline-block;width:1.2em;text-align:center;margin-right:.3em"
    parts = []
    for state, (meaning, color, sign) in [look for look in STATES.items() if look[0] in used]:
        style = f"{box};background:{color}" + (";color:#fff" if state in STRONG else "")
        swatch = markup.tag("span", markup.escape(sign or "\u00a0"), style=style, aria_hidden="true")
        parts.append(markup.tag("span", swatch, meaning, style="margin-right:1.1em;white-space:nowrap"))
    return markup.tag("p", *parts, class_="sl-key")


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
    said = []
    for record in step.caches:
        name, strip = f"{record.name.capitalize()} cache", Strip(record, step.prefix_length, 0, position)
        held = "hold" if all(ok for _, ok in checks(record)) else "FAIL"
        done = (
            f"{plural(record.before, 'slot')}, {record.written} written, {len(record.kept)} kept, {len(record.moved)} "
            f"moved, {record.after} after the commit ({byte_count(record.after * record.slot_bytes)}); checks {held}."
        )
        said.append(f"{name}: {done if strip.committed else f'{len(strip.during)} slots.'}")
    return " ".join(said) or "Caches: none."


def table(step: Step) -> str:
    """Every figure of every cache, and what was checked, as an HTML table."""
    found: list[dict[str, object]] = [
        {"slots before": cache.before, "written": cache.written, "kept": len(cache.kept),
         "moved": ", ".join([f"{old}→{new}" for old, new in cache.moved]) or "nothing",
         "slots after": cache.after, "bytes per slot": cache.slot_bytes,
         "in use": byte_count(cache.after * cache.slot_bytes), "slots allocated": cache.capacity,
         "allocated": byte_count(cache.capacity * cache.slot_bytes),
         **{f"check {i}": f"{'✓' if ok else '✗'} {name}" for i, (name, ok) in enumerate(checks(cache), start=1)}}
        for cache in step.caches
    ]  # fmt: skip
    rows = [(name, *[one[name] for one in found]) for name in (found[0] if found else ())]
    head = ["", *(f"{cache.name} cache" for cache in step.caches)]
    return markup.table(f"KV caches over iteration {step.index + 1}", head, rows)
