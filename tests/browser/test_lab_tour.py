"""Debugging a run in the browser: keyboard, breakpoints, a prompt that cannot be, contrast, names, a page to keep.

A lab of its own, in the notebook that the other files open too; each test goes on where the one before it left the lab.
"""

from __future__ import annotations

import json
from pathlib import Path

import access
import pytest
from opened import BADGE, CURRENT, CURSOR, PATIENCE, STATUS, quiet

pytestmark = pytest.mark.browser
_quiet = pytest.fixture(autouse=True)(quiet)

STEP = "document.querySelector('button.speclab-step')"


def tab_to(lab, name: str) -> None:
    """Presses Tab until the focus, always seen and never outside the lab, is on a control of this class."""
    lab.rest()
    for _ in range(60):
        lab.page.keyboard.press("Tab")
        tag, classes, seen, inside = lab.page.evaluate(access.FOCUSED)
        assert inside, "Tab left the lab"
        assert seen, f"the focus on {tag} {classes} cannot be seen"
        if name in classes.split():
            return
    pytest.fail(f"Tab does not reach {name}")


def test_the_keyboard_alone_gets_from_the_setup_to_the_third_iteration(lab):
    page = lab.page
    page.locator("button.speclab-change").focus()
    page.keyboard.press("Enter")
    page.locator(".speclab-strategy select").wait_for(state="visible")
    tab_to(lab, "speclab-strategy")
    page.keyboard.type("L")  # one letter: on a busy machine a second may come too late to go with the first
    lab.wait("document.querySelector('.speclab-strategy select').selectedOptions[0].text === 'LinearSpeculation'")
    lab.wait(f"{STEP}.innerText.includes('Apply')")
    tab_to(lab, "speclab-step")
    for i in (2, 3):  # it goes on from the first iteration of the recording
        page.keyboard.press("Enter")
        lab.wait(f"{CURSOR} === {i} && {BADGE} === 'live'")
        lab.wait(f"{STATUS}.includes('Iteration {i}:')")
    tab_to(lab, "speclab-phases")
    page.keyboard.press("Enter")
    lab.says("Draft")
    tab_to(lab, "speclab-tabs")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    lab.wait(f"{CURRENT} === 'What if'")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    lab.wait(f"{CURRENT} === 'Caches'")


def test_ctrl_enter_in_the_prompt_applies_and_steps(lab):
    page = lab.page
    page.fill(".speclab-prompt textarea", "Once upon a time there was")
    page.locator(".speclab-prompt textarea").press("Control+Enter")
    lab.wait(f"{CURSOR} === 1 && document.querySelector('.speclab-text').innerText.includes('Once upon a time')")


def test_an_empty_prompt_disables_step_and_says_why(lab):
    page, prompt = lab.page, lab.page.input_value(".speclab-prompt textarea")
    page.fill(".speclab-prompt textarea", "")
    lab.wait(f"{STEP}.disabled")
    lab.wait("document.querySelector('.speclab-transport').innerText.toLowerCase().includes('prompt')")
    page.fill(".speclab-prompt textarea", prompt)
    lab.wait(f"!{STEP}.disabled")
    page.click("button.speclab-change")
    lab.step()


def test_run_until_a_breakpoint_forwards_and_backwards(lab):
    lab.page.click("button.speclab-until")
    lab.page.select_option(".speclab-condition select", label="a token is rejected")
    lab.page.click("button.speclab-add-breakpoint")
    lab.page.locator("button.speclab-breakpoint").wait_for()
    lab.press("run-until", "Stopped: ")
    lab.rest()
    found = lab.cursor()
    lab.step()
    lab.page.click("button.speclab-back-until")
    lab.wait(f"{CURSOR} === {found}")
    lab.wait("document.querySelector('button.speclab-breakpoint').innerText.includes('hit')")
    lab.page.click("button.speclab-breakpoint")
    lab.page.click("button.speclab-until")


def test_a_page_is_saved_and_opens_without_a_server(lab, tmp_path):
    page, path = lab.page, tmp_path / "run.html"
    page.click("button.speclab-more")
    page.select_option(".speclab-files select", label="page, to read anywhere")
    lab.wait("document.querySelector('.speclab-unfolded .speclab-path input').value === 'run.html'")
    page.locator(".speclab-unfolded .speclab-path input").fill(str(path))  # after the kernel has written its own
    lab.press("save", "Saved ")
    page.click("button.speclab-more")
    asked: list[str] = []
    kept = page.context.browser.new_page()
    kept.set_default_timeout(PATIENCE)
    kept.on("request", lambda request: asked.append(request.url))
    kept.goto(Path(path).as_uri())
    kept.wait_for_selector(".js-plotly-plot .main-svg")
    kept.close()
    assert [url for url in asked if not url.startswith(("blob:", "data:"))] == [path.as_uri()]


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_every_view_can_be_read_in_both_themes_and_has_words(lab, theme):
    page = lab.page
    lab.theme(theme)
    page.set_viewport_size({"width": 1280, "height": 1900})
    toggles = ("change", "more", "export")
    for toggle in toggles:
        page.click(f"button.speclab-{toggle}")
    tabs = page.locator(".speclab-tabs .lm-TabBar-tab")
    faint, wordless = {}, []
    for i in range(tabs.count()):
        tabs.nth(i).click()
        name = tabs.nth(i).inner_text()
        lab.wait(f"{CURRENT} === {json.dumps(name)}")
        lab.rest()
        contrast = access.CONTRAST if i == 0 else access.CONTRAST.replace(".speclab-lab", ".speclab-tabs")
        faint |= page.evaluate(contrast, 4.5)
        wordless += page.evaluate(access.PICTURES)
        page.locator(".speclab-tabs").scroll_into_view_if_needed()
        lab.shot(f"tab_{name.lower().replace(' ', '_')}_{theme.lower()}")
    tabs.first.click()
    lab.rest()
    assert page.evaluate(access.NAMELESS) == []
    for toggle in toggles:
        page.click(f"button.speclab-{toggle}")
    assert (faint, wordless) == ({}, [])
