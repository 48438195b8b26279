"""The gallery leaves no view out."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

pytestmark = pytest.mark.notebook

ROOT = Path(__file__).parents[2]
PARTS = {
    "step_html": "of a pinned iteration: as run_html",
    "scene_svg": "draws for tree_svg and ghost_svg",
    "small_svg": "draws for drafts_html and run_html",
    "beside_html": "run_html and step_html, one below the other",
    "proposals_html": "drafts_html and routing_html, one below the other",
    "tables_html": "every table",
    "node_html": "a table",
    "iteration_html": "of an exported page",
    "runs_html": "of a run and its forks: as compared_html",
    "cost_svg": "in cost_html",
    "margins_svg": "in routing_html",
    "residual_svg": "in residual_html",
}
"""Pictures that the gallery shows within others."""


def test_the_gallery_shows_every_view():
    cells = nbformat.read(ROOT / "notebooks" / "gallery.ipynb", as_version=4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "speclab" / "views").glob("*.py")]
    views = {name for source in sources for name in re.findall(r"^def ([a-z]\w*_(?:svg|html))\(", source, re.MULTILINE)}
    missing = {name for name in views if not re.search(rf"\b{name}\(", code)}
    assert missing == set(PARTS)
