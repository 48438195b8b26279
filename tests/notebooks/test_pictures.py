"""The gallery leaves no picture out."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from speclab import views

pytestmark = pytest.mark.notebook

GALLERY = Path(__file__).parents[2] / "notebooks" / "gallery.ipynb"


def test_the_gallery_shows_every_picture_by_a_question():
    cells = nbformat.read(GALLERY, as_version=4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    assert [name for name in views.__all__ if f"views.{name}(" not in code] == ["snapshot"]  # of a lab, in its notebook
    words = [cell.source for cell in cells[1:-2] if cell.cell_type == "markdown"]
    assert [text for text in words if "?**" not in text] == []
    assert cells[-2].source.startswith("## Quiz")
