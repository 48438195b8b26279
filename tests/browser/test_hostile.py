"""What must not break the page: texts that look like markup, a page without WebGL, plotly that is not installed."""

from __future__ import annotations

import pytest
from opened import CURSOR, PAINTED

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=window.speclabHurt=1><script>window.speclabHurt=1</script><b>$x$</b>&lt;"
TABS = ".speclab-tabs .lm-TabBar-tab"
HURT = f"""
import json, tempfile
from dataclasses import replace
import speclab
from speclab.lab.lab import recorded

evil = {EVIL!r}
run = recorded()
texts = {{token: text if i % 2 else evil for i, (token, text) in enumerate(run.texts.items())}}
steps = [replace(step, texts={{token: texts.get(token, evil) for token in step.texts}}) for step in run.steps]
path = tempfile.mkdtemp() + "/evil.json.gz"
replace(run, texts=texts, steps=tuple(steps)).save(path)
lab.close()
lab = speclab.Lab('mini')
lab.open_trace(path)
lab.select(1)
lab
"""
NO_WEBGL = """() => {
  const get = HTMLCanvasElement.prototype.getContext;
  HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {
    return kind.startsWith('webgl') ? null : get.call(this, kind, ...rest);
  };
}"""
NO_PLOTLY = """
import speclab.lab.screen as screen

kept, screen._plotly = screen._plotly, lambda: b""
lab.close()
lab = speclab.Lab('mini')
lab
"""


def test_texts_that_look_like_markup_are_shown_and_never_run(lab):
    lab.run(2, HURT)
    lab.wait(PAINTED)
    for _ in range(3):
        lab.page.keyboard.press("Escape")
        lab.step()
    tabs = lab.page.locator(TABS)
    for i in range(tabs.count()):
        tabs.nth(i).click()
        lab.rest()
    nodes = lab.page.locator(".speclab-tree .main-svg").first.bounding_box()
    for i in range(12):  # tooltips too
        lab.page.mouse.move(
            nodes["x"] + 20 + i * nodes["width"] / 14, nodes["y"] + nodes["height"] / 2 + (i % 3 - 1) * 20
        )
        lab.page.wait_for_timeout(60)
    lab.rest()
    assert lab.read("window.speclabHurt") is None
    assert lab.read("document.querySelectorAll('.speclab-lab img, .speclab-lab .main-svg a').length") == 0
    assert "<img" in lab.read("document.querySelector('.speclab-text').innerText")
    assert lab.complaints == []


def test_pictures_need_no_webgl(lab):
    lab.page.evaluate(NO_WEBGL)
    lab.run(2, "lab.close()\nlab = speclab.Lab('mini')\nlab")
    lab.wait(PAINTED)
    assert lab.step() == 2
    assert lab.complaints == []


def test_without_plotly_one_sentence_names_the_way_out_and_the_rest_works(lab):
    lab.read("delete globalThis.speclabPlotly")
    lab.run(2, NO_PLOTLY)
    lab.wait("document.querySelector('.speclab-tree[role=alert]')?.innerText.includes('pip install')")
    lab.page.click("button.speclab-step")
    lab.says("Iteration 2:")
    lab.run(2, "screen._plotly = kept\nlab.close()\nlab = speclab.Lab('mini')\nlab")
    lab.wait(f"{PAINTED} && {CURSOR} === 1")
