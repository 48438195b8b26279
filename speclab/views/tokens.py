"""Format tokens and values: no invisible characters, no accidental HTML or plotly markup."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from html import escape

_VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
_RUN = re.compile(r"([␣⏎⇥])\1{3,}")
# Control, format (bidi overrides, zero width), surrogate, private, unassigned; line, paragraph and
# other separators.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
_MARKS = {"Mn", "Mc", "Me"}


@lru_cache(maxsize=8192)
def display(text: str) -> str:
    r"""Make `text` visible: whitespace as symbols, other hidden characters as code points.

    >>> display(" the"), display("\n\n"), display("        "), display("\u200b"), display("")
    ('␣the', '⏎⏎', '␣×8', '<U+200B>', '∅')
    """
    if not text:
        return "∅"
    visible = text.replace(" ", "␣") if text.isprintable() else "".join(map(_visible, text))
    if unicodedata.category(text[0]) in _MARKS:
        visible = "◌" + visible
    return _RUN.sub(lambda run: f"{run[1]}×{len(run[0])}", visible)


def _visible(char: str) -> str:
    if char in _VISIBLE:
        return _VISIBLE[char]
    return f"<U+{ord(char):04X}>" if unicodedata.category(char) in _HIDDEN else char


def label(token: int, texts: Mapping[int, str]) -> str:
    """The visible text of a token id, `#id` if its text is not known."""
    return display(texts[token]) if token in texts else f"#{token}"


def labels(tokens: Iterable[int], texts: Mapping[int, str]) -> dict[int, str]:
    """The labels of many tokens."""
    return {token: display(texts[token]) if token in texts else f"#{token}" for token in tokens}


def quoted(token: int, texts: Mapping[int, str]) -> str:
    """A token in a sentence, with plain spaces: `' the'`."""
    return _quoted(texts[token]) if token in texts else f"'#{token}'"


@lru_cache(maxsize=8192)
def _quoted(text: str) -> str:
    visible = display(text)
    if "×" not in visible and text.strip():
        visible = visible.replace("␣", " ")
    return f"'{clip(visible, 24)}'"


@lru_cache(maxsize=8192)
def width(text: str) -> int:
    """Columns of `text` in a monospaced font; wide characters take two columns, combining marks none."""
    if text.isascii():
        return len(text)
    columns = 0
    for char in text:
        if unicodedata.category(char) not in _MARKS:
            columns += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return columns


@lru_cache(maxsize=8192)
def clip(text: str, columns: int) -> str:
    """Cut `text` to at most `columns` columns, with `…` at the end."""
    if width(text) <= columns:
        return text
    end = 0
    while width(text[: end + 1]) < columns:
        end += 1
    return text[:end] + "…"


@lru_cache(maxsize=8192)
def plot_text(text: str) -> str:
    """Escape text for plotly, which reads `<b>` and `&lt;` as markup and `$…$` as a formula."""
    return html.escape(text, quote=False).replace("$", "&#36;")


def plot_lines(*lines: str) -> str:
    """A tooltip of several lines."""
    return plot_text("\n".join([line for line in lines if line])).replace("\n", "<br>")


def fixed(value: float, digits: int) -> str:
    """A number with some decimals; a tie is rounded up, as JavaScript's `toFixed` does."""
    return str(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


@lru_cache(maxsize=8192)
def percent(probability: float) -> str:
    """0.934 → `93 %`, 0.0374 → `3.7 %`, 0.0002 → `<0.1 %`."""
    share = 100 * probability
    if share >= 9.95 or share == 0:
        return f"{fixed(share, 0)} %"
    return f"{fixed(share, 1)} %" if share >= 0.1 else "<0.1 %"


def plural(count: int, noun: str) -> str:
    """`1 level`, `3 levels`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration(seconds: float) -> str:
    """`4.2 ms`, `1.38 s`."""
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An escaped HTML table; an empty caption is left out."""
    heading = "".join([f'<th scope="col">{escape(name)}</th>' for name in head])
    body = "".join(["<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows])
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<table class="speclab-table">{title}<thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>'


def _cell(value: object) -> str:
    number = isinstance(value, int | float)
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return f'<td class="sl-number">{text}</td>' if number else f"<td>{escape(text)}</td>"
