"""A deck shows every section of its lesson, and neither exercises nor their answers."""

from __future__ import annotations

import re
import runpy
from html import unescape
from pathlib import Path

import pytest
from course import LESSONS, ROOT, read, tagged

pytestmark = pytest.mark.notebook


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_deck_has_every_section_and_no_exercise(path: Path) -> None:
    page = runpy.run_path(str(ROOT / "docs" / "site" / "slides.py"))["deck"](path)
    found = re.findall(r"<h([23])[^>]*>(.*?)</h\1>", page, re.DOTALL)
    shown = [unescape(re.sub(r"<a .*?</a>|<[^>]*>", "", title)) for _, title in found]
    cells = read(path).cells
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    for section in re.findall(r"(?m)^## (.*)$", text):
        assert (section in shown) == (section not in ("Quiz", "Next")), section
    assert not [title for title in shown if title.startswith("Exercise")]
    words = unescape(re.sub(r"<[^>]*>", "", page))
    for mark in ("Solution", "Hint 1", "# TODO", "Importance ●"):
        assert mark not in words, mark
    answers = sum(tagged(cell, "nbval-check-output") for cell in cells)
    assert not answers or 'class="fragment"' in page
