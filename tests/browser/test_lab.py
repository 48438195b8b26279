"""The lab's notebook as it is shipped: it runs, its buttons work, mistakes are said, nothing leaves the machine."""

from __future__ import annotations

import json
import re

import pytest
from opened import BADGE, CURSOR, ERROR, PAINTED, STATUS
from serving import NOTEBOOK, ROOT

pytestmark = pytest.mark.browser

WHAT = "(({data}) => data.map(({customdata, hovertext, marker, z}) => [customdata, hovertext, marker?.symbol, z]))"
"""Of a picture: what is drawn, and not where: the room for it may change while a page is laid out."""
HELD = "JSON.stringify({}(document.querySelector('.speclab-{} > *').held))"
SEEN = {"tree": HELD.format(WHAT, "tree"), "mask": HELD.format(WHAT, "mask"), "status": STATUS}
BAR = "document.querySelector('.speclab-status').innerText"
HOLD = """
import speclab.lab.decoding
from ipywidgets.widgets.widget import _instances

speclab.lab.decoding.REDRAW_SECONDS = 0
*_, shown = (each for each in _instances.values() if isinstance(each, speclab.Lab))  # other files left theirs

def hold(change):
    if change['new'].cursor > {at} + 1:
        shown.state.unobserve(hold, 'frame')
        shown._worker.cancelled.wait(300)

shown.state.observe(hold, 'frame')
"""
"""Of a run, one iteration after `at` is shown, and the next waits until Stop is heard: it would soon be over."""

SHIPPED = json.loads((ROOT / "notebooks" / NOTEBOOK).read_text(encoding="utf-8"))["cells"][2]["source"]
KERNEL = "jupyterapp.shell.currentWidget.sessionContext.session.kernel"
EXECUTE = f"""async code => {{
  const {{content}} = await {KERNEL}.requestExecute({{code}}).done;
  if (content.status !== 'ok') throw new Error(content.evalue);
}}"""
CLOSE = "lab.close()"
"""The lab further down, which the notebook's own code steps."""
WRITE = "source => jupyterapp.shell.currentWidget.content.model.sharedModel.cells[2].setSource(source)"


@pytest.fixture(scope="module")
def lab(notebook):
    """The notebook after all its cells ran, its first lab in view."""
    notebook.page.evaluate(WRITE, "".join(SHIPPED))  # other files write labs of their own there
    notebook.run()
    notebook.page.evaluate(EXECUTE, CLOSE)
    notebook.wait("document.querySelectorAll('.speclab-lab').length === 1")
    notebook.page.evaluate("() => jupyterapp.shell.currentWidget.content.scrollToItem(2, 'start')")
    notebook.wait(PAINTED)
    notebook.rest(laid_out=True)
    return notebook


def see(lab) -> dict[str, str]:
    lab.rest()
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
    click(lab, "back", f"{equals(first, 'tree', 'mask')} && {differs(second, 'status')}")
    click(lab, "step", equals(second, "tree", "mask", "status"))


def test_phases_replay_the_iteration_and_the_mask_grows_with_the_tree(lab):
    before = see(lab)
    lab.page.click(".speclab-phases button:has-text('draft')")
    lab.wait(f"{differs(before, 'tree', 'mask')} && {STATUS}.startsWith('Draft')")
    lab.shot("phase_draft")
    lab.page.click(".speclab-phases button:has-text('commit')")
    lab.wait(f"{STATUS}.startsWith('Commit')")
    lab.wait("document.querySelectorAll('.speclab-tree .js-plotly-plot').length === 2")
    lab.shot("phase_commit")
    lab.page.click(".speclab-phases button:has-text('adapt')")
    lab.wait(equals(before, "tree", "mask", "status"))


def test_run_live_takes_over_and_stop_ends_a_run_and_keeps_what_was_decoded(lab):
    at = lab.cursor()
    lab.page.click("button.speclab-live")
    lab.wait(f"{BADGE} === 'live'")
    assert lab.cursor() == at, "in the same place"
    lab.page.evaluate(EXECUTE, HOLD.format(at=at))
    lab.page.click("button.speclab-run")
    lab.wait(f"{CURSOR} > {at}")
    lab.page.click("button.speclab-stop")
    lab.says("Stopped")
    lab.rest()
    assert lab.cursor() > at
    done, total = re.search(r"(\d+) of (\d+) tokens", lab.read(BAR)).groups()
    assert int(done) < int(total)
    click(lab, "step", differs(see(lab), "status"))


def test_a_mistake_is_said_beside_the_field_or_in_the_panel_until_it_is_dismissed(lab):
    page, before = lab.page, see(lab)
    page.click("button.speclab-until")
    page.select_option(".speclab-condition select", label="the tree has more nodes than")
    lab.wait("document.querySelector('.speclab-argument input').value")  # the kernel writes a number into it first
    page.fill(".speclab-argument input", "many")
    lab.wait("document.querySelector('.speclab-hint [role=alert]')?.innerText.includes('many')")
    page.click("button.speclab-until")
    page.click("button.speclab-more")
    path = page.locator(".speclab-unfolded .speclab-path input")
    path.wait_for(state="visible")
    lab.wait("document.querySelector('.speclab-unfolded .speclab-path input').value")
    path.fill("/no/such/folder/run.json.gz")
    page.click("button.speclab-save")
    lab.wait(f"{ERROR}?.includes('/no/such/folder')")
    page.locator(".speclab-error").wait_for(state="visible")
    lab.shot("error")
    page.click("button.speclab-dismiss")
    page.locator(".speclab-error").wait_for(state="hidden")
    page.click("button.speclab-more")
    assert see(lab) == before


def test_nothing_left_the_machine_and_nothing_complained(lab, outgoing):
    assert lab.strangers == []
    with pytest.raises(BlockingIOError):
        outgoing.accept()
    assert lab.complaints == []
