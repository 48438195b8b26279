"""Strings of HTML: tokens made visible and safe, tags, tables, and values in words."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeGuard

from speclab.files import byte_count
from speclab.trace.records import Value
from speclab.views.palette import LOOKS, SANS

_VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
_RUN = re.compile(r"([␣⏎⇥])\1{3,}")
# Control, format (bidi overrides, zero width), surrogate, private, unassigned; line and paragraph separators.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
_MARKS = {"Mn", "Mc", "Me"}


@lru_cache(maxsize=8192)
def display(text: str) -> str:
    r"""`text` with nothing invisible left: whitespace as symbols, other hidden characters as code points.

    >>> display(" the"), display("\n\n"), display("        "), display("\u200b"), display("")
    ('␣the', '⏎⏎', '␣×8', '<U+200B>', '∅')
    """
    if not text:
        return "∅"
    kinds = map(unicodedata.category, text)
    hidden = [f"<U+{ord(char):04X}>" if kind in _HIDDEN else char for char, kind in zip(text, kinds, strict=True)]
    shown = "".join([_VISIBLE.get(char) or safe for char, safe in zip(text, hidden, strict=True)])
    if unicodedata.category(text[0]) in _MARKS:
        shown = "◌" + shown
    return _RUN.sub(lambda run: f"{run[1]}×{len(run[0])}", shown)


def label(token: int, texts: Mapping[int, str], columns: int = 0) -> str:
    """The visible text of a token id, `#id` where it has none; at most `columns` wide if that is given."""
    shown = display(texts[token]) if token in texts else f"#{token}"
    return clip(shown, columns) if 0 < columns < 2 * len(shown) else shown


def quoted(token: int, texts: Mapping[int, str]) -> str:
    """A token inside a sentence: `'␣the'`."""
    return f"'{label(token, texts, 24)}'"


def all_quoted(tokens: Iterable[int], texts: Mapping[int, str]) -> list[str]:
    """Each token as `quoted` has it."""
    return [quoted(token, texts) for token in tokens]


@lru_cache(maxsize=8192)
def width(text: str) -> int:
    """Columns of `text` in a monospaced font; wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    wide = [2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text]
    return sum([0 if unicodedata.category(char) in _MARKS else size for char, size in zip(text, wide, strict=True)])


def clip(text: str, columns: int) -> str:
    """`text`, or its beginning and `…`, in at most `columns` columns."""
    if width(text) <= columns:
        return text
    end = 0
    while width(text[: end + 1]) < columns:
        end += 1
    return text[:end] + "…"


escape: Callable[[str], str] = lru_cache(maxsize=4096)(html.escape)
"""For HTML, in text and in attributes. Kept: a page repeats its few styles and labels hundreds of times."""


_NEVER_EMPTY = {"div", "span", "td", "th", "p", "b", "s"}  # HTML reads `<div/>` as an opening tag
_PAD = "padding:2px 14px 2px 0;font-variant-numeric:tabular-nums"


class Drawn(str):
    """Markup in a cell of a table; other strings are escaped there."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: object) -> str:
    """One element. `children` are markup already; a trailing `_` in a name falls away, other `_` become `-`."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is not None:
            parts.append(f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"')
    inner = "".join(children)
    parts.append(f">{inner}</{name}>" if inner or name in _NEVER_EMPTY else "/>")
    return "".join(parts)


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table without the columns that are empty; numbers stand right, everything but `Drawn` is escaped."""
    held = [list(row) for row in rows]
    kept = [i for i in range(len(head)) if not held or any(row[i] != "" for row in held)]
    cells = [tag("tr", *[_cell(row[i]) for i in kept]) for row in held]
    style = "text-align:left;padding:2px 10px 2px 0"
    heading = tag("tr", *[tag("th", escape(head[i]), scope="col", style=style) for i in kept])
    return tag(
        "table", tag("caption", escape(caption), style="text-align:left;padding:4px 0"), tag("thead", heading),
        tag("tbody", *cells), class_="speclab-table", style=f"font:12px {SANS};border-collapse:collapse",
    )  # fmt: skip


def _cell(value: object) -> str:
    shown = value if isinstance(value, Drawn) else escape(f"{value:.3g}" if isinstance(value, float) else str(value))
    side = "" if isinstance(value, Drawn) else f"text-align:{'right' if isinstance(value, int | float) else 'left'};"
    return tag("td", shown, style=side + _PAD)


MEANINGS = {
    "consensus": "n-gram lengths that agree on the first token", "spine": "copied tokens laid as the spine",
    "spine_ratio": "share of the nodes for the spine", "spine_acceptance": "running mean: copied tokens accepted",
    "branch_acceptance": "running mean: transitions accepted", "carry": "the table at the start of a prompt",
    "table": "how its rows are kept", "table_rows": "tokens whose successors are known",
    "rows_refreshed": "known rows that were overwritten", "bigrams": "pairs of tokens with successors of their own",
    "table_bytes": "of all rows when full",
}  # fmt: skip
"""What is said beside values whose names do not say it."""


def spoken(name: str) -> str:
    """`table_rows` → `table rows`, `table_bytes` → `table memory`; kept on one line."""
    words = f"{name.removesuffix('_bytes')} memory" if name.endswith("_bytes") else name
    return words.replace("_", "\u00a0").replace(" ", "\u00a0")


def written(name: str, value: Value) -> str:
    """`0.3`, `1,204`, `5.1 MiB`, `yes`; `–` for nothing."""
    if value is None or isinstance(value, bool):
        return "–" if value is None else "yes" if value else "no"
    if isinstance(value, int) and not name.endswith("_bytes"):
        return f"{value:,}"
    return value if isinstance(value, str) else byte_count(value) if name.endswith("_bytes") else f"{value:.3g}"


def counts(value: Value) -> TypeGuard[float]:
    """Whether it is a number; yes and no are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def change(before: Value, after: Value) -> str:
    """`▲ 0.2`, `▼ 3`, `=`; the new value where it is no number."""
    if before == after or (isinstance(before, float) and written("", before) == written("", after)):
        return "="
    if not counts(before) or not counts(after):
        return "changed"
    gap = after - before
    size_of = f"{abs(gap):,}" if isinstance(gap, int) else f"{abs(gap):.2g}"
    return f"{'▲' if gap > 0 else '▼'}\u00a0{size_of}"


def bar(share: float, color: str = LOOKS["accepted"].color, room: int = 110) -> Drawn:
    """A bar of `share` of `room` pixels. It says nothing to a screen reader: its number stands beside it."""
    wide = f"{room * min(max(share, 0.0), 1.0):.1f}"
    inner = tag(
        "span", style=f"display:inline-block;width:{wide}px;height:10px;background:{color};vertical-align:baseline"
    )
    return Drawn(tag("span", inner, aria_hidden="true", style=f"display:inline-block;width:{room}px"))


def cards(*blocks: str) -> str:
    """Blocks side by side, as many as fit; empty ones are left out."""
    own = "flex:0 1 auto;min-width:0;max-width:100%;overflow-x:auto"
    style = "display:flex;flex-wrap:wrap;gap:14px 36px;align-items:flex-start;padding-top:6px"
    return tag("div", *(tag("div", block, style=own) for block in blocks if block), style=style)


def labelled(label: str, sentence: str) -> str:
    """A sentence under a name."""
    style = f"font:13px/1.5 {SANS};margin:0 0 4px;max-width:110ch"
    return tag("div", tag("b", escape(f"{label}. ")), escape(sentence), style=style)
