"""What must not break the page: texts that look like markup, a page without WebGL, plotly that is not installed."""

from __future__ import annotations

import pytest
from opened import PAINTED, text
from serving import FRESH

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=window.speclabHurt=1><script>window.speclabHurt=1</script><b>$x$</b>&lt;\x1b[31m\u202eabc"
HURT = f"""
import speclab
from speclab import ModelPair

kept = ModelPair.token_text, ModelPair.token_texts
ModelPair.token_text = lambda self, token: {EVIL!r} if token % 2 else f"t{{token}}"
ModelPair.token_texts = lambda self, tokens: {{int(token): self.token_text(int(token)) for token in tokens}}
lab = speclab.Lab("mini", prompt={EVIL!r}, max_new_tokens=80)
lab
"""
NO_WEBGL = """() => {
  const get = HTMLCanvasElement.prototype.getContext;
  HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {
    return kind.startsWith('webgl') ? null : get.call(this, kind, ...rest);
  };
}"""
NO_PLOTLY = "import speclab.lab.screen as screen\nkept, screen.plotly_js = screen.plotly_js, lambda: b''\n"


def test_texts_that_look_like_markup_are_shown_and_never_run(lab):
    lab.fresh(HURT)
    for _ in range(3):
        lab.step()
    for tab in ("settings", "caches", "node", "metrics", "compare"):
        lab.tab(tab)
    lab.page.get_by_role("button", name="as table").first.click()
    stage = lab.page.locator(".speclab-tree .main-svg").first.bounding_box()
    for i in range(12):  # hover boxes too
        x = stage["x"] + 20 + i * stage["width"] / 14
        lab.page.mouse.move(x, stage["y"] + stage["height"] / 2 + (i % 3 - 1) * 20)
        lab.page.wait_for_timeout(60)
    lab.rest()
    lab.shot("hostile")
    assert lab.read("window.speclabHurt") is None
    assert lab.read("document.querySelectorAll('.speclab-lab img, .speclab-lab .main-svg a').length") == 0
    assert "<img" in lab.read(text("speclab-text"))
    assert "\x1b" not in lab.read(text("speclab-text"))
    assert "\u202e" not in lab.read(text("speclab-text"))
    assert lab.complaints == []
    lab.execute("ModelPair.token_text, ModelPair.token_texts = kept")


def test_pictures_need_no_webgl(lab):
    lab.page.evaluate(NO_WEBGL)
    lab.fresh(FRESH)
    assert lab.step() == 2
    assert lab.complaints == []


def test_without_plotly_one_sentence_names_the_way_out(lab):
    lab.read("delete globalThis.speclabPlotly")
    lab.execute(NO_PLOTLY)
    lab.page.evaluate("jupyterapp.commands.execute('notebook:run-cell')")
    lab.wait("document.querySelector('.speclab-lab [role=alert]')?.innerText.includes('pip install plotly')")
    lab.execute("screen.plotly_js = kept")
    lab.fresh(FRESH)
    lab.wait(PAINTED)
