"""What a person sees first, and her three first clicks: Step; a prompt typed, Step; a slider dragged, Apply.

Pictures of every size, theme and place are left in artifacts/browser/: look at them, for a clipped picture passes here.
"""

from __future__ import annotations

import json

import pytest
from conftest import FRESH
from opened import BADGE, CURSOR, MASK, PAINTED, STATUS, TREE, quiet

pytestmark = pytest.mark.browser
_quiet = pytest.fixture(autouse=True)(quiet)

TYPED = "The baker opened her shop at six and"
BOXES = """names => Object.fromEntries(names.map(name => {
  const box = document.querySelector(name)?.getBoundingClientRect();
  return [name, box && [box.x, box.y, box.width, box.height].map(Math.round)];
}))"""
STAGE = [".speclab-tree .main-svg", ".speclab-mask .main-svg", "button.speclab-step"]
FIXED = [
    ".speclab-tree", ".speclab-mask", STAGE[-1], ".speclab-timeline", ".speclab-status", ".speclab-text",
    ".speclab-tabs > .lm-TabBar",
]  # fmt: skip
SIZES = [(1440, 900), (1280, 800), (1920, 1080)]
BELOW = 25
"""Pixels of JupyterLab's own line at the bottom."""
STEP = "document.querySelector('button.speclab-step').innerText.trim()"


def boxes(lab, names) -> dict[str, list[int]]:
    lab.rest(laid_out=True)
    return lab.page.evaluate(BOXES, names)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_tree_mask_and_step_are_on_the_first_screen(lab, size):
    lab.page.set_viewport_size({"width": size[0], "height": size[1]})
    light = {}
    for theme in ("Light", "Dark") if size == SIZES[0] else ("Light",):  # which moves nothing: see below
        lab.theme(theme)
        for side_bar in (True, False):
            lab.read(f"jupyterapp.shell.{'expandLeft' if side_bar else 'collapseLeft'}()")
            found = boxes(lab, STAGE)
            assert light.setdefault(side_bar, found) == found, "Dark is laid out as Light is"
            lab.shot(f"first_{size[0]}_{'side' if side_bar else 'wide'}_{theme.lower()}")
            if size[1] >= 900:
                words = boxes(lab, [".speclab-text-body"])[".speclab-text-body"]
                assert words[1] + 20 <= size[1] - BELOW, "the first lines of the text"
            for name, (x, y, width, height) in found.items():
                assert min(x, y) >= 0, f"{name} is off the screen: {found}"
                assert min(width, height) > 20, f"{name} is not there: {found}"
                assert x + width <= size[0], f"{name} is off the screen: {found}"
                assert y + height <= size[1] - BELOW, f"{name} is off the screen: {found}"
    lab.theme("Light")
    lab.read("jupyterapp.shell.expandLeft()")


def test_nothing_moves_between_steps(lab):
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    lab.read("jupyterapp.shell.collapseLeft()")
    before = boxes(lab, FIXED)
    for _ in range(6):
        lab.step()
        assert boxes(lab, FIXED) == before
    for name in ("draft", "accept", "commit"):
        lab.page.click(f".speclab-phases button:has-text('{name}')")
        lab.wait(f"{STATUS}.toLowerCase().startsWith('{name}')")
        assert boxes(lab, FIXED) == before


def test_step_walks_the_recording_and_says_so(lab):
    lab.run(2, FRESH)
    lab.wait(f"{PAINTED} && {BADGE} === 'recorded' && {CURSOR} === 1")
    lab.rest(laid_out=True)
    before = lab.read(TREE), lab.read(MASK)
    assert lab.step() == 2
    lab.wait(f"{TREE} !== {json.dumps(before[0])} && {MASK} !== {json.dumps(before[1])}")
    assert lab.read(BADGE) == "recorded"


def test_a_typed_prompt_is_what_the_next_step_decodes(lab):
    page = lab.page
    page.click("button.speclab-change")
    page.locator(".speclab-prompt textarea").wait_for(state="visible")
    page.fill(".speclab-prompt textarea", TYPED)
    lab.wait(f"/apply/i.test({STEP})")
    lab.shot("typed_prompt")
    page.click("button.speclab-step")
    lab.wait(f"{BADGE} === 'live' && {CURSOR} === 1")
    lab.wait(f"document.querySelector('.speclab-text').innerText.includes({json.dumps(TYPED[:20])})")
    lab.wait(f"!/apply/i.test({STEP})")


def test_a_dragged_slider_redoes_the_iteration_and_shows_both(lab):
    page = lab.page
    at = lab.step()
    lab.opens("What if")
    before = lab.read(TREE)
    handle = page.locator(".speclab-setting-node_budget .noUi-handle")
    if not handle.is_visible():
        page.locator(".speclab-settings").get_by_text("More", exact=False).first.click()
    handle.wait_for(state="visible")
    handle.focus()
    page.keyboard.press("Home")
    lab.wait(f"{TREE} !== {json.dumps(before)}")
    lab.wait("document.querySelector('.sl-preview')?.innerText.includes('instead of')")
    lab.shot("what_if")
    page.click("button.speclab-apply")
    lab.wait("document.querySelectorAll('.speclab-tree .js-plotly-plot').length === 2")
    lab.rest()
    assert {"As it was", "Decoded anew"} == set(page.locator(".speclab-tree .sl-twice").all_inner_texts())
    lab.wait("document.querySelector('.speclab-redone table')?.innerText.includes('decoded anew')")
    assert lab.cursor() == at, "the same iteration, done anew"
    lab.shot("redone")
