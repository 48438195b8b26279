"""Pointing at pictures: clicks, hovers, the wheel and the keyboard on nodes, rows, iterations and words."""

from __future__ import annotations

import json

import pytest
from opened import CURSOR, MASK, STATUS, TREE, quiet

pytestmark = pytest.mark.browser
_quiet = pytest.fixture(autouse=True)(quiet)

SELECTED = "document.querySelector('.speclab-tree > *').held.layout.meta.selected"
RANGE = "JSON.stringify(document.querySelector('.speclab-tree > *').layout.xaxis.range)"
CLICK = """([slot, value]) => {
  const plot = document.querySelector(`.speclab-${slot} > .js-plotly-plot`);
  plot.scrollIntoView({block: 'center'});
  for (const trace of plot._fullData) {
    if (!trace.meta?.click || !trace.customdata) continue;
    const at = [...trace.customdata].findIndex(one => (Array.isArray(one) ? one[0] : one) === value);
    if (at < 0) continue;
    const box = plot.getBoundingClientRect(), {xaxis, yaxis} = plot._fullLayout;
    const x = trace.x ? trace.x[at] : trace.x0 + at * trace.dx;
    const y = trace.type === 'bar' ? trace.y[at] / 2 : trace.y[at];
    return [box.x + xaxis._offset + xaxis.d2p(x), box.y + yaxis._offset + yaxis.d2p(y)];
  }
}"""
"""Where on the page a node or an iteration is drawn."""


def point(lab, slot: str, value: int) -> tuple[float, float]:
    lab.page.mouse.move(2, 2)  # a click of the test before may have left it on a picture, which frames what it is on
    lab.rest()  # a picture that comes now would move what is pointed at
    at = lab.steady(CLICK, [slot, value])
    return at[0], at[1]


def test_a_click_on_a_node_selects_it_everywhere(lab):
    lab.step()
    lab.rest()
    tree, mask = lab.read(TREE), lab.read(MASK)
    lab.page.mouse.click(*point(lab, "tree", 1))
    lab.wait(f"{SELECTED} === 1")
    lab.wait(f"{TREE} !== {json.dumps(tree)} && {MASK} !== {json.dumps(mask)}")


def test_arrow_keys_walk_from_node_to_node(lab):
    lab.page.locator(".speclab-tree .js-plotly-plot").focus()
    lab.page.keyboard.press("ArrowLeft")
    lab.wait(f"{SELECTED} === 0")
    lab.page.keyboard.press("ArrowRight")
    lab.wait(f"{SELECTED} === 1")
    focused = "document.activeElement.closest('.speclab-tree') !== null"
    lab.rest()
    assert lab.read(focused), "the focus stays in the picture"
    assert lab.read("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_keys_step_through_iterations_and_phases(lab):
    lab.page.locator(".speclab-status").click()
    cursor = lab.cursor()
    lab.page.keyboard.press("ArrowLeft")
    lab.wait(f"{CURSOR} === {cursor - 1}")
    lab.page.keyboard.press("ArrowRight")
    lab.wait(f"{CURSOR} === {cursor}")
    lab.page.keyboard.press("[")
    lab.wait(f"{STATUS}.startsWith('Commit')")
    lab.page.keyboard.press("]")
    lab.wait(f"!{STATUS}.startsWith('Commit')")


def test_a_click_on_the_timeline_goes_there(lab):
    cursor = lab.cursor()
    assert cursor > 1
    lab.page.mouse.click(*point(lab, "timeline", 1))
    lab.wait(f"{CURSOR} === 1")


def test_a_node_named_in_a_sentence_is_a_link(lab):
    lab.page.click(".speclab-phases button:has-text('accept')")
    link = lab.page.locator(".speclab-status [data-node]").first
    link.wait_for()
    node = int(link.get_attribute("data-node"))
    link.click()
    lab.wait(f"{SELECTED} === {node}")


def test_the_wheel_scrolls_the_page_and_zooms_with_ctrl_and_a_step_keeps_the_zoom(lab):
    page = lab.page
    page.set_viewport_size({"width": 1280, "height": 700})
    lab.rest(laid_out=True)
    x, y = point(lab, "tree", 0)
    before = lab.steady(RANGE)
    page.mouse.move(x + 40, y + 10)
    page.mouse.wheel(0, 120)
    page.wait_for_timeout(300)  # for what must not happen
    assert lab.read(RANGE) == before
    for _ in range(5):  # on a busy machine the wheel's scrolling may not be over
        page.keyboard.down("Control")
        page.mouse.wheel(0, -240)
        page.keyboard.up("Control")
        if lab.comes(f"{RANGE} !== {json.dumps(before)}", 5_000):
            break
    zoomed, tree = lab.steady(RANGE), lab.read(TREE)  # plotly zooms when the wheel has been still for a while
    assert zoomed != before
    lab.step()
    lab.wait(f"{TREE} !== {json.dumps(tree)}")
    assert lab.read(RANGE) == zoomed
    lab.page.hover(".speclab-tree .js-plotly-plot")
    lab.page.click(".speclab-tree .modebar-btn[data-title^='Reset']", force=True)
    lab.wait(f"{RANGE} !== {json.dumps(zoomed)}")
    page.set_viewport_size({"width": 1280, "height": 1000})
    lab.rest(laid_out=True)


def test_hovering_a_node_frames_its_row_in_the_mask(lab):
    shapes = "document.querySelector('.speclab-mask > *').layout.shapes?.length ?? 0"
    at = point(lab, "tree", 1)
    before = lab.read(shapes)
    lab.page.mouse.move(*at)
    lab.wait(f"({shapes}) === {before + 2}")
    lab.page.mouse.move(2, 2)
    lab.wait(f"({shapes}) === {before}")


CELL = """([row, column]) => {
  const plot = document.querySelector('.speclab-mask > .js-plotly-plot'), box = plot.getBoundingClientRect();
  const {xaxis, yaxis} = plot._fullLayout;
  return [box.x + xaxis._offset + xaxis.d2p(column), box.y + yaxis._offset + yaxis.d2p(row)];
}"""


def test_a_cell_of_the_mask_is_flipped_while_its_tree_is_edited(lab):
    lab.page.click("button.speclab-edit")
    lab.wait("document.querySelector('button.speclab-edit-verify')?.offsetParent")
    lab.rest(laid_out=True)
    before = lab.read(MASK)
    lab.page.mouse.click(*lab.steady(CELL, [1, 0]))
    lab.wait(f"{MASK} !== {json.dumps(before)}")
    lab.wait("!document.querySelector('button.speclab-edit-undo').disabled")
    lab.page.click("button.speclab-edit-undo")
    lab.wait("document.querySelector('button.speclab-edit-undo').disabled")
    lab.page.click("button.speclab-edit")
    lab.wait("!document.querySelector('button.speclab-edit-verify').offsetParent")
