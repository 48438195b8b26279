"""The course as static pages and as slides, built and opened from their files: whole, and nothing asked of anybody."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from opened import ARTIFACTS, PATIENCE

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
DOCS = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))
PAGES = ["index", "notebooks/glossary", *(f"notebooks/{name}" for name in NOTEBOOKS)]
PAGES += [f"docs/{name}" for name in DOCS]
HIGH = """Reveal.getSlides().map(slide => {
  const { h, v } = Reveal.getIndices(slide);
  Reveal.slide(h, v, 99);
  return [h, v, slide.scrollHeight - slide.clientHeight, Number(slide.style.getPropertyValue("--fit") || 1)];
}).filter(([h, v, over, fit]) => over > 1 || fit < 0.6)"""


def _built(name: str, out: Path) -> Path:
    if find_spec("furo") is None or find_spec("sphinx_revealjs") is None:
        missing = "the site needs its packages: make browser installs them, or pip install 'speclab[site]'"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    script = [sys.executable, ROOT / "docs" / "site" / f"{name}.py", out]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr + done.stdout, "a link that leads nowhere, or a cell that cannot be shown"
    return out


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    return _built("build", tmp_path_factory.mktemp("built") / "site")


@pytest.fixture
def page(browser, site):
    """A page on which every request and complaint is heard: all of them are for files of the site."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page, heard = context.new_page(), []
    page.on("request", lambda request: heard.append(request.url))
    page.on("console", lambda said: heard.append(said.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.set_default_timeout(PATIENCE)
    yield page
    context.close()
    assert [one for one in heard if not one.startswith(("file://", "data:", "blob:"))] == []


def test_every_page_is_there_fits_its_window_and_asks_for_nothing(page, site):
    page.set_viewport_size({"width": 1100, "height": 800})
    page.goto((site / "index.html").as_uri())
    listed = {link.get_attribute("href") for link in page.locator(".sidebar-tree a").all()}
    assert {f"{name}.html" for name in PAGES if "/" in name} <= listed
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri())
        assert page.locator("h1").first.inner_text().strip()
        page.wait_for_load_state()
        broken = "[...document.images].filter(image => !image.naturalWidth && image.loading !== 'lazy').length"
        assert page.evaluate(broken) == 0, name
        assert page.evaluate("document.documentElement.scrollWidth") <= 1100, f"{name} is to be scrolled sideways"
        assert "$$" not in page.inner_text("body"), f"{name} shows a formula's source"
    page.goto((site / "search.html").as_uri() + "?q=mask")
    page.locator("#search-results li a").first.wait_for()


def test_a_run_steps_on_the_start_page_and_on_its_own(page, site):
    page.goto((site / "index.html").as_uri())
    frame = page.frame_locator("iframe").first
    page.locator("iframe").first.scroll_into_view_if_needed()
    frame.locator("#place", has_text="1 of ").wait_for()
    frame.locator("[data-by='1']").click()
    frame.locator("#place", has_text="2 of ").wait_for()
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / "site.png")
    for path in sorted((site / "runs").glob("*.html")):
        page.goto(path.as_uri())
        page.locator("#place", has_text="1 of ").wait_for()
        page.keyboard.press("ArrowRight")
        page.locator("#place", has_text="2 of ").wait_for()
        assert page.locator("[data-view=tree] .scatterlayer .points path").count()


def test_without_scripts_pictures_text_and_answers_are_there(browser, site):
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto((site / "notebooks" / "gallery.html").as_uri())
    pictures = page.locator(".cell_output img:visible")  # others are folded with their answers
    assert pictures.count() > 10
    pictures.first.scroll_into_view_if_needed()
    assert pictures.first.bounding_box()["height"] > 50
    assert page.locator(".cell_output .plotly-graph-div").count() == 0
    page.goto((site / "notebooks" / "02_trees_masks_caches.html").as_uri())
    fold = page.locator("details:not(.hide)").first  # an answer
    assert not fold.locator("p, pre").first.is_visible()
    fold.locator("summary").click()
    assert fold.locator("p, pre").first.is_visible()
    page.goto((site / "runs" / "goose.html").as_uri())
    assert page.locator("noscript li").count() > 3
    context.close()


def test_slides_of_every_notebook_are_shown_whole_by_a_reveal_of_their_own(page, tmp_path):
    slides = _built("slides", tmp_path / "slides")
    for name in NOTEBOOKS:
        page.goto((slides / f"{name}.slides.html").as_uri())
        page.wait_for_function("window.Reveal?.isReady()")
        count = page.evaluate("Reveal.getTotalSlides()")
        assert count > 1 or len(page.locator("section").all()) < 3
        if count > 1:
            page.keyboard.press("Space")
            page.wait_for_function("location.hash")
        assert page.evaluate(HIGH) == [], f"{name}: slides that scroll, and what they would have to shrink to"
