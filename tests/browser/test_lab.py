"""A person's first minutes: the notebook opens and runs, buttons work, pictures change, nothing leaves the machine.

Pictures of both themes are left in artifacts/browser/: look at them, for a clipped picture passes every check here.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

pytestmark = pytest.mark.browser

RUN_ALL = """async () => {
  await jupyterapp.commands.execute('notebook:run-all-cells');
  const cells = jupyterapp.shell.currentWidget.content.model.sharedModel.cells;
  return cells.filter(cell => cell.cell_type === 'code').map(cell => ({
    count: cell.execution_count,
    errors: cell.outputs.filter(output => output.output_type === 'error').map(output => output.evalue),
  }));
}"""
SHOW_LAB = "() => jupyterapp.shell.currentWidget.content.scrollToItem(1, 'start')"
SET_THEME = "theme => jupyterapp.commands.execute('apputils:change-theme', {theme})"
INK = "getComputedStyle(document.querySelector('.speclab-status [role=status]')).color"
SEEN = {
    "tree": "JSON.stringify(document.querySelector('.speclab-tree').data.map(t => [[...t.x], [...t.y], t.text]))",
    "mask": "document.querySelector('.speclab-mask svg').outerHTML",
    "status": "document.querySelector('.speclab-status [role=status]').innerText",
}


@pytest.fixture(scope="module")
def lab(notebook):
    """The notebook after all its cells ran, the lab in view."""
    cells: list[dict[str, Any]] = []
    for _ in range(3):  # a run asked for right after the kernel turned idle is sometimes lost
        cells = notebook.page.evaluate(RUN_ALL)
        if any(cell["count"] for cell in cells):
            break
    assert [error for cell in cells for error in cell["errors"]] == []
    assert all(cell["count"] for cell in cells), "every cell ran"
    notebook.page.evaluate(SHOW_LAB)
    notebook.wait("document.querySelector('.speclab-tree')?.data?.length > 0")
    return notebook


def see(lab) -> dict[str, str]:
    return {name: lab.page.evaluate(js) for name, js in SEEN.items()}


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


def test_a_click_on_a_node_selects_it(lab):
    before = see(lab)
    lab.page.locator(".speclab-tree .points path").first.hover(force=True)
    lab.page.mouse.down()
    lab.page.mouse.up()
    lab.wait(differs(before, "tree", "mask"))
    lab.page.select_option(".speclab-node select", index=0)
    lab.wait(equals(before, "tree", "mask"))


def test_phases_replay_the_iteration(lab):
    before = see(lab)
    lab.page.click(".speclab-phases button:has-text('draft')")
    lab.wait(f"{differs(before, 'tree')} && {SEEN['status']}.startsWith('Draft')")
    lab.page.click(".speclab-phases button:has-text('adapt')")
    lab.wait(equals(before, "tree", "mask", "status"))


def test_stop_ends_a_run_and_keeps_what_was_decoded(lab):
    lab.page.click("button.speclab-run")
    click(lab, "stop", f"{SEEN['status']}.startsWith('Stopped')")
    done, total = re.search(r"(\d+) of (\d+) tokens", lab.page.inner_text(".speclab-statusbar")).groups()
    assert int(done) < int(total)
    stopped = see(lab)
    click(lab, "step", differs(stopped, "status"))


def test_a_mistake_is_said_in_the_panel_until_it_is_dismissed(lab):
    lab.page.select_option(".speclab-condition select", label="the tree has more nodes than")
    lab.page.fill(".speclab-argument input", "many")
    said = "document.querySelector('.speclab-error [role=alert]')?.innerText"
    before = click(lab, "run-until", f"{said}?.includes('many')")
    assert lab.page.is_visible(".speclab-error")
    lab.shot("error")
    lab.page.click("button.speclab-dismiss")
    lab.wait("getComputedStyle(document.querySelector('.speclab-error')).display === 'none'")
    assert see(lab) == before


def test_the_lab_follows_the_theme(lab):
    lab.page.set_viewport_size({"width": 1600, "height": 2600})  # the pictures show all of it
    lab.page.evaluate(SHOW_LAB)
    lab.page.wait_for_timeout(1000)
    lab.shot("light")
    light = lab.page.evaluate(INK)
    lab.page.evaluate(SET_THEME, "JupyterLab Dark")
    lab.wait(f"{INK} !== {json.dumps(light)}")
    lab.page.wait_for_timeout(1000)  # the figure is drawn again
    lab.shot("dark")


def test_nothing_left_the_machine_and_nothing_complained(lab, outgoing):
    assert lab.strangers == []
    with pytest.raises(BlockingIOError):
        outgoing.accept()
    assert lab.complaints == []
