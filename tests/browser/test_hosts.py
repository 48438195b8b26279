"""The lab's notebook outside JupyterLab: it runs there, steps on a click, and asks nobody for anything."""

from __future__ import annotations

import json

import pytest
from opened import CURSOR, KERNEL_IDLE, PAINTED, STATUS, TREE, Opened
from serving import Home, serving, voila

pytestmark = pytest.mark.browser

ICONS = "[...document.fonts].some(font => font.family.includes('Awesome') && font.status === 'loaded')"
OWN = {
    "Cannot read properties of undefined (reading 'schema')",
    "Command 'filebrowser:open-path' not registered.",
}
"""Notebook 7's own complaints; nothing of the lab takes part. Its keyboard shortcuts look for their settings when those
of another part come first, and work once theirs are there. A notebook's page has no file browser, which it looks for
where a JupyterLab was open on the same server."""


@pytest.fixture(scope="module")
def page(browser, outgoing, tmp_path_factory):
    """The notebook in Voilà."""
    home = Home.make(tmp_path_factory.mktemp("voila"))
    with serving(voila(home), home, outgoing):
        opened = Opened.at(browser, f"http://127.0.0.1:{home.port}/")
        yield opened
        opened.page.close()


@pytest.fixture(scope="module")
def classic(browser, server):
    """The notebook in Notebook 7, its kernel idle."""
    opened = Opened.at(browser, server.address(f"notebooks/{server.another('classic')}"))
    opened.wait(KERNEL_IDLE)
    yield opened
    opened.page.close()


def steps(opened: Opened) -> None:
    """One more iteration of the first lab by a click, one that is predicted, and the settings as an engine's line."""
    opened.wait(PAINTED)
    before = opened.read(TREE)
    at = opened.step()
    opened.wait(f"{TREE} !== {json.dumps(before)}")
    lab = opened.page.locator(".speclab-lab").first  # one further down is stepped by the notebook's code
    lab.locator("button.speclab-predict").click()
    lab.locator(".speclab-predicting").wait_for(state="visible")
    lab.locator("button.speclab-step").click()
    opened.wait(f"{STATUS}.includes('not shown yet') && {CURSOR} === {at}")
    lab.locator(".speclab-tokens button").first.click()
    lab.locator(".speclab-tokens .mod-active").wait_for()
    lab.locator("button.speclab-step", has_text="Reveal").click()
    opened.wait(f"{CURSOR} === {at + 1}")
    lab.locator(".speclab-score", has_text="of 1 prediction was right").wait_for()
    opened.export("llama.cpp", "llama-server -m")


def asked_nobody(opened: Opened, outgoing) -> None:
    assert opened.strangers == []
    with pytest.raises(BlockingIOError):
        outgoing.accept()


def test_voila_shows_the_lab_without_code_and_it_steps(page, outgoing):
    page.page.locator("button.speclab-step").first.wait_for(state="visible")
    page.wait("document.body.innerText.includes('Where to go on')")  # the last cell
    steps(page)
    page.shot("voila")
    assert "speclab.Lab()" not in page.read("document.body.innerText")
    page.page.click(".speclab-tabs .lm-TabBar-tab:has-text('Compare')")  # whose buttons have icons
    page.wait(ICONS)
    asked_nobody(page, outgoing)
    assert page.complaints == []


def test_notebook_7_runs_the_notebook_and_the_lab_steps(classic, outgoing):
    classic.run()
    classic.page.evaluate("() => jupyterapp.shell.currentWidget.content.scrollToItem(2, 'start')")
    classic.page.locator("button.speclab-step").first.wait_for(state="visible")
    steps(classic)
    classic.shot("notebook7")
    asked_nobody(classic, outgoing)
    assert {*classic.complaints} <= OWN
