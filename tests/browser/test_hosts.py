"""The lab's notebook outside JupyterLab: it runs there, steps on a click, and asks nobody for anything."""

from __future__ import annotations

import json

import pytest
from opened import KERNEL_IDLE, TREE, Opened
from serving import NOTEBOOK, Home, notebook7, serving, voila

pytestmark = pytest.mark.browser

ICONS = "[...document.fonts].some(font => font.family.includes('Awesome') && font.status === 'loaded')"
SHORTCUTS = "Cannot read properties of undefined (reading 'schema')"
"""Notebook 7's own: its keyboard shortcuts look for their settings when those of another part come first. Nothing of
the lab takes part, and the shortcuts work once their settings are there."""


@pytest.fixture(scope="module")
def page(browser, outgoing, tmp_path_factory):
    """The notebook in Voilà."""
    home = Home.make(tmp_path_factory.mktemp("voila"))
    with serving(voila(home), home, outgoing):
        opened = Opened.at(browser, f"http://127.0.0.1:{home.port}/")
        yield opened
        opened.page.close()


@pytest.fixture(scope="module")
def classic(browser, outgoing, tmp_path_factory):
    """The notebook in Notebook 7, its kernel idle."""
    home = Home.make(tmp_path_factory.mktemp("notebook7"))
    with serving(notebook7(home), home, outgoing):
        opened = Opened.at(browser, f"http://127.0.0.1:{home.port}/notebooks/{NOTEBOOK}?token={home.token}")
        opened.wait(KERNEL_IDLE)
        yield opened
        opened.page.close()


def steps(opened: Opened) -> None:
    """One more iteration by a click."""
    before = opened.steady(TREE)
    opened.step()
    opened.wait(f"{TREE} !== {json.dumps(before)}")


def asked_nobody(opened: Opened, outgoing) -> None:
    assert opened.strangers == []
    with pytest.raises(BlockingIOError):
        outgoing.accept()


def test_voila_shows_the_lab_without_code_and_it_steps(page, outgoing):
    page.page.locator("button.speclab-step").wait_for(state="visible")
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
    classic.page.evaluate("() => jupyterapp.shell.currentWidget.content.scrollToItem(1, 'start')")
    classic.page.locator("button.speclab-step").wait_for(state="visible")
    steps(classic)
    classic.shot("notebook7")
    asked_nobody(classic, outgoing)
    assert [said for said in classic.complaints if said != SHORTCUTS] == []
