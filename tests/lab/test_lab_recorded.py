"""The lab before any model is loaded, and what it leaves behind without a kernel."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from lab_tools import settle

from speclab.trace.records import Trace
from speclab.views.registry import VIEWS

ALONE = """
import sys
from speclab.lab import Lab
lab = Lab()
assert lab.session is None
assert lab.state.trace.steps, "no recorded run"
lab.goto(2); lab.phase("draft"); lab.select(0); lab.goto(1); lab.snapshot()
assert lab.state.error == "", lab.state.error
assert "layout" in lab.panels.views["tree"].drawing
heavy = {"torch", "transformers", "plotly"} & set(sys.modules)
assert not heavy, heavy
"""


class Tags(HTMLParser):
    """Every tag with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


@pytest.fixture
def waiting(make, monkeypatch, pair):
    """A lab that was given no models; the mini family's place is taken by the tiny pair."""
    loads = []

    def load_pair(*, report, **arguments):
        loads.append(arguments)
        return pair

    monkeypatch.setattr("speclab.models.pair.load_pair", load_pair)
    lab = make(None)
    lab.loads = loads
    return lab


def test_a_recorded_run_is_shown_without_torch_or_plotly():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_first_step_loads_the_models_and_goes_live(waiting, capsys):
    assert settle(waiting)
    assert waiting.loads == []
    assert capsys.readouterr().out == ""
    assert "recorded" in waiting.status.line.value
    waiting.step()
    assert waiting.loads == [{"name": "mini", "device": None, "dtype": None}]
    assert waiting.state.cursor == waiting.session.cursor == 1
    assert ">live<" in waiting.status.line.value
    waiting.step()
    assert len(waiting.loads) == 1


def test_showing_it_loads_the_models_beforehand_and_no_figure(waiting):
    waiting.goto(1)
    bundle = waiting._repr_mimebundle_()
    assert settle(waiting)
    assert len(waiting.loads) == 1
    assert waiting.session is None
    assert {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"} <= bundle.keys()
    waiting._repr_mimebundle_()
    waiting.step()
    assert len(waiting.loads) == 1


def test_a_lab_without_its_recorded_run_still_works(monkeypatch, tmp_path, pair, make):
    monkeypatch.setattr("speclab.lab.lab.RECORDING", tmp_path / "missing.json.gz")
    lab = make(None)
    assert lab.state.trace == Trace((), 0, (), {}, {}, {})
    assert "No iteration yet" in lab.panels.views["tree"].drawing
    assert "Before the first iteration" in lab._repr_mimebundle_()["text/plain"]
    assert settle(lab)


def test_a_snapshot_shows_every_view_and_needs_nothing_else(lab):
    lab.run(until=lambda step: step.index == 2)
    lab.select(0)
    page = lab.snapshot()
    tags = Tags(page).found
    assert [name for name, _ in tags].count("svg") >= 4
    assert "Iteration 3" in page
    outside = [value for _, attributes in tags for key, value in attributes.items() if key in {"src", "href"}]
    assert [value for value in outside if not str(value).startswith("data:")] == []
    assert "<script" not in page


def test_an_exported_run_has_every_iteration_and_asks_nobody(lab, tmp_path):
    lab.run()
    path = lab.export(tmp_path / "run.html")
    page = path.read_text(encoding="utf-8")
    tags = Tags(page).found
    assert [attributes["data-after"] for _, attributes in tags if "data-after" in attributes] == [
        str(i) for i in range(len(lab.session.steps) + 1)
    ]
    slider = next(attributes for name, attributes in tags if name == "input")
    assert (slider["max"], slider["value"]) == (str(len(lab.session.steps)), str(lab.state.cursor))
    assert not re.search(r"""(?:src|href)=["']https?:|@import|url\(["']?https?:""", page)
    assert lab.export(tmp_path / "missing" / "run.html") is None
    assert "cannot be written" in lab.state.error


def test_text_of_a_prompt_is_escaped_everywhere(make, waiting):
    evil = "<script>alert(1)</script>"
    waiting.config.prompt.text.value = evil
    waiting.step()
    assert "<script>alert" not in waiting.state.error + waiting.status.message.value


def test_a_broken_view_says_so_and_spares_the_others(lab, monkeypatch, caplog):
    monkeypatch.setitem(VIEWS, "mask", replace(VIEWS["mask"], draw=lambda **_: 1 / 0))
    lab.step()
    assert "This view failed" in lab.panels.views["mask"].drawing
    assert "<svg" in lab.panels.views["tree"].drawing
    assert "division by zero" in caplog.text


def test_a_bug_ends_in_the_panel_and_in_the_log(lab, monkeypatch, caplog):
    monkeypatch.setattr(type(lab.session), "step", lambda *_, **__: {}["missing"])
    assert lab.step() is None
    assert "Something went wrong inside speclab (KeyError)" in lab.state.error
    assert "Traceback" in lab.state.details
    assert "the lab failed" in caplog.text
    monkeypatch.undo()
    assert lab.step() is not None
