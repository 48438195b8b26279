"""SVGs as images inside HTML, for saved notebooks.

JupyterLab takes inline SVG out of a notebook that it does not trust, such as one just cloned, and leaves its words in a
heap; an image stays. It lies on a light ground, for it cannot follow the theme, and has no tooltips.
"""

from __future__ import annotations

import re
from base64 import b64encode
from html import unescape

from speclab.views.markup import tag

_SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)  # pictures hold no SVG within an SVG
_LABEL = re.compile(r'^<svg[^>]* aria-label="([^"]*)"')


def still(markup: str) -> str:
    """An SVG, or HTML with SVGs in it, with an image for each; an image's text equivalent is the SVG's own label."""
    return _SVG.sub(lambda found: _image(found[0]), markup)


def _image(svg: str) -> str:
    said = _LABEL.match(svg)
    if " xmlns=" not in svg:  # within a page it need not be said
        svg = svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    source = "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()
    style = "background:#fff;max-width:100%;display:block"
    return tag("img", alt=unescape(said[1]) if said else "", src=source, style=style)
