"""Runs and forks in the browser, one kept beside another; strategies compared, a comparison cut short."""

from __future__ import annotations

import pytest
from opened import BADGE, CURSOR, STATUS, quiet

pytestmark = pytest.mark.browser
_quiet = pytest.fixture(autouse=True)(quiet)

RUNS = "document.querySelector('.speclab-runs-view')?.innerText"
BESIDE = "document.querySelector('.speclab-beside-view')"
TABLE = "document.querySelector('.speclab-compared table')?.innerText"

COMPARE_AND_STOP = """async () => {
  document.querySelector('button.speclab-compare').click();
  const at = document.querySelector('.speclab-compare-progress');
  while (!at.innerText.includes('at work')) await new Promise(done => setTimeout(done, 5));
  document.querySelector('button.speclab-compare-stop').click();
}"""


def marks(lab, number: int) -> None:
    """Marks a run in the list, once the list holds it."""
    lab.rest()
    choice = lab.page.locator(".speclab-run-choice select")
    choice.locator("option").nth(number).wait_for(state="attached")
    choice.select_option(index=number)


def test_forks_are_drawn_switched_between_kept_beside_and_dropped(lab):
    page = lab.page
    page.click("button.speclab-live")
    lab.wait(f"{BADGE} === 'live'")
    assert lab.step() == 2
    page.click("button.speclab-change")
    page.select_option(".speclab-strategy select", label="LinearSpeculation")
    lab.wait("document.querySelector('button.speclab-step').innerText.includes('Apply')")
    lab.export("vLLM", "num_speculative_tokens")
    page.click("button.speclab-step")
    lab.wait(f"{CURSOR} === 3")
    lab.opens("Compare")
    lab.wait(f"{RUNS}?.includes('1 · shown')")
    marks(lab, 0)
    lab.press("switch", "Switched to run 0")
    lab.wait(f"{RUNS}.includes('0 · shown')")
    lab.wait("document.querySelector('.speclab-strategy select').selectedOptions[0].text === 'DynaTree'")
    marks(lab, 1)
    page.click("button.speclab-beside")
    lab.wait(f"{BESIDE}?.checkVisibility()")
    assert lab.step() == 3
    lab.wait(f"{BESIDE}.innerText.includes('fork 1 of 0 at iteration 2')")
    lab.wait(f"/Nodes drafted: \\d.* Same text /s.test({BESIDE}.innerText)")
    lab.wait("document.querySelector('.speclab-slot.speclab-beside .js-plotly-plot .main-svg')")
    page.locator(".speclab-beside-view").scroll_into_view_if_needed()
    lab.shot("beside")
    lab.wait("document.querySelector('button.speclab-beside').innerText.includes('Close comparison')")
    page.click("button.speclab-beside")
    page.locator(".speclab-beside-view").wait_for(state="hidden")
    lab.press("drop", "Dropped run 1")
    lab.wait(f"!{RUNS}.includes('LinearSpeculation')")


def test_strategies_are_compared(lab):
    page = lab.page
    chosen = ["Autoregressive", "LinearSpeculation"]
    lab.rest()
    for mark in page.locator(".speclab-marks .widget-checkbox").all():
        mark.locator("input").set_checked(mark.inner_text().strip() in chosen)
    page.fill(".speclab-compare-tokens input", "16")
    page.keyboard.press("Tab")
    lab.press("compare", "Compared 2 of 2 strategies. Greedy: all 2 texts are the same")
    lab.wait(f"{TABLE}?.includes('LinearSpeculation')")
    lab.shot("compared")


def test_a_comparison_is_stopped_and_keeps_what_had_run(lab):
    page = lab.page
    for box in page.locator(".speclab-marks input[type=checkbox]").all():
        box.check()
    page.fill(".speclab-compare-tokens input", "200")
    page.keyboard.press("Tab")
    page.evaluate(COMPARE_AND_STOP)
    lab.wait(f"/^Compared \\d+ of \\d+ strategies, then stopped/.test({STATUS})")
    page.locator("button.speclab-compare-stop").wait_for(state="hidden")
    lab.wait("document.querySelector('.speclab-compared').innerText.includes('Stopped')")
    lab.step()
    lab.opens("Caches")
