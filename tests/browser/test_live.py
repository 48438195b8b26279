"""The live page in Chromium: models fetched once, then no kernel and no network; and what it says of bad input."""

from __future__ import annotations

import shutil

import pytest
from opened import CURSOR, ERROR, PENDING, STEP, TREE, Opened, text
from serving import served

import speclab
from scripts.draw_readme import IMAGES, first_screen, words_of

STATUS = text("sl-said")
LABELS = "[...document.querySelectorAll('.speclab-tree text')].map(label => label.textContent)"
SLIDE = """([name, value]) => {
  const slider = document.querySelector(`.speclab-setting-${name} input`);
  slider.value = value;
  slider.dispatchEvent(new Event("input"));
}"""


DROP = """([name, bytes]) => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([Uint8Array.from(bytes)], name));
  const drop = new DragEvent("drop", { dataTransfer, bubbles: true });
  document.querySelector(".speclab-page").dispatchEvent(drop);
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return speclab.export_live(tmp_path_factory.mktemp("live") / "page")


@pytest.fixture
def live(browser, folder):
    """A page with its first iteration; its server is gone, and so is every way out."""
    with served(folder) as address:
        opened = Opened.at(browser, f"{address}?prompt=Once%20upon%20a%20time&length=50")
        opened.at_iteration(1, 1)
    opened.requests.clear()
    yield opened
    opened.page.close()
    assert opened.requests == []
    assert opened.complaints == []


def test_the_readme_shows_this_screen_and_a_text_of_ones_own_is_decoded(live, tmp_path):
    page = live.page
    first_screen(page)
    for name in ("lab", "lab_dark"):
        picture = (IMAGES / f"{name}.png").read_bytes()
        assert words_of(page) in picture, "run python scripts/draw_readme.py"
    page.click(".speclab-change")
    page.fill(".speclab-prompt", "Zoë 🙂 said")
    live.wait(f"{PENDING}.includes('prompt')")
    page.click(".speclab-change")
    page.click("button.speclab-step")
    live.wait(f"{text('sl-body')}.startsWith('Zoë 🙂 said') && {CURSOR} === '1 of 1'")
    for _ in range(9):
        live.step()
    live.shot("live")
    saved = {}
    for label in ("Save run", "Picture as SVG", "Picture as PNG"):
        page.click(".sl-more summary")
        with page.expect_download() as download:
            page.click(f"text={label}")
        saved[label] = tmp_path / download.value.suggested_filename
        download.value.save_as(saved[label])
    assert saved["Picture as SVG"].read_text().count("<svg x=") == 2, "tree and mask"
    assert saved["Picture as PNG"].read_bytes()[:4] == b"\x89PNG"
    trace = speclab.load_trace(saved["Save run"])
    pair = speclab.load_pair()
    assert list(trace.prompt_ids) == pair.encode("Zoë 🙂 said")
    assert [
        one for one in speclab.clinic.check(trace, pair) if one.kind != speclab.clinic.TIE
    ] == []
    page.click("button.sl-back")
    live.at_iteration(9, 10)
    for name, content in (
        ("notes.txt", b"no run"),
        ("run.json.gz", saved["Save run"].read_bytes()),
    ):
        page.evaluate(DROP, [name, list(content)])
        live.wait(f"({PENDING} + {ERROR}).includes({'file' if name[0] == 'r' else name!r})")
    live.at_iteration(1, 10)
    page.keyboard.press("End")
    page.click("button.speclab-step")
    live.at_iteration(1, 1)


def test_a_slider_previews_apply_decodes_and_a_tree_is_built_by_hand_and_predicted(live):
    page = live.page
    page.click("[data-tab=settings]")
    page.wait_for_selector(".speclab-setting-low_confidence input")
    before = live.read(TREE)
    page.evaluate(SLIDE, ["low_confidence", 0])
    live.wait(f"{STATUS}.startsWith('Preview')")
    assert live.read(TREE) != before
    page.click(".speclab-apply")
    live.wait(f"{STATUS}.startsWith('Iteration 1:') && {PENDING} === ''")
    assert page.is_disabled(".speclab-apply"), "nothing has changed"
    assert page.locator(".sl-signs", has_text="struck out").count(), "against the tree before"
    page.evaluate(SLIDE, ["low_confidence", 100])
    live.wait(f"{PENDING}.includes('high confidence') && !{text('sl-refused')}")  # pushed along
    page.click("text=Reset")
    page.focus(".speclab-tree")
    page.keyboard.press("ArrowRight")
    page.fill(".sl-byhand input", "🙂")
    page.click(".sl-byhand button:text('Add')")
    live.wait(f"{ERROR}.includes('tokens')")  # bytes of a character are tokens of their own
    page.fill(".sl-byhand input", "#5")
    page.click(".sl-byhand button:text('Add')")
    page.click(".sl-verify:not([disabled])")
    live.wait(f"{STATUS}.includes('ByHand drafts')")
    page.click(".sl-more summary")
    page.click("text=Guess first")
    page.click("button.speclab-step:not([disabled])")
    live.at_iteration(2, 2)
    assert page.is_disabled("[data-phase=accept]")
    for tab in ("metrics", "node", "caches"):
        page.click(f"[data-tab={tab}]")
        live.wait(f"{text('sl-panel')}.includes('after your guess')")
    page.focus(".speclab-tree")
    page.keyboard.press("ArrowRight")
    live.wait(f"{text('speclab-score')}.includes('guessed')")


def test_after_the_end_of_the_text_another_strategy_starts_over(live):
    page = live.page
    page.click("button.speclab-run")
    live.wait(f"{PENDING}.includes('length you set')")
    live.shot("ended")
    page.click(".speclab-change")
    page.select_option(".speclab-strategy", "FixedTree")
    live.wait(f"{STEP}.innerText === 'Start over with FixedTree'")
    assert page.locator(".sl-pending button").count() == 0, "there is one way on"
    page.click("button.speclab-step")
    live.wait(f"{CURSOR} === '1 of 1' && {STEP}.innerText === 'Step' && {ERROR} === ''")


def test_a_run_is_stopped_and_fits_a_phone(live):
    page = live.page
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme="dark")
    live.wait("document.documentElement.scrollWidth <= 390")  # pictures are drawn again first
    assert max(map(len, live.read(LABELS))) >= 7, "no token can be read"
    page.click(".sl-more summary")
    page.select_option(".sl-until select", "token")
    page.click("button.speclab-run")
    live.wait(f"{text('sl-hint')} !== '' && {CURSOR} === '1 of 1'")
    page.fill(".sl-until input", "princess and the pea")
    live.wait(f"{text('sl-hint')} === ''")
    page.click("button.speclab-run")
    page.click(".sl-stop:visible")
    live.wait("document.querySelector('.sl-stop').hidden")
    live.shot("live_phone_dark")


LINKS = {
    "?length=5000": "more than the models' context",
    "?strategy=Goose": "needs a lab with a kernel",
    "?node_budget=0": "node budget",
    "?prompt=%20": "The prompt is empty",
}


def test_a_link_that_asks_for_too_much_gets_a_sentence(browser, folder):
    with served(folder) as address:
        opened = Opened.at(browser, "about:blank")
        for query, sentence in LINKS.items():
            opened.page.goto(address + query)
            opened.wait(f"{text('sl-loading')}.includes({sentence!r})")
        opened.page.click(".speclab-change")
        opened.page.fill(".speclab-prompt", "Once upon a time")
        opened.wait(f"!{text('sl-loading')}.includes({sentence!r})")  # the worker has the text
        opened.page.fill("label:has-text('length') input", "20")
        opened.page.click("button.speclab-step:not([disabled])")
        opened.at_iteration(1, 1)
        opened.page.close()


def test_weights_that_were_changed_cut_short_or_left_out_are_refused(browser, folder, tmp_path):
    broken = tmp_path / "page"
    shutil.copytree(folder, broken)
    weights = broken / "draft.safetensors"
    data = weights.read_bytes()
    changed = bytearray(data)
    changed[-1] ^= 1
    with served(broken) as address:
        opened = Opened.at(browser, "about:blank")
        for content in (bytes(changed), data[:-1000], None):
            weights.unlink()
            if content is not None:
                weights.write_bytes(content)
            opened.page.goto(address)
            opened.wait(f"{text('sl-loading')}.includes('draft.safetensors')")
        weights.write_bytes(data)
        opened.page.click("button.speclab-step")
        opened.at_iteration(1)
        opened.page.close()


def test_without_a_store_or_as_a_file_it_works_or_says_how(browser, folder):
    with served(folder) as address:
        page = browser.new_page()
        page.add_init_script("delete globalThis.caches")
        page.goto(address)
        page.locator(".sl-place", has_text="1 of 1").wait_for()
        page.goto((folder / "index.html").as_uri())
        page.locator("main", has_text="python -m http.server").wait_for()
        page.close()


def test_a_server_that_falls_silent_and_a_decoder_that_does_not_answer_are_said(browser, folder):
    with served(folder) as address:
        page = browser.new_page()
        page.clock.install()
        page.route("**/plotly.js.gz", lambda _: None)  # it is never answered
        with page.expect_request("**/plotly.js.gz"):
            page.goto(address)
        page.clock.fast_forward(40_000)
        page.locator("main", has_text="plotly.js.gz did not arrive").wait_for()
        page.unroute("**/plotly.js.gz")
        page.route("**/worker.js.gz", lambda route: route.fulfill(body="for (;;);"))
        page.goto(address)
        page.wait_for_selector(".speclab-page")
        page.clock.fast_forward(70_000)
        page.locator(".sl-pending", has_text="reload the page").wait_for()
        page.close()
