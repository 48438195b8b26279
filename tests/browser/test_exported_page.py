"""The exported page, opened from a file: every iteration by keyboard, in both themes, and nothing asked of anybody."""

from __future__ import annotations

import pytest
from opened import ARTIFACTS, PATIENCE

from speclab.lab.lab import recorded
from speclab.views.export import describe, export_html
from speclab.views.registry import Frame

pytestmark = pytest.mark.browser
RUN = recorded()
_SHOWS = """([i, label]) => {
  const shown = document.querySelector('#frame'), named = shown.querySelector('svg')?.getAttribute('aria-label');
  return document.querySelector('#at').value == i && (i ? named?.includes(label) : shown.querySelector('.empty'));
}"""


@pytest.fixture(params=["light", "dark"])
def opened(request, browser, tmp_path):
    path = export_html(RUN, tmp_path / "run.html", cursor=2)
    page = browser.new_page(viewport={"width": 1500, "height": 1500}, color_scheme=request.param)
    heard: list[str] = []
    page.on("request", lambda request: heard.append(request.url))
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.goto(path.as_uri())
    yield page
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"exported_{request.param}.png")
    page.close()
    assert heard == [path.as_uri()], "the page asked for something, or complained"


def test_every_iteration_is_reached_by_keyboard(opened):
    last = len(RUN.steps)

    def shows(i: int) -> None:
        label = "" if i == 0 else describe(Frame(RUN, i))
        opened.wait_for_function(_SHOWS, arg=[i, label], timeout=PATIENCE)
        assert opened.text_content("#said").startswith(describe(Frame(RUN, i))[:20])
        assert opened.locator("[data-after]:not([hidden])").count() == i + 1

    shows(2)
    for key, i in (("ArrowRight", 3), ("ArrowLeft", 2), ("End", last), ("ArrowRight", last), ("Home", 0)):
        opened.keyboard.press(key)
        shows(i)
    for i in range(1, last + 1):
        opened.keyboard.press("ArrowRight")
        shows(i)
    opened.keyboard.press("Home")
    shows(0)
    opened.keyboard.press("PageDown")
    shows(10)
    assert opened.locator("#run .now").count() == 1
    opened.click("[data-by='-1']")
    shows(9)
    opened.focus("#at")
    opened.keyboard.press("ArrowRight")
    shows(10)
