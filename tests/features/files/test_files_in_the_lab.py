"""Runs are saved and opened by the page."""

from __future__ import annotations

import base64

import pytest
from support.lab_page import PROMPT, Page

import speclab
from speclab.recorder import Recorder


def test_a_run_is_saved_by_the_page_and_opened_again(page, tmp_path):
    page.do("step")
    page.do("save", what="run")
    file = page.panels["file"]
    assert file["name"] == "run.json.gz"
    path = tmp_path / file["name"]
    path.write_bytes(base64.b64decode(file["data"]))
    assert speclab.load_trace(path).token_ids == page.lab.session.token_ids
    page.do("save", what="page")
    assert page.panels["file"]["mime"] == "text/html"
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
