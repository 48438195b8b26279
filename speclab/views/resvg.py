"""An SVG as PNG bytes without a browser: by resvg, a renderer in one wheel, with the fonts of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

SCALE = 2
SANS = (
    "DejaVu Sans", "Segoe UI", "Helvetica Neue", "Helvetica", "Arial", "Liberation Sans", "Noto Sans", "Ubuntu",
    "Cantarell", "Roboto", "Verdana",
)  # fmt: skip
MONO = (
    "DejaVu Sans Mono", "Menlo", "Consolas", "Liberation Mono", "Noto Sans Mono", "Noto Mono", "Ubuntu Mono",
    "Courier New",
)  # fmt: skip
"""Families to stand for sans-serif and monospace: resvg leaves out a text whose family it does not find."""
_PAGE = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{}</svg>'
_LETTER = """<text x="2" y="16" style="font:14px '{}'">x</text>"""


def png_by_resvg(svg: str) -> bytes | None:
    """The picture at twice its size; None where resvg or fonts are missing, or it cannot draw it."""
    try:
        import resvg_py
    except ImportError:
        return None
    families = _families()
    if families is None:
        return None
    sans, mono = families
    try:
        return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=SCALE, sans_serif_family=sans, monospace_family=mono))
    except ValueError:
        return None


@lru_cache(maxsize=1)
def _families() -> tuple[str, str] | None:
    sans, mono = _present(SANS), _present(MONO)
    return None if sans is None or mono is None else (sans, mono)


def _present(families: Sequence[str]) -> str | None:
    """The first of these with which a letter leaves a mark."""
    import resvg_py

    blank = resvg_py.svg_to_bytes(svg_string=_PAGE.format(""))
    drawn = (resvg_py.svg_to_bytes(svg_string=_PAGE.format(_LETTER.format(name))) for name in families)
    return next((name for name, picture in zip(families, drawn, strict=True) if picture != blank), None)
