"""The exported page, opened from a file: iterations, phases, nodes and tabs, in both themes, and no outside request."""

from __future__ import annotations

from dataclasses import replace

import pytest
from opened import ARTIFACTS, PATIENCE
from support.view_samples import trace

from speclab.prompts import Message
from speclab.trace.records import Finding
from speclab.views import export_html
from speclab.views.drawing import call
from speclab.views.run_data import run_header

EVIL = '<img src=x onerror="window.hacked=1"><b>bold</b>\x1b[31m\u202e$x$'
RUN = trace()
HOSTILE = replace(
    RUN,
    messages=(Message("user", EVIL, 4, 10),),
    texts=dict.fromkeys(RUN.texts, EVIL),
    steps=tuple(replace(step, texts=dict.fromkeys(step.texts, EVIL)) for step in RUN.steps),
)
"""The same run with tokens that would be markup."""
NODE = ".speclab-tree .scatterlayer .points path"


def opened(browser, path, **options):
    page = browser.new_page(viewport={"width": 1280, "height": 800}, **options)
    page.set_default_timeout(PATIENCE)
    page.heard = []
    page.on("request", lambda request: page.heard.append(request.url))
    page.on("console", lambda message: page.heard.append(message.text))
    page.on("pageerror", lambda error: page.heard.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector(NODE)
    return page


@pytest.fixture(scope="module")
def exported(browser, tmp_path_factory):
    path = export_html(RUN, tmp_path_factory.mktemp("exported") / "run.html")
    # waiting for a function of the page is evaluating a string, which the page forbids
    page = opened(browser, path, color_scheme="dark", bypass_csp=True, has_touch=True)
    yield page
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / "exported_dark.png", full_page=True)
    heard = page.heard
    page.close()
    assert heard == [path.as_uri()], "the page asked for something, or complained"


@pytest.fixture
def page(exported):
    """The page at its second iteration, no tab open."""
    exported.set_viewport_size({"width": 1280, "height": 800})
    exported.evaluate("speclab.dispatch({type: 'set', values: {node: null, tab: ''}})")
    exported.evaluate("speclab.dispatch({type: 'go', cursor: 2})")
    exported.focus(".speclab-body")
    shows(exported, 2)
    return exported


def shows(page, cursor: int, tick: int = -1) -> None:
    """Waits until an iteration is shown at a position."""
    sentence = ""
    if cursor:
        step = RUN.steps[cursor - 1]
        names = call("namesOf", run_header(RUN), step, True)
        parts = call("story", step, call("positions", step)[tick], names)
        sentence = " → ".join([f"{'①②③'[part]} {each['text']}" for part, each in enumerate(parts)])
    page.wait_for_function(
        "([place, sentence]) => document.querySelector('.sl-place').textContent === place"
        " && document.querySelector('.sl-said').textContent.includes(sentence)",
        arg=[f"{cursor} of {len(RUN.steps)}", sentence],
    )


def test_iterations_and_phases_are_reached_by_keyboard_and_by_mouse(page):
    last = len(RUN.steps)
    for key, cursor in (
        ("ArrowRight", 3),
        ("ArrowLeft", 2),
        ("End", last),
        ("ArrowRight", last),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        shows(page, cursor)
    page.keyboard.press("PageDown")
    shows(page, min(10, last))
    page.keyboard.press("Home")
    for tick in range(2):
        page.keyboard.press("]")
        shows(page, 1, tick)
    page.click("[data-phase=verify]")
    verify = int(RUN.steps[0].tree.depth.max()) + 2
    shows(page, 1, verify)
    for key, tick in (("ArrowRight", verify + 1), ("ArrowLeft", verify)):
        page.keyboard.press(key)  # along the row of phases
        shows(page, 1, tick)
    box = page.locator(".speclab-timeline .nsewdrag").bounding_box()
    bar = page.evaluate("document.querySelector('.speclab-timeline')._fullLayout.xaxis.d2p(3)")
    page.mouse.click(box["x"] + bar, box["y"] + 0.9 * box["height"])
    shows(page, 3)
    assert page.locator(".sl-body > span:visible").count() == 4, "the prompt and three iterations"
    page.keyboard.press("End")
    shows(page, last)
    page.click(".sl-play")
    shows(page, last, 0)
    page.click(".sl-play")
    page.click("[data-phase=draft]")
    shows(page, last, 1)


PLACES = """() => [
  ...['.sl-stage', '.speclab-text', '.sl-below', '.sl-tabs'].map(name => document.querySelector(name).offsetTop),
  document.querySelector('.speclab-mask').offsetParent && document.querySelector('.speclab-mask').offsetLeft,
].filter(place => place !== null)"""
FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.mark.parametrize("width", [1440, 1008, 390])
def test_nothing_moves_between_steps_and_phases(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    for cursor in range(1, len(RUN.steps) + 1):  # the stage is as high as its highest tree so far
        page.evaluate("cursor => speclab.dispatch({type: 'go', cursor})", cursor)
        page.evaluate(FRAMES)
    first = page.evaluate(PLACES)
    for cursor in range(1, len(RUN.steps) + 1, 4):
        for tick in range(len(call("positions", RUN.steps[cursor - 1]))):
            place = {"type": "go", "cursor": cursor, "tick": tick}
            page.evaluate("place => speclab.dispatch(place)", place)
            page.evaluate(FRAMES)
            seen = page.evaluate(PLACES)
            assert seen == first[: len(seen)], place


def test_the_commit_shows_the_caches_beside_the_tree(page):
    before = page.locator(".speclab-tree").bounding_box()
    page.click("[data-phase=commit]")
    page.wait_for_selector(".speclab-mask", state="hidden")
    page.wait_for_selector(".sl-stage .speclab-cache .heatmaplayer image", state="attached")
    assert page.locator(".speclab-tree").bounding_box() == before
    page.click("[data-phase=all]")
    page.wait_for_selector(".speclab-mask", state="visible")


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_a_tab_that_is_opened_below_the_fold_is_scrolled_to_and_nothing_else_is(page, motion):
    page.set_viewport_size({"width": 820, "height": 700})
    page.emulate_media(reduced_motion=motion)
    page.click("[data-tab=metrics]")
    ends = "[document.querySelector('.sl-panel').getBoundingClientRect().bottom, innerHeight]"
    page.wait_for_function(f"(([end, high]) => end > 100 && end <= high)({ends})")
    page.evaluate("scrollTo(0, 0)")
    page.keyboard.press("ArrowLeft")  # along the row of tabs
    page.wait_for_function(f"scrollY > 0 && (([end, high]) => end <= high)({ends})")
    page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
    page.evaluate("speclab.dispatch({type: 'show', cursor: 3, tab: 'caches'})")  # the kernel's
    page.evaluate("speclab.dispatch({type: 'go', cursor: 4})")
    page.wait_for_timeout(400)
    assert page.evaluate("scrollY") == 0


@pytest.mark.parametrize("width", [1440, 820, 390])
def test_no_line_of_the_screen_covers_another_and_the_tree_fits_or_scrolls(page, width):
    page.set_viewport_size({"width": width, "height": 844})
    guess = {"on": False, "tries": 12, "right": 10, "sentence": ""}
    page.evaluate("guess => speclab.dispatch({type: 'set', values: {guess}})", guess)
    page.evaluate(FRAMES)
    cut = "[...document.querySelectorAll('.speclab-score')].filter(one => one.scrollHeight > one.clientHeight).length"
    assert page.evaluate(cut) == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    tree = page.locator(".speclab-tree")
    wide, room = tree.evaluate("one => [one.scrollWidth, one.clientWidth]")
    assert wide == room or width < 640


def test_the_legend_names_every_sign_and_what_sizes_edges_and_rings_are(page):
    for phase, more in {"draft": 2, "flatten": 1, "verify": 2, "accept": 3, "all": 2}.items():
        page.click(f"[data-phase={phase}]")
        page.evaluate(FRAMES)
        at = call("positions", RUN.steps[1])[page.evaluate("speclab.state().tick")]
        kinds = {*call("kindsAt", RUN.steps[1], at).values()} - {"root", None}
        assert page.locator(".sl-signs").first.locator("span").count() == len(kinds) + more, phase


FLOWN = """window.flown = 0, new MutationObserver(changes => {
  for (const { addedNodes } of changes)
    for (const node of addedNodes) if (node.className === "sl-flying") window.flown += 1;
}).observe(document.querySelector(".sl-stage"), { childList: true })"""


def test_nodes_rows_and_slots_move_over_the_stage_unless_less_motion_is_wanted(page):
    page.evaluate(FLOWN)
    for phase in ("flatten", "verify", "commit"):
        page.evaluate("window.flown = 0")
        page.click(f"[data-phase={phase}]")
        page.wait_for_function("window.flown > 1")
        page.wait_for_function("!document.querySelector('.sl-flying')")
    page.emulate_media(reduced_motion="reduce")
    page.evaluate("window.flown = 0")
    for phase in ("flatten", "verify", "commit"):
        page.click(f"[data-phase={phase}]")
        page.evaluate(FRAMES)
    assert page.evaluate("window.flown") == 0
    page.emulate_media(reduced_motion="no-preference")


def test_large_fills_the_screen_of_a_lecture_room(page):
    page.set_viewport_size({"width": 1920, "height": 1080})
    page.evaluate(FRAMES)
    heights = "name => document.querySelector(name).getBoundingClientRect().height"
    before = page.evaluate(heights, ".speclab-tree .main-svg")
    page.click(".sl-more summary")
    page.click("text=Large")
    page.wait_for_function(
        "before => document.querySelector('.speclab-tree .main-svg').getBoundingClientRect().height > before",
        arg=1.38 * before,
    )
    page.evaluate(FRAMES)
    ends = page.evaluate(
        "[...document.querySelectorAll('.sl-signs, .sl-node-line, .speclab-mask .main-svg')]"
        ".map(one => one.getBoundingClientRect().bottom)"
    )
    assert 0.85 * 1080 < max(ends) <= 1080
    page.set_viewport_size({"width": 860, "height": 800})
    page.evaluate(FRAMES)
    tree, mask = [page.locator(f".speclab-{name}").bounding_box() for name in ("tree", "mask")]
    assert tree["y"] + tree["height"] <= mask["y"], "one below the other"
    page.click(".sl-more summary")
    page.click("text=Large")
    page.wait_for_function("!document.querySelector('.sl-large')")


def word(page, texts, number):
    """Moves the pointer to the end of a word; where that is."""
    box = page.locator(texts).nth(number).bounding_box()
    place = (box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
    page.mouse.move(*place)
    return place


def shown(page):
    """What hover shows: the line of the node, and the frames in the mask."""
    line = page.inner_text(".sl-node-line")
    return {"line": line, "frames": page.locator(".sl-frame:visible").count()}


def test_a_node_is_selected_in_tree_mask_sentence_and_tab(page):
    step = RUN.steps[1]
    page.focus(".speclab-tree")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    sentence = "".join(call("nodeSentence", step, 1))
    page.wait_for_function(
        "words => document.querySelector('.sl-node-line').textContent === words", arg=sentence
    )
    shapes = "name => (document.querySelector(name).layout.shapes ?? []).length"
    before = page.evaluate(shapes, ".speclab-mask")
    page.keyboard.press("Escape")
    page.wait_for_function("document.querySelector('.sl-node-line').textContent === ''")
    assert page.evaluate(shapes, ".speclab-mask") == before - 2
    word(page, ".speclab-tree .textpoint", 2)
    assert shown(page) == {"line": "".join(call("nodeSentence", step, 2)), "frames": 2}
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function("speclab.state().node === 2")
    page.touchscreen.tap(*word(page, ".speclab-tree .textpoint", 1))
    page.wait_for_function("speclab.state().node === 1")
    x, y = word(page, ".speclab-mask .ytick text", 2)
    row = int(page.locator(".speclab-mask .ytick text").nth(2).text_content().split()[0])
    assert shown(page)["line"] == "".join(call("nodeSentence", step, row))
    page.mouse.move(x + 120, y)
    assert "see" in shown(page)["line"]
    page.mouse.click(x, y)
    page.wait_for_function("row => speclab.state().node === row", arg=row)
    page.mouse.move(0, 0)
    assert shown(page)["frames"] == 0
    page.click("[data-tab=node]")
    page.wait_for_selector(".sl-panel .js-plotly-plot")
    page.click("[data-tab=metrics]")
    page.wait_for_function(
        "document.querySelector('.sl-panel .js-plotly-plot').data[0].x?.length === 2"
    )
    page.focus("[data-tab=metrics]")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "[...document.querySelectorAll('[data-tab]')].find(tab => !tab.hidden).ariaSelected === 'true'"
    )


def test_findings_are_marked_listed_and_gone_to_by_keyboard(browser, tmp_path):
    wrong = [
        Finding(4, 3, "mask", "node 3 sees <b>"),
        Finding(4, 5, "mask", "too"),
        Finding(8, None, "slot", "twice"),
    ]
    steps = list(RUN.steps)
    for one in wrong:
        steps[one.iteration] = replace(
            steps[one.iteration], findings=(*steps[one.iteration].findings, one)
        )
    page = opened(browser, export_html(replace(RUN, steps=tuple(steps)), tmp_path / "run.html"))

    def signs(place, axis):
        notes = page.evaluate("name => document.querySelector(name).layout.annotations", place)
        return sorted(note[axis] for note in notes if note["text"] == "⚠")

    assert signs(".speclab-timeline", "x") == [5, 9]
    page.click("[data-tab=check]")
    lines = page.locator("[data-finding]")
    lines.first.press("Enter")
    page.locator(".sl-node-line", has_text="node 3 sees <b>").wait_for()
    assert page.inner_text(".sl-place") == "5 of 12"
    assert signs(".speclab-mask", "y") == [3, 5]
    second = page.evaluate(
        "document.querySelector('.speclab-tree').data.flatMap(trace => trace.text ?? [])"
    )
    assert second.count("⚠ mask") == 2
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator(".sl-node-line", has_text="twice").wait_for()
    assert page.inner_text(".sl-place") == "9 of 12"
    assert lines.count() == 2, "one line for what is alike in an iteration"
    assert page.heard == [(tmp_path / "run.html").as_uri()]
    page.close()


def test_hostile_tokens_are_shown_as_text(browser, tmp_path):
    path = export_html(HOSTILE, tmp_path / "run.html")
    page = opened(browser, path)
    assert page.locator(".sl-chip").all_inner_texts() == ["user", "assistant"]
    for tab in ("node", "metrics", "caches"):
        page.click(f"[data-tab={tab}]")
    for phase in ("draft", "verify", "accept", "commit", "all"):
        page.click(f"[data-phase={phase}]")
    page.click(".sl-more summary")
    page.click("text=As table")
    page.wait_for_timeout(100)
    assert page.evaluate("window.hacked") is None
    assert (
        page.locator("img[src=x]").count()
        == page.locator(".sl-body b", has_text="bold").count()
        == 0
    )
    assert "\u202e" not in page.inner_text("body")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=ARTIFACTS / "exported_hostile.png")
    assert page.heard == [path.as_uri()]
    page.close()
