"""Compare, runs, files; two pages and one that comes back; what a step costs; nothing of a closed lab is left."""

from __future__ import annotations

import base64
import gc
import gzip
import json
import re
import threading
import weakref

import pytest
from ipywidgets.widgets.widget import _instances
from lab_tools import PATIENCE, PROMPT, Page
from support.outside_decoder import decode

import speclab
from speclab import clinic
from speclab.recorder import Recorder
from speclab.views.run_data import plotly_js

STEP_BYTES = 50_000
OPENING_BYTES = 400_000
OPENING_MESSAGES = 12
OPENING_WIDGETS = 3


def test_runs_and_forks_are_one_tree_to_switch(page):
    page.do("step")
    first = page.lab.session
    page.lab.fork(node_budget=3)
    page.do("step")
    page.lab.goto(1)
    page.lab.fork(speclab.LinearSpeculation())
    page.hear()
    runs = page.panels["runs"]["runs"]
    assert [(run["name"], run["at"], run["shown"]) for run in runs] == [
        ("A DynaTree", -1, False),
        ("A2 N_max 3 from 2", 2, False),
        ("A3 LinearSpeculation from 1", 1, True),
    ]
    assert [run["iterations"] for run in runs] == [2, 3, 1]
    page.do("step")
    page.do("switch", run=0)
    assert page.lab.session is first
    assert page.place[0] == 2, "where it was left"
    assert page.holds_the_run()
    page.do("close", run=1)
    page.do("close", run=0)  # is shown, so it stays
    page.do("step", start="start")
    names = [run["name"] for run in page.panels["runs"]["runs"]]
    assert names == ["A DynaTree", "A3 LinearSpeculation from 1", "B DynaTree"]
    page.do("switch", run=1)
    assert page.error["where"] == "compare"


def test_the_names_of_many_runs_differ(lab):
    trace = lab.session.trace
    for _ in range(28):
        lab.state.open_trace(trace, "again")
    names = [run["name"] for run in lab.state.panels["runs"]["runs"]]
    assert len({name.split()[0] for name in names}) == len(names) == 29
    assert names[-1].startswith("AC "), "the 27th is no fork of the first"


def test_strategies_are_compared_on_this_prompt(page):
    names = [page.panels["catalog"]["current"], "Autoregressive"]
    page.hear()
    page.ask(do="compare", names=names)
    page.lab.wait(PATIENCE)
    page.hear()
    assert page.status["busy"] == ""
    mine, plain = page.panels["compared"]["rows"]
    assert [mine["name"], plain["name"]] == names
    assert plain["tokens_per_iteration"] == pytest.approx(1)
    assert mine["tokens"] == 120
    assert mine["differs_at"] is plain["differs_at"] is None
    page.do("compare", names=[])
    assert page.error["where"] == "compare"
    assert page.panels["compared"]["rows"], "the former comparison stays"


def test_a_pinned_iteration_stays_beside_those_that_come(page):
    page.lab.pin()
    page.do("step")
    assert page.panels["pinned"]["step"] == page.steps[0]
    page.lab.pin()
    page.hear()
    assert page.panels["pinned"] == {}


def test_a_run_is_saved_by_the_page_and_opened_again(page, tmp_path):
    page.do("step")
    page.do("save", what="run")
    file = page.others.pop()
    assert file["name"] == "run.json.gz"
    path = tmp_path / file["name"]
    path.write_bytes(base64.b64decode(file["data"]))
    assert speclab.load_trace(path).token_ids == page.lab.session.token_ids
    page.do("save", what="page")
    assert page.others.pop()["mime"] == "text/html"
    session = page.lab.session
    page.do("open", name="run.json.gz", data=file["data"])
    assert page.status["can_step"] is False
    assert page.holds_the_run()
    assert page.place[0] == 1
    page.do("step")
    assert "file" in page.error["sentence"]
    page.do("switch", run=0)
    page.do("step")
    assert page.error is None
    assert page.lab.session is session
    assert len(session.steps) == 3
    for wrong in (base64.b64encode(b"nothing").decode(), "not base64!"):
        page.do("open", name="run.json.gz", data=wrong)
        assert page.error["where"] == "page"
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
    assert len(page.steps) == 2
    assert (lab.session, lab.state.cursor) == (None, 1)
    assert lab.goto(2).index == 1
    for run_on in (lab.step, lab.fork):
        with pytest.raises(speclab.SettingsError, match="opened from a file"):
            run_on()
    page.do("open", name="run.jsonl", data=base64.b64encode(path.read_bytes()).decode())
    assert len(lab.state.trace.steps) == 2
    lab.close()


def test_two_runs_are_compared_and_exported(pair, sent, tmp_path):
    for name, fault in (("right", ""), ("wrong", "chain")):
        decode(pair.target.model, PROMPT, tmp_path / name, fault, seed=1)
    right, wrong = [speclab.load_steps(tmp_path / name) for name in ("right", "wrong")]
    lab = speclab.Lab(pair, trace=right)
    page = Page(lab, sent)
    data = base64.b64encode((tmp_path / "wrong").read_bytes()).decode()
    page.do("open", name="wrong.jsonl", data=data)
    page.do("diff", run=0)
    diff = page.panels["diffed"]["diff"]
    assert (diff["verdict"], diff["side"]) == ("fault", "a")
    assert [len(passes) for passes in diff["passes"]] == [len(wrong.steps), len(right.steps)]
    assert diff["names"][0] != diff["names"][1]
    assert diff["sentence"] in unpacked(lab.export(tmp_path / "run.html"))
    page.do("switch", run=0)
    assert page.panels["diffed"] == {}
    assert diff["sentence"] not in unpacked(lab.export(tmp_path / "run.html"))
    assert lab.diff(wrong).side == "b"
    page.do("diff", run=7)
    assert page.error["where"] == "page"
    lab.close()


def unpacked(path):
    """The run in an exported page, as JSON."""
    packed = json.loads(re.search(r'id="data">(.*?)</script>', path.read_text())[1])["run"]
    return json.dumps(json.loads(gzip.decompress(base64.b64decode(packed))))


def test_a_check_marks_an_opened_run_and_can_be_stopped(pair, sent, tmp_path):
    decode(pair.target.model, PROMPT, tmp_path / "run.jsonl", "sibling")
    trace = speclab.load_steps(tmp_path / "run.jsonl")
    lab = speclab.Lab(pair, trace=trace)
    page = Page(lab, sent)
    stop = lambda change: change["new"] and lab.stop()  # noqa: E731
    lab.state.observe(stop, "busy")
    page.do("check")
    assert page.status["message"].startswith("Stopped")
    assert not any(step["findings"] for step in page.steps)
    lab.state.unobserve(stop, "busy")
    page.do("check")
    findings = clinic.check(trace, pair)
    assert {finding.kind for finding in findings} == {"mask"}
    assert page.holds_the_run()
    for step in page.steps:
        own = [one.sentence for one in findings if one.iteration == step["index"]]
        assert [finding["sentence"] for finding in step["findings"]] == own
    assert sum(len(step["gaps"]) for step in page.steps) == sum(
        len(step.nodes) for step in trace.steps
    )
    lab.close()
    alone = speclab.Lab(trace=trace)
    assert {finding.kind for finding in alone.check()} == {"mask"}
    assert alone.session is None
    assert not any(step.plain for step in alone.state.trace.steps)
    alone.close()


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
