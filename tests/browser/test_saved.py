"""A saved notebook shows the last stage as pictures, reopened without its kernel."""

from __future__ import annotations

import json

from opened import KERNEL_IDLE, Opened
from serving import FRESH

BODY = "document.querySelector('.speclab-lab')"
SAVED = "document.querySelector('.speclab-saved')"
PICTURES = f"[...{SAVED}.querySelectorAll('img')].filter(one => one.naturalWidth > 100).length"


def step_while_hidden(opened):
    """Decodes while nobody sees the page, whose width is 0: its pictures wait until it is shown."""
    opened.complaints.clear()
    opened.read(f"{BODY}.style.display = 'none'")
    opened.execute("lab.step()")
    opened.page.wait_for_timeout(5_000)  # pictures are sent when the page was still for 3 seconds
    assert opened.complaints == []
    opened.read(f"{BODY}.style.display = ''")
    opened.wait(f"{PICTURES} === 1 && {SAVED}.textContent.includes('Iteration 3')")


def test_a_notebook_that_is_saved_and_reopened_shows_the_last_stage(browser, server):
    path = server.notebook("saved", FRESH)
    opened = Opened.at(browser, server.address(f"lab/workspaces/saved/tree/{path.name}"))
    opened.wait(KERNEL_IDLE)
    opened.fresh(FRESH)
    opened.step()
    opened.wait(f"{PICTURES} === 1 && {SAVED}.textContent.includes('Iteration 2')")
    step_while_hidden(opened)
    assert opened.read(f"getComputedStyle({SAVED}).display") == "none", "the widget is alive"
    opened.read("jupyterapp.commands.execute('docmanager:save').then(() => 1)")
    opened.wait(f"{json.dumps(path.name)} && !jupyterapp.shell.currentWidget.context.model.dirty")
    opened.read("jupyterapp.shell.currentWidget.sessionContext.shutdown().then(() => 1)")
    opened.page.close()

    again = Opened.at(browser, server.address(f"lab/workspaces/again/tree/{path.name}"))
    again.wait(f"{SAVED} && {PICTURES} === 1")
    again.wait(KERNEL_IDLE)
    again.page.wait_for_timeout(3_000)  # the widget manager looks for its model for two seconds
    text = again.read("document.querySelector('.jp-Notebook').innerText")
    assert "Iteration 3" in text
    assert "model not found" not in text
    assert "Loading widget" not in text
    assert again.read(f"{SAVED}.querySelectorAll('tr').length") > 2
    again.shot("saved")
    again.read("jupyterapp.shell.currentWidget.sessionContext.shutdown().then(() => 1)")
    again.page.close()
