"""An SVG as an image inside HTML, for saved notebooks.

JupyterLab takes inline SVG out of a notebook that it does not trust, such as one just cloned, and leaves its words in a
heap; an image stays. It lies on a light ground, for it cannot follow the theme, and has no tooltips.
"""

from __future__ import annotations

import re
from base64 import b64encode
from html import unescape

from speclab.views.markup import tag

_LABEL = re.compile(r'^<svg[^>]* aria-label="([^"]*)"')


def still(svg: str) -> str:
    """The picture as an HTML image; its text equivalent is the SVG's own label."""
    said = _LABEL.match(svg)
    source = "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()
    label = unescape(said[1]) if said else ""
    return tag("img", alt=label, src=source, style="background:#fff;max-width:100%;display:block")
