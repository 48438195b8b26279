"""Strings of SVG and HTML. Attributes and text are escaped here, so that no picture has to remember it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from speclab.views.palette import SANS, Theme
from speclab.views.tokens import escape

_NEVER_EMPTY = {"div", "span", "td", "th", "p", "b", "s"}  # HTML reads `<div/>` as an opening tag
_PAD = "padding:2px 14px 2px 0;font-variant-numeric:tabular-nums"


class Drawn(str):
    """Markup in a cell of a table; other strings are escaped there."""

    __slots__ = ()


@lru_cache(maxsize=16384)
def number(value: float) -> str:
    """At most one decimal, without a trailing zero; never `-0`."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def tag(name: str, *children: str, **attributes: object) -> str:
    """One element. `children` are markup already; a trailing `_` in a name falls away, other `_` become `-`."""
    parts = [
        f' {_name(key)}="{number(value) if isinstance(value, float) else _value(value)}"'
        for key, value in attributes.items()
        if value is not None
    ]
    inner = "".join(children)
    return (
        f"<{name}{''.join(parts)}>{inner}</{name}>" if inner or name in _NEVER_EMPTY else f"<{name}{''.join(parts)}/>"
    )


@lru_cache(maxsize=512)
def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: object) -> str:
    return _escaped(value) if isinstance(value, str) else escape(value)


_escaped = lru_cache(maxsize=4096)(escape)
"""Of attributes alone: a picture repeats its few styles hundreds of times."""


def text(content: object, x: float, y: float, **attributes: object) -> str:
    """An SVG text; `content` is escaped."""
    return tag("text", escape(content), x=float(x), y=float(y), **attributes)


def title(content: str) -> str:
    """A tooltip."""
    return tag("title", escape(content))


def svg(width: float, height: float, label: str, theme: Theme, children: Iterable[str]) -> str:
    """A picture of a fixed size in CSS pixels; `label` is what a screen reader says."""
    style = f"font:11px {SANS};fill:{theme.ink};background:transparent;display:block"
    w, h = number(width), number(height)
    return tag(
        "svg", *children, xmlns="http://www.w3.org/2000/svg", width=w, height=h, viewBox=f"0 0 {w} {h}", role="img",
        aria_label=label, style=style, class_="speclab-svg",
    )  # fmt: skip


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table; numbers stand to the right, everything but `Drawn` is escaped."""
    cells = [tag("tr", *(_cell(value) for value in row)) for row in rows]
    heading = tag(
        "tr", *(tag("th", escape(name), scope="col", style="text-align:left;padding:2px 10px 2px 0") for name in head)
    )
    return tag(
        "table", tag("caption", escape(caption), style="text-align:left;padding:4px 0"), tag("thead", heading),
        tag("tbody", *cells), class_="speclab-table", style=f"font:12px {SANS};border-collapse:collapse",
    )  # fmt: skip


def _cell(value: object) -> str:
    if isinstance(value, Drawn):
        return tag("td", value, style=_PAD)
    if isinstance(value, float):
        return tag("td", f"{value:.3g}", style=f"text-align:right;{_PAD}")
    return tag("td", escape(value), style=f"text-align:{'right' if isinstance(value, int) else 'left'};{_PAD}")
