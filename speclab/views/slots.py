"""A strip of cache slots: what each held, and how it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speclab.trace.records import CacheRecord
from speclab.views import markup
from speclab.views.palette import LOOKS, MONO, Theme, css
from speclab.views.walk import Moment

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


@dataclass(frozen=True, slots=True)
class Strip:
    """One cache over one iteration, whose committed text had `prefix` entries, `prompt` of them the prompt's."""

    record: CacheRecord
    prefix: int
    prompt: int
    moment: Moment

    def states(self, *, after: bool) -> list[str]:
        """The state of every slot in use: while the pass ran, or after the commit."""
        record = self.record
        if after:
            end, new = record.after, "kept" if record.kept else "rebuilt"
            return [*self._old(end), *[new] * (end - self.prefix)]
        end = record.before + (record.written if self._wrote() else 0)
        kept = set(record.kept)
        known = self.moment.reached("commit")
        names = {True: "kept", False: "dropped"} if known else {True: "speculative", False: "speculative"}
        return [*self._old(end), *(names[slot in kept] for slot in range(self.prefix, end))]

    def _wrote(self) -> bool:
        return self.record.name != "target" or self.moment.reached("verify")

    def _old(self, end: int) -> list[str]:
        """The states of the slots before `end` that the prefix fills."""
        end = min(end, self.prefix)
        known = min(end, self.record.before)
        prompt = min(known, self.prompt)
        return ["prompt"] * prompt + ["committed"] * (known - prompt) + ["caught up"] * (end - known)

    def used(self) -> set[str]:
        """The states that the picture shows."""
        after = self.states(after=True) if self.moment.reached("commit") else []
        return {*self.states(after=False), *after, "free"}

    def landed(self) -> dict[int, int]:
        """Where each kept slot stands after the commit."""
        base = self.record.after - len(self.record.kept)
        return {slot: base + place for place, slot in enumerate(self.record.kept)}


def draw(strip: Strip, after: bool, marked: int | None, y: float, colors: Theme) -> tuple[str, float]:
    """The rows from `y` on; whole rows of committed entries are folded into one. Returns the markup and the next y."""
    states, record = strip.states(after=after), strip.record
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
    box = markup.tag("rect", x=LEFT, y=y, width=ROW * CELL, height=HIGH, style=fill("committed", colors))
    middle = LEFT + ROW * CELL / 2
    return box + markup.text(name, middle, y + 11, text_anchor="middle", style="font-size:10px")


def _row(row: Sequence[str], first: int, order: dict[int, str], marked: int | None, y: float, colors: Theme) -> str:
    """Neighbours of one state share a rectangle; rules tell the slots apart."""
    parts, start = [], 0
    for i in range(1, len(row) + 1):
        if i == len(row) or row[i] != row[start]:
            place = {"x": LEFT + start * CELL, "y": y, "width": (i - start) * CELL, "height": HIGH}
            box = markup.tag("rect", style=fill(row[start], colors), **place)
            tip = markup.title(f"slots {first + start} to {first + i - 1}: {STATES[row[start]]}")
            parts.append(markup.tag("g", tip, box))
            start = i
    n = markup.number
    rules = "".join(f"M{n(LEFT + i * CELL)} {n(y)}v{n(HIGH)}" for i in range(1, len(row)) if row[i] != "free")
    if rules:
        parts.append(markup.tag("path", d=rules, style=f"stroke:{colors.paper};stroke-opacity:.7"))
    parts.append(_signs(row, first, order, y))
    if marked is not None and first <= marked < first + len(row):
        place = {"x": LEFT + (marked - first) * CELL - 1, "y": y - 1, "width": CELL + 2, "height": HIGH + 2}
        parts.append(markup.tag("rect", style=f"fill:none;stroke:{colors.ink};stroke-width:2", **place))
    return "".join(parts)


def _signs(row: Sequence[str], first: int, order: dict[int, str], y: float) -> str:
    n, middle = markup.number, y + HIGH / 2
    crosses = "".join(
        f"M{n(LEFT + i * CELL + 3)} {n(middle - 3)}l6 6m0 -6l-6 6" for i, state in enumerate(row) if state == "dropped"
    )
    parts = [markup.tag("path", d=crosses, style=_CROSS)] if crosses else []
    for i, state in enumerate(row):
        sign_at = LEFT + (i + 0.5) * CELL
        if state in {"kept", "rebuilt"} and first + i in order:
            parts.append(_letter(order[first + i], sign_at, middle))
        elif state in _LETTERS and state != "kept":
            parts.append(sign(state, sign_at, middle))
    return "".join(parts)


_CROSS = f"stroke:{LOOKS['rejected'].color};stroke-width:1.3"


def _letter(letter: str, x: float, y: float, color: str = "#fff") -> str:
    return markup.text(letter, x, y + 3.5, text_anchor="middle", style=f"font:600 10px {MONO};fill:{color}")


def sign(state: str, x: float, y: float) -> str:
    """What stands in a slot of this state, so that colour is not alone; nothing for plain entries."""
    n = markup.number
    if state == "dropped":
        return markup.tag("path", d=f"M{n(x - 3)} {n(y - 3)}l6 6m0 -6l-6 6", style=_CROSS)
    colors = {"speculative": LOOKS["drafted"].color, "caught up": css().ink}
    return _letter(_LETTERS[state], x, y, colors.get(state, "#fff")) if state in _LETTERS else ""


_LETTERS = {"kept": "1", "rebuilt": "r", "speculative": "?", "caught up": "+"}


def fill(state: str, colors: Theme) -> str:
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
