"""The KV caches over one iteration: a strip for each, 64 slots a row, while the pass ran and after the commit."""

from __future__ import annotations

from collections.abc import Sequence

from speclab.trace import CacheRecord, Step
from speclab.views import glyphs, markup
from speclab.views.palette import LOOKS, MONO, Theme, ThemeName, css
from speclab.views.summary import plural
from speclab.views.tokens import quoted

ROW, CELL, HIGH = 64, 12.0, 15.0
LEFT, HEAD = 56.0, 26.0
ORDER = "123456789abcdefghijklmnopqrstuvwxyz"
STATES = {
    "prompt": "prompt, committed",
    "committed": "generated, committed",
    "kept": "on the path: kept",
    "dropped": "speculative: dropped",
    "free": "allocated, free",
}


def size(count: float) -> str:
    """Bytes in words: `1.2 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def states(record: CacheRecord, prompt: int = 0, *, after: bool = False) -> list[str]:
    """The state of every slot up to the last one in use: while the pass ran, or after the commit."""
    kept = set(record.kept)
    used = record.after if after else record.before + record.written
    out = []
    for slot in range(used):
        if slot < min(record.before, record.after):
            out.append("prompt" if slot < prompt else "committed")
        elif after or slot in kept:
            out.append("kept")
        else:
            out.append("committed" if slot < record.before else "dropped")
    return out


def checks(record: CacheRecord) -> tuple[tuple[str, bool], ...]:
    """What must hold after a commit, and whether it does."""
    goal = [target for _, target in record.moved]
    fits = record.after == record.committed if record.name == "target" else record.after <= record.committed
    word = "equals" if record.name == "target" else "is at most"
    return (
        (f"length {record.after} {word} committed {record.committed}", fits),
        ("kept rows stand in order of position", list(record.kept) == sorted(set(record.kept))),
        ("moved rows land behind the prefix, none on another", len(set(goal)) == len(goal) and all(record.before <= slot < record.after for slot in goal)),
        ("length fits the slots allocated", record.before + record.written <= record.capacity),
    )  # fmt: skip


def summary(step: Step) -> str:
    """One sentence a cache."""
    return " ".join(_told(record) for record in step.caches) or "Caches: none."


def _told(record: CacheRecord) -> str:
    good = all(ok for _, ok in checks(record))
    return (
        f"{record.name.capitalize()} cache: {record.before} slots, {record.written} written, {len(record.kept)} kept, "
        f"{len(record.moved)} moved, {record.after} after the commit ({size(record.after * record.slot_bytes)}); "
        f"checks {'hold' if good else 'FAIL'}."
    )


def cache_svg(
    step: Step, selected: int | None = None, theme: ThemeName = "light", *, prompt: int = 0
) -> str:
    """The caches as one SVG string. `prompt`: how many of the first slots hold the prompt, to tell them apart."""
    colors = css(theme)
    y, parts = 18.0, []
    for record in step.caches:
        part, y = _cache(step, record, selected if record.name == "target" else None, prompt, y, colors)
        parts.append(part)
    key, height = _legend(colors, y + 6)
    return markup.svg(LEFT + ROW * CELL + 24, y + height + 6, summary(step), colors, [*parts, key])


def _cache(
    step: Step, record: CacheRecord, selected: int | None, prompt: int, y: float, colors: Theme
) -> tuple[str, float]:
    title = f"{record.name.capitalize()} cache"
    figures = f"{size(record.slot_bytes)} a slot · {record.capacity} slots allocated ({size(record.capacity * record.slot_bytes)})"
    parts = [
        markup.text(title, 8, y, style="font-weight:600"),
        markup.text(figures, LEFT + ROW * CELL, y, text_anchor="end", style=f"fill:{colors.muted}"),
    ]
    slot = None if selected is None else step.nodes[selected].kv_slot
    landed = dict(zip(record.kept, range(record.before, record.after), strict=False))
    peak = record.before + record.written
    views = (
        ("while the pass ran", peak, False, slot),
        ("after the commit", record.after, True, landed.get(slot) if slot is not None else None),
    )
    y += HEAD
    for name, length, after, mark in views:
        parts.append(markup.text(f"{name}: {plural(length, 'slot')}, {size(length * record.slot_bytes)}", LEFT, y, style=f"fill:{colors.muted}"))
        strip, y = _strip(record, prompt, after, mark, y + 8, colors)
        parts.append(strip)
    notes, y = _notes(record, y, colors)
    return "".join(parts) + notes, y + 16


def _strip(
    record: CacheRecord, prompt: int, after: bool, marked: int | None, y: float, colors: Theme
) -> tuple[str, float]:
    slots = states(record, prompt, after=after)
    first = max((min(record.before, record.after) - 1) // ROW, 0) * ROW  # earlier rows are all committed
    parts = []
    if first:
        name = f"slots 0 to {first - 1}: committed" + (f", the first {min(prompt, first)} of them the prompt" if prompt else "")
        box = markup.tag("rect", x=LEFT, y=y, width=ROW * CELL, height=HIGH, style=_fill("committed", colors))
        parts += [box, markup.text(name, LEFT + ROW * CELL / 2, y + 11, text_anchor="middle", style="font-size:10px")]
        y += HIGH + 3
    end = max(min(-(-len(slots) // ROW) * ROW, max(record.capacity, len(slots))), first + 1)
    order = {slot: i for i, slot in enumerate(record.kept)}
    if after:
        order = {record.before + i: i for i in range(record.after - record.before)}
    for start in range(first, end, ROW):
        row = [(slot, slots[slot] if slot < len(slots) else "free") for slot in range(start, min(start + ROW, end))]
        parts.append(markup.text(start, LEFT - 8, y + 11, text_anchor="end", style=f"font:10px {MONO};fill:{colors.muted}"))
        parts.append(_cells(row, order, marked, y, colors))
        y += HIGH + 3
    return "".join(parts), y + 14


def _cells(
    row: Sequence[tuple[int, str]], order: dict[int, int], marked: int | None, y: float, colors: Theme
) -> str:
    """Neighbours of one state share a rectangle; rules tell the slots apart."""
    parts, start = [], 0
    for i in range(1, len(row) + 1):
        if i == len(row) or row[i][1] != row[start][1]:
            state = row[start][1]
            box = markup.tag("rect", x=LEFT + start * CELL, y=y, width=(i - start) * CELL, height=HIGH, style=_fill(state, colors))
            parts.append(markup.tag("g", markup.title(f"slots {row[start][0]} to {row[i - 1][0]}: {STATES[state]}"), box))
            start = i
    n = markup.number
    rules = "".join(f"M{n(LEFT + i * CELL)} {n(y)}v{n(HIGH)}" for i in range(1, len(row)))
    crosses = "".join(
        f"M{n(LEFT + i * CELL + 3)} {n(y + 4.5)}l6 6m0 -6l-6 6" for i, (_, state) in enumerate(row) if state == "dropped"
    )
    parts.append(markup.tag("path", d=rules, style=f"stroke:{colors.paper};stroke-opacity:.7"))
    if crosses:
        parts.append(markup.tag("path", d=crosses, style=f"stroke:{LOOKS['rejected'].color};stroke-width:1.3"))
    for i, (slot, state) in enumerate(row):
        if state == "kept" and order.get(slot, 99) < len(ORDER):
            parts.append(markup.text(ORDER[order[slot]], LEFT + (i + 0.5) * CELL, y + 11, text_anchor="middle", style=f"font:600 10px {MONO};fill:#fff"))
        if slot == marked:
            parts.append(markup.tag("rect", x=LEFT + i * CELL - 1, y=y - 1, width=CELL + 2, height=HIGH + 2, style=f"fill:none;stroke:{colors.ink};stroke-width:2"))
    return "".join(parts)


def _fill(state: str, colors: Theme) -> str:
    return {
        "prompt": "fill:#8FA3B5;fill-opacity:.75",
        "committed": "fill:#8FA3B5;fill-opacity:.4",
        "kept": f"fill:{LOOKS['accepted'].color}",
        "dropped": f"fill:{LOOKS['rejected'].color};fill-opacity:.14",
        "free": f"fill:none;stroke:{colors.faint}",
    }[state]


def _notes(record: CacheRecord, y: float, colors: Theme) -> tuple[str, float]:
    moves = ", ".join(f"{old}→{new}" for old, new in record.moved[:12])
    more = f" and {len(record.moved) - 12} more" if len(record.moved) > 12 else ""
    lines = [f"moved: {moves}{more}" if moves else "moved: nothing, the kept rows lay in place"]
    lines += [f"{'✓' if ok else '✗'} {name}" for name, ok in checks(record)]
    texts = [markup.text(lines[0], LEFT, y + 2)]
    half = ROW * CELL / 2
    for i, line in enumerate(lines[1:]):
        bad = f";fill:{LOOKS['rejected'].color};font-weight:600" if line.startswith("✗") else ""
        texts.append(markup.text(line, LEFT + (i % 2) * half, y + 18 + 16 * (i // 2), style=f"font-size:11px{bad}"))
    return markup.tag("g", *texts, style=f"fill:{colors.muted}"), y + 18 + 16 + 14


def _legend(colors: Theme, y: float) -> tuple[str, float]:
    cross = markup.tag("path", d="M-3 -3L3 3M3 -3L-3 3", style=f"stroke:{LOOKS['rejected'].color};stroke-width:1.3")
    digit = markup.text("1", 0, 4, text_anchor="middle", style=f"font:600 10px {MONO};fill:#fff")
    over = {"dropped": cross, "kept": digit}
    entries = [(glyphs.swatch(_fill(state, colors), over.get(state, "")), name, 12.0) for state, name in STATES.items()]
    key, height = glyphs.legend(entries, LEFT, y, ROW * CELL)
    return markup.tag("g", key, style=f"fill:{colors.muted}"), height


def table(step: Step) -> str:
    """Every figure of every cache, as an HTML table."""
    rows = (
        (r.name, r.before, r.written, len(r.kept), len(r.moved), r.after, r.committed, r.capacity, r.slot_bytes,
         size(r.after * r.slot_bytes), "; ".join(f"{name}: {'yes' if ok else 'NO'}" for name, ok in checks(r)))
        for r in step.caches
    )  # fmt: skip
    head = ("cache", "before", "written", "kept", "moved", "after", "committed", "capacity", "bytes a slot", "in use", "checks")
    return markup.table(f"KV caches over iteration {step.index + 1}, in slots", head, rows)


def slots_table(step: Step) -> str:
    """Which node lay in which slot of the target's cache, and where it went, as an HTML table."""
    target = next((record for record in step.caches if record.name == "target"), None)
    kept = {} if target is None else dict(zip(target.kept, range(target.before, target.after), strict=False))
    rows = (
        (node.kv_slot, node.index, quoted(node.token, step.texts), node.verdict, kept.get(node.kv_slot, "dropped"))
        for node in step.nodes
    )
    return markup.table("Target cache, slot by slot", ("slot", "node", "token", "verdict", "slot after"), rows)
