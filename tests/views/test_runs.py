"""Pictures of runs: timeline, metrics, comparisons, curves, previews; themes, refusals, and the data of the page."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.engine import evaluated
from support.pictures import said
from support.view_samples import HOSTILE, recorded, trace, with_texts

from speclab import views
from speclab.trace.codecs import adapter
from speclab.trace.records import Step
from speclab.views.exported_page import page
from speclab.views.run_data import run_header, step_data


def test_the_timeline_has_a_bar_per_iteration_and_frames_the_one_shown():
    run = trace()
    count = len(run.steps)
    figure = views.timeline(run, 5)
    assert figure.data[0].x == (*range(1, count + 1),)
    assert [*figure.data[1].y] == [len(step.accepted) for step in run.steps]
    boxes = [(shape.x0, shape.x1) for shape in figure.layout.shapes if shape.type == "rect"]
    assert boxes[0] == (4.5, 5.5)
    assert boxes[1][0] == 5.5, "what comes later is fainter"
    assert max(figure.layout.xaxis.tickvals) <= count, "no ticks for iterations that do not exist"
    kinds = {trace.name for trace in figure.data}
    assert {"drafted", "accepted"} < kinds <= {"drafted", "accepted", "bonus", "corrected"}
    long = replace(run, steps=run.steps * 20)
    assert len(views.timeline(long, 130).data[0].x) == 120
    assert said(views.timeline(replace(run, steps=()), 0))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_is_a_figure_in_the_colours_of_its_theme(theme):
    step = next(step for step in recorded() if step.residual)
    look = {"theme": theme}
    made = [
        draw(step, **look)
        for draw in (views.tree, views.mask, views.node, views.cache, views.residual)
    ]
    for figure in (*made, views.timeline(trace(), 2, **look), views.metrics(trace(), **look)):
        assert "var(--" not in figure.to_json()
        assert said(figure).endswith(".")
        assert figure.layout.paper_bgcolor == {"light": "#FFFFFF", "dark": "#111111"}[theme]


def test_a_run_for_the_page_is_its_header_and_its_steps_as_a_trace_writes_them():
    run = trace()
    state = {"header": run_header(run), "steps": [], "cursor": 0, "catalog": None, "status": {}}
    assert "DynaTree" in evaluated("titleOf(data)", state)
    step = json.loads(json.dumps(step_data(run.steps[2])))
    assert adapter(Step).validate_python(step) == run.steps[2]
    written = page(with_texts(run, HOSTILE[0]), "name")
    assert "alert(1)" not in written
