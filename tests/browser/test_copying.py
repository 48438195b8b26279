"""The button that copies a table: by keyboard, the old way where the new is barred, a sentence where both are."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclab import views
from speclab.views.runs import COPIED, copy_button

pytestmark = pytest.mark.browser
TABLE = 'strategy\ttokens\n"a ""<b>"" & \'c\'"\t12\n'
BARRED = "Object.defineProperty(navigator, 'clipboard', {value: undefined});"


@pytest.fixture
def page(browser, tmp_path):
    path = tmp_path / "page.html"
    button = copy_button("Copy", TABLE, "Save it instead.", "the table")
    script = Path(views.__file__).with_name("plots.js").read_text(encoding="utf-8")
    path.write_text(
        f'<meta charset="utf-8">{button}<textarea></textarea><script>{script}makePlots(null, document.body)</script>'
    )
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(path.as_uri())
    yield page
    context.close()


def pressed(page) -> str:
    """What it says after Tab and Enter."""
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className").endswith("speclab-copy")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('[role=status]').textContent")
    assert page.evaluate("document.activeElement.className").endswith("speclab-copy"), "the focus stays"
    return page.text_content("[role=status]")


def pasted(page) -> str:
    page.keyboard.press("Tab")
    page.keyboard.press("Control+V")
    return page.input_value("textarea")


def test_it_copies_by_keyboard_where_a_page_may_and_where_only_the_old_way_is_left(page):
    assert pressed(page) == COPIED
    assert pasted(page) == TABLE
    page.reload()
    page.evaluate(BARRED)
    assert pressed(page) == COPIED
    assert pasted(page) == TABLE


def test_where_the_browser_forbids_it_a_sentence_names_the_way_out(page):
    page.evaluate(BARRED + "document.execCommand = () => false;")
    assert pressed(page) == "Save it instead."
    assert page.locator("textarea").count() == 1, "nothing is left behind"
