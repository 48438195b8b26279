"""The run that is shown before any model is loaded, and how the models take over; what a lab leaves behind."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import pytest
from lab_tools import settle

import speclab
from speclab.lab import Lab
from speclab.lab.lab import REAL
from speclab.models.presets import MINI, PRESETS
from speclab.trace.records import Trace
from speclab.views.registry import VIEWS

ALONE = """
import sys
from speclab.lab import Lab
lab = Lab("mini")
assert lab.session is None
assert lab.state.trace.steps, "no recorded run"
lab.step(); lab.run(until="iteration == 5"); lab.phase("draft"); lab.select(0); lab.goto(1); lab.snapshot()
assert lab.session is None
assert lab.state.error == "", lab.state.error
assert '"data"' in lab.panels.views["tree"].drawing
heavy = {"torch", "transformers", "plotly"} & set(sys.modules)
assert not heavy, heavy

import threading, time  # the libraries are not read yet: a Stop is heard while they are, and the load is left behind
lab = Lab("mini", prompt="Once")
step = lab._actions.ask(lab._controller.step)
while not lab.state.busy:
    time.sleep(0.001)
lab.stop()
assert step.result(600) is None
assert lab.state.status.startswith("Stopped loading mini"), lab.state.status
assert lab._worker.wait(600)
(loading,) = [thread for thread in threading.enumerate() if thread.name == "speclab-loading"]
loading.join()
assert lab.session is None and lab._controller.models.pair is None
assert lab.step() is not None, lab.state.error
"""


@pytest.fixture(scope="module")
def mini():
    return speclab.load_pair()


@pytest.fixture
def first(monkeypatch, mini):
    """A lab as it opens first: nothing is given."""
    monkeypatch.setattr("speclab.models.pair.load_pair", lambda **_: mini)
    lab = Lab("mini")
    yield lab
    assert settle(lab)
    lab.close()


def badge(lab) -> str:
    return re.search(r"sl-badge[^>]*>(\w+)<", lab.status.line.drawing)[1]


def test_a_recorded_run_is_walked_through_without_torch_or_plotly_and_stop_is_heard_while_those_are_read():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_recording_is_what_the_lab_would_decode(first, mini):
    decodes_its_recording(first, mini)


@pytest.mark.model
@pytest.mark.skipif(PRESETS[REAL].missing, reason="speclab fetch smollm2 brings the model")
def test_the_recording_of_the_fetched_model_is_what_the_lab_would_decode():
    lab = Lab()
    assert (lab.state.applied.models.name, badge(lab)) == (REAL, "recorded")
    decodes_its_recording(lab, speclab.load_pair(REAL))
    lab.close()


def decodes_its_recording(lab: Lab, pair) -> None:
    config = lab.state.applied
    session = speclab.Session(pair, config.strategy, config.prompt, **config.settings)
    for step in lab.state.trace.steps:
        again = session.step()
        assert again.committed == step.committed
        assert again.tree.token.tolist() == step.tree.token.tolist()
        assert again.settings.items() >= step.settings.items()


def test_a_lab_opens_with_the_fetched_model_else_with_the_shipped_one_and_says_how_to_get_the_other(monkeypatch):
    for folder, name in (("target", REAL), ("nowhere", "mini")):
        monkeypatch.setitem(PRESETS, REAL, replace(PRESETS[REAL], target=str(MINI / folder)))
        lab = Lab()
        assert lab.config.read().models.name == name
        assert (f"speclab fetch {REAL}" in lab.state.status) == (name == "mini")
        lab.close()
    lab = Lab("nothing")
    assert (lab.config.read().models.name, lab.config.models.name.value) == ("mini", "mini")
    assert "no pair named 'nothing'" in lab.state.error
    assert REAL in lab.state.error
    lab.close()


def test_run_looks_for_its_condition_in_the_recording_before_the_models_go_on(first):
    assert first.run(until="iteration == 4").index == 3
    assert first.session is None
    assert "iteration == 4 (1st hit)" in first.state.status
    assert first.run(until=f"iteration == {len(first.state.trace.steps) + 2}").index == first.session.cursor - 1
    assert badge(first) == "live"


@pytest.mark.parametrize(
    "given", [{"prompt": "Once"}, {"strategy": speclab.FixedTree()}, {"max_new_tokens": 9}]
)
def test_with_anything_given_no_recording_of_something_else_is_shown(given):
    lab = Lab("mini", **given)
    assert (lab.state.cursor, len(lab.state.trace.steps), lab.state.applied) == (0, 0, None)
    assert badge(lab) == "ready"
    lab.close()


def test_what_is_changed_on_the_recording_is_never_ignored(first):
    first.goto(3)
    form = first.config.strategy.form
    form.controls["node_budget"].value = 6
    step = first.step()
    assert (step.index, step.settings["node_budget"], badge(first)) == (3, 6, "live")
    assert len(first.forks) == 2, "the run of the recording, and a fork of it"
    first.config.prompt.text.value = "The ship left the harbour"
    assert "prompt" in first.state.pending
    assert first.step().index == 0
    assert first.session.prompt_ids == first.session.pair.encode("The ship left the harbour")
    assert first.state.status.startswith("Applied: prompt. ")
    assert first.state.pending == ""


def test_step_walks_through_it_and_live_goes_on_in_the_same_place_and_says_so(first, capsys):
    bundle = first._repr_mimebundle_()
    assert settle(first)
    assert {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"} <= bundle.keys()
    assert first.session is None
    assert capsys.readouterr().out == ""
    count = len(first.state.trace.steps)
    assert badge(first) == "recorded"
    for cursor in (2, 3):
        assert first.step() is first.state.trace.steps[cursor - 1]
    assert first.session is None
    first.run_live()
    assert (badge(first), first.state.cursor, first.session.cursor) == ("live", 3, 3)
    assert "again, to the same text" in first.state.status
    first.run_live()
    assert "decode already" in first.state.status
    assert first.step().index == 3
    other = Lab("mini")
    other.goto(count)
    assert other.step().index == count
    assert "recording ends here" in other.state.status
    assert other.state.frame.live
    other.close()


def test_a_lab_without_its_recorded_run_still_works(monkeypatch, tmp_path, first):
    monkeypatch.setattr("speclab.lab.lab.RECORDINGS", tmp_path)
    lab = Lab("mini")
    assert lab.state.trace == Trace((), 0, (), {}, {}, {})
    assert "No iteration yet" in lab.panels.views["tree"].drawing
    assert "Before the first iteration" in lab._repr_mimebundle_()["text/plain"]
    assert lab.step().index == 0
    assert settle(lab)
    lab.close()


def test_a_snapshot_needs_nothing_else_and_a_page_that_cannot_be_written_is_said(lab, tmp_path):
    lab.run(until=lambda step: step.index == 2)
    lab.select(0)
    page = lab.snapshot()
    assert "Iteration 3" in page
    links = re.findall(r'\b(?:src|href)="([^"]*)"', page)
    assert [link for link in links if not link.startswith(("data:", "#"))] == []
    assert "<script" not in page
    assert lab.export(tmp_path / "run.html").stat().st_size > 10_000
    assert lab.export(tmp_path / "missing" / "run.html") is None
    assert "cannot be written" in lab.state.error


def test_text_of_a_prompt_is_escaped_and_a_broken_view_or_a_bug_says_so_and_spares_the_rest(lab, monkeypatch, caplog):
    lab.config.prompt.text.value = "<script>alert(1)</script>"
    assert lab.step() is None
    assert "<script>alert" not in lab.state.error + lab.status.message.value
    lab.config.prompt.text.value = "5 17 3"
    with monkeypatch.context() as broken:
        broken.setitem(VIEWS, "mask", replace(VIEWS["mask"], draw=lambda **_: 1 / 0))
        lab.step()
    assert "This view failed" in lab.panels.views["mask"].drawing
    assert '"data"' in lab.panels.views["tree"].drawing
    assert "division by zero" in caplog.text
    with monkeypatch.context() as broken:
        broken.setattr(type(lab.session), "step", lambda *_, **__: {}["missing"])
        assert lab.step() is None
    assert "Something went wrong inside speclab (KeyError)" in lab.state.error
    assert "Traceback" in lab.state.details
    assert "the lab failed" in caplog.text
    assert lab.step() is not None
