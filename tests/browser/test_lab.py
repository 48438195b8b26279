"""A person's first minutes: the notebook opens and runs, buttons work, pictures change, nothing leaves the machine.

Pictures of both themes are left in artifacts/browser/: look at them, for a clipped picture passes every check here.
"""

from __future__ import annotations

import json
import re

import pytest
from opened import ERROR, MASK, STATUS, TREE

pytestmark = pytest.mark.browser

SHOW_LAB = "() => jupyterapp.shell.currentWidget.content.scrollToItem(1, 'start')"
SEEN = {"tree": TREE, "mask": MASK, "status": STATUS}
BAR = "document.querySelector('.speclab-statusbar').innerText"
RUN_AND_STOP = f"""async () => {{
  const before = {BAR};
  document.querySelector('button.speclab-run').click();
  while ({BAR} === before) await new Promise(done => setTimeout(done, 5));
  document.querySelector('button.speclab-stop').click();
}}"""
"""Both from within the page: a run is soon over, and a test that is slow to click would come too late."""


@pytest.fixture(scope="module")
def lab(notebook):
    """The notebook after all its cells ran, the lab in view."""
    notebook.run()
    notebook.page.evaluate(SHOW_LAB)
    notebook.page.locator("button.speclab-step").wait_for(state="visible")
    for picture in (TREE, MASK, STATUS):
        notebook.steady(picture)
    return notebook


def see(lab) -> dict[str, str]:
    return {name: lab.read(js) for name, js in SEEN.items()}


def differs(before: dict[str, str], *names: str) -> str:
    return " && ".join(f"{SEEN[name]} !== {json.dumps(before[name])}" for name in names)


def equals(before: dict[str, str], *names: str) -> str:
    return " && ".join(f"{SEEN[name]} === {json.dumps(before[name])}" for name in names)


def click(lab, name: str, until: str) -> dict[str, str]:
    """Clicks a button, waits for an expression to hold, and tells what is seen then."""
    lab.page.click(f"button.speclab-{name}")
    lab.wait(until)
    return see(lab)


def test_step_changes_every_picture_and_back_restores_them(lab):
    first = see(lab)
    second = click(lab, "step", differs(first, "tree", "mask", "status"))
    assert second["status"].startswith("Iteration ")
    click(lab, "back", f"{equals(first, 'tree', 'mask')} && {differs(second, 'status')}")
    click(lab, "step", equals(second, "tree", "mask", "status"))


def test_a_node_chosen_in_the_list_is_marked_in_tree_and_mask(lab):
    before = see(lab)
    lab.page.select_option(".speclab-node select", index=1)
    lab.wait(differs(before, "tree", "mask"))
    lab.page.select_option(".speclab-node select", index=0)
    lab.wait(equals(before, "tree", "mask"))


@pytest.mark.parametrize("picture", ["tree", "mask"])
def test_a_click_on_a_node_selects_it(lab, picture):
    before = see(lab)
    lab.page.locator(f".speclab-{picture} [data-node]").first.click(force=True)
    lab.wait(differs(before, "tree", "mask"))
    lab.page.select_option(".speclab-node select", index=0)
    lab.wait(equals(before, "tree", "mask"))


def test_phases_replay_the_iteration(lab):
    before = see(lab)
    lab.page.click(".speclab-phases button:has-text('draft')")
    lab.wait(f"{differs(before, 'tree')} && {STATUS}.startsWith('Draft')")
    lab.page.click(".speclab-phases button:has-text('adapt')")
    lab.wait(equals(before, "tree", "mask", "status"))


def test_stop_ends_a_run_and_keeps_what_was_decoded(lab):
    lab.page.evaluate(RUN_AND_STOP)
    lab.says("Stopped")
    done, total = re.search(r"(\d+) of (\d+) tokens", lab.read(BAR)).groups()
    assert int(done) < int(total)
    stopped = see(lab)
    click(lab, "step", differs(stopped, "status"))


def test_a_mistake_is_said_in_the_panel_until_it_is_dismissed(lab):
    lab.page.select_option(".speclab-condition select", label="the tree has more nodes than")
    lab.wait("document.querySelector('.speclab-argument input').value")  # the kernel writes a number into it first
    lab.page.fill(".speclab-argument input", "many")
    before = click(lab, "run-until", f"{ERROR}?.includes('many')")
    lab.page.locator(".speclab-error").wait_for(state="visible")
    lab.shot("error")
    lab.page.click("button.speclab-dismiss")
    lab.page.locator(".speclab-error").wait_for(state="hidden")
    assert see(lab) == before


def test_the_lab_follows_the_theme(lab):
    lab.page.set_viewport_size({"width": 1600, "height": 2600})  # the pictures show all of it
    lab.page.evaluate(SHOW_LAB)
    ink = "getComputedStyle(document.querySelector('.speclab-status [role=status]')).color"
    light = lab.steady(ink)
    lab.shot("light")
    lab.theme("Dark")
    assert lab.read(ink) != light
    lab.shot("dark")


def test_nothing_left_the_machine_and_nothing_complained(lab, outgoing):
    assert lab.strangers == []
    with pytest.raises(BlockingIOError):
        outgoing.accept()
    assert lab.complaints == []
