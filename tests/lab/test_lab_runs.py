"""Compare, runs, files; two pages and one that comes back; what a step costs; nothing of a closed lab is left."""

from __future__ import annotations

import gc
import json
import threading
import weakref

from ipywidgets.widgets.widget import _instances
from support.lab_page import PATIENCE, PROMPT, Page

import speclab
from speclab.views.run_data import plotly_js

STEP_BYTES = 50_000
OPENING_BYTES = 450_000
OPENING_MESSAGES = 12
OPENING_WIDGETS = 3


def test_python_exports_and_shows_a_snapshot(page, tmp_path):
    assert page.lab.export(tmp_path / "run.html").stat().st_size
    data, _ = page.lab._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "Iteration 1" in data["text/plain"]
    assert data["text/html"] == page.lab.snapshot()


def test_a_step_is_two_messages_and_its_iteration_is_sent_once(make, sent):
    lab = make("mini", prompt="Once upon a time", max_new_tokens=200)
    page = Page(lab, sent)
    page.do("step")
    page.hear()
    page.ask(do="step")
    assert lab.wait(PATIENCE)
    envelopes = page.envelopes()
    assert len(sent) == len(envelopes) == 2, "that it is busy, and what came of it"
    kinds = [message["type"] for envelope in envelopes for message in envelope["messages"]]
    assert kinds.count("step") == 1
    assert page.size() < STEP_BYTES
    page.hear()
    sent.clear()
    for move in (
        lambda: lab.back(),
        lambda: lab.show_phase("draft"),
        lambda: lab.goto(3),
        lambda: lab.select(0),
    ):
        move()
    assert lab.wait(PATIENCE)
    assert len(sent) == 4
    assert page.size() < 2_000, "no picture goes twice"


def test_a_lab_opens_with_few_widgets_and_messages_and_plotly_goes_on_request(make, sent):
    before = len(_instances)
    lab = make()
    assert lab.wait(PATIENCE)
    Page(lab, [])
    assert len(_instances) - before < OPENING_WIDGETS
    assert len(sent) < OPENING_MESSAGES
    assert sum(len(json.dumps(one["data"], default=str)) for one in sent) < OPENING_BYTES
    sent.clear()
    lab.comm.handle_msg(
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
    page.set(node_budget=4)
    page.do("step")
    lab.fork(speclab.LinearSpeculation())
    page.do("prune", node=1)
    lab.run()
    left = [weakref.ref(one) for one in (lab, lab.session, lab.state)]
    lab.close()
    del lab, page
    gc.collect()
    assert set(_instances) - widgets == set()
    assert set(threading.enumerate()) - threads == set()
    assert [one() for one in left] == [None] * len(left)
