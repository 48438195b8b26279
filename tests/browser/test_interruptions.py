"""What happens to an open lab whose page is reloaded or seen twice, whose socket is lost, whose kernel is gone."""

from __future__ import annotations

import pytest
from opened import CURSOR, KERNEL, KERNEL_IDLE, PAINTED, STATUS, STEP, Opened, text
from serving import FRESH

SHOWN = f"{STEP} && {PAINTED}"
RESTARTED = (
    f"window.restarts = 0, {KERNEL}.statusChanged.connect((_, now) => window.restarts += "
    "now.endsWith('restarting'))"
)
KILL = f"{KERNEL}.requestExecute({{code: 'import os, signal; os.kill(os.getpid(), signal.SIGKILL)'}}) && 1"
GONE = f"{text('sl-pending')}.includes('run the cell again')"


def command(lab: Opened, name: str) -> None:
    lab.read(f"jupyterapp.commands.execute('{name}').then(() => 1)")


@pytest.fixture(scope="module")
def saved(lab):
    """A lab some iterations in, in a saved notebook."""
    lab.step()
    lab.step()
    command(lab, "docmanager:save")
    yield lab
    lab.complaints.clear()  # of a socket and of kernels that are gone


def test_a_page_that_is_reloaded_finds_its_lab_at_work(saved):
    before = saved.cursor()
    saved.page.reload()
    saved.wait(KERNEL_IDLE)
    saved.wait(f"{SHOWN} && {CURSOR} === '{before} of {before}'")
    saved.step()


def test_two_tabs_show_the_same_lab(saved, browser, server):
    other = Opened.at(browser, server.address("lab/workspaces/second/tree/lab.ipynb"))
    other.wait(KERNEL_IDLE)
    other.wait(SHOWN)
    cursor = saved.step()
    other.at_iteration(cursor, cursor)
    cursor = other.step()
    saved.at_iteration(cursor, cursor)
    other.page.close()


def test_a_lost_socket_comes_back_and_with_it_what_was_decoded_meanwhile(saved):
    cursor = saved.cursor()
    saved.page.click("button.speclab-step")
    saved.read(f"(window.lost = {KERNEL}._ws).close(4000)")
    saved.wait(f"{KERNEL}._ws !== window.lost && {KERNEL}.connectionStatus === 'connected'")
    saved.at_iteration(cursor + 1, cursor + 1)
    saved.step()


def test_a_page_whose_kernel_is_killed_says_so_and_goes_on_stepping_through_what_was_decoded(saved):
    saved.rest()
    count = int(saved.read(CURSOR).split()[-1])
    saved.read(RESTARTED)
    saved.read(KILL)
    saved.wait("window.restarts")
    saved.wait(KERNEL_IDLE)
    saved.page.click(".jp-Dialog .jp-mod-accept")
    saved.wait(GONE)
    assert saved.read(f"{STEP}.disabled && document.querySelector('.speclab-change').disabled")
    saved.page.click("button.sl-back")
    saved.at_iteration(count - 1, count)
    saved.phase("verify")
    saved.wait(f"{STATUS} !== ''")
    saved.shot("kernel_gone")
    saved.fresh(FRESH)
    saved.step()
