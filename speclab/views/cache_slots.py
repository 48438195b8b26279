"""The KV caches over one iteration: a strip for each, 64 slots per row, while the pass ran and after the commit.

Kept rows carry their place on the path (1, 2, 3 …), so that a move shows as the same sign elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

from speclab.files import byte_count
from speclab.trace.records import CacheRecord, Step
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.palette import LOOKS, MONO, Theme, ThemeName, css
from speclab.views.playback import WHOLE, PlaybackPosition

ROW, CELL, HIGH, GAP = 64, 12.0, 15.0, 3.0
LEFT = 56.0
ORDER = "123456789abcdefghijklmnopqrstuvwxyz"
STATES = {
    "prompt": "prompt",
    "committed": "committed",
    "caught up": "committed, caught up now",
    "speculative": "speculative",
    "kept": "on the path: kept",
    "dropped": "off the path: dropped",
    "rebuilt": "committed, passed again",
    "free": "allocated, free",
}
ENTRIES = "#8FA3B5"


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
        end = record.before + (record.written if self._wrote() else 0)
        kept, names = set(record.kept), ("dropped", "kept")
        if not self.position.reached("commit"):
            names = ("speculative", "speculative")
        return self._old(end) + [names[slot in kept] for slot in range(self.prefix, end)]

    def _wrote(self) -> bool:
        return self.record.name != "target" or self.position.reached("verify")

    def _old(self, end: int) -> list[str]:
        """The states of the slots before `end` that the prefix fills."""
        end = min(end, self.prefix)
        known = min(end, self.record.before)
        prompt = min(known, self.prompt)
        return ["prompt"] * prompt + ["committed"] * (known - prompt) + ["caught up"] * (end - known)

    def used(self) -> set[str]:
        """The states that the picture shows."""
        after = self.after if self.position.reached("commit") else []
        return {*self.during, *after, "free"}

    def landed(self) -> dict[int, int]:
        """Where each kept slot stands after the commit."""
        base = self.record.after - len(self.record.kept)
        return {slot: base + place for place, slot in enumerate(self.record.kept)}


def draw_slots(strip: Strip, after: bool, marked: int | None, y: float, colors: Theme) -> tuple[str, float]:
    """The rows from `y` on; whole rows of committed entries are folded into one. Returns the markup and the next y."""
    states, record = strip.after if after else strip.during, strip.record
    first = max((min(record.before, record.after, strip.prefix) - 1) // ROW, 0) * ROW
    parts = []
    if first:
        parts.append(_folded(first, strip.prompt, y, colors))
        y += HIGH + GAP
    end = first + max(-(-(len(states) - first) // ROW), 1) * ROW
    end = max(min(end, record.capacity), len(states), first + 1)
    order = {slot: ORDER[i] for i, slot in enumerate(record.kept[: len(ORDER)])}
    if after:
        order = {place: order[slot] for slot, place in strip.landed().items() if slot in order}
    for start in range(first, end, ROW):
        row = [states[slot] if slot < len(states) else "free" for slot in range(start, min(start + ROW, end))]
        label = f"font:10px {MONO};fill:{colors.muted}"
        parts.append(markup.text(start, LEFT - 8, y + 11, text_anchor="end", style=label))
        parts.append(_row(row, start, order, marked, y, colors))
        y += HIGH + GAP
    return "".join(parts), y + 14


def _folded(first: int, prompt: int, y: float, colors: Theme) -> str:
    name = f"slots 0 to {first - 1}: committed" + (f", {min(prompt, first)} of them the prompt" if prompt else "")
    box = markup.tag("rect", x=LEFT, y=y, width=ROW * CELL, height=HIGH, style=slot_fill("committed", colors))
    middle = LEFT + ROW * CELL / 2
    return box + markup.text(name, middle, y + 11, text_anchor="middle", style="font-size:10px")


def _row(row: Sequence[str], first: int, order: dict[int, str], marked: int | None, y: float, colors: Theme) -> str:
    """Neighbours of one state share a rectangle; rules tell the slots apart."""
    parts, start = [], 0
    for i in range(1, len(row) + 1):
        if i == len(row) or row[i] != row[start]:
            tip = f"<title>slots {first + start} to {first + i - 1}: {STATES[row[start]]}</title>"
            place = f'x="{LEFT + start * CELL:g}" y="{y:g}" width="{(i - start) * CELL:g}" height="{HIGH:g}"'
            parts.append(f'<g>{tip}<rect style="{slot_fill(row[start], colors)}" {place}/></g>')
            start = i
    rules = "".join([f"M{LEFT + i * CELL:g} {y:g}v{HIGH:g}" for i in range(1, len(row)) if row[i] != "free"])
    if rules:
        parts.append(markup.tag("path", d=rules, style=f"stroke:{colors.paper};stroke-opacity:.7"))
    parts.append(_signs(row, first, order, y))
    if marked is not None and first <= marked < first + len(row):
        frame = {"x": LEFT + (marked - first) * CELL - 1, "y": y - 1, "width": CELL + 2, "height": HIGH + 2}
        parts.append(markup.tag("rect", style=f"fill:none;stroke:{colors.ink};stroke-width:2", **frame))
    return "".join(parts)


def _signs(row: Sequence[str], first: int, order: dict[int, str], y: float) -> str:
    middle = y + HIGH / 2
    crosses = "".join(
        [f"M{LEFT + i * CELL + 3:g} {middle - 3:g}l6 6m0 -6l-6 6" for i, state in enumerate(row) if state == "dropped"]
    )
    parts = [markup.tag("path", d=crosses, style=_CROSS)] if crosses else []
    for i, state in enumerate(row):
        sign_at = LEFT + (i + 0.5) * CELL
        if state in {"kept", "rebuilt"} and first + i in order:
            parts.append(_letter(order[first + i], sign_at, middle))
        elif state in _LETTERS and state != "kept":
            parts.append(slot_sign(state, sign_at, middle))
    return "".join(parts)


_CROSS = f"stroke:{LOOKS['rejected'].color};stroke-width:1.3"


@lru_cache(maxsize=4096)
def _letter(letter: str, x: float, y: float, color: str = "#fff") -> str:
    style = f"font:600 10px {MONO};fill:{color}"
    return markup.tag("text", letter, x=x, y=y + 3.5, text_anchor="middle", style=style)


@lru_cache(maxsize=4096)
def slot_sign(state: str, x: float, y: float) -> str:
    """What stands in a slot of this state, so that colour is not alone; nothing for plain entries."""
    n = markup.number
    if state == "dropped":
        return markup.tag("path", d=f"M{n(x - 3)} {n(y - 3)}l6 6m0 -6l-6 6", style=_CROSS)
    colors = {"speculative": LOOKS["drafted"].color, "caught up": css().ink}
    return _letter(_LETTERS[state], x, y, colors.get(state, "#fff")) if state in _LETTERS else ""


_LETTERS = {"kept": "1", "rebuilt": "r", "speculative": "?", "caught up": "+"}


@cache
def slot_fill(state: str, colors: Theme) -> str:
    """The style of a slot."""
    return {
        "prompt": f"fill:{ENTRIES};fill-opacity:.8",
        "committed": f"fill:{ENTRIES};fill-opacity:.4",
        "caught up": f"fill:{ENTRIES};fill-opacity:.5",
        "speculative": f"fill:{LOOKS['drafted'].color};fill-opacity:.18",
        "kept": f"fill:{LOOKS['accepted'].color}",
        "dropped": f"fill:{LOOKS['rejected'].color};fill-opacity:.14",
        "rebuilt": f"fill:{LOOKS['accepted'].color}",
        "free": f"fill:none;stroke:{colors.faint}",
    }[state]


TARGET = "target"
MOVES = 12
"""Moves written out; the table has them all."""


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


def cache_svg(
    step: Step,
    selected: int | None = None,
    theme: ThemeName = "light",
    *,
    prompt_length: int = 0,
    position: PlaybackPosition = WHOLE,
) -> str:
    """The caches as one SVG string. `prompt_length`: how many of the first slots hold the prompt."""
    colors = css(theme)
    y, parts = 18.0, []
    strips = _strips(step, prompt_length, position)
    for strip in strips:
        slot = step.nodes[selected].kv_slot if selected is not None and strip.record.name == TARGET else None
        part, y = _cache(strip, slot, y, colors)
        parts.append(part)
    key, height = _legend({state for strip in strips for state in strip.used()}, colors, y + 4)
    return markup.svg(LEFT + ROW * CELL + 24, y + height + 4, summary(step, position), colors, [*parts, key])


def _strips(step: Step, prompt: int, position: PlaybackPosition) -> list[Strip]:
    return [Strip(record, step.prefix_length, prompt, position) for record in step.caches]


def _cache(strip: Strip, slot: int | None, y: float, colors: Theme) -> tuple[str, float]:
    record, right = strip.record, LEFT + ROW * CELL
    allocated = byte_count(record.capacity * record.slot_bytes)
    room = f"{byte_count(record.slot_bytes)} per slot · {record.capacity} allocated ({allocated})"
    parts = [
        markup.text(f"{record.name.capitalize()} cache", 8, y, style="font-weight:600"),
        markup.text(room, right, y, text_anchor="end", style=f"fill:{colors.muted}"),
    ]
    y += 24
    committed = strip.position.reached("commit")
    times = [("while the pass ran" if strip.position.reached("verify") else "before the pass", False, slot)]
    if committed:
        times.append(("after the commit", True, None if slot is None else strip.landed().get(slot)))
    for name, after, marked in times:
        length = len(strip.after if after else strip.during)
        words = f"{name}: {plural(length, 'slot')}, {byte_count(length * record.slot_bytes)}"
        parts.append(markup.text(words, LEFT, y, style=f"fill:{colors.muted}"))
        drawn, y = draw_slots(strip, after, marked, y + 8, colors)
        parts.append(drawn)
    if not committed:
        return "".join(parts), y + 8
    notes, y = _notes(record, y, colors)
    return "".join(parts) + notes, y + 30


def _notes(record: CacheRecord, y: float, colors: Theme) -> tuple[str, float]:
    moves = ", ".join([f"{old}→{new}" for old, new in record.moved[:MOVES]])
    more = f" and {len(record.moved) - MOVES} more" if len(record.moved) > MOVES else ""
    texts = [markup.text(f"moved: {moves}{more}" if moves else "moved: nothing", LEFT, y + 2)]
    for i, (name, ok) in enumerate(checks(record)):
        style = "" if ok else f"fill:{LOOKS['rejected'].color};font-weight:600"
        x, at = LEFT + (i % 2) * ROW * CELL / 2, y + 19 + 17 * (i // 2)
        texts.append(markup.text(f"{'✓' if ok else '✗'} {name}", x, at, style=style or None))
    return markup.tag("g", *texts, style=f"fill:{colors.muted}"), y + 19 + 17


def _legend(used: set[str], colors: Theme, y: float) -> tuple[str, float]:
    entries = [
        (markup.swatch(slot_fill(state, colors), slot_sign(state, 0, 0)), name, 12.0)
        for state, name in STATES.items()
        if state in used
    ]
    key, height = markup.legend(tuple(entries), LEFT, y, ROW * CELL)
    return markup.tag("g", key, style=f"fill:{colors.muted}"), height


def table(step: Step) -> str:
    """Every figure of every cache, as an HTML table."""
    rows = (
        (r.name, r.before, r.written, len(r.kept), ", ".join([f"{old}→{new}" for old, new in r.moved]) or "nothing",
         r.after, r.committed, r.capacity, r.slot_bytes, byte_count(r.after * r.slot_bytes),
         "; ".join([f"{name}: {'yes' if ok else 'NO'}" for name, ok in checks(r)]))
        for r in step.caches
    )  # fmt: skip
    head = (
        "cache",
        "before",
        "written",
        "kept",
        "moved",
        "after",
        "committed",
        "capacity",
        "bytes per slot",
        "in use",
        "checks",
    )
    return markup.table(f"KV caches over iteration {step.index + 1}, in slots", head, rows)
