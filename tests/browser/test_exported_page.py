"""The exported page, opened from a file: iterations, phases and nodes, in both themes, and nothing asked of anybody."""

from __future__ import annotations

import re
from dataclasses import replace

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
_POINT = "[data-view=tree] .scatterlayer .points path >> nth=1"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return export_html(RUN, tmp_path_factory.mktemp("exported") / "run.html", cursor=2, note="What <if>?")


@pytest.fixture(params=["light", "dark"])
def opened(request, browser, path):
    page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=request.param)
    page.set_default_timeout(PATIENCE)
    heard: list[str] = []
    page.on("request", lambda request: heard.append(request.url))
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_function("document.querySelector('#place').textContent")
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
            arg=[i, said],
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
    say = lambda words: opened.locator("#node", has_text=words).wait_for()  # noqa: E731
    opened.evaluate("document.querySelector('#said').innerHTML = '<a href=\"#\" data-node=\"1\">node 1</a>'")
    opened.click("#said a")
    say(why(step, 1))
    opened.focus("[data-view=tree] [role=application]")
    opened.keyboard.press("ArrowLeft")
    say(why(step, 0))
    assert opened.input_value("#at") == "9", "not from iteration to iteration"
    shapes = "document.querySelector('[data-view=%s] .js-plotly-plot').layout.shapes.length"
    marked = [opened.evaluate(shapes % name) for name in ("tree", "mask")]
    opened.click(_POINT, force=True)
    say(re.compile(r"Node \d+"))
    assert [opened.evaluate(shapes % name) for name in ("tree", "mask")] >= marked
    opened.keyboard.press("Escape")
    opened.locator("#node b").wait_for(state="detached")
    opened.evaluate("scrollTo(0, 0)")
    bars = opened.locator("[data-view=timeline] .bars .point path")
    assert bars.count() > 3
    box = opened.locator("[data-view=timeline] .nsewdrag").bounding_box()
    opened.mouse.click(box["x"] + 0.5 * box["width"] / last, box["y"] + 0.8 * box["height"])
    opened.wait_for_function("document.querySelector('#at').value == 1")
