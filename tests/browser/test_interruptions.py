"""What happens to an open lab whose page is reloaded or seen twice, whose socket is lost, whose kernel is gone."""

from __future__ import annotations

import pytest
from opened import BADGE, CURSOR, KERNEL_IDLE, PAINTED, STATUS, Opened
from serving import NOTEBOOK

pytestmark = pytest.mark.browser

FRESH = """import speclab
lab = speclab.Lab("mini", prompt="The storm had been growing since noon, and", max_new_tokens=96)
lab"""
KERNEL = "jupyterapp.shell.currentWidget.sessionContext.session.kernel"
SHOWN = f"document.querySelector('button.speclab-step') && {PAINTED}"
GONE = "getComputedStyle(document.querySelector('.speclab-lab'), '::before').content"
LIVE = f"{BADGE} === 'live' && {CURSOR} === 1"
RESTARTED = (
    f"window.restarts = 0, {KERNEL}.statusChanged.connect((_, now) => window.restarts += now.endsWith('restarting'))"
)
KILL = f"{KERNEL}.requestExecute({{code: 'import os, signal; os.kill(os.getpid(), signal.SIGKILL)'}}) && 1"


def command(lab: Opened, name: str) -> None:
    lab.read(f"jupyterapp.commands.execute('{name}').then(() => 1)")


@pytest.fixture(scope="module")
def lab(notebook):
    """A lab, one live iteration decoded, in a saved notebook that is trusted: no other has made an output in it."""
    command(notebook, "notebook:clear-all-cell-outputs")
    notebook.run(2, FRESH)
    notebook.page.locator("button.speclab-step").wait_for(state="visible")
    notebook.page.click("button.speclab-step")
    notebook.wait(LIVE)
    command(notebook, "docmanager:save")
    yield notebook
    notebook.complaints.clear()  # of a socket and of kernels that are gone; other files ask for theirs


def begin_anew(lab: Opened) -> None:
    """Runs the lab's cell in a new kernel, and decodes."""
    lab.run(2, FRESH)
    lab.wait(f"{STATUS}.startsWith('mini is loaded')")
    lab.page.click("button.speclab-step")
    lab.wait(LIVE)


def test_a_page_that_is_reloaded_finds_its_lab_at_work(lab):
    before = lab.cursor()
    lab.page.reload()
    lab.wait(KERNEL_IDLE)
    lab.wait(f"{SHOWN} && {CURSOR} === {before}")
    lab.step()


def test_two_tabs_show_the_same_lab(lab, browser, server):
    other = Opened.at(browser, server.address(f"lab/tree/{NOTEBOOK}"))
    other.wait(KERNEL_IDLE)
    other.wait(SHOWN)
    cursor = lab.step()
    other.wait(f"{CURSOR} === {cursor}")
    cursor = other.step()
    lab.wait(f"{CURSOR} === {cursor}")
    other.page.close()


def test_a_lost_socket_comes_back_and_with_it_what_was_decoded_meanwhile(lab):
    cursor = lab.cursor()
    lab.page.click("button.speclab-step")
    lab.read(f"(window.lost = {KERNEL}._ws).close(4000)")
    lab.wait(f"{KERNEL}._ws !== window.lost && {KERNEL}.connectionStatus === 'connected'")
    lab.wait(f"{CURSOR} === {cursor + 1}")
    lab.step()


def test_a_lab_shown_again_goes_on(lab):
    before = lab.cursor()
    lab.run(2, "lab")
    lab.wait(f"{SHOWN} && {CURSOR} === {before}")
    lab.step()


@pytest.mark.parametrize("end", [f"{KERNEL}.restart().then(() => 1)", KILL], ids=["restarted", "killed"])
def test_a_new_kernel_leaves_the_picture_and_the_cell_brings_a_lab_back(lab, end):
    lab.rest()
    shown = lab.read(STATUS)
    lab.read(RESTARTED)
    lab.read(end)
    lab.wait("window.restarts")
    lab.wait(KERNEL_IDLE)
    if end == KILL:  # of which JupyterLab tells
        lab.page.click(".jp-Dialog .jp-mod-accept")
    assert lab.read(STATUS) == shown
    assert lab.read(PAINTED), "the pictures stay"
    lab.wait(f"{GONE}.includes('Run the cell again')")
    lab.shot("kernel_gone")
    begin_anew(lab)
    lab.step()
