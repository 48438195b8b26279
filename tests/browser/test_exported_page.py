"""The exported page, opened from a file: iterations, phases and nodes, in both themes, and nothing asked of anybody."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest
from opened import ARTIFACTS, PATIENCE

from speclab.lab.lab import recorded
from speclab.views.explain import why
from speclab.views.export import describe, export_html
from speclab.views.playback import positions
from speclab.views.registry import Frame

pytestmark = pytest.mark.browser
EVIL = '<img src=x onerror="window.hacked=1"><b>bold</b>'
RECORDED = recorded()
RUN = replace(
    RECORDED,
    texts=dict.fromkeys(RECORDED.texts, EVIL) | {RECORDED.first_token: "$x$ &lt;"},
    steps=tuple(replace(step, texts=dict.fromkeys(step.texts, EVIL)) for step in RECORDED.steps[:12]),
)
"""A run of tokens that would be markup."""


@pytest.fixture(params=["light", "dark"])
def opened(request, browser, tmp_path):
    path = export_html(RUN, tmp_path / "run.html", cursor=2, note="What <if>?")
    page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=request.param)
    heard: list[str] = []
    page.on("request", lambda request: heard.append(request.url))
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_function("document.querySelector('#place').textContent", timeout=PATIENCE)
    yield page
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"exported_{request.param}.png")
    hacked = page.evaluate("window.hacked")
    page.close()
    assert hacked is None
    assert heard == [path.as_uri()], "the page asked for something, or complained"


def test_iterations_phases_and_nodes_are_reached_by_keyboard_and_by_mouse(opened):
    last = len(RUN.steps)

    def shows(i: int, tick: int = -1) -> None:
        frame = Frame(RUN, i, positions(RUN.steps[i - 1])[tick]) if i else Frame(RUN, 0)
        said = " ".join(describe(frame).split())
        opened.wait_for_function(
            "([i, said]) => document.querySelector('#at').value == i"
            " && document.querySelector('#said').textContent.replace(/\\s+/g, ' ') === said",
            arg=[i, said], timeout=PATIENCE,
        )  # fmt: skip
        assert opened.locator("[data-after]:not([hidden])").count() == frame.committed + 1 if i else 1

    shows(2)
    for key, i in (("ArrowRight", 3), ("ArrowLeft", 2), ("End", last), ("ArrowRight", last), ("Home", 0)):
        opened.keyboard.press(key)
        shows(i)
    opened.keyboard.press("PageDown")
    shows(10)
    opened.click("[data-by='-1']")
    shows(9)
    opened.focus("#at")
    opened.keyboard.press("ArrowRight")
    shows(10)
    for tick in range(len(positions(RUN.steps[10]))):
        opened.keyboard.press("]")
        shows(11, tick)
    opened.click("[data-phase=draft]")
    shows(11, 0)
    opened.keyboard.press("[")
    shows(10)
    for fold in opened.locator("details:not([hidden]) summary").all():
        fold.click()
    opened.keyboard.press("ArrowLeft")
    shows(9)
    step = RUN.steps[8]
    opened.evaluate("document.querySelector('#said').innerHTML = '<a href=\"#\" data-node=\"1\">node 1</a>'")
    opened.click("#said a")
    shown = opened.inner_html("#node")
    assert why(step, 1) in unescape(re.sub("<[^>]*>", "", shown)), "a click on a node tells its facts"
    opened.keyboard.press("Escape")
    assert "Node 1" not in opened.inner_text("#node")
