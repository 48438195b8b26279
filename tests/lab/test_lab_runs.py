"""Compare, runs, files; two pages and one that comes back; what a step costs; nothing of a closed lab is left."""

from __future__ import annotations

import base64
import gc
import json
import sys
import threading
import weakref

import pytest
from ipywidgets.widgets.widget import _instances
from lab_tools import PROMPT, Page, every, html, settle
from support.outside_decoder import decode

import speclab
from speclab import clinic
from speclab.lab.compare_tab import CURRENT
from speclab.lab.screen import plotly_js
from speclab.recorder import Recorder

STEP_BYTES = 50_000
OPENING_BYTES = 400_000
OPENING_MESSAGES = 30
OPENING_WIDGETS = 150
STEP_CALLS = 1_100
NODE_CALLS = 240
"""Calls of our own functions in one step: of any, and more for each node of its tree."""


def test_runs_and_forks_are_one_tree_of_buttons_to_switch(page):
    page.say(do="step")
    page.lab.fork(node_budget=3)
    page.say(do="step")
    page.lab.goto(1)
    page.lab.fork(speclab.LinearSpeculation())
    page.hear()
    tree = html(page.parts["runs"])
    assert tree.count("data-send") == 3
    assert tree.count("speclab-forks") == 2, "a fork of the fork hangs below it"
    page.say(do="switch", run=0)
    assert page.lab.session is page.lab._commands.runs[0].session
    assert page.place[0] == 2, "where it was left"
    assert page.holds_the_run()
    page.say(do="switch", run=9)
    assert page.status["error"]["where"] == "compare"


def test_strategies_are_compared_on_this_prompt(page):
    page.go(1, tab="compare")
    box = page.lab._choices
    box.choice.value = [CURRENT, "Autoregressive"]
    page._sent.clear()
    box.button.click()
    settle(page.lab)
    busy = [m["busy"] for e in page.envelopes() for m in e["messages"] if m.get("busy")]
    assert any("of 120 tokens" in words for words in busy)
    page.hear()
    assert page.status["busy"] is None
    assert len(page.parts["compared"]) == 2
    box.choice.value = []
    box.button.click()
    page.hear()
    assert page.status["error"]["where"] == "compare"


def test_a_pinned_iteration_stays_beside_those_that_come(page):
    page.lab.pin()
    page.hear()
    assert page.parts["pinned"]
    first = json.dumps(page.parts["pinned"])
    page.say(do="step")
    assert json.dumps(page.parts["pinned"]) != first
    page.lab.pin()
    page.hear()
    assert page.parts["pinned"] == []


def test_a_run_is_saved_by_the_page_and_opened_again(page, tmp_path):
    page.say(do="step")
    page.say(do="save", what="run")
    file = page.others.pop()
    assert file["name"] == "run.json.gz"
    path = tmp_path / file["name"]
    path.write_bytes(base64.b64decode(file["data"]))
    assert speclab.load_trace(path).token_ids() == tuple(page.lab.session.token_ids)
    page.say(do="save", what="page")
    assert page.others.pop()["mime"] == "text/html"
    session = page.lab.session
    page.say(do="open", name="run.json.gz", data=file["data"])
    assert page.status["can_step"] is False
    assert page.holds_the_run()
    assert page.place[0] == 1
    page.say(do="step")
    assert "file" in page.status["error"]["sentence"]
    page.say(do="switch", run=0)
    page.say(do="step")
    assert page.status["error"] is None
    assert page.lab.session is session
    assert len(session.steps) == 3
    page.say(do="open", name="run.json.gz", data=base64.b64encode(b"nothing").decode())
    assert page.status["error"]["where"] == "files"
    assert page.holds_the_run()


def test_steps_of_another_decoder_are_opened(sent, tmp_path):
    path = tmp_path / "run.jsonl"
    with Recorder(path, PROMPT) as recorder:
        for prefix, root in ((5, 7), (7, 4)):
            recorder.step(
                prefix_length=prefix,
                token=[root, 8, 9],
                parent=[-1, 0, 0],
                accepted=[2],
                committed=[9, 4],
            )
    lab = speclab.Lab("mini", trace=speclab.load_steps(path))
    page = Page(lab, sent)
    assert page.holds_the_run()
    assert len(page.iterations) == 2
    assert (lab.session, lab.state.cursor) == (None, 1)
    assert lab.goto(2).index == 1
    with pytest.raises(speclab.SettingsError, match="opened from a file"):
        lab.step()
    page.say(do="open", name="run.jsonl", data=base64.b64encode(path.read_bytes()).decode())
    assert len(lab.state.trace.steps) == 2
    lab.close()


def test_a_check_marks_an_opened_run_and_can_be_stopped(pair, sent, tmp_path):
    decode(pair.target.model, PROMPT, tmp_path / "run.jsonl", "sibling")
    trace = speclab.load_steps(tmp_path / "run.jsonl")
    lab = speclab.Lab(pair, trace=trace)
    page = Page(lab, sent)
    stop = lambda change: change["new"] and lab.stop()  # noqa: E731
    lab.state.observe(stop, "busy")
    page.say(do="check")
    assert page.status["sentence"].startswith("Stopped")
    assert all(each["findings"] == [] for each in page.iterations)
    lab.state.unobserve(stop, "busy")
    page.say(do="check")
    findings = clinic.check(trace, pair)
    assert {finding.kind for finding in findings} == {"mask"}
    assert page.holds_the_run()
    for iteration in page.iterations:
        own = [(one.node, one.sentence) for one in findings if one.iteration == iteration["index"]]
        assert [(node, words) for node, _, words in iteration["findings"]] == own
        assert bool(iteration["timeline"]["sign"]) == bool(own)
    first = lab.state.trace.steps[findings[0].iteration]
    nodes = page.iterations[first.index]["nodes"]
    assert dict(nodes[0]["plain"])[first.nodes[0].target_choice] == pytest.approx(
        nodes[0]["p"][0][1], abs=1e-3
    )
    assert (
        speclab.load_trace(lab.state.trace.save(tmp_path / "run.json.gz"))
        .steps[first.index]
        .findings
    )
    lab.close()
    alone = speclab.Lab(trace=trace)
    assert {finding.kind for finding in alone.check()} == {"mask"}
    assert alone.session is None
    assert not any(step.plain for step in alone.state.trace.steps)
    alone.close()


def test_python_exports_and_shows_a_snapshot(page, tmp_path):
    assert page.lab.export(tmp_path / "run.html").stat().st_size
    bundle = page.lab._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "Iteration 1" in bundle["text/plain"]
    assert bundle["text/html"] == page.lab.snapshot()


def test_a_second_page_and_one_that_comes_back_get_everything(page, sent):
    page.say(do="step")
    page.lab.phase("accept")
    other = Page(page.lab, sent)
    assert other.holds_the_run()
    assert other.place == (2, "accept", None)
    for name in ("setup", "can_step", "error"):
        assert other.status[name] == page.status[name]


def test_a_step_is_two_messages_and_its_iteration_is_sent_once(make, sent):
    lab = make("mini", prompt="Once upon a time", max_new_tokens=200)
    page = Page(lab, sent)
    page.say(do="step")
    sent.clear()
    lab._hear({"do": "step"})
    settle(lab)
    envelopes = page.envelopes()
    assert len(sent) == len(envelopes) == 2, "that it is busy, and what came of it"
    kinds = [message["type"] for envelope in envelopes for message in envelope["messages"]]
    assert kinds.count("iteration") == 1
    assert page.size() < STEP_BYTES
    page.hear()
    sent.clear()
    for move in (
        lambda: lab.back(),
        lambda: lab.phase("draft"),
        lambda: lab.goto(3),
        lambda: lab.select(0),
    ):
        move()
    settle(lab)
    assert len(sent) == 4
    assert page.size() < 2_000, "no picture goes twice"


def test_a_step_calls_little_of_the_lab(make, sent):
    lab = make("mini", prompt="Once upon a time", max_new_tokens=200)
    Page(lab, sent)
    lab.step()
    calls = 0

    def count(frame, event, _):
        nonlocal calls
        calls += event == "call" and "speclab" in frame.f_code.co_filename

    try:
        lab._worker.submit(lambda: sys.setprofile(count)).result()
        lab.step()
    finally:
        lab._worker.submit(lambda: sys.setprofile(None)).result()
    nodes = len(lab.state.trace.steps[-1].tree)
    assert calls < STEP_CALLS + NODE_CALLS * nodes, f"{calls} calls for {nodes} nodes"


def test_a_lab_opens_with_few_widgets_and_messages_and_plotly_goes_on_request(make, sent):
    before = len(_instances)
    lab = make()
    page = Page(lab, [])
    assert page.lab is lab
    assert len(_instances) - before < OPENING_WIDGETS
    assert len(sent) < OPENING_MESSAGES
    assert sum(len(json.dumps(one["data"], default=str)) for one in sent) < OPENING_BYTES
    sent.clear()
    lab._screen.comm.handle_msg(
        {"content": {"data": {"method": "custom", "content": {"do": "plotly"}}}, "buffers": []}
    )
    assert [message["buffers"] for message in sent] == [1]
    assert sent[0]["data"]["content"]["plotly"] is True
    assert len(plotly_js()) < 3_000_000


def test_nothing_of_a_closed_lab_is_left(pair, sent):
    gc.collect()
    widgets = set(_instances)
    threads = set(threading.enumerate())
    lab = speclab.Lab(pair, prompt=PROMPT, max_new_tokens=40)
    page = Page(lab, sent)
    page.say(do="change")
    page.go(1, tab="settings")
    page.go(1, tab="compare")
    lab._sliders.controls["node_budget"].value = 4
    page.say(do="step")
    lab.fork(speclab.LinearSpeculation())
    page.say(do="prune", node=1)
    lab.run()
    left = [weakref.ref(one) for one in (lab, lab.session, lab._commands, lab._screen, lab.state)]
    assert len(every(lab)) > 20
    lab.close()
    del lab, page
    gc.collect()
    assert set(_instances) - widgets == set()
    assert set(threading.enumerate()) - threads == set()
    assert [one() for one in left] == [None] * len(left)
