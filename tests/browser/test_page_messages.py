"""The page with a kernel behind it that is played here: what it shows of each message, and what it sends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import plotly
import pytest
from opened import ARTIFACTS, PATIENCE
from support.view_samples import trace

from speclab.views.phases import last_on_path
from speclab.views.preview import preview
from speclab.views.run_data import header, iteration, read

pytestmark = pytest.mark.browser
RUN = trace(4)
ITERATIONS = [iteration(step, RUN) for step in RUN.steps]


@pytest.fixture
def page(browser, tmp_path):
    """A live page with two iterations; `page.say(message)` plays the kernel, `page.sent()` is what it heard."""
    shutil.copy(Path(plotly.__file__).parent / "package_data" / "plotly.min.js", tmp_path)
    script = f"""{read("page.js")}
      window.sent = [];
      const host = {{ live: true, send: message => sent.push(message), on() {{}}, keys: document }};
      window.lab = mount(document.getElementById("page"), host, Plotly);"""
    (tmp_path / "live.html").write_text(
        f'<!doctype html><meta charset="utf-8"><style>{read("page.css")}</style><div id="page"></div>'
        f'<script src="plotly.min.js"></script><script>{script}</script>'
    )
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE)
    failed: list[str] = []
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto((tmp_path / "live.html").as_uri())
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.say = lambda **message: page.evaluate(
        "message => lab.handle(message)", json.loads(json.dumps(message))
    )
    page.sent = lambda: [one for one in page.evaluate("sent") if one["do"] != "shown"]
    page.say(type="run", id=1, header=header(RUN), keep=0, iterations=ITERATIONS[:2])
    page.wait_for_function("document.querySelector('.speclab-tree').data")
    yield page
    page.screenshot(path=ARTIFACTS / "page_messages.png")
    page.close()
    assert failed == []


def says(page, place: str, words: str) -> None:
    page.locator(place, has_text=words).wait_for()


def test_it_greets_steps_runs_and_moves_without_the_kernel(page):
    assert page.sent() == [{"do": "hello"}]
    page.click(".sl-back")
    says(page, ".sl-place", "1 of 2")
    page.click(".speclab-step")
    says(page, ".sl-place", "2 of 2")
    assert page.sent() == [{"do": "hello"}], "what is decoded already needs no kernel"
    page.click(".speclab-step")
    page.select_option("[aria-label='Run until']", "accepts_fewer")
    page.click(".speclab-run")
    page.click(".speclab-change")
    until = {"kind": "accepts_fewer", "value": 2}
    assert page.sent()[1:] == [{"do": "step"}, {"do": "run", "until": until}, {"do": "change"}]
    page.say(type="iteration", index=2, data=ITERATIONS[2])
    says(page, ".sl-place", "3 of 3")
    page.say(type="show", cursor=2, phase="verify", node=3)
    says(page, ".sl-node-line", "Node 3")
    assert page.get_attribute("[data-phase=verify]", "aria-pressed") == "true"
    page.say(type="run", id=1, header=header(RUN), keep=3, iterations=[])
    says(page, ".sl-place", "2 of 3")
    page.wait_for_function("sent.some(one => one.do === 'shown' && one.cursor === 1)")


def test_busy_pending_errors_and_the_end_of_the_kernel_are_shown_in_one_place(page):
    page.say(
        type="status",
        setup="mini · DynaTree",
        busy="Decoding",
        since=3,
        pending="Changed: depth 3 → 4.",
    )
    says(page, ".sl-pending", "Decoding … 3 s Changed: depth 3 → 4.")
    says(page, ".sl-title", "mini · DynaTree")
    assert page.inner_text(".speclab-step") == "Apply & step"
    assert page.locator(".speclab-step").is_disabled()
    page.click(".sl-stop")
    page.say(
        type="status",
        busy=None,
        pending=None,
        error={"where": "step", "sentence": "Out of memory."},
    )
    says(page, ".speclab-error", "Out of memory.")
    page.say(type="status", error={"where": "until", "sentence": "Unknown name 'acepted'."})
    says(page, ".sl-hint", "Unknown name 'acepted'.")
    assert page.locator(".speclab-error").is_hidden()
    page.say(type="restarted")
    says(page, ".sl-pending", "The kernel was restarted")
    assert page.locator(".speclab-step").is_disabled()
    page.keyboard.press("ArrowLeft")
    says(page, ".sl-place", "1 of 2")
    assert page.sent()[-1] == {"do": "stop"}


def test_a_preview_stands_over_the_tree_and_by_hand_sends_its_node(page):
    step = RUN.steps[1]
    gone = preview(
        step,
        step.tree.select([node < 6 for node in range(len(step.tree))]),
        [*range(6)],
        "Preview: 6 nodes.",
    )
    page.say(type="preview", index=1, preview=gone)
    says(page, ".speclab-status", "Preview: 6 nodes.")
    says(page, ".sl-signs", "would not be drafted")
    page.screenshot(path=ARTIFACTS / "page_preview.png")
    page.say(type="preview", index=1, preview=None)
    page.wait_for_function(
        "!document.querySelector('.speclab-status').textContent.includes('Preview')"
    )
    page.click("[data-tab=settings]")
    page.focus(".speclab-tree")
    page.keyboard.press("ArrowRight")
    page.fill("[aria-label='or type a token']", " cat")
    page.click("text=Add")
    page.click("text=Prune")
    page.click(".sl-verify")
    assert page.sent()[1:] == [
        {"do": "add", "node": 0, "token": None, "text": " cat"}, {"do": "prune", "node": 0}, {"do": "verify"},
    ]  # fmt: skip
    page.say(type="parts", tab="settings", place="byhand", parts=["<p>By hand 1 token.</p>"])
    says(page, ".sl-panel", "By hand 1 token.")


def test_predicting_hides_what_is_not_known_and_a_click_reveals_it(page):
    page.say(type="status", predict=True)
    page.say(type="iteration", index=2, data=ITERATIONS[2])
    page.say(type="show", cursor=3, phase="all", node=None)
    says(page, ".speclab-status", "Which of these will be accepted? Click the last one.")
    assert page.locator("[data-phase=accept]").is_disabled()
    assert page.locator(".speclab-step").is_disabled()
    page.wait_for_function(
        "document.querySelector('.speclab-timeline').data.every(one => one.name === 'drafted' || "
        "one.y[2] == null)"
    )
    assert page.locator(".sl-body > span:visible").count() == 3
    assert page.locator(".sl-signs", has_text="accepted").count() == 0
    last = max(last_on_path(RUN.steps[2]), 0)
    place = page.evaluate(
        "node => "
        "{ const tree = document.querySelector('.speclab-tree'), { x, y, customdata } = tree.data"
        ".find(trace => trace.name === 'nodes'), i = customdata.indexOf(node), axes = "
        "tree._fullLayout,"
        " box = tree.querySelector('.nsewdrag').getBoundingClientRect();"
        " return [box.x + axes.xaxis.d2p(x[i]), box.y + axes.yaxis.d2p(y[i])]; }",
        last,
    )
    page.mouse.click(*place)
    says(page, ".speclab-status", "Right.")
    says(page, ".speclab-status", "Your score: 1 of 1.")
    assert page.sent()[-1] == {"do": "predict", "node": last, "right": True}
    assert page.get_attribute("[data-phase=accept]", "aria-pressed") == "true"
