"""What the notebooks are saved with: outputs that nbval compares, and that read without a kernel."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

pytestmark = pytest.mark.notebook

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
CHECKED = "# NBVAL_CHECK_OUTPUT"


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.name)
def cells(request: pytest.FixtureRequest) -> list[nbformat.NotebookNode]:
    notebook = nbformat.read(request.param, as_version=4)
    nbformat.validate(notebook)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_every_cell_ran_in_order_and_none_failed(cells):
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert [output for cell in cells for output in cell.outputs if output.output_type == "error"] == []


def test_what_nbval_should_compare_is_there(cells):
    """A cell saved without an execution count or outputs is never compared."""
    checked = [cell for cell in cells if CHECKED in cell.source]
    assert all(cell.source.startswith(CHECKED) and cell.outputs for cell in checked)


def test_saved_pictures_show_without_a_kernel_and_without_trust(cells):
    """Inline SVG falls apart into words, a widget is a blank, where a notebook is opened for the first time."""
    bundles = [output.get("data", {}) for cell in cells for output in cell.outputs]
    assert all("widget-view" not in kind for bundle in bundles for kind in bundle)
    pages = [bundle["text/html"] for bundle in bundles if "text/html" in bundle]
    assert all("<svg" not in page and "<script" not in page for page in pages)


def test_saved_outputs_are_small(cells):
    assert len(json.dumps([cell.outputs for cell in cells])) < 400_000
