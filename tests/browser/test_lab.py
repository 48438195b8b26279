"""A lab in JupyterLab: steps, phases, keys, run until, settings, by hand, predict, compare, the form, errors, files."""

from __future__ import annotations

import json

import pytest
from opened import CURSOR, ERROR, MASK, PENDING, STATUS, STEP, TREE, quiet, text

import speclab

pytestmark = pytest.mark.browser
_quiet = pytest.fixture(autouse=True)(quiet)

PANEL = text("sl-panel")
FOCUS = "document.querySelector('.speclab-body').focus()"
POINT = """([name, index]) => {
  const points = document.querySelectorAll(`.speclab-${name} .scatterlayer .points path`);
  const box = points[index].getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
}"""


def click_node(lab, node):
    lab.read("document.querySelector('.speclab-tree').scrollIntoView({block: 'center'})")
    lab.rest()
    chosen = f"/^Node {node}\\b/.test({text('sl-node-line')})"
    if not lab.read(chosen):  # else a click would let it go
        lab.page.mouse.click(*lab.page.evaluate(POINT, ["tree", node]))
    lab.wait(chosen)


def test_step_changes_every_picture_and_back_restores_them(lab):
    first = lab.read(TREE), lab.read(MASK), lab.read(STATUS)
    lab.step()
    assert lab.read(TREE) != first[0]
    assert lab.read(MASK) != first[1]
    second = lab.read(TREE)
    lab.page.click("button.sl-back")
    lab.at_iteration(1, 2)
    lab.wait(f"{TREE} === {json.dumps(first[0])} && {MASK} === {json.dumps(first[1])}")
    lab.page.click("button.speclab-step")
    lab.at_iteration(2, 2)
    lab.wait(f"{TREE} === {json.dumps(second)}")


def test_keys_move_through_iterations_and_positions_and_space_decodes(lab):
    lab.read(FOCUS)
    count = int(lab.read(CURSOR).split()[-1])
    lab.page.keyboard.press("Home")
    lab.wait(f"{CURSOR}.startsWith('0 of')")
    lab.page.keyboard.press("ArrowRight")
    lab.at_iteration(1)
    lab.page.keyboard.press("End")
    lab.at_iteration(count, count)
    lab.page.keyboard.press("[")
    lab.wait("document.querySelector('[data-phase=all]').getAttribute('aria-pressed') === 'false'")
    lab.page.keyboard.press("]")
    lab.wait("document.querySelector('[data-phase=all]').getAttribute('aria-pressed') === 'true'")
    lab.page.keyboard.press(" ")
    lab.at_iteration(count + 1, count + 1)


def test_a_node_is_selected_in_tree_and_mask_and_python_knows(lab):
    click_node(lab, 1)
    lab.wait("document.querySelectorAll('.speclab-mask .shapelayer path').length >= 2")
    lab.rest()
    lab.execute("assert lab.state.selected == 1, lab.state.selected")
    lab.tab("node")
    lab.wait(f"{PANEL}.includes('%') || document.querySelector('.sl-panel .main-svg')")
    lab.shot("tab_node")
    lab.execute("lab.goto(1); lab.phase('accept'); lab.select(0)")
    lab.at_iteration(1)
    lab.wait("document.querySelector('[data-phase=accept]').getAttribute('aria-pressed') === 'true'")


def test_run_until_stops_where_its_condition_holds_and_hints_while_typing(lab):
    lab.execute("lab.goto(len(lab.session.steps))")
    lab.page.select_option(".sl-until select", "expression")
    lab.page.fill(".sl-until input", "acepted < 1")
    lab.wait(f"{text('sl-hint')}.includes('accepted')")
    lab.shot("hint")
    lab.page.fill(".sl-until input", "iteration >= 7")
    lab.wait(f"{text('sl-hint')} === ''")
    lab.page.click("button.speclab-run")
    lab.at_iteration(7, 7)
    lab.wait(f"({STATUS} + {PENDING}).includes('Stopped: iteration >= 7')")
    lab.page.select_option(".sl-until select", "end")


@pytest.mark.parametrize("tab", ["settings", "caches", "node", "metrics", "compare"])
def test_every_tab_opens_at_most_500_pixels_high(lab, tab):
    lab.page.set_viewport_size({"width": 1440, "height": 1300})
    lab.tab(tab)
    lab.page.evaluate("document.querySelector('.sl-tabs').scrollIntoView({block: 'start'})")
    lab.rest()
    lab.shot(f"tab_{tab}")
    boxes = {"settings": ".speclab-settings", "compare": ".speclab-compare"}
    height = lab.read("document.querySelector('.sl-panel').offsetHeight")
    if tab in boxes:
        height += lab.read(f"document.querySelector('{boxes[tab]}').offsetHeight")
        assert height > 60, "the box of the tab is shown"
    assert height <= 500
    for other in set(boxes) - {tab}:
        assert lab.read(f"document.querySelector('{boxes[other]}').offsetHeight") == 0


def test_a_slider_previews_apply_shows_both_trees_and_step_goes_on(lab):
    lab.page.set_viewport_size({"width": 1440, "height": 1300})
    lab.execute("lab.run('iteration >= 3'); lab.goto(3)")
    lab.at_iteration(3)
    lab.tab("settings")
    before = lab.read(TREE)
    handle = lab.page.locator(".speclab-setting-node_budget .noUi-handle")
    if not handle.is_visible():
        lab.page.get_by_role("button", name="More settings").click()
    handle.wait_for(state="visible")
    handle.focus()
    for _ in range(3):  # from "auto" on
        lab.page.keyboard.press("ArrowRight")
    lab.wait(f"{TREE} !== {json.dumps(before)}")
    lab.wait(f"{STEP}.innerText === 'Apply & step' && {PENDING}.includes('node budget')")
    lab.shot("preview")
    lab.page.click(".speclab-apply")
    lab.wait(f"{STEP}.innerText === 'Step' && document.querySelector('.sl-panel .main-svg')")
    lab.wait(f"{PANEL}.includes('decoded again')")
    lab.at_iteration(3, 3)
    lab.shot("redone")
    lab.step()
    lab.page.locator(".speclab-curve-button").first.click()
    lab.wait(f"{PANEL}.includes('tokens')")
    lab.rest()
    lab.shot("curve")


def test_a_tree_is_built_by_hand_and_the_strategy_goes_on(lab):
    lab.execute("lab.fork(speclab.DynaTree(), max_new_tokens=90); lab.goto(1); lab.step()")
    lab.at_iteration(2)
    lab.tab("settings")
    click_node(lab, 1)
    before = lab.read(TREE)
    lab.page.get_by_role("button", name="Prune").click()
    lab.wait(f"{TREE} !== {json.dumps(before)}")
    lab.page.get_by_role("button", name="Undo").click()
    lab.wait(f"{TREE} === {json.dumps(before)}")
    click_node(lab, 1)
    lab.page.get_by_role("button", name="Prune").click()
    lab.wait(f"{TREE} !== {json.dumps(before)}")
    lab.shot("by_hand")
    lab.page.locator(".sl-verify").click()
    lab.wait(f"{PANEL}.includes('By hand ')")
    lab.shot("by_hand_verified")
    lab.step()
    assert "drafted" in lab.read(STATUS)
    assert "nothing drafted" not in lab.read(STATUS)


def test_strategies_are_compared_and_runs_switched(lab):
    lab.tab("compare")
    lab.page.select_option(".speclab-compare select", label=["Autoregressive", "LinearSpeculation"])
    lab.page.get_by_role("button", name="Compare", exact=True).click()
    lab.wait(f"document.querySelector('.sl-panel .main-svg') && {PANEL}.includes('LinearSpeculation')")
    lab.rest()
    lab.shot("compared")
    lab.page.locator("[data-send]").first.click()
    lab.wait("document.querySelector('[data-send]').getAttribute('aria-pressed') === 'true'")
    lab.at_iteration(lab.cursor())


def test_the_form_takes_a_prompt_refuses_an_empty_one_and_folds(lab):
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    lab.page.click("button.speclab-change")
    area = lab.page.locator(".speclab-prompt textarea")
    area.wait_for(state="visible")
    lab.shot("form")
    area.fill("")
    lab.wait(f"{text('speclab-form-error')}.includes('empty')")
    area.fill("The baker opened her shop at six and")
    lab.wait(f"{text('speclab-form-error')} === '' && {STEP}.innerText === 'Apply & step'")
    lab.page.click("button.speclab-step")
    lab.at_iteration(1, 1)
    lab.wait(f"{STEP}.innerText === 'Step' && {text('speclab-text')}.includes('The baker opened')")
    area.wait_for(state="hidden")
    assert lab.read(ERROR) == ""


def test_an_error_stands_beside_step_and_goes_when_its_cause_does(lab):
    lab.execute("import speclab.engine.session as s; kept = s.iterate; s.iterate = None")
    count = lab.cursor()
    lab.page.click("button.speclab-step")
    lab.wait(f"{ERROR}.includes('nothing decoded is lost')")
    lab.shot("error")
    lab.at_iteration(count, count)
    lab.execute("s.iterate = kept")
    lab.step()
    lab.wait(f"{ERROR} === ''")


def test_predict_asks_hides_and_reveals(lab):
    lab.page.click(".sl-more summary")
    lab.page.check(".sl-predict")
    wanted = lab.cursor() + 1
    lab.page.click("button.speclab-step")
    lab.at_iteration(wanted, wanted)
    lab.wait(f"{STATUS}.includes('Which of these will be accepted?')")
    lab.shot("predict")
    assert "accepted" not in text("speclab-tree")
    lab.rest()
    lab.page.mouse.click(*lab.page.evaluate(POINT, ["tree", 1]))
    lab.wait(f"{STATUS}.includes('Your score')")
    lab.shot("predicted")
    lab.page.click(".sl-more summary")
    lab.page.uncheck(".sl-predict")


def test_a_run_and_a_page_are_saved_through_the_browser_and_opened_again(lab, tmp_path):
    names = {}
    for label in ("Save run", "Save page"):
        lab.page.click(".sl-more summary")
        with lab.page.expect_download() as download:
            lab.page.get_by_role("button", name=label).click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        names[label] = path
    trace = speclab.load_trace(names["Save run"])
    assert len(trace.steps) == int(lab.read(CURSOR).split()[-1])
    assert names["Save page"].read_text().startswith("<!doctype html>")
    lab.page.click(".sl-more summary")
    with lab.page.expect_file_chooser() as chooser:
        lab.page.get_by_role("button", name="Open run").click()
    chooser.value.set_files(names["Save run"])
    lab.at_iteration(1, len(trace.steps))
    lab.rest()
    lab.page.keyboard.press("Escape")
    lab.page.evaluate(FOCUS)
    lab.page.keyboard.press("End")
    lab.wait(f"{STEP}.disabled")
