"""Any view of any step as a file of its own: SVG, or PNG with the fonts of this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from speclab.errors import SettingsError
from speclab.files import write_whole
from speclab.trace.records import Trace
from speclab.views.cache import cache_svg
from speclab.views.mask import Mode, mask_svg
from speclab.views.metrics import metrics_svg
from speclab.views.palette import THEMES, ThemeName
from speclab.views.raster import png_of
from speclab.views.text_picture import text_svg
from speclab.views.tree import tree_svg

Draw = Callable[[Trace, int, int | None, ThemeName], str]
_FALLBACK = re.compile(r"var\(--[\w-]+,((?:[^()]|\([^()]*\))*)\)")
_OPENING = re.compile(r"^<svg[^>]*>")


def _mask(mode: Mode) -> Draw:
    return lambda trace, cursor, selected, theme: mask_svg(trace.steps[cursor - 1], selected, mode, theme)


def _caches(trace: Trace, cursor: int, selected: int | None, theme: ThemeName) -> str:
    return cache_svg(trace.steps[cursor - 1], selected, theme, prompt=len(trace.prompt_ids))


VIEWS: dict[str, Draw] = {
    "tree": lambda trace, cursor, selected, theme: tree_svg(trace.steps[cursor - 1], selected, theme),
    "mask": _mask("folded"),
    "mask-whole": _mask("full"),
    "mask-check": _mask("compare"),
    "text": lambda trace, cursor, _, theme: text_svg(trace, cursor, theme),
    "caches": _caches,
    "metrics": lambda trace, cursor, _, theme: metrics_svg(trace, cursor, theme),
}
"""Every view that is a picture, by name; `cursor` counts iterations, so the step drawn is the one before it."""
_NEED_NO_STEP = {"text", "metrics"}


def view_svg(trace: Trace, cursor: int, view: str, selected: int | None = None, theme: ThemeName = "light") -> str:
    """A view after `cursor` iterations as an SVG that stands alone: plain colours, a ground, no notebook's variables.

    Raises:
        SettingsError: no such view, no such theme, or no such iteration.
    """
    if view not in VIEWS:
        raise SettingsError(f"There is no view {view!r}: choose one of {', '.join(VIEWS)}.")
    if theme not in THEMES:
        raise SettingsError(f"There is no theme {theme!r}: choose one of {', '.join(THEMES)}.")
    first = 0 if view in _NEED_NO_STEP else 1
    if not first <= cursor <= len(trace.steps):
        raise SettingsError(f"No iteration {cursor} has a picture of its {view}: {first} to {len(trace.steps)} have.")
    svg = VIEWS[view](trace, cursor, selected, theme)
    while (plain := _FALLBACK.sub(r"\1", svg)) != svg:
        svg = plain
    ground = f'<rect width="100%" height="100%" style="fill:{THEMES[theme].paper}"/>'
    return _OPENING.sub(lambda opening: opening[0] + ground, svg)


def save_view(
    trace: Trace,
    cursor: int,
    view: str,
    path: str | os.PathLike[str],
    selected: int | None = None,
    theme: ThemeName = "light",
) -> Path:
    """Writes a view as .svg or .png, by the ending of the path; returns the path.

    Raises:
        SettingsError: another ending, or no such view or iteration.
        TraceError: it cannot be written, or nothing here can draw a PNG.
    """
    place = Path(path)
    if place.suffix.lower() not in {".svg", ".png"}:
        raise SettingsError(f"A view is saved as .svg or .png, not as {place.suffix or 'a file without an ending'!r}.")
    svg = view_svg(trace, cursor, view, selected, theme)
    return write_whole(place, svg.encode() if place.suffix.lower() == ".svg" else png_of(svg))
