"""A benchmark's report, opened from a file: drawn in both themes, read without scripts, asking nobody for anything."""

from __future__ import annotations

import pytest
from access import CONTRAST
from made_results import result, results, stored
from opened import ARTIFACTS, PATIENCE

from speclab.bench.report import report_html

pytestmark = pytest.mark.browser
FIGURES = 5


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    page = tmp_path_factory.mktemp("report") / "report.html"
    failed = result("linear, K 8", failed="It has no draft model: load a pair that has one.")
    page.write_text(report_html(stored([*results(), failed], ended=None)), encoding="utf-8")
    return page


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_figure_is_drawn_and_every_word_can_be_read(browser, path, theme):
    page = browser.new_page(viewport={"width": 1280, "height": 1200}, color_scheme=theme)
    page.set_default_timeout(PATIENCE)
    heard: list[str] = []
    page.on("request", lambda request: heard.append(request.url))
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_function(f"document.querySelectorAll('figure:has(.main-svg text)').length === {FIGURES}")
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"report_{theme}.png", full_page=True)
    assert page.evaluate(CONTRAST.replace(".speclab-lab", "body"), 4.5) == {}
    for width in (1280, 420):  # figures follow; tables scroll by themselves
        page.set_viewport_size({"width": width, "height": 1200})
        page.wait_for_function(f"document.documentElement.scrollWidth <= {width}")
    page.close()
    assert heard == [path.as_uri()]


def test_without_scripts_the_tables_tell_it_all(browser, path):
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(path.as_uri())
    assert "The figures need JavaScript" in page.inner_text("noscript")
    for fold in page.query_selector_all("details > summary"):
        fold.click()
    assert page.locator("table:visible").count() == page.locator("table").count() > FIGURES
    context.close()
