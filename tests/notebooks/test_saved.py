"""A notebook that a program executes, as nbconvert and nbval do, shows the last stage of its lab."""

from __future__ import annotations

import os
import re
import shutil
from base64 import b64decode

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from support.processes import ended

from speclab.lab import _browser

pytestmark = pytest.mark.notebook

LAB = """import speclab
prompt = "Once <b>upon</b> a <script>time</script>"
strategy = speclab.DynaTree(node_budget=12)
lab = speclab.Lab("mini", strategy, prompt=prompt, max_new_tokens=60)
lab"""
CELLS = (LAB, "step = lab.step()\nstep.index", "step")
BROWSERS = ("chromium", "google-chrome", "google-chrome-stable", "chrome")
LIMIT = 120
"""Seconds of a cell, in which a wait without an end is an error."""
PLOTLY = "application/vnd.plotly.v1+json"


def _executed(browser):
    """The notebook after a program ran it; its kernel takes `browser` for a Chrome."""
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(book, timeout=LIMIT).execute(env={**os.environ, "BROWSER_PATH": browser})
    return book


@pytest.fixture(scope="module")
def book():
    return _executed(shutil.which("false"))


def _pictures(book):
    html = book.cells[0].outputs[1]["data"]["text/html"]
    return re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="(\w+)"', html)


def test_the_output_shows_the_last_iteration(book):
    widget, saved, tree = [output["data"] for output in book.cells[0].outputs]
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert widget["text/html"] == ""
    assert saved["text/plain"].startswith("Iteration 2:")
    html = saved["text/html"]
    assert "Iteration 2" in html
    rows = html.count("<tr>")
    assert rows > 2, "a table of its nodes"
    assert "<script" not in html
    assert "&lt;script&gt;" in html, "a hostile prompt is text"
    assert tree[PLOTLY]["data"] == book.cells[2].outputs[0]["data"][PLOTLY]["data"]


def test_a_browser_that_does_not_start_costs_pictures_alone(book):
    assert _pictures(book) == []
    assert "plotly_get_chrome" in book.cells[0].outputs[1]["data"]["text/html"], "the way out"


def test_a_browser_draws_tree_and_mask():
    """The only test of this tier that has a browser: make hides it from the others."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chrome on the path")
    pictures = _pictures(_executed(browser))
    assert [name for _, name in pictures] == ["tree", "mask"]
    assert all(b64decode(data).startswith(b"\x89PNG") for data, _ in pictures)


def test_nbconvert_shows_the_same(book):
    page, _ = HTMLExporter().from_notebook_node(book)
    assert 'class="speclab-saved"' in page
    assert "Iteration 2" in page
    assert "model not found" not in page
    shown = page[page.rindex("jp-OutputArea-output") :]
    assert "Iteration 2" in shown, "a Step has a table where no script draws its picture"
    assert "<td>" in shown


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups here")
def test_a_browser_that_never_answers_is_ended_and_not_asked_again(monkeypatch, tmp_path):
    stub = tmp_path / "chrome"
    stub.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    stub.chmod(0o755)
    monkeypatch.setenv("BROWSER_PATH", str(stub))
    monkeypatch.setattr(_browser, "_failed", False)
    monkeypatch.setattr(_browser, "LONGEST", 3)
    assert _browser.pngs(['{"data": []}']) == []
    pid = int((tmp_path / "pid").read_text())
    assert ended(pid)
    (tmp_path / "pid").unlink()
    assert _browser.pngs(['{"data": []}']) == []
    assert not (tmp_path / "pid").exists()
