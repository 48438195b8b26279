"""What leaves the lab: a frame as static HTML, a run as one HTML page, a view as a file of its own.

The page draws every iteration beforehand and moves through them by slider and keys; no kernel, no network. The text and
views of the whole run are on it once. What differs between iterations is compressed, one block each, and unpacked by
the browser when it is shown, so that a page of hundreds of large trees stays small and opens at once.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path

from speclab.errors import SettingsError, TraceError
from speclab.files import write_whole
from speclab.trace.records import Trace
from speclab.views import token_text
from speclab.views.explain import plural, position_summary, run_words, summary, table, warning
from speclab.views.figures import Drawing
from speclab.views.markup import escape, tag
from speclab.views.palette import THEMES, ThemeName
from speclab.views.playback import WHOLE
from speclab.views.registry import VIEWS, Frame, find, placed
from speclab.views.side_by_side import Beside

_FALLBACK = re.compile(r"var\(--[\w-]+,((?:[^()]|\([^()]*\))*)\)")
_OPENING = re.compile(r"^<svg[^>]*>")
_SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)  # pictures hold no SVG within an SVG
_LABEL = re.compile(r'^<svg[^>]* aria-label="([^"]*)"')
_SIDE_BY_SIDE = "display:flex;flex-wrap:wrap;gap:8px 28px;align-items:flex-start"
_SANS = ("DejaVu Sans", "Segoe UI", "Helvetica Neue", "Helvetica", "Arial", "Liberation Sans", "Noto Sans", "Verdana")
_MONO = ("DejaVu Sans Mono", "Menlo", "Consolas", "Liberation Mono", "Noto Sans Mono", "Ubuntu Mono", "Courier New")
"""Families to stand for sans-serif and monospace: resvg leaves out a text whose family it does not find."""


def html_of(drawn: Drawing) -> str:
    """The HTML parts of a drawing."""
    parts = [drawn] if isinstance(drawn, str | dict) else drawn
    return "".join([part for part in parts if isinstance(part, str)])


def describe(frame: Frame) -> str:
    """The frame in words."""
    step = frame.step
    if step is None:
        return "Before the first iteration: the prompt alone."
    return summary(step) if frame.position == WHOLE else f"{summary(step)} {position_summary(step, frame.position)}"


def snapshot(frame: Frame) -> str:
    """The frame as static HTML, which needs no kernel: what happened in words, then every view of a page."""
    changed = run_words(frame.trace, frame.cursor)
    parts = [tag("p", tag("b", escape(describe(frame)))), tag("div", warning(changed)) if changed else ""]
    if frame.cursor:
        parts.append(tag("div", *(html_of(view.render(frame)) for view in placed("stage")), style=_SIDE_BY_SIDE))
    shown = [view for view in placed("below", "text", "tab") if view.page != "no"]
    if not frame.cursor:
        shown = placed("text")
    parts += [tag("div", drawing) for view in shown if (drawing := html_of(view.render(frame)))]
    return tag("div", *parts, class_="speclab-snapshot")


def still(markup: str) -> str:
    """An SVG, or HTML with SVGs in it, with an image for each, for pages that allow no SVG.

    An image is always on a light ground, for it cannot follow the theme, and has no tooltips; its text equivalent is
    the label of the SVG.
    """
    return _SVG.sub(lambda found: _image(found[0]), markup)


def _image(svg: str) -> str:
    label = _LABEL.match(svg)
    if " xmlns=" not in svg:  # within a page it need not be said
        svg = svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    source = "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()
    style = "background:#fff;max-width:100%;display:block"
    return tag("img", alt=unescape(label[1]) if label else "", src=source, style=style)


def view_svg(trace: Trace, cursor: int, view: str, selected: int | None = None, theme: ThemeName = "light") -> str:
    """A view after `cursor` iterations as an SVG that stands alone: plain colours, a ground, no notebook's variables.

    Raises:
        SettingsError: no such view, no such theme, no such iteration, or a view that is HTML.
    """
    if theme not in THEMES:
        raise SettingsError(f"There is no theme {theme!r}: choose one of {', '.join(THEMES)}.")
    svg = _drawn(trace, cursor, view, selected, theme)
    if not svg.startswith("<svg"):
        raise SettingsError(f"The view {view!r} is HTML: save it as .html.")
    while (plain := _FALLBACK.sub(r"\1", svg)) != svg:
        svg = plain
    ground = f'<rect width="100%" height="100%" style="fill:{THEMES[theme].paper}"/>'
    return _OPENING.sub(lambda opening: opening[0] + ground, svg)


def _drawn(trace: Trace, cursor: int, name: str, selected: int | None, theme: ThemeName = "light") -> str:
    view = find(name)
    first = 0 if view.place == "text" else 1
    if not first <= cursor <= len(trace.steps):
        raise SettingsError(f"No iteration {cursor} has a picture of its {name}: {first} to {len(trace.steps)} have.")
    return html_of(view.render(Frame(trace, cursor, selected=selected), theme))


def save_view(
    trace: Trace,
    cursor: int,
    view: str,
    path: str | os.PathLike[str],
    selected: int | None = None,
    theme: ThemeName = "light",
) -> Path:
    """Writes a view of `speclab.views.registry.VIEWS` as .svg, .png or .html, by the ending of the path; returns that.

    Raises:
        SettingsError: another ending, no such view or iteration, or a view that is HTML as a picture.
        TraceError: it cannot be written, or nothing here can draw a PNG.
    """
    place = Path(path)
    ending = place.suffix.lower()
    if ending not in {".svg", ".png", ".html"}:
        found = place.suffix or "a file without an ending"
        raise SettingsError(f"A view is saved as .svg, .png or .html, not as {found!r}.")
    if ending == ".html":
        style, drawn = _read("page.css"), _drawn(trace, cursor, view, selected)
        head = f'<meta charset="utf-8"><title>{escape(view)}</title><style>{style}</style>'
        return write_whole(place, f"<!doctype html><html><head>{head}</head><body>{drawn}</body></html>".encode())
    svg = view_svg(trace, cursor, view, selected, theme)
    return write_whole(place, svg.encode() if ending == ".svg" else png(svg))


def png(svg: str) -> bytes:
    """The picture as PNG at twice its size, with the fonts of this machine.

    Raises:
        TraceError: the package that draws it or a font is missing, or it cannot draw this picture.
    """
    try:
        import resvg_py

        sans, mono = _fonts()
        return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=2, sans_serif_family=sans, monospace_family=mono))
    except (ImportError, LookupError, ValueError):
        raise TraceError(
            "A PNG needs the package resvg_py and a font, such as DejaVu: install both, or save as .svg."
        ) from None


@cache
def _fonts() -> tuple[str, str]:
    return _present(_SANS), _present(_MONO)


def _present(families: tuple[str, ...]) -> str:
    """The first of these with which a letter leaves a mark."""
    import resvg_py

    page = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{}</svg>'
    blank = resvg_py.svg_to_bytes(svg_string=page.format(""))
    for name in families:
        letter = f"""<text x="2" y="16" style="font:14px '{name}'">x</text>"""
        if resvg_py.svg_to_bytes(svg_string=page.format(letter)) != blank:
            return name
    raise LookupError("no font")


@cache
def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def iteration_html(frame: Frame) -> str:
    """What belongs to one iteration alone: every such view, and their tables folded below."""
    if not frame.cursor:
        return tag("p", "The draft tree, its mask and the caches of an iteration appear here.", class_="empty")
    views = [view for view in VIEWS.values() if view.page == "iteration"]
    parts = [html_of(view.render(frame)) for view in views if view.place in {"below", "tab"}]
    tables = [view.tabulate(frame) for view in views if view.place != "text"]
    return "".join((
        tag("div", *(html_of(view.render(frame)) for view in placed("stage")), class_="beside"),
        *(tag("div", part) for part in parts if part),
        tag("details", tag("summary", "nodes, decisions and figures of this iteration, as tables"), *tables),
    ))  # fmt: skip


def page(trace: Trace, cursor: int = 0, name: str = "speclab", other: Beside | None = None) -> str:
    """The whole page, opened at `cursor`; `other`: a run to show beside every iteration."""
    count = len(trace.steps)
    shown = [Frame(trace, i, beside=other, brief=True) for i in range(count + 1)]
    frames = [iteration_html(frame) for frame in shown]
    data = {
        "frames": [b64encode(gzip.compress(part.encode(), mtime=0)).decode() for part in frames],
        "said": [describe(frame) for frame in shown],
    }
    whole = [tag("section", frames[cursor], id="frame"), tag("section", _text(trace, cursor)), *_run(shown[-1])]
    facts = ", ".join([f"{key} {value}" for key, value in {**trace.settings, **trace.models}.items()])
    packed = json.dumps(data).replace("<", "\\u003c")  # a text must not end the script
    style = _read("page.css") + token_text.STYLE
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(name)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{style}</style></head>'
        f"<body>{_header(shown[cursor], name)}<main>{''.join(whole)}</main><footer>{escape(facts)}</footer>"
        f'<script type="application/json" id="data">{packed}</script><script>{_read("page.js")}</script></body></html>'
    )


def _run(frame: Frame) -> Iterator[str]:
    """What the page has once, of the whole run."""
    if frame.cursor:
        views = [view for view in VIEWS.values() if view.page == "run"]
        drawn = [tag("div", html_of(view.render(frame))) for view in views]
        yield tag("section", tag("h2", "The whole run"), *drawn, id="run")
        tables = [view.tabulate(frame) for view in views]
        yield tag("details", tag("summary", "figures and iterations as tables"), *tables, table(frame.trace))


def export_html(
    trace: Trace, path: str | os.PathLike[str], cursor: int | None = None, other: Beside | None = None
) -> Path:
    """Writes the page, opened at `cursor` (the first iteration by default); returns the path.

    Args:
        trace: the run.
        path: of the file.
        cursor: iterations shown when the page opens.
        other: a run to show beside this one, at the same iteration.

    Raises:
        TraceError: the folder is missing, read-only or full.
    """
    place = Path(path)
    opened = min(1, len(trace.steps)) if cursor is None else cursor
    return write_whole(place, page(trace, opened, place.stem, other).encode())


def _header(frame: Frame, name: str) -> str:
    count, cursor = len(frame.trace.steps), frame.cursor
    slider = tag("input", id="at", type="range", min=0, max=count, value=cursor, aria_label="iteration")
    return tag(
        "header", tag("b", escape(name)), tag("button", "◀", data_by=-1, aria_label="one iteration back"), slider,
        tag("button", "▶", data_by=1, aria_label="one iteration on"),
        tag("span", f"{cursor} of {plural(count, 'iteration')}", id="place"),
        tag("span", escape(describe(frame)), id="said", role="status", aria_live="polite"),
        tag("noscript", "Your browser runs no scripts, so this page shows one iteration alone."),
    )  # fmt: skip


def _text(trace: Trace, cursor: int) -> str:
    pieces = [
        tag("span", piece, data_after=i, hidden="" if i > cursor else None)
        for i, piece in enumerate(token_text.text_pieces(trace))
    ]
    body = tag("div", *pieces, class_="speclab-text-body", dir="auto", role="document", aria_label="the text so far")
    return tag("div", token_text.legend(trace), body, class_="speclab-text")
