"""What happens to an open lab whose page is reloaded or seen twice, whose socket is lost, whose kernel is gone."""

from __future__ import annotations

import pytest
from opened import CURSOR, KERNEL_IDLE, PAINTED, STATUS, Opened
from serving import NOTEBOOK, Home, jupyterlab, serving

pytestmark = pytest.mark.browser

FRESH = """import speclab
lab = speclab.Lab("mini", prompt="The storm had been growing since noon, and", max_new_tokens=96)
lab"""
KERNEL = "jupyterapp.shell.currentWidget.sessionContext.session.kernel"
SHOWN = f"document.querySelector('button.speclab-step') && {PAINTED}"
GONE = "getComputedStyle(document.querySelector('.speclab-lab'), '::before').content"
LIVE = f"document.querySelector('.sl-badge')?.innerText === 'live' && {CURSOR} === 1"
RESTARTED = (
    f"window.restarts = 0, {KERNEL}.statusChanged.connect((_, now) => window.restarts += now.endsWith('restarting'))"
)
KILL = f"{KERNEL}.requestExecute({{code: 'import os, signal; os.kill(os.getpid(), signal.SIGKILL)'}}) && 1"


def command(lab: Opened, name: str) -> None:
    lab.read(f"jupyterapp.commands.execute('{name}').then(() => 1)")


@pytest.fixture(scope="module")
def place(browser, outgoing, tmp_path_factory):
    """A server, and the address of the notebook on it."""
    home = Home.make(tmp_path_factory.mktemp("interrupted"))
    with serving(jupyterlab(home), home, outgoing):
        yield f"http://127.0.0.1:{home.port}/lab/tree/{NOTEBOOK}?token={home.token}"


@pytest.fixture(scope="module")
def lab(browser, place):
    """A lab, one live iteration decoded, in a saved notebook that is trusted: no other has made an output in it."""
    opened = Opened.at(browser, place)
    opened.wait(KERNEL_IDLE)
    command(opened, "notebook:clear-all-cell-outputs")
    opened.run(1, FRESH)
    opened.wait("document.querySelector('button.speclab-step')")
    opened.page.click("button.speclab-step")
    opened.wait(LIVE)
    command(opened, "docmanager:save")
    yield opened
    opened.page.close()


def begin_anew(lab: Opened) -> None:
    """Runs the lab's cell in a new kernel, and decodes."""
    lab.run(1, FRESH)
    lab.wait(f"{STATUS}.startsWith('mini is loaded')")
    lab.page.click("button.speclab-step")
    lab.wait(LIVE)


def test_a_page_that_is_reloaded_finds_its_lab_at_work(lab):
    before = lab.read(CURSOR)
    lab.page.reload()
    lab.wait(KERNEL_IDLE)
    lab.wait(SHOWN)
    assert lab.read(CURSOR) == before
    lab.step()


def test_two_tabs_show_the_same_lab(lab, browser, place):
    other = Opened.at(browser, place)
    other.wait(KERNEL_IDLE)
    other.wait(SHOWN)
    cursor = lab.step()
    other.wait(f"{CURSOR} === {cursor}")
    cursor = other.step()
    lab.wait(f"{CURSOR} === {cursor}")
    other.page.close()


def test_a_lost_socket_comes_back_and_with_it_what_was_decoded_meanwhile(lab):
    cursor = int(lab.read(CURSOR))
    lab.page.click("button.speclab-step")
    lab.read(f"{KERNEL}._ws.close(4000)")
    lab.wait(f"{KERNEL}.connectionStatus === 'connected'")
    lab.wait(f"{CURSOR} === {cursor + 1}")
    lab.step()


def test_a_lab_shown_again_goes_on(lab):
    before = lab.read(CURSOR)
    lab.run(1, "lab")
    lab.wait(SHOWN)
    assert lab.read(CURSOR) == before
    lab.step()


@pytest.mark.parametrize("end", [f"{KERNEL}.restart().then(() => 1)", KILL], ids=["restarted", "killed"])
def test_a_new_kernel_leaves_the_picture_and_the_cell_brings_a_lab_back(lab, end):
    shown = lab.read(STATUS)
    lab.read(RESTARTED)
    lab.read(end)
    lab.wait("window.restarts")
    lab.wait(KERNEL_IDLE)
    if lab.comes("document.querySelector('.jp-Dialog .jp-mod-accept')", 3_000):
        lab.page.click(".jp-Dialog .jp-mod-accept")
    assert lab.read(STATUS) == shown
    assert lab.read(PAINTED), "the pictures stay"
    lab.wait(f"{GONE}.includes('Run the cell again')")
    lab.shot("kernel_gone")
    begin_anew(lab)
    lab.step()
