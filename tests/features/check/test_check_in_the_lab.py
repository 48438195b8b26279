"""A run is checked and compared with another one in the lab."""

from __future__ import annotations

import base64
import gzip
import json
import re

from support.lab_page import PROMPT, Page
from support.outside_decoder import decode

import speclab
from speclab import clinic


def unpacked(path):
    """The run in an exported page, as JSON."""
    packed = json.loads(re.search(r'id="data">(.*?)</script>', path.read_text())[1])["run"]
    return json.dumps(json.loads(gzip.decompress(base64.b64decode(packed))))


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
