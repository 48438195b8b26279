"""Debugging a run in the browser: what-if, forks, breakpoints, links between views, keyboard, contrast, a page to keep.

A lab of its own, in the notebook that the other files open too; each test goes on where the one before it left the lab.
"""

from __future__ import annotations

import json
from pathlib import Path

import access
import pytest
from opened import CACHES, ERROR, MASK

pytestmark = pytest.mark.browser

GHOST = "document.querySelector('.speclab-ghost')"
TAB = "document.querySelector('.speclab-tabs > .widget-tab-contents > :not(.lm-mod-hidden)')?.innerText.trim()"


@pytest.fixture(autouse=True)
def _quiet(lab):
    """Every test here also asks: did the page complain, or ask a stranger?"""
    yield
    assert lab.complaints == []
    assert lab.strangers == []


def focused(lab) -> str:
    return lab.page.evaluate(access.FOCUSED)[1]


def tab_to(lab, name: str) -> None:
    """Presses Tab until the focus, always seen and never outside the lab, is on a control of this class."""
    for _ in range(60):
        lab.page.keyboard.press("Tab")
        tag, classes, seen, inside = lab.page.evaluate(access.FOCUSED)
        assert inside, "Tab left the lab"
        assert seen, f"the focus on {tag} {classes} cannot be seen"
        if name in classes.split():
            return
    pytest.fail(f"Tab does not reach {name}")


def test_the_keyboard_alone_gets_from_the_picker_to_the_third_iteration(lab):
    page = lab.page
    page.locator(".speclab-models select").first.focus()
    tab_to(lab, "speclab-strategy")
    page.keyboard.type("Lin")
    lab.wait("document.querySelector('.speclab-strategy select').selectedOptions[0].text === 'LinearSpeculation'")
    page.keyboard.type("  ")  # ends the search of the list
    page.keyboard.press("Escape")
    tab_to(lab, "speclab-step")
    for i in (1, 2, 3):
        page.keyboard.press("Enter")
        lab.says(f"Iteration {i}:")
    tab_to(lab, "speclab-cursor")
    page.keyboard.press("ArrowLeft")
    lab.says("Iteration 2:")
    page.keyboard.press("ArrowRight")
    lab.says("Iteration 3:")
    tab_to(lab, "speclab-phases")
    page.keyboard.press("Enter")
    lab.says("Draft")
    tab_to(lab, "speclab-tabs")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    lab.wait("document.querySelector('.speclab-tabs .lm-mod-current').innerText === 'Metrics'")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    lab.wait("document.querySelector('.speclab-tabs .lm-mod-current').innerText === 'Caches'")


def test_a_slider_shows_what_the_tree_would_have_been_beside_it_and_apply_forks(lab):
    page = lab.page
    page.select_option(".speclab-strategy select", label="DynaTree")
    page.click("button.speclab-apply")
    lab.wait("!document.querySelector('.speclab-apply')?.checkVisibility()")
    lab.says("Forked at iteration")
    lab.step()
    page.click("button.speclab-toggle")
    handle = page.locator(".speclab-setting-node_budget .noUi-handle")
    handle.wait_for(state="visible")  # the form opens by way of the kernel
    handle.focus()
    page.keyboard.press("Home")
    lab.wait(f"{GHOST}.checkVisibility() && {GHOST}.innerText.includes('1 node instead')")
    lab.wait(f"{GHOST}.querySelector('svg')")
    tree, at = page.locator(".speclab-ghost svg").bounding_box(), handle.bounding_box()
    assert max(tree["y"] + tree["height"], at["y"]) - min(tree["y"], at["y"]) < 1000, "one screen holds both"
    lab.shot("what_if_1280")
    for _ in range(11):
        page.keyboard.press("ArrowRight")  # twelve nodes: trees that later tests can look at
    lab.wait("document.querySelector('.speclab-setting-node_budget .widget-readout').innerText === '12'")
    cursor = page.inner_text(".speclab-cursor .widget-label")
    lab.press("apply", "Forked at iteration")
    lab.wait(f"!{GHOST}.checkVisibility()")
    assert page.inner_text(".speclab-cursor .widget-label").split()[0] == cursor.split()[0]
    page.click("button.speclab-toggle")
    lab.step()


def test_run_until_a_breakpoint_forwards_and_backwards(lab):
    lab.page.select_option(".speclab-condition select", label="a token is rejected")
    found = lab.press("run-until", "Stopped: a token is rejected").partition("hit). ")[2]
    lab.step()
    lab.press("back-until", found)


def test_the_selected_node_is_marked_in_mask_and_caches(lab):
    before = [lab.page.evaluate(view) for view in (MASK, CACHES)]
    lab.page.select_option(".speclab-node select", index=2)
    for view, old in zip((MASK, CACHES), before, strict=True):
        lab.wait(f"{view} !== {json.dumps(old)}")
    lab.wait("document.querySelector('.speclab-why').innerText")
    lab.page.select_option(".speclab-node select", index=0)
    for view, old in zip((MASK, CACHES), before, strict=True):
        lab.wait(f"{view} === {json.dumps(old)}")


def test_an_empty_prompt_is_refused_in_the_panel_and_the_run_goes_on(lab):
    page, prompt = lab.page, lab.page.input_value(".speclab-prompt textarea")
    page.fill(".speclab-prompt textarea", "")
    page.click("button.speclab-apply")
    lab.wait(f"{ERROR}?.toLowerCase().includes('prompt')")
    page.click("button.speclab-dismiss")
    page.fill(".speclab-prompt textarea", prompt)
    lab.wait("!document.querySelector('.speclab-apply')?.checkVisibility()")
    lab.step()


def test_a_page_is_saved_and_opens_without_a_server(lab, tmp_path):
    page, path = lab.page, tmp_path / "run.html"
    page.click("button.speclab-files-toggle")
    page.select_option(".speclab-files select", label="page, to read anywhere")
    written = page.locator(".speclab-lab > .speclab-files .speclab-path input")
    lab.wait("document.querySelector('.speclab-lab > .speclab-files .speclab-path input').value === 'run.html'")
    written.fill(str(path))  # after the kernel has written its own
    lab.press("save", "Saved ")
    page.click("button.speclab-files-toggle")
    asked: list[str] = []
    kept = page.context.browser.new_page()
    kept.on("request", lambda request: asked.append(request.url))
    kept.goto(Path(path).as_uri())
    kept.wait_for_selector("#frame svg")
    at = kept.input_value("#at")
    kept.keyboard.press("ArrowLeft")
    kept.wait_for_function(f"document.querySelector('#at').value == {int(at) - 1}")
    kept.close()
    assert asked == [path.as_uri()]


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_every_view_can_be_read_in_both_themes_and_has_words(lab, theme):
    page = lab.page
    lab.theme(theme)
    page.set_viewport_size({"width": 1280, "height": 1900})
    for toggle in ("toggle", "files-toggle"):
        page.click(f"button.speclab-{toggle}")
    tabs = page.locator(".speclab-tabs .lm-TabBar-tab")
    faint, wordless = {}, []
    for i in range(tabs.count()):
        tabs.nth(i).click()
        name = tabs.nth(i).inner_text()
        lab.wait(f"document.querySelector('.speclab-tabs .lm-mod-current').innerText === {json.dumps(name)}")
        lab.steady(TAB, polls=2)
        faint |= page.evaluate(access.CONTRAST, 4.5)
        wordless += page.evaluate(access.PICTURES)
        page.locator(".speclab-tabs").scroll_into_view_if_needed()
        lab.shot(f"tab_{name.lower()}_{theme.lower()}")
    tabs.first.click()
    assert page.evaluate(access.NAMELESS) == []
    for toggle in ("toggle", "files-toggle"):
        page.click(f"button.speclab-{toggle}")
    assert (faint, wordless) == ({}, [])
