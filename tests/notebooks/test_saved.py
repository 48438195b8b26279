"""What the notebooks are saved with: outputs that nbval compares, and that read without a kernel."""

from __future__ import annotations

import json
import re
import shutil
from base64 import b64decode
from pathlib import Path

import nbformat
import pytest
from save import BROWSERS, CONTROLS, FIGURE, Painter, save

pytestmark = pytest.mark.notebook

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
CHECKED = "# NBVAL_CHECK_OUTPUT"
KEPT = "iVBORw0KGgo="


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


def test_an_answer_is_folded_until_its_cell_is_run(cells):
    """And the first line of it, which JupyterLab shows of what is folded, is not the answer itself."""
    answers = [cell for cell in cells if ".reveal(" in cell.source]
    assert [cell.source for cell in answers if not cell.metadata.get("jupyter", {}).get("outputs_hidden")] == []
    assert [cell.source for cell in answers if cell.outputs[0].output_type == "execute_result"] == []


def test_saved_pictures_show_without_a_kernel_and_without_trust(cells):
    """Inline SVG falls apart into words, a widget is a blank, where a notebook is opened for the first time."""
    bundles = [output.get("data", {}) for cell in cells for output in cell.outputs]
    assert all("widget-view" not in kind for bundle in bundles for kind in bundle)
    pages = [bundle["text/html"] for bundle in bundles if "text/html" in bundle]
    assert all("<svg" not in page and "<script" not in page for page in pages)
    assert [bundle["text/plain"] for bundle in bundles if "</" in bundle.get("text/plain", "")] == []


def test_a_figure_has_a_small_picture_beside_it(cells):
    """`make saved` draws it: pages without scripts show nothing else."""
    bundles = [output.get("data", {}) for cell in cells for output in cell.outputs]
    sizes = [len(bundle.get("image/png", "")) for bundle in bundles if FIGURE in bundle]
    assert [size for size in sizes if not 100 < size < 120_000] == []


def test_saved_outputs_are_small(cells):
    assert len(json.dumps([cell.outputs for cell in cells])) < 800_000


def test_a_notebook_is_saved_with_pictures_that_stay_while_their_figures_do(tmp_path):
    """A figure, a lab, a prediction and a slider: run, drawn, written, and once more."""
    if not any(map(shutil.which, BROWSERS)):
        pytest.skip("no Chromium on the PATH")
    path = tmp_path / "own.ipynb"
    figure = "from plotly.graph_objects import Figure\nFigure({'data': [{'y': [1, 2]}], 'layout': {'template': {}}})"
    lab, asked = "import speclab\n\nspeclab.Lab('mini')", "speclab.Prediction('How many tokens?', (1, 2, 3))"
    slider = "import ipywidgets\n\nipywidgets.IntSlider()"
    cells = [nbformat.v4.new_code_cell(source) for source in (figure, lab, asked, slider)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    with Painter.opened() as painter:
        save(path, painter)
        first = nbformat.read(path, as_version=4)
        (drawn,) = first.cells[0].outputs
        assert b64decode(drawn.data["image/png"]).startswith(b"\x89PNG")
        drawn.data["image/png"] = KEPT
        nbformat.write(first, path)
        save(path, painter)
    notebook = nbformat.read(path, as_version=4)
    (figure,), (lab,), (asked,), (slider,) = (cell.outputs for cell in notebook.cells)
    assert set(figure.data) == {FIGURE, "image/png"}
    assert figure.data["image/png"] == KEPT, "what is drawn already is not drawn again"
    assert set(lab.data) == {"text/plain", "text/html"}
    assert len(re.findall(r'<img alt="[^"]+" src="data:image/png;base64,', lab.data["text/html"])) == 1
    assert asked.data["text/plain"] == "How many tokens? (1 · 2 · 3)"
    assert set(asked.data) == {"text/plain", "text/html"}
    assert slider.data == {"text/plain": CONTROLS}
    assert "widgets" not in notebook.metadata
