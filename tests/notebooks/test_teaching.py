"""The teacher's page answers what the notebooks ask."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

pytestmark = pytest.mark.notebook

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_reveals_is_on_the_page_in_its_order(path):
    page = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8").partition("## Questions")[2]
    (section,) = (part for part in page.split("\n### ") if part.partition("\n")[0].endswith(f"/{path.name})"))
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if ".reveal(" in cell.source]
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    said = [output.data["text/plain"] for output in outputs if output.output_type == "execute_result"]
    revealed = [text.partition(". ")[0] for text in said]
    assert re.findall(r"\*\*(.+?)\*\*", section) == revealed
