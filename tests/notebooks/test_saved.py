"""A notebook that a program executes, as nbconvert and nbval do, shows the last stage of its lab."""

from __future__ import annotations

import re

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

pytestmark = pytest.mark.notebook

LAB = """import speclab
prompt = "Once <b>upon</b> a <script>time</script>"
strategy = speclab.DynaTree(node_budget=12)
lab = speclab.Lab("mini", strategy, prompt=prompt, max_new_tokens=60)
lab"""


@pytest.fixture(scope="module")
def book():
    cells = [nbformat.v4.new_code_cell(cell) for cell in (LAB, "step = lab.step()\nstep.index")]
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(book, timeout=300).execute()
    return book


def test_the_output_shows_the_last_iteration(book):
    widget, saved = [output["data"] for output in book.cells[0].outputs]
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert widget["text/html"] == ""
    assert saved["text/plain"].startswith("Iteration 2:")
    html = saved["text/html"]
    assert "Iteration 2" in html
    rows = html.count("<tr>")
    assert rows > 2, "a table of its nodes"
    assert "<script" not in html
    assert "&lt;script&gt;" in html, "a hostile prompt is text"


def test_its_pictures_are_python_s_where_kaleido_works(book):
    html = book.cells[0].outputs[1]["data"]["text/html"]
    pictures = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="(\w+)"', html)
    assert [name for _, name in pictures] in ([], ["tree", "mask"])
    assert all(len(data) > 2_000 for data, _ in pictures)


def test_nbconvert_shows_the_same(book):
    page, _ = HTMLExporter().from_notebook_node(book)
    assert 'class="speclab-saved"' in page
    assert "Iteration 2" in page
    assert "model not found" not in page
