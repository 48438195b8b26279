"""Pictures of runs: timeline, metrics, comparisons, curves, previews; themes, refusals, and the data of the page."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.engine import evaluated
from support.view_samples import HOSTILE, five_nodes, recorded, runs, trace, with_texts
from test_pictures import nodes, said, texts

import speclab
from speclab import views
from speclab.analysis.compare import ComparedRun, Comparison
from speclab.analysis.curves import Curve, Point
from speclab.analysis.whatif import in_force
from speclab.clinic._diff import diff
from speclab.trace.codecs import adapter
from speclab.trace.records import Step
from speclab.views.drawing import call
from speclab.views.exported_page import page
from speclab.views.run_data import LOOKS, run_header, step_data


def test_the_timeline_has_a_bar_per_iteration_and_frames_the_one_shown():
    run = trace()
    count = len(run.steps)
    figure = views.timeline(run, 5)
    assert figure.data[0].x == (*range(1, count + 1),)
    assert [*figure.data[1].y] == [len(step.accepted) for step in run.steps]
    frame, veil = figure.layout.shapes
    assert (frame.x0, frame.x1, veil.x0) == (4.5, 5.5, 5.5)
    assert max(figure.layout.xaxis.tickvals) <= count, "no ticks for iterations that do not exist"
    kinds = {trace.name for trace in figure.data}
    assert {"drafted", "accepted"} < kinds <= {"drafted", "accepted", "bonus", "corrected"}
    long = replace(run, steps=run.steps * 20)
    assert len(views.timeline(long, 130).data[0].x) == 120
    assert said(views.timeline(replace(run, steps=()), 0))


def test_metrics_are_of_the_iterations_until_the_cursor():
    steps = trace().steps[:4]
    figure = views.metrics(trace(), 4)
    tokens = [*map(sum, zip(figure.data[0].y, figure.data[1].y, strict=True))]
    assert tokens == [len(step.committed) for step in steps]
    seconds = sum(sum(bar.y) for bar in figure.data[2:]) / 1000
    assert seconds == pytest.approx(sum(sum(step.seconds.values()) for step in steps), abs=1e-4)
    assert f"{sum(tokens) / 4:.2f} tokens per pass" in said(figure)


def test_trees_side_by_side_are_whole_and_on_the_same_columns():
    step = next(step for step in runs()["two trees"].steps if len(step.accepted) > 1)
    drawn = call("pairFigure", step, five_nodes(), ["As it was", "With depth 2"])
    marks = [trace for trace in drawn["data"] if trace.get("name") == "nodes"]
    assert [len(trace["x"]) for trace in marks] == [len(step.tree) + 1, 6]
    assert "With depth 2: 4 drafted, 2 accepted" in drawn["layout"]["annotations"][1]["text"]
    assert {*marks[1]["x"]} <= {*marks[0]["x"]}
    titles = [note["text"] for note in call("draftsFigure", step)["layout"]["annotations"]]
    others = [proposal.name for proposal in step.proposals if not proposal.chosen]
    assert [title.removeprefix("<b>").split(":")[0] for title in titles] == others


def test_what_would_be_gone_or_new_is_told_apart():
    step = next(step for step in runs()["dynatree"].steps if len(step.accepted) == 3)

    def seen(**changes):
        other = in_force(step).changed(**changes)
        return views.whatif(step, speclab.what_if(step, other))

    shallow = seen(max_depth=2, base_depth=2)
    gone = sum(depth > 2 for depth in step.tree.depth.tolist())
    assert sum("<s>" in text for text in texts(shallow)) == gone
    assert "2 accepted instead of 3" in said(shallow)
    assert nodes(shallow)["own"][0] == nodes(shallow)[step.accepted[2]][0], "after the path"
    new = LOOKS["nodes"]["new"]["symbol"]
    same = seen()
    assert "the same tree" in said(same)
    assert not any(place[4] == new for place in nodes(same).values())
    more = seen(node_budget=40, max_branches=9, low_confidence=0.8)
    assert any(place[4] == new for place in nodes(more).values())
    assert "→ ?" in texts(more)
    assert "did not record" in said(more)


def test_every_run_has_a_bar_and_a_curve_marks_the_current_value():
    figure = views.compare(
        Comparison((ComparedRun("plain <b>", trace()), ComparedRun("head", None)))
    )
    assert figure.data[0].text[1] == "did not run"
    best, _ = figure.layout.yaxis.ticktext
    assert best == "<b>plain &lt;b&gt;</b>", "the best is bold, a name no markup"
    now = speclab.FixedTree(depth=2)
    points = (Point(1, None, 10, 1.25), Point(2, now, 10, 1.5), Point(3, None, refused="deep"))
    figure = views.curve(Curve(now, "depth", (1, 2, 3), Point("", iterations=40), points))
    assert figure.data[0].y == (1.25, 1.5), "what was refused has no point"
    assert (figure.data[1].x, figure.data[1].y) == ((2,), (1.5,))


def test_a_check_is_a_verdict_gaps_by_depth_and_two_timelines():
    run = trace()
    gaps = tuple((0.1 * node, 0.01) for node in range(len(run.steps[0].nodes)))
    steps = [step_data(step) for step in (replace(run.steps[0], gaps=gaps), *run.steps[1:])]
    verdict = call("checkVerdict", steps)
    assert f"{len(gaps)} rows" in verdict
    assert f"gap {gaps[-1][0]:.2g}" in verdict
    assert len(call("gapTable", steps)["rows"]) == run.steps[0].tree.depth.max() + 1
    parted = diff(run, replace(run, steps=run.steps[:5])).as_dict()
    counts = [len(bars["x"]) for bars in call("diffFigure", parted)["data"]]
    assert counts == [len(run.steps)] * 2 + [5] * 2


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
