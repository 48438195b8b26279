"""The course as static pages, built and opened from their files: whole, and nothing asked of anybody."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from opened import ARTIFACTS, PATIENCE, Opened
from serving import served
from support.processes import python

import speclab

pytestmark = pytest.mark.night
ROOT = Path(__file__).parents[2]
LESSONS = [
    path.stem for path in sorted((ROOT / "notebooks").glob("*.ipynb")) if path.stem != "00_lab"
]
PAGES = [*(f"notebooks/{name}" for name in (*LESSONS, "glossary"))]
PAGES += [f"docs/{path.stem}" for path in sorted((ROOT / "docs").glob("*.md"))]
PAGES += ["docs/api"]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("built") / "site"
    script = [sys.executable, ROOT / "docs" / "site" / "build.py", out]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr + done.stdout, (
        "a link that leads nowhere, or a cell that cannot be shown"
    )
    return out


@pytest.fixture
def page(browser, site):
    """A page on which every request and complaint is heard: all of them are for files."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    heard = []
    page.on("request", lambda request: heard.append(request.url))
    page.on("console", lambda said: heard.append(said.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.set_default_timeout(PATIENCE)
    yield page
    context.close()
    assert [one for one in heard if not one.startswith(("file://", "data:", "blob:"))] == []


def test_every_page_is_there_and_fits_its_window(page, site):
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri())
        assert page.locator("h1").first.inner_text().strip()
        page.wait_for_load_state()
        broken = "[...document.images].filter(image => !image.naturalWidth && image.loading !== 'lazy').length"
        assert page.evaluate(broken) == 0, name
        for width in (1100, 390):
            page.set_viewport_size({"width": width, "height": 800})
            # pictures are drawn again first
            page.wait_for_function(f"document.documentElement.scrollWidth <= {width}")
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / "site.png")


def test_the_reference_has_every_public_name(site):
    page = (site / "docs" / "api.html").read_text(encoding="utf-8")
    missing = [name for name in speclab.__all__ if f'id="speclab.{name}"' not in page]
    modules = [name for name in missing if inspect.ismodule(getattr(speclab, name))]
    assert missing == ["__version__", *modules]
    for name in modules:
        own = {*dir(getattr(speclab, name))} - {*speclab.__all__}
        assert [each for each in own if f'id="speclab.{name}.{each}"' not in page] == []


def test_the_first_page_decodes_and_a_lesson_links_to_it(browser, site):
    with served(site) as address:
        opened = Opened.at(browser, address)
        opened.at_iteration(1, 1)
        opened.shot("site_live")
        assert opened.complaints == []
        opened.page.click("text=The course")
        opened.page.click("text=Decode it live")
        opened.at_iteration(1, 1)
        opened.page.close()
    assert opened.strangers == []


def test_a_run_is_in_its_lesson(page, site):
    page.goto((site / "notebooks" / "02_trees_masks_caches.html").as_uri())
    assert page.locator("iframe").get_attribute("src") == "../runs/02_trees_masks_caches.html"
    for path in sorted((site / "runs").glob("*.html"))[::4]:  # they are alike
        page.goto(path.as_uri())
        page.locator(".js-plotly-plot").first.wait_for()
        page.keyboard.press("ArrowRight")


def test_slides_need_no_network(page, tmp_path):
    python(ROOT / "docs" / "site" / "slides.py", tmp_path / "slides")
    page.context.set_offline(True)
    for name in LESSONS:
        page.goto((tmp_path / "slides" / f"{name}.html").as_uri())
        page.wait_for_function("window.Reveal && Reveal.isReady()")
        assert page.evaluate("Reveal.getTotalSlides()") > 1, name


def test_each_lesson_has_a_task_on_the_live_lab(site):
    for name in LESSONS:
        text = (site / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
        assert re.search(r"index.html[^\"]*[#;&]guess\"", text), name
