"""The KV caches over one iteration: a strip for each, 64 slots a row, while the pass ran and after the commit.

Kept rows carry their place on the path (1, 2, 3 …), so that a move shows as the same sign elsewhere.
"""

from __future__ import annotations

from speclab.trace.records import CacheRecord, Step
from speclab.views import glyphs, markup, slots
from speclab.views.palette import LOOKS, Theme, ThemeName, css
from speclab.views.slots import CELL, LEFT, ROW, STATES, Strip
from speclab.views.summary import plural
from speclab.views.tokens import quoted
from speclab.views.walk import WHOLE, Moment

TARGET = "target"
MOVES = 12
"""Moves written out; the table has them all."""


def size(count: float) -> str:
    """Bytes in words: `1.2 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def checks(record: CacheRecord) -> tuple[tuple[str, bool], ...]:
    """What must hold after a commit, and whether it does."""
    exact = record.name == TARGET
    length = record.after == record.committed if exact else record.after <= record.committed
    goals = [goal for _, goal in record.moved]
    moves = all(slot > goal and slot in record.kept for slot, goal in record.moved) and goals == sorted(set(goals))
    peak = max(record.before + record.written, record.after)
    return (
        (f"length {record.after} {'equals' if exact else 'is at most'} the committed {record.committed}", length),
        ("kept rows stand in the order of their positions", list(record.kept) == sorted(set(record.kept))),
        ("moved rows only go forward, none onto another", moves),
        (f"{record.capacity} allocated slots hold them all", peak <= record.capacity),
    )


def summary(step: Step, moment: Moment = WHOLE) -> str:
    """One sentence a cache, on what is known of it by then."""
    if moment.reached("commit"):
        return " ".join(_told(record) for record in step.caches) or "Caches: none."
    strips = _strips(step, 0, moment)
    return " ".join(
        f"{strip.record.name.capitalize()} cache: {len(strip.states(after=False))} slots." for strip in strips
    )


def _told(record: CacheRecord) -> str:
    good = all(ok for _, ok in checks(record))
    return (
        f"{record.name.capitalize()} cache: {plural(record.before, 'slot')}, {record.written} written, "
        f"{len(record.kept)} kept, {len(record.moved)} moved, {record.after} after the commit "
        f"({size(record.after * record.slot_bytes)}); checks {'hold' if good else 'FAIL'}."
    )


def cache_svg(
    step: Step,
    selected: int | None = None,
    theme: ThemeName = "light",
    *,
    prompt: int = 0,
    moment: Moment = WHOLE,
) -> str:
    """The caches as one SVG string. `prompt`: how many of the first slots hold the prompt, to tell them apart."""
    colors = css(theme)
    y, parts = 18.0, []
    for record in step.caches:
        slot = step.nodes[selected].kv_slot if selected is not None and record.name == TARGET else None
        part, y = _cache(Strip(record, step.prefix_length, prompt, moment), slot, y, colors)
        parts.append(part)
    key, height = _legend({state for strip in _strips(step, prompt, moment) for state in strip.used()}, colors, y + 4)
    return markup.svg(LEFT + ROW * CELL + 24, y + height + 4, summary(step, moment), colors, [*parts, key])


def _strips(step: Step, prompt: int, moment: Moment) -> list[Strip]:
    return [Strip(record, step.prefix_length, prompt, moment) for record in step.caches]


def _cache(strip: Strip, slot: int | None, y: float, colors: Theme) -> tuple[str, float]:
    record, right = strip.record, LEFT + ROW * CELL
    room = (
        f"{size(record.slot_bytes)} a slot · {record.capacity} allocated ({size(record.capacity * record.slot_bytes)})"
    )
    parts = [
        markup.text(f"{record.name.capitalize()} cache", 8, y, style="font-weight:600"),
        markup.text(room, right, y, text_anchor="end", style=f"fill:{colors.muted}"),
    ]
    y += 24
    times = [("while the pass ran" if strip.moment.reached("verify") else "before the pass", False, slot)]
    if strip.moment.reached("commit"):
        times.append(("after the commit", True, None if slot is None else strip.landed().get(slot)))
    for name, after, marked in times:
        length = len(strip.states(after=after))
        told = f"{name}: {plural(length, 'slot')}, {size(length * record.slot_bytes)}"
        parts.append(markup.text(told, LEFT, y, style=f"fill:{colors.muted}"))
        drawn, y = slots.draw(strip, after, marked, y + 8, colors)
        parts.append(drawn)
    if not strip.moment.reached("commit"):
        return "".join(parts), y + 8
    notes, y = _notes(record, y, colors)
    return "".join(parts) + notes, y + 30


def _notes(record: CacheRecord, y: float, colors: Theme) -> tuple[str, float]:
    moves = ", ".join(f"{old}→{new}" for old, new in record.moved[:MOVES])
    more = f" and {len(record.moved) - MOVES} more" if len(record.moved) > MOVES else ""
    texts = [markup.text(f"moved: {moves}{more}" if moves else "moved: nothing", LEFT, y + 2)]
    for i, (name, ok) in enumerate(checks(record)):
        style = "" if ok else f"fill:{LOOKS['rejected'].color};font-weight:600"
        x, at = LEFT + (i % 2) * ROW * CELL / 2, y + 19 + 17 * (i // 2)
        texts.append(markup.text(f"{'✓' if ok else '✗'} {name}", x, at, style=style or None))
    return markup.tag("g", *texts, style=f"fill:{colors.muted}"), y + 19 + 17


def _legend(used: set[str], colors: Theme, y: float) -> tuple[str, float]:
    entries = [
        (glyphs.swatch(slots.fill(state, colors), slots.sign(state, 0, 0)), name, 12.0)
        for state, name in STATES.items()
        if state in used
    ]
    key, height = glyphs.legend(entries, LEFT, y, ROW * CELL)
    return markup.tag("g", key, style=f"fill:{colors.muted}"), height


def table(step: Step) -> str:
    """Every figure of every cache, as an HTML table."""
    rows = (
        (r.name, r.before, r.written, len(r.kept), ", ".join(f"{old}→{new}" for old, new in r.moved) or "nothing",
         r.after, r.committed, r.capacity, r.slot_bytes, size(r.after * r.slot_bytes),
         "; ".join(f"{name}: {'yes' if ok else 'NO'}" for name, ok in checks(r)))
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
        "bytes a slot",
        "in use",
        "checks",
    )
    return markup.table(f"KV caches over iteration {step.index + 1}, in slots", head, rows)


def slots_table(step: Step) -> str:
    """Which node lay in which slot of the target's cache, and where it went, as an HTML table."""
    landed = next((s.landed() for s in _strips(step, 0, WHOLE) if s.record.name == TARGET), {})
    rows = (
        (node.kv_slot, node.index, quoted(node.token, step.texts), node.verdict, landed.get(node.kv_slot, "dropped"))
        for node in step.nodes
    )
    return markup.table("Target cache, slot by slot", ("slot", "node", "token", "verdict", "slot after"), rows)
