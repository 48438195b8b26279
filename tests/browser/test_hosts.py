"""The lab outside JupyterLab: it opens there, steps on a click, and asks nobody for anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from opened import KERNEL_IDLE, PAINTED, TREE, Opened
from serving import FRESH, Home, marimo, serving, voila

pytestmark = pytest.mark.night
OWN = {
    "Cannot read properties of undefined (reading 'schema')",
    "Command 'filebrowser:open-path' not registered.",
}
"""Notebook 7's own complaints; nothing of the lab takes part."""


def steps(opened: Opened) -> None:
    """Two more iterations by clicks, and back."""
    before = opened.read(TREE)
    opened.step()
    opened.wait(f"{TREE} !== {json.dumps(before)}")
    last = opened.step()
    opened.page.click("button.sl-back")
    opened.at_iteration(last - 1)


def asked_nobody(opened: Opened, outgoing) -> None:
    assert opened.strangers == []
    with pytest.raises(BlockingIOError):
        outgoing.accept()


def test_voila_shows_the_lab_without_code_and_it_steps(browser, outgoing, tmp_path):
    """As `speclab app` opens it."""
    home = Home.make(tmp_path)
    with serving(voila(home), home, outgoing):
        app = Opened.at(browser, f"http://127.0.0.1:{home.port}/")
        app.wait(PAINTED)
        steps(app)
        app.shot("voila")
        assert "speclab.Lab(" not in app.read("document.body.innerText")
        asked_nobody(app, outgoing)
        assert app.complaints == []
        app.page.close()


def test_notebook_7_runs_the_notebook_and_the_lab_steps(browser, server, outgoing):
    path = server.notebook("classic", FRESH)
    classic = Opened.at(browser, server.address(f"notebooks/{path.name}"))
    classic.wait(KERNEL_IDLE)
    classic.fresh(FRESH)
    steps(classic)
    classic.shot("notebook7")
    asked_nobody(classic, outgoing)
    assert {*classic.complaints} <= OWN
    classic.page.close()


MARIMO = """import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo
    import speclab

    lab = speclab.Lab("mini", prompt="Once upon a time", max_new_tokens=120)
    mo.ui.anywidget(lab)
    return
"""


def test_marimo_shows_the_lab_and_it_steps(browser, outgoing, tmp_path: Path):
    """Its outputs lie in shadow roots, which selectors of the page do not enter; Playwright's do."""
    home = Home.make(tmp_path)
    app = tmp_path / "app.py"
    app.write_text(MARIMO)
    with serving(marimo(home, app), home, outgoing):
        opened = Opened.at(browser, f"http://127.0.0.1:{home.port}/")
        opened.page.locator(".speclab-status", has_text="Iteration 1:").wait_for()
        opened.page.locator("button.speclab-step:not([disabled])").click()
        opened.page.locator(".speclab-status", has_text="Iteration 2:").wait_for()
        assert opened.page.locator(".speclab-tree .main-svg").first.is_visible()
        opened.shot("marimo")
        asked_nobody(opened, outgoing)
        assert opened.complaints == []
        opened.page.close()
