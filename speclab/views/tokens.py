"""A token's text made visible and safe: `␣ ⏎ ⇥ <0xE2> <U+200B>`, escaped for XML, HTML and plotly."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache

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
    shown = "".join(_VISIBLE.get(char) or _printable(char) for char in text)
    if unicodedata.category(text[0]) in _MARKS:
        shown = "◌" + shown
    return _RUN.sub(lambda run: f"{run[1]}×{len(run[0])}", shown)


def _printable(char: str) -> str:
    return f"<U+{ord(char):04X}>" if unicodedata.category(char) in _HIDDEN else char


def label(token: int, texts: Mapping[int, str], columns: int = 0) -> str:
    """The visible text of a token id, `#id` where it has none; at most `columns` wide if that is given."""
    shown = display(texts[token]) if token in texts else f"#{token}"
    return clip(shown, columns) if columns else shown


def quoted(token: int, texts: Mapping[int, str]) -> str:
    """A token inside a sentence: `'␣the'`."""
    return f"'{label(token, texts, 24)}'"


@lru_cache(maxsize=8192)
def width(text: str) -> int:
    """Columns of `text` in a monospaced font; wide characters take two, combining marks none."""
    return sum(
        0 if unicodedata.category(char) in _MARKS else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def clip(text: str, columns: int) -> str:
    """`text`, or its beginning and `…`, in at most `columns` columns."""
    if width(text) <= columns:
        return text
    end = 0
    while width(text[: end + 1]) < columns:
        end += 1
    return text[:end] + "…"


def escape(text: object) -> str:
    """For XML and HTML, in text and in attributes."""
    return html.escape(str(text), quote=True)


def plotly_text(text: str) -> str:
    """For plotly, which reads some tags, entities and `$…$` as markup."""
    return html.escape(text, quote=False).replace("$", "&#36;")
