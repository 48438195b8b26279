"""A lab in JupyterLab: what is on the first screen, and what a person does: step, select, slide,
prune, compare, type.

What the kernel answers is tested in tests/lab. Pictures are left in artifacts/browser/: look at
them, for a clipped picture passes here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from access import CONTRAST, NAMELESS
from opened import KERNEL_IDLE, MASK, PENDING, STEP, TREE, Opened, text
from serving import FRESH

PANEL = text("sl-panel")
FOCUS = "document.querySelector('.speclab-body').focus()"
BOXES = """names => Object.fromEntries(names.map(name => {
  const box = document.querySelector(name)?.getBoundingClientRect();
  return [name, box && [box.x, box.y, box.width, box.height].map(Math.round)];
}))"""
STAGE = [
    ".speclab-tree .main-svg",
    ".speclab-mask .main-svg",
    ".sl-below .sl-signs + .sl-signs",
    "button.speclab-step",
    ".speclab-status",
    ".sl-tabs",
]
STOPS = """() => [...document.querySelector('.speclab-lab').querySelectorAll('button, summary, [tabindex="0"]')]
  .filter(one => one.tabIndex >= 0 && one.checkVisibility({visibilityProperty: true})).length"""
"""Where Tab stops: a row of tabs, or of phases, is one control, in which the arrows go on."""
NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "00_lab.ipynb"
BELOW = 25
"""Pixels of JupyterLab's own line at the bottom."""


BODY = "document.querySelector('.speclab-lab')"
SAVED = "document.querySelector('.speclab-saved')"
PICTURES = f"[...{SAVED}.querySelectorAll('img')].filter(one => one.naturalWidth > 100).length"


def step_while_hidden(opened):
    """Decodes while nobody sees the page, whose width is 0: its pictures wait until it is shown."""
    opened.read(f"{BODY}.style.display = 'none'")
    opened.execute("lab.step()")
    opened.page.wait_for_timeout(5_000)  # pictures are sent when the page was still for 3 seconds
    assert opened.complaints == []
    opened.read(f"{BODY}.style.display = ''")
    opened.wait(f"{PICTURES} === 1 && {SAVED}.textContent.includes('Iteration 3')")


@pytest.fixture(autouse=True)
def quiet(lab):
    """The page complains of nothing and asks no stranger."""
    yield
    assert lab.complaints == []
    assert lab.strangers == []


@pytest.fixture(scope="module")
def first(browser, server):
    """What `speclab lab` opens: its notebook beside JupyterLab's side bar, the cell run."""
    shutil.copy(NOTEBOOK, server.folder)
    opened = Opened.at(browser, server.address(f"lab/workspaces/first/tree/{NOTEBOOK.name}"))
    opened.wait(KERNEL_IDLE)
    opened.fresh()
    yield opened
    assert opened.complaints == []
    assert opened.strangers == []
    opened.read("jupyterapp.shell.currentWidget.sessionContext.shutdown().then(() => 1)")
    opened.page.close()


@pytest.mark.parametrize("size", [(1280, 800), (1440, 900), (1920, 1080)])
@pytest.mark.parametrize("theme", ["Dark", "Light"])
def test_the_stage_and_its_controls_are_on_the_first_screen_and_can_be_read(first, size, theme):
    first.page.set_viewport_size({"width": size[0], "height": size[1]})
    first.theme(theme)
    first.rest()
    first.shot(f"first_{size[0]}_{theme.lower()}")
    assert first.page.locator("#jp-left-stack").is_visible(), "the side bar"
    for name, (x, y, width, height) in first.page.evaluate(BOXES, STAGE).items():
        assert min(x, y) >= 0, f"{name} is off the screen"
        assert min(width, height) > 12, f"{name} is not there"
        assert x + width <= size[0], f"{name} is off the screen"
        assert y + height <= size[1] - BELOW, f"{name} is off the screen"
    assert first.page.evaluate(NAMELESS) == []
    assert first.page.evaluate(CONTRAST, 4.5) == {}
    assert first.page.evaluate(STOPS) <= 15


def test_the_first_buttons_do_what_they_say_and_the_menu_closes(lab):
    page = lab.page
    for leave in (lambda: page.keyboard.press("Escape"), lambda: page.click(".speclab-status b")):
        page.click(".sl-more summary")
        lab.wait("document.querySelector('.sl-more').open")
        leave()
        lab.wait("!document.querySelector('.sl-more').open")
    page.click("text=Guess the next")
    lab.at_iteration(2, 2)
    assert page.is_disabled("[data-phase=accept]"), "the next iteration is asked for"
    page.click("text=Just show it")
    lab.wait("!document.querySelector('[data-phase=accept]').disabled")
    page.evaluate("speclab.dispatch({ type: 'set', values: { used: false } })")
    page.click("text=Compare with plain")
    lab.wait("(speclab.state().compared?.rows ?? []).length === 2")
    assert "Autoregressive" in lab.read(PANEL)
    lab.rest()
    lab.fresh(FRESH)


def test_step_changes_every_picture_and_back_restores_them(lab):
    lab.page.set_viewport_size({"width": 1440, "height": 1300})
    first = lab.read(TREE), lab.read(MASK)
    lab.step()
    assert lab.read(TREE) != first[0]
    assert lab.read(MASK) != first[1]
    lab.page.click("button.sl-back")
    lab.at_iteration(1, 2)
    lab.wait(f"{TREE} === {json.dumps(first[0])} && {MASK} === {json.dumps(first[1])}")


FOCUSED = "document.activeElement.closest('.speclab-lab') !== null"


def test_the_lab_keeps_its_keys_and_the_focus(lab):
    """JupyterLab would cut the cell at x, and take the arrows of a slider or a select for cells."""
    lab.tab("settings")
    cell = lab.page.locator(".sl-cell", has_text="high confidence")
    value = cell.inner_text()
    for control in ("[data-tab=settings]", ".sl-cell input", ".sl-more summary"):
        lab.page.locator(control).first.focus()
        lab.page.keyboard.type("xb")
        assert lab.read(FOCUSED), control
    cell.locator("input").last.focus()
    lab.page.keyboard.press("ArrowLeft")
    assert cell.inner_text() != value
    lab.page.keyboard.press("ArrowRight")
    lab.page.focus("button.speclab-step")
    before = lab.cursor()
    lab.page.keyboard.press("Enter")
    lab.at_iteration(before + 1)
    assert lab.read(FOCUSED)
    lab.page.keyboard.press(" ")
    lab.at_iteration(before + 2)


def test_a_slider_previews_apply_shows_both_trees_and_a_curve_is_drawn(lab):
    lab.execute("lab.goto(1); lab.fork(node_budget=16); lab.step(); lab.step()")
    lab.at_iteration(3)
    lab.tab("settings")
    before = lab.read(TREE)
    cell = lab.page.locator(".sl-cell", has_text="node budget")
    cell.locator("input").fill("2")
    lab.wait(f"{TREE} !== {json.dumps(before)} && {PENDING}.includes('node budget')")
    lab.shot("preview")
    lab.page.click(".speclab-apply")
    lab.wait(f"{STEP}.innerText === 'Step' && {text('sl-said')}.includes('against')")
    lab.at_iteration(3, 3)
    lab.shot("redone")
    cell.get_by_role("button").click()
    lab.wait("document.querySelectorAll('.sl-panel .main-svg').length > 0")
    lab.rest()
    lab.shot("curve")


def test_strategies_are_compared_and_runs_switched(lab):
    lab.tab("compare")
    lab.page.get_by_role("button", name="Compare", exact=True).click()
    lab.wait(f"{PANEL}.includes('tokens per second') && {PANEL}.includes('the same')")
    lab.shot("compared")
    lab.page.locator("[data-run='0']").click()
    lab.wait("document.querySelector('[data-run]').getAttribute('aria-pressed') === 'true'")
    lab.at_iteration(lab.cursor())


AWAITED = """() => {
  window.awaited = [];
  const seen = name => document.querySelector(name)?.checkVisibility();
  const look = () => {
    if (seen('.sl-begun')) return;
    if (seen('.speclab-opening')) window.awaited.push(seen('.speclab-opening img'));
    requestAnimationFrame(look);
  };
  look();
}"""
"""Whether the picture of the saved notebook is seen, for each frame until the lab draws."""


def test_a_notebook_that_is_saved_and_reopened_shows_the_last_stage(lab, browser, server):
    lab.fresh(FRESH)
    lab.step()
    lab.wait(f"{PICTURES} === 1 && {SAVED}.textContent.includes('Iteration 2')")
    step_while_hidden(lab)
    assert lab.read(f"getComputedStyle({SAVED}).display") == "none", "the widget is alive"
    lab.read("jupyterapp.commands.execute('docmanager:save').then(() => 1)")
    lab.wait("!jupyterapp.shell.currentWidget.context.model.dirty")
    lab.read("jupyterapp.shell.currentWidget.sessionContext.shutdown().then(() => 1)")

    again = Opened.at(browser, server.address("lab/workspaces/again/tree/lab.ipynb"))
    again.wait(f"{SAVED} && {PICTURES} === 1")
    again.wait(KERNEL_IDLE)
    again.page.wait_for_timeout(3_000)  # the widget manager looks for its model for two seconds
    text = again.read("document.querySelector('.jp-Notebook').innerText")
    assert "Iteration 3" in text
    assert "model not found" not in text
    assert "Loading widget" not in text
    assert again.read(f"{SAVED}.querySelectorAll('tr').length") > 2
    again.shot("saved")
    again.page.evaluate(AWAITED)
    again.fresh()
    assert {*again.read("window.awaited")} == {True}, "it stays until the lab draws"
    again.page.close()
